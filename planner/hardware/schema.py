"""Hardware files: one struct per kind of table, with the bounds of every figure, and the machines built of
them.

docs/hardware.md explains the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from planner.errors import unknown_name
from planner.files.tomlfile import TomlSource as File
from planner.hardware import (
    FORMATS,
    Basis,
    Device,
    Fabric,
    Format,
    Hardware,
    KernelRates,
    Link,
    MemoryKind,
    Ownership,
    Price,
    Source,
    Standing,
    Topology,
)
from planner.units import GBIT_BYTES_PER_S

FIGURES = ("on_demand", "spot", "nic_burst", "nic_baseline", "flow", "machine", "rdma", "status")

# Figures outside these bounds are slips: a price of 20,000 USD/h, a NIC of 10 Mbit written as Gbit.
Usd = Annotated[float, Meta(gt=0, le=1e4)]
Gbit = Annotated[float, Meta(ge=1e-3, le=2e4)]
Gib = Annotated[float, Meta(gt=0, le=1e5)]
Tflops = Annotated[float, Meta(gt=0, le=1e5)]
Count = Annotated[int, Meta(ge=1, le=4096)]
Gbyte = Annotated[float, Meta(gt=0, le=1e5)]
Rate = Annotated[float, Meta(gt=0, le=1e18)]


class OwnershipEntry(Ownership, forbid_unknown_fields=True, frozen=True):
    """Cost of an owned machine, and how many are owned."""

    machines: Annotated[int, Meta(ge=1, le=100_000)] | None = None


class RegionEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Prices of a machine in one region."""

    on_demand_usd_per_hour: Usd | None = None
    spot_usd_per_hour: Usd | None = None
    as_of: str = ""
    basis: Basis = "published"
    source: str = ""


# Short form: the price on demand, perhaps with the spot price, of the machine's own date and source.
RegionPrices = Annotated[tuple[Usd, ...], Meta(min_length=1, max_length=2)]


class FabricEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Links between the devices of a machine."""

    kind: Link
    topology: Topology
    gbyte_per_s: Gbyte | None = None  # of one device, each way
    between_gbyte_per_s: Gbyte | None = None  # between pairs
    allreduce_gbyte_per_s: Gbyte | None = None  # bus bandwidth over all devices
    curve: str | None = None
    machines: Count = 1
    basis: Basis = "estimated"
    source: str = ""
    as_of: str = ""


class MachineEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A machine: its devices, host, network, prices and sources."""

    device: str
    device_count: Count = 1
    machines: Annotated[int, Meta(ge=1, le=100_000)] | None = None  # that are owned
    cores: Count | None = None
    cpu: str = ""
    vcpus: Count | None = None
    memory_gib: Gib | None = None
    nic_burst_gbit_per_s: Gbit | None = None
    nic_baseline_gbit_per_s: Gbit | None = None
    nic_label: str = ""
    flow_gbit_per_s: Gbit | None = None
    placement_group_flow_gbit_per_s: Gbit | None = None
    on_demand_usd_per_hour: Usd | None = None
    spot_usd_per_hour: Usd | None = None
    region: str = ""
    still_sold: bool = True
    standing: Standing | None = None
    status: str = ""
    offered_as: str = ""
    aliases: tuple[str, ...] = ()
    ownership: OwnershipEntry | None = None
    other_regions: dict[str, RegionEntry | RegionPrices] = {}
    calibration: dict[str, float | tuple[float, ...]] = {}
    fabric: FabricEntry | str | None = None
    rdma: bool | None = None
    rdma_kind: str = ""
    rdma_gbit_per_s: Gbit | None = None
    nics: Count | None = None
    network_curves: dict[Literal["rdma", "tcp"], str] = {}
    local_disk_gbyte: Annotated[float, Meta(gt=0, le=1e7)] | None = None
    sources: dict[str, Source] = {}


class DeviceEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A device.

    A GPU's peaks are `tflops` by format, or for short `fp32_tflops` and `tensor_tflops` (fp16); a CPU's
    follows from cores, clock and FLOP per cycle. Memory is `memory_bytes` or `memory_gib`.
    """

    kind: Literal["gpu", "cpu"]
    vendor: str = ""
    year: Annotated[int, Meta(ge=1990, le=2100)] | None = None
    tflops: dict[Format, Tflops] = {}
    fp32_tflops: Tflops | None = None
    tensor_tflops: Tflops | None = None
    matmul_tflops: dict[Format, Tflops] = {}  # measured on large products
    matmul_source: str = ""
    memory_bytes: Annotated[int, Meta(gt=0, le=10**14)] | None = None
    memory_gib: Gib | None = None
    memory_gbyte_per_s: Gbyte | None = None
    memory_kind: MemoryKind | None = None
    pcie_gbyte_per_s: Gbyte | None = None  # of its slot, each way
    power_w: Annotated[float, Meta(gt=0, le=1e5)] | None = None
    clock_ghz: Annotated[float, Meta(gt=0, le=10)] | None = None
    fp32_flop_per_cycle: Annotated[float, Meta(gt=0, le=4096)] | None = None  # of one core
    basis: Basis = "estimated"
    source: str = ""
    as_of: str = ""
    note: str = ""


class KernelsEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Kernel rates of a device: its own, or those of `like` another device times `scale`."""

    rates: dict[str, Rate] = {}
    overhead_s: Annotated[float, Meta(ge=0, le=10)] = 0.0
    per_core: bool = False
    like: str = ""
    scale: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    basis: Basis = "estimated"
    source: str = ""
    as_of: str = ""
    median_error: Annotated[float, Meta(ge=0, le=10)] | None = None

    def __post_init__(self) -> None:
        if bool(self.rates) == bool(self.like):
            raise ValueError('needs either rates or like = "OTHER DEVICE"')


