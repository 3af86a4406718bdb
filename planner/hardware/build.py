"""What hardware files say (`hardware_schema`) as machines (`planner.hardware`): pure, no files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from planner.errors import unknown_name
from planner.files.tomlfile import TomlSource as File
from planner.hardware import (
    FORMATS,
    Device,
    Fabric,
    Hardware,
    KernelRates,
    Ownership,
    Price,
    Source,
    Standing,
)
from planner.hardware.schema import DeviceEntry, FabricEntry, KernelsEntry, MachineEntry, RegionEntry
from planner.units import GBIT_BYTES_PER_S

GIB = 2.0**30


@dataclass(frozen=True)
class MachineAt:
    """A machine as its file says it."""

    entry: MachineEntry
    family: str
    provider: str
    file: File


@dataclass
class Entries:
    """All entries by name, each with the file that says so; the first file to name something wins."""

    machines: dict[str, MachineAt] = field(default_factory=dict)
    devices: dict[str, tuple[DeviceEntry, File]] = field(default_factory=dict)
    kernels: dict[str, tuple[KernelsEntry, File]] = field(default_factory=dict)
    fabrics: dict[str, tuple[FabricEntry, File]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def with_parts_of(self, other: Entries) -> Entries:
        """These machines with the devices, kernels and fabrics of both; what stands here wins."""
        return Entries(
            self.machines,
            other.devices | self.devices,
            other.kernels | self.kernels,
            other.fabrics | self.fabrics,
            self.aliases,
        )


def build(name: str, entries: Entries) -> Hardware:
    machine = entries.machines[name]
    entry, file = machine.entry, machine.file
    if entry.device not in entries.devices:
        unknown = unknown_name("device", entry.device, entries.devices)
        raise file.error(str(unknown), ["machines", name, "device"])
    said = {key: Source(s.basis, s.source, s.as_of) for key, s in entry.sources.items()}
    figures = {
        "nic_burst": entry.nic_burst_gbit_per_s,
        "nic_baseline": entry.nic_baseline_gbit_per_s,
        "flow": entry.flow_gbit_per_s,
        "spot": entry.spot_usd_per_hour,
        "rdma": entry.rdma,
        "machine": entry.vcpus or entry.memory_gib,
    }
    if entry.ownership is None:
        figures["on_demand"] = entry.on_demand_usd_per_hour
    absent = {figure for figure, value in figures.items() if value is None}
    given = Source("estimated", f"given in {file.path.name}")
    device = _device(name, machine, *entries.devices[entry.device])
    terms = msgspec.structs.asdict(entry.ownership) if entry.ownership else {}
    owned = terms.pop("machines", None)
    ownership = Ownership(**terms) if terms else None
    price = _price(entry, ownership, said, given)
    return Hardware(
        name=name,
        family=machine.family,
        provider=machine.provider,
        device=device,
        device_count=entry.device_count,
        cpu=entry.cpu,
        vcpus=entry.vcpus,
        memory_bytes=_times(entry.memory_gib, GIB),
        nic_burst_bytes_per_s=_times(entry.nic_burst_gbit_per_s, GBIT_BYTES_PER_S),
        nic_baseline_bytes_per_s=_times(entry.nic_baseline_gbit_per_s, GBIT_BYTES_PER_S),
        flow_bytes_per_s=_times(entry.flow_gbit_per_s, GBIT_BYTES_PER_S),
        price=price,
        still_sold=entry.still_sold,
        status=entry.status,
        kernels=_kernels(entry.device, device, entries),
        sources={key: source for key, source in said.items() if key not in absent},
        nic_label=entry.nic_label,
        placement_group_flow_bytes_per_s=_times(entry.placement_group_flow_gbit_per_s, GBIT_BYTES_PER_S),
        other_prices=tuple(
            _region_price(region, said_there, price) for region, said_there in entry.other_regions.items()
        ),
        ownership=ownership,
        calibration=entry.calibration,
        path=str(file.path),
        fabric=_fabric(name, machine, entries),
        rdma=entry.rdma,
        rdma_kind=entry.rdma_kind,
        rdma_bytes_per_s=_times(entry.rdma_gbit_per_s, GBIT_BYTES_PER_S),
        nics=entry.nics,
        network_curves={str(kind): curve for kind, curve in entry.network_curves.items()},
        local_disk_bytes=_times(entry.local_disk_gbyte, 1e9),
        offered_as=entry.offered_as,
        standing=entry.standing or _standing(machine),
        machines=entry.machines or owned,
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _standing(machine: MachineAt) -> Standing:
    if not machine.entry.still_sold:
        return "retired"
    entry = machine.entry
    owned = entry.ownership or entry.machines or machine.provider == "own"
    return "own" if owned else "rentable"


def _price(
    entry: MachineEntry, ownership: Ownership | None, said: Mapping[str, Source], given: Source
) -> Price:
    source = said.get("on_demand", given)
    usd = entry.on_demand_usd_per_hour
    if usd is None and ownership:
        usd = ownership.usd_per_hour
        if "on_demand" not in said:
            source = Source("estimated", "capital cost over lifetime, plus energy")
    elif usd is None and "spot" in said:
        source = said["spot"]
    spot_as_of = said["spot"].as_of if "spot" in said else source.as_of
    return Price(
        usd, entry.spot_usd_per_hour, entry.region, source.as_of, source.basis, source.source, spot_as_of
    )


def _region_price(region: str, said: RegionEntry | tuple[float, ...], main: Price) -> Price:
    """The price in another region, of the date and source of the main one where it gives none."""
    entry = said if isinstance(said, RegionEntry) else RegionEntry(said[0], said[1] if said[1:] else None)
    if entry.source or entry.as_of:
        return Price(
            entry.on_demand_usd_per_hour, entry.spot_usd_per_hour, region,
            entry.as_of, entry.basis, entry.source, entry.as_of,
        )  # fmt: skip
    return replace(
        main,
        on_demand_usd_per_hour=entry.on_demand_usd_per_hour,
        spot_usd_per_hour=entry.spot_usd_per_hour,
        region=region,
    )


def _fabric(name: str, machine: MachineAt, entries: Entries) -> Fabric | None:
    """The links between devices; none where there is one device, whatever the file's defaults say."""
    entry, file, at = machine.entry.fabric, machine.file, ["machines", name, "fabric"]
    if entry is None or machine.entry.device_count == 1:
        return None
    if isinstance(entry, str):
        if entry not in entries.fabrics:
            raise file.error(str(unknown_name("fabric", entry, entries.fabrics)), at)
        at = ["fabrics", entry]
        entry, file = entries.fabrics[entry]
    if entry.gbyte_per_s is None:
        message = "needs gbyte_per_s, what one device sends each way (NVLink 3: 300, PCIe 4.0 x16: 31)"
        raise file.error(message, at)
    several = entry.topology == "pairs" and machine.entry.device_count > 2
    if several and entry.between_gbyte_per_s is None:
        raise file.error("several pairs need between_gbyte_per_s, what goes between them", at)
    if entry.topology != "pairs" and entry.between_gbyte_per_s is not None:
        raise file.error('between_gbyte_per_s is for topology = "pairs" alone', at)
    return Fabric(
        kind=entry.kind,
        topology=entry.topology,
        bytes_per_s=entry.gbyte_per_s * 1e9,
        basis=entry.basis,
        source=entry.source or f"given in {file.path.name}",
        as_of=entry.as_of,
        curve=entry.curve,
        between_bytes_per_s=_times(entry.between_gbyte_per_s, 1e9),
        allreduce_bytes_per_s=_times(entry.allreduce_gbyte_per_s, 1e9),
        machines=entry.machines,
    )


