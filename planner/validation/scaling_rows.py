"""Published runs of data-parallel training on several devices, each beside the smallest run of its series.

A pair has the same series, micro-batch and number format; rows are those of `planner.validation.training`.
What a row says of links is turned into a machine: the fabric by its class, the NICs by their sum.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from planner.hardware import Device, Fabric, Hardware, bare_machine
from planner.validation.figures import figures
from planner.validation.training import device_name, device_named, network_named

# Micro-batch x accumulation x devices is not the stated batch, or a network figure that nothing explains.
DOUBTFUL = {"T0524", "T0526", "T0580", "T0582", "T0584", "T3270"}

TENSORS = 200  # where the catalogue lacks the network: most of those that were published have 160 to 400

# Year and month of a container of NVIDIA in what a row calls its software.
CONTAINER = re.compile(r"(?<!\d)([12]\d)\.(\d\d)(?!\d)")

# Of a device, each way: kind, topology, bytes a second, measured curve.
FABRICS = {
    "nvlink2": Fabric("nvlink", "mesh", 150e9, "published", ""),
    # Boards of eight V100 without a switch: some of a device's six links lead to the others that take part.
    "nvlink2 of 2": Fabric("nvlink", "mesh", 50e9, "published", ""),
    "nvlink2 of 4": Fabric("nvlink", "mesh", 100e9, "published", ""),
    "nvlink3": Fabric("nvswitch", "switch", 300e9, "published", "", curve="a100-sxm"),
    "nvlink4": Fabric("nvswitch", "switch", 450e9, "published", "", curve="h100-sxm"),
    "nvlink5": Fabric("nvswitch", "switch", 900e9, "published", "", curve="b200-sxm"),
    "nvlink?": Fabric("nvlink", "mesh", 150e9, "estimated", ""),
    "pcie3": Fabric("pcie", "pcie", 15.8e9, "published", ""),
    "pcie4": Fabric("pcie", "pcie", 31.5e9, "published", ""),
    "pcie5": Fabric("pcie", "pcie", 63e9, "published", ""),
}


@dataclass(frozen=True, slots=True)
class ScalingRun:
    """One published run."""

    id: str
    source: str
    arch: str
    format: str
    devices: int
    nodes: int
    devices_per_node: int
    micro_batch: float
    passes: int  # micro-batches of a step
    samples_per_s: float
    parameters: float
    fabric: str
    nic_gbit_per_s: float | None
    basis: str  # of the network's figure
    sockets: bool  # the network has no RDMA
    gradient_bytes: int | None  # of an element; None: computes in 16 bits, and what it sends is not stated
    overlaps: bool  # whether gradients leave while the backward pass goes on
    cycle_s: float = 0.0  # of Horovod, which looks for gradients so often
    device: str = ""  # the catalogue's name
    tensors: int = TENSORS  # of parameters
    meshed: bool = False  # its links lead to some of eight devices each, without a switch

    @property
    def step_s(self) -> float:
        return self.micro_batch * self.passes * self.devices / self.samples_per_s

    @property
    def link(self) -> str:
        """The kind of network, as tables group by it."""
        if self.nodes == 1:
            if self.joined is None:
                return "one machine, not stated"
            return f"one machine, {'PCIe' if self.joined.kind == 'pcie' else 'NVLink'}"
        if self.nic_gbit_per_s is None:
            return "machines, network not known"
        return f"machines, {self.nic_gbit_per_s:.0f} Gbit/s {self.basis}"

    @property
    def joined(self) -> Fabric | None:
        """The links between the devices of a machine that take part."""
        part = FABRICS.get(f"{self.fabric} of {self.devices_per_node}") if self.meshed else None
        return part or FABRICS.get(self.fabric)

    @property
    def machine(self) -> Hardware:
        rate = None if self.nic_gbit_per_s is None else self.nic_gbit_per_s * 1e9 / 8
        return bare_machine(
            f"{self.fabric or 'one device'} x {self.devices_per_node}",
            device_named(self.device) or Device("published", "gpu", {"fp32": 1e13}, 16e9),
            device_count=self.devices_per_node,
            nic_burst_bytes_per_s=rate,
            nic_baseline_bytes_per_s=rate,
            fabric=self.joined,
            rdma=not self.sockets,
        )


def pairs(
    rows: Iterable[Mapping[str, str]], refused: Counter[str] | None = None
) -> list[tuple[ScalingRun, ScalingRun]]:
    """(smallest run, larger run) of one series, micro-batch and format; what cannot be paired is counted in
    `refused` by the reason."""
    left: Counter[str] = Counter() if refused is None else refused
    by_series: dict[str, list[ScalingRun]] = defaultdict(list)
    for row in rows:
        if row["strategy_norm"] not in ("ddp", "single"):
            continue
        if reason := _reason(row):
            left[reason] += 1
        else:
            by_series[row["series"]].append(_run(row))
    found = []
    for series in by_series.values():
        for run in series:
            alike = [
                one
                for one in series
                if one.devices < run.devices
                and (one.micro_batch, one.format) == (run.micro_batch, run.format)
            ]
            if alike and _usable(run):
                found.append((min(alike, key=lambda one: one.devices), run))
            elif run.devices > 1:
                left["the network is not stated" if alike else "no smaller run of its series"] += 1
    return found


def _reason(row: Mapping[str, str]) -> str:
    """Why a row is no run of data-parallel training, "" where it is."""
    if row["id"] in DOUBTFUL:
        return "micro-batch x accumulation x devices is not the stated batch"
    for key, name in (
        ("devices", "number of devices"),
        ("samples_per_s_global", "rate in samples"),
        ("micro_batch", "micro-batch"),
        ("params_total", "number of parameters"),
    ):
        if not row[key]:
            return f"no {name} is stated"
    return ""


def _usable(run: ScalingRun) -> bool:
    return (run.nodes == 1 and run.fabric in FABRICS) or (run.nodes > 1 and run.nic_gbit_per_s is not None)


def _run(row: Mapping[str, str]) -> ScalingRun:
    devices, nodes = int(float(row["devices"])), int(float(row["nodes"] or 1))
    return ScalingRun(
        id=row["id"],
        source=row["source_id"],
        arch=row["arch"],
        format=row["precision_norm"],
        devices=devices,
        nodes=nodes,
        devices_per_node=max(devices // nodes, 1),
        micro_batch=float(row["micro_batch"]),
        passes=max(int(float(row["grad_accum"] or 1)), 1) if devices > 1 else 1,
        samples_per_s=float(row["samples_per_s_global"]),
        parameters=float(row["params_total"]),
        fabric=row["intra_class"],
        nic_gbit_per_s=float(row["inter_gbps_per_node"]) if row["inter_gbps_per_node"] else None,
        basis=row["inter_basis"],
        sockets=_sockets(row["inter_net"].lower()),
        gradient_bytes=_gradient_bytes(row),
        overlaps=_overlaps(row),
        cycle_s=_cycle_s(row),
        device=device_name(row, figures("training")["devices"]),
        tensors=_tensors(row["model"]),
        meshed=row["device"] == "V100-SXM2",  # those of DGX-2, SXM3, have one
    )


@cache
def _tensors(name: str) -> int:
    known = figures("training")["models"].get(name)
    network = network_named(known) if known else None
    return len(network.tensors) if network else TENSORS


def _sockets(network: str) -> bool:
    return "tcp" in network or ("ethernet" in network and "ib" not in network)


def _overlaps(row: Mapping[str, str]) -> bool:
    """DeepSpeed without ZeRO sums gradients after the backward pass. XLA compiles the pass into one cluster,
    whose results are all there at its end."""
    return "deepspeed" not in row["framework"].lower() and "XLA" not in row["flags"]


def _cycle_s(row: Mapping[str, str]) -> float:
    """Horovod's default cycle: 5 ms, from release 0.21 of November 2020 on 1 ms (its changelog, #2468)."""
    if row["strategy"] != "horovod":
        return 0.0
    container = CONTAINER.search(row["framework"])
    return 5e-3 if container and container.groups() < ("20", "12") else 1e-3


def _gradient_bytes(row: Mapping[str, str]) -> int | None:
    """Gradients are as wide as the parameters. DeepSpeed and MXNet keep those in 16 bits where they compute
    so, and sum gradients in them; others do or do not, by release and script."""
    if row["precision_norm"] not in ("fp16", "bf16", "fp8"):
        return 4
    return 2 if any(name in row["framework"].lower() for name in ("deepspeed", "mxnet")) else None
