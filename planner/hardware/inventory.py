"""Hardware files for one's own machines, from answers and the output of nvidia-smi, lscpu and ibstat."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from planner.errors import BadInput, unknown_name
from planner.hardware import Device
from planner.hardware.catalog import catalog_device_name, match_hardware, matching_fabric_name
from planner.units import GBIT_BYTES_PER_S, parse_bandwidth

NVLINK_GBYTE_PER_S = {"B": 50.0}  # of one link, each way, by the first letter of the device
NVLINK_USUAL_GBYTE_PER_S = 25.0
MOST_LINKS = 18  # of one device: more in sum means that all lead to a switch
PCIE_GBYTE_PER_S = 31.0
_COUNT = re.compile("[0-9]{1,6}")  # of processors or Gbit/s


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a machine: the driver's name, the count, and the memory if printed."""

    name: str
    count: int
    memory_mib: float | None = None


def parse_nvidia_smi(text: str) -> Gpus:
    """Parses the GPUs in the output of `nvidia-smi`, `nvidia-smi -L` or `--query-gpu=name,memory.total`."""
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


def catalog_gpu_name(gpus: Gpus) -> str:
    """Catalog name of a GPU, by memory if the driver truncates it; else the driver's name."""
    known = _catalog_gpus()
    name = catalog_device_name(gpus.name)
    if name.endswith("..."):
        stem = _normalize_gpu_name(name.removesuffix("..."))
        alike = [device for device in known.values() if stem in _normalize_gpu_name(device.name)]
    else:
        alike = [known[name]] if name in known else []
        alike += [
            device
            for device in known.values()
            if _normalize_gpu_name(gpus.name) == _normalize_gpu_name(device.name)
        ]
    if not alike:
        return name
    mib = gpus.memory_mib
    return (alike[0] if mib is None else min(alike, key=lambda gpu: abs(gpu.memory_bytes / 2**20 - mib))).name


def _catalog_gpus() -> dict[str, Device]:
    """GPUs of the catalog's machines, by device name."""
    return {kind.device.name: kind.device for kind in match_hardware("*") if kind.device.kind == "gpu"}


def _normalize_gpu_name(name: str) -> str:
    """Reduces a GPU's name to lower-case letters and digits, without vendor and brand."""
    return re.sub(r"[^a-z0-9]|^(nvidia|tesla|geforce)|nvidia|tesla|geforce", "", name.lower())