def _device(name: str, of: MachineAt, entry: DeviceEntry, file: File) -> Device:
    machine = of.entry
    if entry.kind == "gpu":
        flops, memory = _gpu(machine.device, entry, file)
    else:
        if entry.clock_ghz is None or entry.fp32_flop_per_cycle is None:
            message = "a cpu needs clock_ghz and fp32_flop_per_cycle (of one core)"
            raise file.error(message, ["devices", machine.device])
        if machine.cores is None or machine.memory_gib is None or machine.device_count != 1:
            message = "a machine that computes on its cpu needs cores, memory_gib and no device_count"
            raise of.file.error(message, ["machines", name])
        flops = {"fp32": machine.cores * round(entry.clock_ghz * 1e9) * entry.fp32_flop_per_cycle}
        memory = machine.memory_gib * GIB
    return Device(
        name=machine.device,
        kind=entry.kind,
        flops=flops,
        memory_bytes=memory,
        memory_bytes_per_s=_times(entry.memory_gbyte_per_s, 1e9),
        memory_kind=entry.memory_kind,
        cores=machine.cores if entry.kind == "cpu" else None,
        source=entry.source,
        basis=entry.basis,
        as_of=entry.as_of,
        note=entry.note,
        matmul_flops={format: value * 1e12 for format, value in entry.matmul_tflops.items()},
        matmul_source=entry.matmul_source,
        power_w=entry.power_w,
        year=entry.year,
        vendor=entry.vendor,
        pcie_bytes_per_s=_times(entry.pcie_gbyte_per_s, 1e9),
    )


def _gpu(name: str, entry: DeviceEntry, file: File) -> tuple[dict[str, float], float]:
    """The peaks by format and the memory of a GPU, from the long or the short keys."""
    at = ["devices", name]
    short = {"fp32": entry.fp32_tflops, "fp16": entry.tensor_tflops}
    if entry.tflops and any(short.values()):
        raise file.error("gives its peaks twice: in tflops and in fp32_tflops or tensor_tflops", at)
    if entry.memory_bytes is not None and entry.memory_gib is not None:
        raise file.error("gives its memory twice: in memory_bytes and in memory_gib", at)
    tflops: Mapping[str, float | None] = {str(f): peak for f, peak in entry.tflops.items()} or short
    memory = entry.memory_bytes or _times(entry.memory_gib, GIB)
    if tflops.get("fp32") is None or memory is None:
        raise file.error("a gpu needs fp32_tflops (or tflops.fp32) and memory_gib (or memory_bytes)", at)
    for format in entry.matmul_tflops:
        if tflops.get(format) is None:
            raise file.error(f"measured in {format}, a format for which tflops has no peak", at)
    return {f: peak * 1e12 for f in FORMATS if (peak := tflops.get(f))}, float(memory)


def _kernels(name: str, device: Device, entries: Entries) -> KernelRates | None:
    if name not in entries.kernels:
        return None
    entry, file = entries.kernels[name]
    base = entry
    if entry.like:
        if entry.like not in entries.kernels or entries.kernels[entry.like][0].like:
            raise file.error(f"{entry.like!r} has no rates of its own", ["kernels", name, "like"])
        base = entries.kernels[entry.like][0]
    factor = entry.scale * (device.cores or 1 if base.per_core else 1)
    return KernelRates(
        rates={kind: rate * factor for kind, rate in base.rates.items()},
        overhead_s=base.overhead_s,
        basis=entry.basis,
        source=entry.source or base.source,
        median_error=entry.median_error if entry.median_error is not None else base.median_error,
        as_of=entry.as_of or base.as_of,
    )
