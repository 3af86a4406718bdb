"""Finds machines by name, pattern or path, and reads their files: in the user's folders first, then in
`hardware/*.toml`.

Every file has the same form (docs/hardware.md): `[machines.*]` with their common keys in `[defaults]`,
`[devices.*]`, `[fabrics.*]` and `[kernels.*]`. Machines name a device, which may be in any file. A name in
the user's folders hides the same name of the catalog.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

from planner.errors import BadInput, unknown_name
from planner.files.regular_file import (
    expand_path,
    home_folder,
    is_path_like,
    read_text,
    shipped_folder,
    user_folders,
)
from planner.files.tomlfile import TomlSource as File
from planner.files.tomlfile import decode, find_faulty_name, read_toml
from planner.hardware import Device, Fabric, Hardware
from planner.hardware.schema import (
    FIGURES,
    PART_TYPES,
    Entries,
    MachineEntry,
    MachineRecord,
    build_machine,
)
from planner.memoize import memoize

PCIE_4_YEAR = 2020  # devices of this year and later use PCIe 4.0 or faster
PCIE_3_BYTES_PER_S, PCIE_4_BYTES_PER_S = 15.8e9, 31e9  # x16, each way
_OURS = ("machines", "devices", "kernels", "fabrics")
_TABLES = ("defaults", *_OURS)
_HEADS = ("family", "provider", "description")
_PROSE = frozenset(("description", "source", "matmul_source", "reasoning", "status", "note"))  # not names


def hardware_names() -> tuple[str, ...]:
    """Names of all machines: those in the user's folders first, then the catalog's."""
    return tuple(_known_entries().machines)


def own_hardware_names() -> frozenset[str]:
    """Names of the machines in the user's own folders."""
    return _known_entries().own


def load_hardware(name: str) -> Hardware:
    """Loads a machine by name or file: `p3.2xlarge`, `./mine.toml`, or `./mine.toml:big` of several."""
    file, _, wanted = name.partition(".toml:")
    if wanted or is_path_like(name):
        return _load_from_file(expand_path(file + ".toml" if wanted else name), wanted)
    entries = _known_entries()
    key = entries.aliases.get(name, name)
    if key not in entries.machines:
        known = (*entries.machines, *entries.aliases)
        lower = {other.lower(): other for other in known}
        if name.lower() not in lower:
            hint = "`planner hardware` lists them; a file of your own needs its path, e.g. ./mine.toml"
            raise unknown_name("hardware", name, known, hint)
        return load_hardware(lower[name.lower()])
    machine = load_with_file_prices(key)
    # prices in the user's own hardware files stay
    if key in entries.own or not os.path.isdir(os.path.join(home_folder(), "prices")):
        return machine
    from planner.hardware.prices.book import apply_own_prices

    return apply_own_prices(machine)


def load_with_file_prices(name: str) -> Hardware:
    """Loads a machine by name with the prices of its hardware file, ignoring imported price lists."""
    return _load_cached(user_folders(), name)


@memoize
def _load_cached(folders: tuple[Path, ...], name: str) -> Hardware:
    """Loads a machine by name from the user's folders or the catalog; cached."""
    entries = _entries(folders)
    machine = build_machine(name, entries)
    return _complete_user_machine(machine) if name in entries.own else machine


def _complete_user_machine(machine: Hardware) -> Hardware:
    """Fills in a user's machine: owned if it has no price, the usual fabric if none is named."""
    if machine.standing == "rentable" and not machine.has_price:
        machine = replace(machine, standing="own")
    return assume_usual_fabric(machine, (_load_cached((), known) for known in _entries(()).machines))


def matching_fabric_name(device: str, count: int, kind: str, gbyte_per_s: float) -> str | None:
    """Name of the catalog's fabric for a device, its count, link kind and rate; None if there is none."""
    entries = _entries(())
    for machine in entries.machines.values():
        entry = machine.entry
        if (entry.device, entry.device_count) != (device, count) or not isinstance(entry.fabric, str):
            continue
        fabric = entries.fabrics[entry.fabric][0]
        # the topology of PCIe does not tell its generation
        if fabric.kind == kind and (kind == "pcie" or fabric.gbyte_per_s == gbyte_per_s):
            return entry.fabric
    return None


def match_hardware(patterns: str | Iterable[str]) -> tuple[Hardware, ...]:
    """Loads machines by names, patterns, families or paths (`p3.*,g5,./mine.toml`), without duplicates."""
    parts = patterns.split(",") if isinstance(patterns, str) else list(patterns)
    parts = [part.strip() for part in parts if part.strip()]
    if not parts:
        raise BadInput("no hardware is named; give names or patterns such as 'p3.*,c4.8xlarge'")
    by_name: dict[str, Hardware] = {}
    for part in parts:
        for hardware in _match_pattern(part):
            by_name.setdefault(hardware.name, hardware)
    return tuple(by_name.values())


def _match_pattern(pattern: str) -> Iterable[Hardware]:
    """Loads the machines that one name, pattern, family or path selects."""
    machines = _known_entries().machines
    if any(sign in pattern for sign in "*?[") and not is_path_like(pattern):
        matching = [name for name in machines if fnmatchcase(name.lower(), pattern.lower())]
        if not matching:
            families = ", ".join(sorted({machine.family for machine in machines.values()}))
            raise BadInput(f"no hardware matches {pattern!r}; families: {families}")
    elif pattern in machines:
        matching = [pattern]
    else:
        matching = [name for name, machine in machines.items() if machine.family == pattern]
    return [load_hardware(name) for name in matching or [pattern]]


