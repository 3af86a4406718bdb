"""A hardware file of one's own machines, from a few answers and from what nvidia-smi, lscpu and ibstat
print."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import BadInput, unknown_name
from planner.hardware.catalog import fabric_named, match_hardware, name_called
from planner.units import GBIT_BYTES_PER_S, bandwidth_bytes_per_s

NVLINK_GBYTE_PER_S = {"B": 50.0}  # of one link, each way, by the first letter of the device
NVLINK_USUAL_GBYTE_PER_S = 25.0
MOST_LINKS = 18  # of one device: more in sum means that all lead to a switch
PCIE_GBYTE_PER_S = 31.0
_COUNT = re.compile("[0-9]{1,6}")  # of processors or Gbit/s


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a machine: the driver's name of one, how many, and its memory where it is printed."""

    name: str
    count: int
    memory_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Nics:
    """The fastest network ports of a machine, all alike."""

    count: int
    gbit_per_s: float  # of all together
    rdma_kind: str


def gpus_of(text: str) -> Gpus:
    """The GPUs in the output of `nvidia-smi`, `nvidia-smi -L` or `--query-gpu=name,memory.total`."""
    memory: list[float] = []
    names = re.findall(r"^GPU \d+: (.+?) \(UUID", text, re.MULTILINE)
    if not names:
        rows = re.findall(
            r"^(?:\d+, *)?((?:NVIDIA|Tesla|GeForce|Quadro)[^,|]*), *(\d+) MiB", text, re.MULTILINE
        )
        names, memory = [name for name, _ in rows], [float(mib) for _, mib in rows]
    if not names:
        names = re.findall(r"^\| +\d+ +(\S.*?) +(?:On|Off|N/A) +\|", text, re.MULTILINE)
        memory = [float(mib) for mib in re.findall(r"/ *(\d+)MiB", text)]
    if not names:
        raise BadInput("no GPU in the output of nvidia-smi; save it with `nvidia-smi > gpus.txt`")
    kinds = Counter(name.strip() for name in names)
    if len(kinds) > 1:
        raise BadInput(
            f"nvidia-smi lists different GPUs ({', '.join(kinds)}); name those that train: --gpu, --gpus"
        )
    return Gpus(names[0].strip(), len(names), memory[0] if memory else None)


def device_of(gpus: Gpus) -> str:
    """The catalog's name of a GPU; its memory tells variants apart and completes names that are cut off."""
    known = {kind.device.name: kind.device for kind in match_hardware("*") if kind.device.kind == "gpu"}
    name = name_called(gpus.name)
    if name.endswith("..."):
        stem = _letters(name.removesuffix("..."))
        alike = [device for device in known.values() if stem in _letters(device.name)]
    else:
        alike = [known[name]] if name in known else []
        alike += [device for device in known.values() if _letters(gpus.name) == _letters(device.name)]
    if gpus.memory_mib is not None and alike:
        mib = gpus.memory_mib
        best = min(alike, key=lambda device: abs(device.memory_bytes / 2**20 - mib))
        return best.name
    return alike[0].name if alike else name


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]|^(nvidia|tesla|geforce)|nvidia|tesla|geforce", "", name.lower())


def fabric_of(text: str, device: str) -> dict[str, Any]:
    """The links in the matrix of `nvidia-smi topo -m`, as a fabric's keys."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    rows = [line.split() for line in plain.splitlines() if re.match(r"\s*GPU\d+\s.*\bX\b", line)]
    count = len(rows)
    if count < 2:
        raise BadInput("no matrix of GPUs in the topology; save it with `nvidia-smi topo -m > topology.txt`")
    links = [[_nvlinks(cell) for cell in row[1 : count + 1]] for row in rows]
    per_link = NVLINK_GBYTE_PER_S.get(device[:1], NVLINK_USUAL_GBYTE_PER_S)
    partners = [sum(1 for links_to in row if links_to) for row in links]
    said = {"basis": "measured", "source": "nvidia-smi topo -m"}
    if not any(partners):
        return {"kind": "pcie", "topology": "pcie", "gbyte_per_s": PCIE_GBYTE_PER_S, **said}
    most, least = max(map(max, links)), min(map(sum, links))
    if min(partners) == count - 1 and least > MOST_LINKS:
        return {"kind": "nvswitch", "topology": "switch", "gbyte_per_s": most * per_link, **said}
    if set(partners) == {1}:
        between = {} if count == 2 else {"between_gbyte_per_s": PCIE_GBYTE_PER_S}
        pairs = {"kind": "nvlink", "topology": "pairs", "gbyte_per_s": most * per_link}
        return {**pairs, **between, **said}
    if min(partners) == 0:
        return {"kind": "pcie", "topology": "pcie", "gbyte_per_s": PCIE_GBYTE_PER_S, **said}
    return {"kind": "nvlink", "topology": "mesh", "gbyte_per_s": least * per_link, **said}


def _nvlinks(cell: str) -> int:
    match = re.fullmatch(r"NV([0-9]{1,2})", cell)
    return int(match[1]) if match else 0


def cpu_of(text: str) -> dict[str, Any]:
    """The processor in the output of `lscpu`, as a machine's keys."""
    said = dict(re.findall(r"^ *([^:\n]+):[ \t]*(.+?)[ \t]*$", text, re.MULTILINE))
    if "Model name" not in said or not _COUNT.fullmatch(said.get("CPU(s)", "")):
        raise BadInput("no processor in the output of lscpu; save it with `LC_ALL=C lscpu > cpu.txt`")
    return {"cpu": said["Model name"], "vcpus": int(said["CPU(s)"])}


