"""Finds machines by name, pattern or path, and reads their files: in the user's folders first, then in
`hardware/*.toml`.

Every file has the same form (docs/hardware.md): `[machines.*]` with their common keys in `[defaults]`,
`[devices.*]`, `[fabrics.*]` and `[kernels.*]`. Machines name a device, which may be in any file. A name in
the user's folders hides the same name of the catalog.

TOML is slow to read for hundreds of machines: names are found by the headers of files, and a file is read
when one of its machines is needed.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
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
from planner.files.tomlfile import decode, find_faulty_name, name_fault, read_toml
from planner.hardware import Device, Fabric, Hardware
from planner.hardware.schema import (
    FIGURES,
    DeviceEntry,
    Entries,
    FabricEntry,
    KernelsEntry,
    MachineAt,
    MachineEntry,
    build_machine,
)
from planner.memoize import memoize

PCIE_4_YEAR = 2020  # devices of this year and later use PCIe 4.0 or faster
PCIE_3_BYTES_PER_S, PCIE_4_BYTES_PER_S = 15.8e9, 31e9  # x16, each way
_OURS = ("machines", "devices", "kernels", "fabrics")
_TABLES = ("defaults", *_OURS)
_HEADS = ("family", "provider", "description")
_PROSE = frozenset(("description", "source", "matmul_source", "reasoning", "status", "note"))  # not names
# files of the catalog without machines
_SHARED = ("devices.toml", "fabrics.toml", "kernels.toml")
_LINE = re.compile(
    r'^\[machines\.(?:"([^"]+)"|([\w-]+))\]$|^(?:offered_as|aliases) = (.+)$|^family = "(.+)"$', re.MULTILINE
)


@dataclass(frozen=True)
class _Names:
    """The file and family of each machine by name, in order, and aliases."""

    files: dict[str, Path]
    families: dict[str, str]
    aliases: dict[str, str]
    own: frozenset[str]  # names in the user's folders


def hardware_names() -> tuple[str, ...]:
    """Names of all machines: those in the user's folders first, then the catalog's."""
    return tuple(_known_names().files)


def own_hardware_names() -> frozenset[str]:
    """Names of the machines in the user's own folders."""
    return _known_names().own


def load_hardware(name: str) -> Hardware:
    """Loads a machine by name or file: `p3.2xlarge`, `./mine.toml`, or `./mine.toml:big` of several."""
    file, _, wanted = name.partition(".toml:")
    if wanted or is_path_like(name):
        return _load_from_file(expand_path(file + ".toml" if wanted else name), wanted)
    names = _known_names()
    key = names.aliases.get(name, name)
    if key not in names.files:
        lower = {known.lower(): known for known in (*names.files, *names.aliases)}
        if name.lower() not in lower:
            hint = "`planner hardware` lists them; a file of your own needs its path, e.g. ./mine.toml"
            raise unknown_name("hardware", name, (*names.files, *names.aliases), hint)
        return load_hardware(lower[name.lower()])
    machine = load_with_file_prices(key)
    # prices in the user's own hardware files stay
    if key in names.own or not os.path.isdir(os.path.join(home_folder(), "prices")):
        return machine
    from planner.hardware.prices.book import apply_own_prices

    return apply_own_prices(machine)


def load_with_file_prices(name: str) -> Hardware:
    """Loads a machine by name with the prices of its hardware file, ignoring imported price lists."""
    return _load_cached(user_folders(), name)


@memoize
def _load_cached(folders: tuple[Path, ...], name: str) -> Hardware:
    """Loads a machine by name from the user's folders or the catalog; cached."""
    names = _all_names(folders)
    machine = build_machine(name, _entries_at(folders, names.files[name]))
    return _complete_user_machine(machine) if name in names.own else machine


def _complete_user_machine(machine: Hardware) -> Hardware:
    """Completes a user's machine: owned if it has no price, with the usual fabric if it names none."""
    if machine.standing == "rentable" and not machine.has_price:
        machine = replace(machine, standing="own")
    return assume_usual_fabric(machine, (_load_cached((), known) for known in _all_names(()).files))


def matching_fabric_name(device: str, count: int, kind: str, gbyte_per_s: float) -> str | None:
    """Name of the catalog's fabric for a device, its count, link kind and rate; None if there is none."""
    shared = _shared_entries(())
    for name, path in _all_names(()).files.items():
        entry = _entries_at((), path).machines[name].entry
        if (entry.device, entry.device_count) != (device, count) or not isinstance(entry.fabric, str):
            continue
        fabric = shared.fabrics[entry.fabric][0]
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
    names = _known_names()
    if any(sign in pattern for sign in "*?[") and not is_path_like(pattern):
        matching = [name for name in names.files if fnmatchcase(name.lower(), pattern.lower())]
        if not matching:
            families = ", ".join(sorted(set(names.families.values())))
            raise BadInput(f"no hardware matches {pattern!r}; families: {families}")
    elif pattern in names.files:
        matching = [pattern]
    else:
        matching = [name for name, family in names.families.items() if family == pattern]
    return [load_hardware(name) for name in matching or [pattern]]