def _load_from_file(path: Path, machine_name: str) -> Hardware:
    """Loads a machine from a file; devices, fabrics and kernels may also come from the catalog."""
    own = Entries()
    add_file_entries(own, read_toml(path))
    if not own.machines:
        raise BadInput(f"{path}: defines no machine; it needs a table [machines.NAME] (docs/hardware.md)")
    name = own.aliases.get(machine_name, machine_name) or next(iter(own.machines))
    if name not in own.machines:
        raise unknown_name(f"machine in {path}:", machine_name, own.machines)
    if not machine_name and len(own.machines) > 1:
        names = ", ".join(own.machines)
        raise BadInput(f"{path}: holds several machines ({names}); name one, as in {path}:{name}")
    return _complete_user_machine(build_machine(name, own.merge_parts(_known_entries())))


def _known_entries() -> Entries:
    """Hardware file entries of the user's current folders and the catalog."""
    return _entries(user_folders())


@memoize
def _entries(folders: tuple[Path, ...]) -> Entries:
    """Hardware file entries of these user folders, earlier ones first, then of the catalog; cached."""
    entries = Entries()
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"PLANNER_PATH names {folder}, which is not a folder")
        # the folder may also hold models and other files
        paths = [path for path in sorted(folder.glob("*.toml")) if is_hardware_file(path)]
        for path in paths + sorted((folder / "hardware").glob("*.toml")):
            add_file_entries(entries, read_toml(path))
    entries.own = frozenset(entries.machines)
    for path in sorted(shipped_folder("hardware").glob("*.toml")):
        add_file_entries(entries, read_toml(path))
    return entries


@memoize
def device_names(table: str) -> dict[str, Any]:
    """Other names of devices, by catalog name, from one table of `device_names.toml`."""
    names: dict[str, Any] = tomllib.loads((files(__package__) / "device_names.toml").read_text("utf-8"))[
        table
    ]
    return names


@memoize
def _device_aliases() -> dict[str, str]:
    """Catalog names of devices by lower-case alias."""
    return {called.lower(): name for name, words in device_names("devices").items() for called in words}


def catalog_device_name(alias: str, memory_gb: str = "") -> str:
    """Catalog name of a device alias; memory selects among variants.

    Unknown words are returned unchanged.
    """
    name = " ".join(alias.lower().split())
    return _device_aliases().get(f"{name}/{memory_gb}", _device_aliases().get(name, alias))


def is_machine_name(name: str) -> bool:
    """Whether a name is that of a machine of the catalog or of a hardware file."""
    return name in hardware_names() or ".toml" in name  # names of devices may hold a slash


@memoize
def find_device(words: str) -> Device | None:
    """Finds a device by its name or that of a machine; None if unknown.

    CPUs are found by machine only, because a CPU's name does not tell the number of cores.
    """
    if not words:
        return None
    if is_machine_name(words):
        return load_hardware(words).device
    name = catalog_device_name(words)
    kinds = (kind for kind in match_hardware("*") if kind.device.name == name and kind.device.kind == "gpu")
    first = next(kinds, None)
    return None if first is None else first.device


def assume_usual_fabric(machine: Hardware, catalog: Iterable[Hardware]) -> Hardware:
    """Fills in an unknown fabric: the most common one in the catalog for the machine's device."""
    if machine.fabric is not None or machine.device_count == 1:
        return machine
    alike = [kind for kind in catalog if kind.device.name == machine.device.name and kind.fabric is not None]
    return replace(machine, fabric=_most_common_fabric(machine, alike))


def _most_common_fabric(machine: Hardware, similar_machines: Iterable[Hardware]) -> Fabric:
    """Most common fabric of machines with the same device count or a switch; PCIe if there is none."""
    same: Counter[str] = Counter()
    known: dict[str, tuple[Fabric, str]] = {}
    for kind in similar_machines:
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
    _check_tables(file)
    tables, path = file.data, file.path
    defaults = tables.get("defaults", {})
    decode(file, {"device": "", **defaults}, MachineEntry, ["defaults"])
    for name, table in tables.get("machines", {}).items():
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
        machine = MachineRecord(entry, tables.get("family", path.stem), tables.get("provider", "own"), file)
        if entries.machines.setdefault(name, machine) is machine:
            for alias in filter(None, (*entry.aliases, entry.offered_as)):
                entries.aliases.setdefault(alias, name)
    for kind, entry_type in PART_TYPES.items():
        for name, table in tables.get(kind, {}).items():
            getattr(entries, kind).setdefault(name, (decode(file, table, entry_type, [kind, name]), file))


def _check_tables(file: File) -> None:
    """Raises BadInput for unknown keys, values of wrong types and invalid names."""
    for key, value in file.data.items():
        if key not in (*_TABLES, *_HEADS):
            raise file.error(f"unknown key; allowed: {', '.join((*_HEADS, *_TABLES))}", [key])
        if key in _HEADS and not isinstance(value, str):
            raise file.error("must be a text", [key])
        if key in _TABLES and not isinstance(value, dict):
            raise file.error(f"must be a table, as in [{key}.NAME]", [key])
        for name, table in value.items() if key in _OURS else ():
            if not isinstance(table, dict):
                raise file.error(f"must be a table, as in [{key}.{name}]", [key, name])
            if not name.strip() or any(sign in name for sign in "*?[],:/"):
                raise file.error("a name must not be empty nor hold any of * ? [ ] , : /", [key, name])
    if faulty := find_faulty_name(file.data, _PROSE):
        raise file.error(faulty[1], faulty[0])
