"""A hardware file of one's own machines from a few answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from planner.errors import BadInput, unknown_name
from planner.hardware.inventory import Gpus, cpu_of, device_of, fabric_of, gpus_of, known_fabric, nics_of
from planner.units import GBIT_BYTES_PER_S, bandwidth_bytes_per_s


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
    from planner.hardware.catalog import match_hardware

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