def _load_from_file(path: Path, wanted: str) -> Hardware:
    """Loads a machine from a file; devices, fabrics and kernels may also come from the catalog."""
    own = Entries()
    add_file_entries(own, read_toml(path))
    if not own.machines:
        raise BadInput(f"{path}: defines no machine; it needs a table [machines.NAME] (docs/hardware.md)")
    name = own.aliases.get(wanted, wanted) or next(iter(own.machines))
    if name not in own.machines:
        raise unknown_name(f"machine in {path}:", wanted, own.machines)
    if not wanted and len(own.machines) > 1:
        names = ", ".join(own.machines)
        raise BadInput(f"{path}: holds several machines ({names}); name one, as in {path}:{name}")
    return _complete_user_machine(build_machine(name, own.merge_parts(_shared_entries(user_folders()))))


def _known_names() -> _Names:
    """Machine names in the user's current folders and the catalog."""
    return _all_names(user_folders())


@memoize
def _all_names(folders: tuple[Path, ...]) -> _Names:
    """Machine names in these user folders and the catalog; cached."""
    own = _own_entries(folders)
    names = _Names(
        {name: machine.file.path for name, machine in own.machines.items()},
        {name: machine.family for name, machine in own.machines.items()},
        dict(own.aliases),
        frozenset(own.machines),
    )
    for path in sorted(shipped_folder("hardware").glob("*.toml")):
        if path.name not in _SHARED:
            _add_names(names, path)
    return names


def _add_names(names: _Names, path: Path) -> None:
    """Adds the machine names in a catalog file, found by matching its lines without parsing TOML."""
    family, name = path.stem, ""
    for quoted, bare, others, stated in _LINE.findall(path.read_text(encoding="utf-8")):
        if stated:
            family = stated
        elif others:
            for alias in re.findall(r'"([^"]+)"', others):
                names.aliases.setdefault(alias, name)
        else:
            name = quoted or bare
            names.files.setdefault(name, path)
            names.families.setdefault(name, family)


@memoize
def _entries_at(folders: tuple[Path, ...], path: Path) -> Entries:
    """Entries that build the machines of one file, with devices, fabrics and kernels of all files; cached."""
    own = _own_entries(folders)
    if any(machine.file.path == path for machine in own.machines.values()):
        return own.merge_parts(_shared_entries(folders))
    entries = Entries()
    add_file_entries(entries, read_toml(path))
    return entries.merge_parts(_shared_entries(folders))


@memoize
def _shared_entries(folders: tuple[Path, ...]) -> Entries:
    """Entries of devices, fabrics and kernels for all machines, the user's entries first; cached."""
    shared = Entries()
    for name in _SHARED:
        add_file_entries(shared, read_toml(shipped_folder("hardware") / name))
    return _own_entries(folders).merge_parts(shared)


@memoize
def _own_entries(folders: tuple[Path, ...]) -> Entries:
    """Entries of all files in the user's folders; earlier folders take precedence."""
    own = Entries()
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"PLANNER_PATH names {folder}, which is not a folder")
        for path in sorted(folder.glob("*.toml")):
            # the folder may also hold models and other files
            if is_hardware_file(path):
                add_file_entries(own, read_toml(path))
        for path in sorted((folder / "hardware").glob("*.toml")):
            add_file_entries(own, read_toml(path))
    return own


@memoize
def _device_aliases() -> dict[str, str]:
    """Catalog names of devices by lower-case alias."""
    text = (files("planner.hardware") / "device_names.toml").read_text("utf-8")
    return {
        called.lower(): name for name, words in tomllib.loads(text)["devices"].items() for called in words
    }


def catalog_device_name(words: str, memory_gb: str = "") -> str:
    """The catalog's name for a device alias, told apart by memory if ambiguous; else the given words."""
    name = " ".join(words.lower().split())
    return _device_aliases().get(f"{name}/{memory_gb}", _device_aliases().get(name, words))


def is_machine_name(words: str) -> bool:
    """Whether words name a machine of the catalog or a hardware file."""
    return words in hardware_names() or ".toml" in words  # names of devices may hold a slash


@memoize
def find_device(words: str) -> Device | None:
    """Finds a device by its name or that of a machine; None if unknown. CPUs are found by machine only,
    because a CPU's name does not tell the number of cores."""
    if not words:
        return None
    if is_machine_name(words):
        return load_hardware(words).device
    name = catalog_device_name(words)
    kinds = (kind for kind in match_hardware("*") if kind.device.name == name and kind.device.kind == "gpu")
    first = next(kinds, None)
    return None if first is None else first.device


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