def parse_topology(text: str, device: str) -> dict[str, Any]:
    """Parses the matrix printed by `nvidia-smi topo -m` into the fabric keys of a hardware file."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    rows = [line.split() for line in plain.splitlines() if re.match(r"\s*GPU\d+\s.*\bX\b", line)]
    count = len(rows)
    if count < 2:
        raise BadInput("no matrix of GPUs in the topology; save it with `nvidia-smi topo -m > topology.txt`")
    links = [[_nvlink_count(cell) for cell in row[1 : count + 1]] for row in rows]
    per_link = NVLINK_GBYTE_PER_S.get(device[:1], NVLINK_USUAL_GBYTE_PER_S)
    partners = [sum(1 for links_to in row if links_to) for row in links]
    most, least = max(map(max, links)), min(map(sum, links))
    if min(partners) == 0:
        kind, topology, rate = "pcie", "pcie", PCIE_GBYTE_PER_S
    elif min(partners) == count - 1 and least > MOST_LINKS:
        kind, topology, rate = "nvswitch", "switch", most * per_link
    elif set(partners) == {1}:
        kind, topology, rate = "nvlink", "pairs", most * per_link
    else:
        kind, topology, rate = "nvlink", "mesh", least * per_link
    fabric = {"kind": kind, "topology": topology, "gbyte_per_s": rate}
    if topology == "pairs" and count > 2:
        fabric["between_gbyte_per_s"] = PCIE_GBYTE_PER_S
    return fabric | {"basis": "measured", "source": "nvidia-smi topo -m"}


def _nvlink_count(cell: str) -> int:
    """Number of NVLinks in a matrix cell (`NV12`); 0 for other connections."""
    match = re.fullmatch(r"NV([0-9]{1,2})", cell)
    return int(match[1]) if match else 0


def parse_lscpu(text: str) -> dict[str, Any]:
    """Parses CPU model and vCPU count from the output of `lscpu`, as keys of a machine."""
    said = dict(re.findall(r"^ *([^:\n]+):[ \t]*(.+?)[ \t]*$", text, re.MULTILINE))
    if "Model name" not in said or not _COUNT.fullmatch(said.get("CPU(s)", "")):
        raise BadInput("no processor in the output of lscpu; save it with `LC_ALL=C lscpu > cpu.txt`")
    return {"cpu": said["Model name"], "vcpus": int(said["CPU(s)"])}


def parse_ibstat(text: str) -> dict[str, Any]:
    """Parses the fastest active network ports from the output of `ibstat`, as keys of a machine."""
    ports = []
    for port in re.split(r"^\s*Port \d+:\s*$", text, flags=re.MULTILINE)[1:]:
        said = dict(re.findall(r"^\s*([\w ]+): *(\S+)", port, re.MULTILINE))
        if said.get("State") == "Active" and _COUNT.fullmatch(said.get("Rate", "")):
            ports.append((int(said["Rate"]), said.get("Link layer", "InfiniBand")))
    if not ports:
        raise BadInput("no active port in the output of ibstat; save it with `ibstat > ports.txt`")
    fastest = max(ports)
    count = ports.count(fastest)
    kind, rate = "InfiniBand" if fastest[1] == "InfiniBand" else "RoCE", float(count * fastest[0])
    nic = {"nic_baseline_gbit_per_s": rate, "nics": count}
    return nic | {"rdma": True, "rdma_kind": kind, "rdma_gbit_per_s": rate}


@dataclass(frozen=True, slots=True)
class MachineAnswers:
    """The user's answers about a machine, and outputs of programs that fill in the rest."""

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
    """Contents of a hardware file for the described machine, as nested tables."""
    seen = parse_nvidia_smi(answers.nvidia_smi) if answers.nvidia_smi else None
    named = seen if answers.gpu is None else Gpus(answers.gpu, 1)
    if named is None:
        raise BadInput("name the GPU: --gpu A100-SXM4-80GB")
    device = catalog_gpu_name(named)
    if device not in _catalog_gpus():
        hint = "docs/hardware.md shows how to describe another GPU in [devices]"
        raise unknown_name("GPU", device, sorted(_catalog_gpus()), hint)
    count = answers.gpus or (seen.count if seen else 1)
    machine: dict[str, Any] = {"device": device, "device_count": count, "machines": answers.machines}
    sources: dict[str, Any] = {}
    if answers.lscpu:
        machine |= parse_lscpu(answers.lscpu)
        sources["machine"] = {"basis": "measured", "source": "lscpu"}
    machine |= _nic_keys(answers, sources)
    machine["fabric"] = answers.fabric
    if answers.fabric is None and answers.topology and count > 1:
        links = parse_topology(answers.topology, device)
        machine["fabric"] = matching_fabric_name(device, count, links["kind"], links["gbyte_per_s"]) or links
    machine |= {"on_demand_usd_per_hour": answers.usd_per_hour, "sources": sources or None}
    given = {key: value for key, value in machine.items() if value is not None}
    return {"machines": {answers.name: given}}


def _nic_keys(answers: MachineAnswers, sources: dict[str, Any]) -> dict[str, Any]:
    """NIC and RDMA keys of a machine, from the answers or `ibstat`; adds their origin to `sources`."""
    out: dict[str, Any] = {}
    if answers.nic is not None:
        ports = re.fullmatch(r"(\d+) *x *(\S.*)", answers.nic.strip())
        each = parse_bandwidth(ports[2] if ports else answers.nic) / GBIT_BYTES_PER_S
        count = int(ports[1]) if ports else 1
        out["nic_baseline_gbit_per_s"] = count * each
        if count > 1:
            out["nics"] = count
    elif answers.ibstat:
        out = parse_ibstat(answers.ibstat)
        sources |= {key: {"basis": "measured", "source": "ibstat"} for key in ("nic_baseline", "rdma")}
    if answers.rdma is not None:
        out["rdma"] = answers.rdma
    if answers.rdma and "rdma_gbit_per_s" not in out and "nic_baseline_gbit_per_s" in out:
        out["rdma_gbit_per_s"] = out["nic_baseline_gbit_per_s"]
    return out
