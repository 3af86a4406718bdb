"""The tables of hardware files: one struct per kind of table, with the bounds of every figure.

docs/hardware.md explains the keys. Reading gives entries with known keys and figures within bounds, or an
error with its place; `planner.hardware.build` makes machines of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from planner.errors import BadInput
from planner.files.regular_file import read_text
from planner.files.tomlfile import TomlSource as File
from planner.files.tomlfile import decode, find_faulty_name, name_fault, read_toml
from planner.hardware import Basis, Format, Link, MemoryKind, Standing, Topology

FIGURES = ("on_demand", "spot", "nic_burst", "nic_baseline", "flow", "machine", "rdma", "status")

# Figures outside these bounds are slips: a price of 20,000 USD/h, a NIC of 10 Mbit written as Gbit.
Usd = Annotated[float, Meta(gt=0, le=1e4)]
Gbit = Annotated[float, Meta(ge=1e-3, le=2e4)]
Gib = Annotated[float, Meta(gt=0, le=1e5)]
Tflops = Annotated[float, Meta(gt=0, le=1e5)]
Count = Annotated[int, Meta(ge=1, le=4096)]
Gbyte = Annotated[float, Meta(gt=0, le=1e5)]
Rate = Annotated[float, Meta(gt=0, le=1e18)]


class SourceEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    basis: Basis
    source: Annotated[str, Meta(min_length=3)]
    as_of: str = ""


class OwnershipEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    capital_usd: Annotated[float, Meta(gt=0, le=1e7)]
    lifetime_years: Annotated[float, Meta(gt=0, le=30)]
    power_watts: Annotated[float, Meta(gt=0, le=1e5)]
    energy_usd_per_kwh: Annotated[float, Meta(ge=0, le=5)]
    cooling_factor: Annotated[float, Meta(ge=1, le=5)] = 1.0
    machines: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    reasoning: str = ""


class RegionEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    on_demand_usd_per_hour: Usd | None = None
    spot_usd_per_hour: Usd | None = None
    as_of: str = ""
    basis: Basis = "published"
    source: str = ""


# Short form: the price on demand, perhaps with the spot price, of the machine's own date and source.
RegionPrices = Annotated[tuple[Usd, ...], Meta(min_length=1, max_length=2)]


class FabricEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
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
    sources: dict[str, SourceEntry] = {}


class DeviceEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A device. A GPU's peaks are `tflops` by format, or for short `fp32_tflops` and `tensor_tflops` (fp16);
    a CPU's follows from cores, clock and FLOP per cycle. Memory is `memory_bytes` or `memory_gib`."""

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
    """Kernel rates: `rates` and `overhead_s`, or those of `like` another device times `scale`."""

    rates: dict[str, Rate] = {}
    overhead_s: Annotated[float, Meta(ge=0, le=10)] = 0.0
    per_core: bool = False
    like: str = ""
    scale: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    basis: Basis = "estimated"
    source: str = ""
    as_of: str = ""
    median_error: Annotated[float, Meta(ge=0, le=10)] | None = None


@dataclass(frozen=True)
class MachineAt:
    """A machine's entry, with its family, provider and file."""

    entry: MachineEntry
    family: str
    provider: str
    file: File


