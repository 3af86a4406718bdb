"""Builds machines (`planner.hardware`) from the entries of hardware files (`planner.hardware.schema`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

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
from planner.hardware.schema import DeviceEntry, Entries, MachineAt, MachineEntry, RegionEntry
from planner.units import GBIT_BYTES_PER_S

GIB = 2.0**30
# the end of a key, that of the field in bytes, and the factor
_UNITS = (
    ("gbit_per_s", "bytes_per_s", GBIT_BYTES_PER_S),
    ("gbyte_per_s", "bytes_per_s", 1e9),
    ("gbyte", "bytes", 1e9),
    ("gib", "bytes", GIB),
)
PCIE_4_YEAR = 2020  # devices of this year and later use PCIe 4.0 or faster
PCIE_3_BYTES_PER_S, PCIE_4_BYTES_PER_S = 15.8e9, 31e9  # x16, each way


T = TypeVar("T")


def _convert_entry(kind: type[T], entry: msgspec.Struct, **more: Any) -> T:
    """Instance of `kind` from the fields of a file entry, with sizes and rates converted to bytes."""
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
    sources = {key: Source(given.basis, given.source, given.as_of) for key, given in entry.sources.items()}
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
    is_own = owned or entry.machines or machine.provider == "own"
    standing: Standing = "retired" if not entry.still_sold else "own" if is_own else "rentable"
    ownership = None if owned is None else _convert_entry(Ownership, owned)
    price = _main_price(entry, ownership, sources, Source("estimated", f"given in {file.path.name}"))
    return _convert_entry(
        Hardware,
        entry,
        name=name,
        family=machine.family,
        provider=machine.provider,
        device=device,
        price=price,
        kernels=_kernel_rates(entry.device, device, entries),
        sources={key: source for key, source in sources.items() if key not in absent},
        other_prices=tuple(
            _region_price(region, given, price) for region, given in entry.other_regions.items()
        ),
        ownership=ownership,
        path=str(file.path),
        fabric=_build_fabric(name, machine, entries),
        standing=entry.standing or standing,
        machines=entry.machines or (owned.machines if owned else None),
    )


def _main_price(
    entry: MachineEntry, ownership: Ownership | None, said: Mapping[str, Source], given: Source
) -> Price:
    """Price of a machine in its main region; for an owned machine, its cost per hour."""
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


def _region_price(region: str, given: RegionEntry | tuple[float, ...], main: Price) -> Price:
    """Price of a machine in another region; date and source default to those of the main region."""
    entry = given if isinstance(given, RegionEntry) else RegionEntry(given[0], (*given, None)[1])
    if entry.source or entry.as_of:
        return _convert_entry(Price, entry, region=region, spot_as_of=entry.as_of)
    usd = entry.on_demand_usd_per_hour, entry.spot_usd_per_hour
    return replace(main, on_demand_usd_per_hour=usd[0], spot_usd_per_hour=usd[1], region=region)


def _build_fabric(name: str, machine: MachineAt, entries: Entries) -> Fabric | None:
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


def _build_device(name: str, of: MachineAt, entry: DeviceEntry, file: File) -> Device:
    """Device of a machine, with its peaks in FLOP/s and its memory in bytes."""
    machine = of.entry
    if entry.kind == "gpu":
        flops, memory = _gpu_peaks_and_memory(machine.device, entry, file)
    else:
        if entry.clock_ghz is None or entry.fp32_flop_per_cycle is None:
            message = "a cpu needs clock_ghz and fp32_flop_per_cycle (of one core)"
            raise file.error(message, ["devices", machine.device])
        if machine.cores is None or machine.memory_gib is None or machine.device_count != 1:
            message = "a machine that computes on its cpu needs cores, memory_gib and no device_count"
            raise of.file.error(message, ["machines", name])
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


def assume_usual_fabric(machine: Hardware, catalog: Iterable[Hardware]) -> Hardware:
    """Returns the machine; an unknown fabric becomes the catalog's most common one for its device."""
    if machine.fabric is not None or machine.device_count == 1:
        return machine
    alike = [kind for kind in catalog if kind.device.name == machine.device.name and kind.fabric is not None]
    return replace(machine, fabric=_most_common_fabric(machine, alike))


def _most_common_fabric(machine: Hardware, alike: Iterable[Hardware]) -> Fabric:
    """Most common fabric of machines with the same device count or a switch; PCIe if there is none."""
    same: Counter[str] = Counter()
    known: dict[str, tuple[Fabric, str]] = {}
    for kind in alike:
        assert kind.fabric is not None
        if kind.device_count == machine.device_count or kind.fabric.topology == "switch":
            key = repr(replace(kind.fabric, machines=1))
            same[key] += 1 + 1000 * (kind.device_count == machine.device_count)
            known.setdefault(key, (kind.fabric, kind.name))
    if not same:
        return _assumed_pcie_fabric(machine.device)
    # of equally frequent ones the slowest
    fabric, name = known[min(same, key=lambda key: (-same[key], known[key][0].bytes_per_s, key))]
    source = f"assumed: that of {name}, which has the same devices"
    return replace(fabric, machines=1, basis="estimated", source=source, as_of="", assumed=True)


def _assumed_pcie_fabric(device: Device) -> Fabric:
    """PCIe fabric of the generation that the device's year suggests."""
    recent = device.year is None or device.year >= PCIE_4_YEAR
    rate, generation = (PCIE_4_BYTES_PER_S, "4.0") if recent else (PCIE_3_BYTES_PER_S, "3.0")
    source = f"assumed: PCIe {generation} x16, as no machine of the catalog has this device"
    return Fabric("pcie", "pcie", rate, "estimated", source, assumed=True)