def nics_of(text: str) -> Nics:
    """The fastest active ports in the output of `ibstat`."""
    ports = []
    for port in re.split(r"^\s*Port \d+:\s*$", text, flags=re.MULTILINE)[1:]:
        said = dict(re.findall(r"^\s*([\w ]+): *(\S+)", port, re.MULTILINE))
        if said.get("State") == "Active" and _COUNT.fullmatch(said.get("Rate", "")):
            ports.append((int(said["Rate"]), said.get("Link layer", "InfiniBand")))
    if not ports:
        raise BadInput("no active port in the output of ibstat; save it with `ibstat > ports.txt`")
    fastest = max(ports)
    count = ports.count(fastest)
    kind = "InfiniBand" if fastest[1] == "InfiniBand" else "RoCE"
    return Nics(count, float(count * fastest[0]), kind)


def known_fabric(links: Mapping[str, Any], device: str, count: int) -> str | None:
    """The name of the catalog's fabric that machines with these devices have, if its links are these."""
    return fabric_named(device, count, links["kind"], links["gbyte_per_s"])


@dataclass(frozen=True, slots=True)
class MachineAnswers:
    """What is known of machines: answers, and the output of programs that describe one. An answer wins."""

    name: str
    gpu: str | None = None
    gpus: int | None = None
    machines: int | None = None
    nic: str | None = None  # `200Gbit`, or `8x400Gbit`
    rdma: bool | None = None
    usd_per_hour: float | None = None
    fabric: str | None = None
    nvidia_smi: str = ""
    topology: str = ""
    lscpu: str = ""
    ibstat: str = ""


def machine_tables(answers: MachineAnswers) -> dict[str, Any]:
    """The tables of the hardware file."""
    seen = gpus_of(answers.nvidia_smi) if answers.nvidia_smi else None
    if answers.gpu is None and seen is None:
        raise BadInput("name the GPU: --gpu A100-SXM4-80GB")
    named = Gpus(answers.gpu, 1) if answers.gpu is not None else seen
    assert named is not None
    device = _device(named)
    count = answers.gpus or (seen.count if seen else 1)
    machine: dict[str, Any] = {"device": device, "device_count": count}
    sources: dict[str, Any] = {}
    if answers.machines is not None:
        machine["machines"] = answers.machines
    if answers.lscpu:
        machine |= cpu_of(answers.lscpu)
        sources["machine"] = {"basis": "measured", "source": "lscpu"}
    machine |= _network(answers, sources)
    if answers.fabric is not None:
        machine["fabric"] = answers.fabric
    elif answers.topology and count > 1:
        links = fabric_of(answers.topology, device)
        machine["fabric"] = known_fabric(links, device, count) or links
    if answers.usd_per_hour is not None:
        machine["on_demand_usd_per_hour"] = answers.usd_per_hour
    return {"machines": {answers.name: machine | ({"sources": sources} if sources else {})}}


def _device(gpus: Gpus) -> str:
    """The catalog's name of a GPU, or a refusal with similar ones."""
    known = {kind.device.name for kind in match_hardware("*") if kind.device.kind == "gpu"}
    device = device_of(gpus)
    if device in known:
        return device
    hint = "docs/hardware.md shows how to describe another GPU in [devices]"
    raise unknown_name("GPU", device, sorted(known), hint)


def _network(answers: MachineAnswers, sources: dict[str, Any]) -> dict[str, Any]:
    """The keys of a machine's NICs."""
    out: dict[str, Any] = {}
    if answers.nic is not None:
        ports = re.fullmatch(r"(\d+) *x *(\S.*)", answers.nic.strip())
        each = bandwidth_bytes_per_s(ports[2] if ports else answers.nic) / GBIT_BYTES_PER_S
        count = int(ports[1]) if ports else 1
        out["nic_baseline_gbit_per_s"] = count * each
        if count > 1:
            out["nics"] = count
    elif answers.ibstat:
        nics = nics_of(answers.ibstat)
        out = {"nic_baseline_gbit_per_s": nics.gbit_per_s, "nics": nics.count}
        out |= {"rdma": True, "rdma_kind": nics.rdma_kind, "rdma_gbit_per_s": nics.gbit_per_s}
        sources |= {figure: {"basis": "measured", "source": "ibstat"} for figure in ("nic_baseline", "rdma")}
    if answers.rdma is not None:
        out["rdma"] = answers.rdma
    if answers.rdma and "rdma_gbit_per_s" not in out and "nic_baseline_gbit_per_s" in out:
        out["rdma_gbit_per_s"] = out["nic_baseline_gbit_per_s"]
    return out