@dataclass
class Entries:
    """All entries by name, each with its file; the first file to define a name wins."""

    machines: dict[str, MachineAt] = field(default_factory=dict)
    devices: dict[str, tuple[DeviceEntry, File]] = field(default_factory=dict)
    kernels: dict[str, tuple[KernelsEntry, File]] = field(default_factory=dict)
    fabrics: dict[str, tuple[FabricEntry, File]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def merge_parts(self, other: Entries) -> Entries:
        """Returns these entries plus the devices, kernels and fabrics that only `other` defines."""
        both = {
            kind: getattr(other, kind) | getattr(self, kind) for kind in ("devices", "kernels", "fabrics")
        }
        return replace(self, **both)


_OURS = ("machines", "devices", "kernels", "fabrics")
_TABLES = ("defaults", *_OURS)
_HEADS = ("family", "provider", "description")
_PROSE = frozenset(("description", "source", "matmul_source", "reasoning", "status", "note"))  # not names


def is_hardware_file(path: Path) -> bool:
    """Whether a TOML file in a user's folder defines machines, devices, kernels or fabrics."""
    try:
        text = read_text(path)
    except BadInput:
        return False
    # however a table is written, its name stands at the start of a line
    if not any(line.strip(" \t[\"'").startswith(_OURS) for line in text.splitlines()):
        return False
    return bool(read_toml(path).data.keys() & set(_OURS))


def add_file_entries(entries: Entries, file: File) -> None:
    """Adds a file's entries to `entries`, except names that are already defined."""
    tables, path = file.data, file.path
    for key, value in tables.items():
        if key not in (*_TABLES, *_HEADS):
            raise file.error(f"unknown key; allowed: {', '.join((*_HEADS, *_TABLES))}", [key])
        if key in _HEADS and not isinstance(value, str):
            raise file.error("must be a text", [key])
        if key in ("family", "provider") and (fault := name_fault(value)):
            raise file.error(fault, [key])
        if key in _TABLES and not isinstance(value, dict):
            raise file.error(f"must be a table, as in [{key}.NAME]", [key])
    defaults = tables.get("defaults", {})
    if faulty := find_faulty_name(defaults, _PROSE):
        raise file.error(faulty[1], ["defaults", *faulty[0]])
    decode(file, {"device": "", **defaults}, MachineEntry, ["defaults"])
    for name, table in _named_tables(file, "machines"):
        at = ["machines", name]
        merged = {**defaults, **table}
        if "sources" in defaults and isinstance(table.get("sources"), dict):
            merged["sources"] = {**defaults["sources"], **table["sources"]}
        entry = decode(file, merged, MachineEntry, at)
        for figure in entry.sources:
            if figure not in FIGURES:
                raise file.error(f"no such figure; allowed: {', '.join(FIGURES)}", [*at, "sources", figure])
        baseline, burst = entry.nic_baseline_gbit_per_s, entry.nic_burst_gbit_per_s
        if baseline and burst and burst < baseline:
            message = f"{burst:g} is below nic_baseline_gbit_per_s, {baseline:g}"
            raise file.error(message, [*at, "nic_burst_gbit_per_s"])
        machine = MachineAt(entry, tables.get("family", path.stem), tables.get("provider", "own"), file)
        if name not in entries.machines:
            entries.machines[name] = machine
            for alias in filter(None, (*entry.aliases, entry.offered_as)):
                entries.aliases.setdefault(alias, name)
    for kind, entry_type in (("devices", DeviceEntry), ("fabrics", FabricEntry)):
        for name, table in _named_tables(file, kind):
            getattr(entries, kind).setdefault(name, (decode(file, table, entry_type, [kind, name]), file))
    for name, table in _named_tables(file, "kernels"):
        kernels = decode(file, table, KernelsEntry, ["kernels", name])
        if bool(kernels.rates) == bool(kernels.like):
            raise file.error('needs either rates or like = "OTHER DEVICE"', ["kernels", name])
        entries.kernels.setdefault(name, (kernels, file))


def _named_tables(file: File, kind: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yields the names and tables of one kind in a file, after checking the names."""
    for name, table in file.data.get(kind, {}).items():
        if not isinstance(table, dict):
            raise file.error(f"must be a table, as in [{kind}.{name}]", [kind, name])
        if not name.strip() or any(sign in name for sign in "*?[],:/"):
            raise file.error("a name must not be empty nor hold any of * ? [ ] , : /", [kind, name])
        if faulty := find_faulty_name({name: table}, _PROSE):
            raise file.error(faulty[1], [kind, *faulty[0]])
        yield name, table