PART_TYPES: dict[str, type[msgspec.Struct]] = {
    "devices": DeviceEntry,
    "fabrics": FabricEntry,
    "kernels": KernelsEntry,
}


@dataclass(frozen=True)
class MachineRecord:
    """A machine's entry with its family, provider and file."""

    entry: MachineEntry
    family: str
    provider: str
    file: File


@dataclass
class Entries:
    """All entries by name, each with its file; the first file to define a name wins."""

    machines: dict[str, MachineRecord] = field(default_factory=dict)
    devices: dict[str, tuple[DeviceEntry, File]] = field(default_factory=dict)
    kernels: dict[str, tuple[KernelsEntry, File]] = field(default_factory=dict)
    fabrics: dict[str, tuple[FabricEntry, File]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    own: frozenset[str] = frozenset()  # names of machines in the user's folders

    def merge_parts(self, other: Entries) -> Entries:
        """Returns these entries plus the devices, kernels and fabrics that only `other` defines."""
        return replace(self, **{kind: getattr(other, kind) | getattr(self, kind) for kind in PART_TYPES})


GIB = 2.0**30
# the end of a key, that of the field in bytes, and the factor
_UNITS = (
    ("gbit_per_s", "bytes_per_s", GBIT_BYTES_PER_S),
    ("gbyte_per_s", "bytes_per_s", 1e9),
    ("gbyte", "bytes", 1e9),
    ("gib", "bytes", GIB),
)


T = TypeVar("T")


def _convert_entry(kind: type[T], entry: msgspec.Struct, **more: Any) -> T:
    """Converts a file entry to the type `kind`, with sizes in bytes and rates in bytes per second."""
    values: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(entry).items():
        units = next((units for units in _UNITS if name.endswith(units[0])), ("", "", 1))
        factor = 1 if value is None else units[2]
        values[name.removesuffix(units[0]) + units[1]] = value if factor == 1 else value * factor
    names = (each.name for each in fields(kind))  # type: ignore[arg-type]
    return kind(**{name: values[name] for name in names if name in values} | more)


def build_machine(name: str, entries: Entries) -> Hardware:
    """Builds a machine with its device, fabric, kernel rates and prices from file entries."""
    machine = entries.machines[name]
    entry, file = machine.entry, machine.file
    if entry.device not in entries.devices:
        unknown = unknown_name("device", entry.device, entries.devices)
        raise file.error(str(unknown), ["machines", name, "device"])
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
    device = _build_device(name, machine, *entries.devices[entry.device])
    owned = entry.ownership
    ownership = owned and Ownership(**{key: getattr(owned, key) for key in Ownership.__struct_fields__})
    is_own = owned or entry.machines or machine.provider == "own"
    standing: Standing = "retired" if not entry.still_sold else "own" if is_own else "rentable"
    price = _main_price(entry, Source("estimated", f"given in {file.path.name}"))
    return _convert_entry(
        Hardware,
        entry,
        name=name,
        family=machine.family,
        provider=machine.provider,
        device=device,
        price=price,
        ownership=ownership,
        kernels=_kernel_rates(entry.device, device, entries),
        sources={key: source for key, source in entry.sources.items() if key not in absent},
        other_prices=tuple(
            _region_price(region, given, price) for region, given in entry.other_regions.items()
        ),
        path=str(file.path),
        fabric=_build_fabric(name, machine, entries),
        standing=entry.standing or standing,
        machines=entry.machines or (owned.machines if owned else None),
    )


def _main_price(entry: MachineEntry, default_source: Source) -> Price:
    """Price of a machine in its main region; for an owned machine, its cost per hour."""
    said, usd = entry.sources, entry.on_demand_usd_per_hour
    source = said.get("on_demand", default_source)
    if usd is None and entry.ownership:
        usd = entry.ownership.usd_per_hour
        if "on_demand" not in said:
            source = Source("estimated", "capital cost over lifetime, plus energy")
    elif usd is None and "spot" in said:
        source = said["spot"]
    spot_as_of = said["spot"].as_of if "spot" in said else source.as_of
    return Price(
        usd, entry.spot_usd_per_hour, entry.region, source.as_of, source.basis, source.source, spot_as_of
    )


def _region_price(region: str, listed_price: RegionEntry | tuple[float, ...], main: Price) -> Price:
    """Price of a machine in another region; date and source default to those of the main region."""
    entry = (
        listed_price
        if isinstance(listed_price, RegionEntry)
        else RegionEntry(listed_price[0], (*listed_price, None)[1])
    )
    if entry.source or entry.as_of:
        return _convert_entry(Price, entry, region=region, spot_as_of=entry.as_of)
    usd = entry.on_demand_usd_per_hour, entry.spot_usd_per_hour
    return replace(main, on_demand_usd_per_hour=usd[0], spot_usd_per_hour=usd[1], region=region)


def _build_fabric(name: str, machine: MachineRecord, entries: Entries) -> Fabric | None:
    """Links between a machine's devices; None for a single device or if the file names no fabric."""
    entry, file, at = machine.entry.fabric, machine.file, ["machines", name, "fabric"]
    if entry is None or machine.entry.device_count == 1:
        return None
    if isinstance(entry, str):
        if entry not in entries.fabrics:
            raise file.error(str(unknown_name("fabric", entry, entries.fabrics)), at)
        at = ["fabrics", entry]
        entry, file = entries.fabrics[entry]
    if entry.gbyte_per_s is None:
        message = "needs gbyte_per_s, the rate of one device each way (NVLink 3: 300, PCIe 4.0 x16: 31)"
        raise file.error(message, at)
    several = entry.topology == "pairs" and machine.entry.device_count > 2
    if several and entry.between_gbyte_per_s is None:
        raise file.error("several pairs need between_gbyte_per_s, the rate between them", at)
    if entry.topology != "pairs" and entry.between_gbyte_per_s is not None:
        raise file.error('between_gbyte_per_s is for topology = "pairs" alone', at)
    return _convert_entry(Fabric, entry, source=entry.source or f"given in {file.path.name}")


def _build_device(name: str, record: MachineRecord, entry: DeviceEntry, file: File) -> Device:
    """Device of a machine, with its peaks in FLOP/s and its memory in bytes."""
    machine = record.entry
    if entry.kind == "gpu":
        flops, memory = _gpu_peaks_and_memory(machine.device, entry, file)
    else:
        if entry.clock_ghz is None or entry.fp32_flop_per_cycle is None:
            message = "a cpu needs clock_ghz and fp32_flop_per_cycle (of one core)"
            raise file.error(message, ["devices", machine.device])
        if machine.cores is None or machine.memory_gib is None or machine.device_count != 1:
            message = "a machine that computes on its cpu needs cores, memory_gib and no device_count"
            raise record.file.error(message, ["machines", name])
        flops = {"fp32": machine.cores * round(entry.clock_ghz * 1e9) * entry.fp32_flop_per_cycle}
        memory = machine.memory_gib * GIB
    return _convert_entry(
        Device,
        entry,
        name=machine.device,
        flops=flops,
        memory_bytes=memory,
        cores=machine.cores if entry.kind == "cpu" else None,
        matmul_flops={format: value * 1e12 for format, value in entry.matmul_tflops.items()},
    )


def _gpu_peaks_and_memory(name: str, entry: DeviceEntry, file: File) -> tuple[dict[str, float], float]:
    """Peaks of a GPU in FLOP/s by number format, and its memory in bytes."""
    at = ["devices", name]
    short = {"fp32": entry.fp32_tflops, "fp16": entry.tensor_tflops}
    if entry.tflops and any(short.values()):
        raise file.error("has its peaks twice: in tflops and in fp32_tflops or tensor_tflops", at)
    if entry.memory_bytes is not None and entry.memory_gib is not None:
        raise file.error("has its memory twice: in memory_bytes and in memory_gib", at)
    tflops: Mapping[str, float | None] = {str(f): peak for f, peak in entry.tflops.items()} or short
    memory = entry.memory_bytes or (entry.memory_gib or 0) * GIB or None
    if tflops.get("fp32") is None or memory is None:
        raise file.error("a gpu needs fp32_tflops (or tflops.fp32) and memory_gib (or memory_bytes)", at)
    for format in entry.matmul_tflops:
        if tflops.get(format) is None:
            raise file.error(f"measured in {format}, a format for which tflops has no peak", at)
    return {f: peak * 1e12 for f in FORMATS if (peak := tflops.get(f))}, float(memory)


def _kernel_rates(name: str, device: Device, entries: Entries) -> KernelRates | None:
    """Kernel rates of a device, scaled from another device's if the file says so; None if it has none."""
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
