"""Finds machines by name, pattern or path: the user's folders first, then `hardware/*.toml` here.

Every file has the same form (docs/hardware.md): `[machines.*]` with what they share in `[defaults]`,
`[devices.*]`, `[fabrics.*]` and `[kernels.*]`. Machines name a device, which may stand in any file. A name in
the user's folders hides the same name of the catalogue.

The catalogue has hundreds of machines and TOML is slow to read: names are found by the headers of its files,
and a file is read when one of its machines is asked for.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path

from planner.errors import BadInput, unknown_name
from planner.files.regular_file import expanded, home, looks_like_path, shipped_folder, user_folders
from planner.files.tomlfile import read
from planner.hardware import Device, Hardware
from planner.hardware.build import build, with_usual_fabric
from planner.hardware.schema import Entries, is_hardware, read_into
from planner.memoize import memoize

# the files of the catalogue that hold no machines
_SHARED = ("devices.toml", "fabrics.toml", "kernels.toml")
_LINE = re.compile(
    r'^\[machines\.(?:"([^"]+)"|([\w-]+))\]$|^(?:offered_as|aliases) = (.+)$|^family = "(.+)"$', re.MULTILINE
)


@dataclass(frozen=True)
class _Names:
    """Names of machines in order, and by each its file and family; other names that they go by."""

    files: dict[str, Path]
    families: dict[str, str]
    aliases: dict[str, str]
    own: frozenset[str]  # those of the user's folders


def hardware_names() -> tuple[str, ...]:
    """Names of all machines, by family and size as the files list them."""
    return tuple(_names().files)


def own_hardware_names() -> frozenset[str]:
    """Names of the machines in the user's own folders."""
    return _names().own


def load_hardware(name: str) -> Hardware:
    """A machine by its name or from a file: `p3.2xlarge`, `./mine.toml`, or `./mine.toml:big` where a file
    holds several."""
    file, _, wanted = name.partition(".toml:")
    if wanted or looks_like_path(name):
        return _from_file(expanded(file + ".toml" if wanted else name), wanted)
    names = _names()
    key = names.aliases.get(name, name)
    if key not in names.files:
        lower = {known.lower(): known for known in (*names.files, *names.aliases)}
        if name.lower() not in lower:
            hint = "`planner hardware` lists them; a file of your own is given by its path"
            raise unknown_name("hardware", name, (*names.files, *names.aliases), hint)
        return load_hardware(lower[name.lower()])
    machine = load_shipped(key)
    # a price in a hardware file of one's own is one's own already
    if key in names.own or not os.path.isdir(os.path.join(home(), "prices")):
        return machine
    from planner.hardware.prices.book import with_own_prices

    return with_own_prices(machine)


def load_shipped(name: str) -> Hardware:
    """A machine by its name alone, with the prices of its file."""
    return _built(user_folders(), name)


@memoize
def _built(folders: tuple[Path, ...], name: str) -> Hardware:
    names = _all_names(folders)
    machine = build(name, _entries_at(folders, names.files[name]))
    return _as_own(machine) if name in names.own else machine


def _as_own(machine: Hardware) -> Hardware:
    """A machine of a user's file: the usual fabric if the file names none; its own if it has no price."""
    if machine.standing == "rentable" and not machine.has_price:
        machine = replace(machine, standing="own")
    if machine.fabric is not None or machine.device_count == 1:
        return machine
    return with_usual_fabric(machine, (_built((), known) for known in _all_names(()).files))


def fabric_named(device: str, count: int, kind: str, gbyte_per_s: float) -> str | None:
    """The name of the fabric of a catalog machine with so many of these devices and links like these."""
    shared = _shared_entries(())
    for name, path in _all_names(()).files.items():
        entry = _entries_at((), path).machines[name].entry
        if (entry.device, entry.device_count) != (device, count) or not isinstance(entry.fabric, str):
            continue
        fabric = shared.fabrics[entry.fabric][0]
        # of PCIe the topology does not tell the generation
        if fabric.kind == kind and (kind == "pcie" or fabric.gbyte_per_s == gbyte_per_s):
            return entry.fabric
    return None


def match_hardware(patterns: str | Iterable[str]) -> tuple[Hardware, ...]:
    """Machines whose names match: `p3.*`, `g5.*,p4d.*`, names and paths among them, each once and in order.

    A pattern without wildcards is a name; a family's name (`p3`) stands for all its members.
    """
    parts = patterns.split(",") if isinstance(patterns, str) else list(patterns)
    parts = [part.strip() for part in parts if part.strip()]
    if not parts:
        raise BadInput("no hardware is named; give names or patterns such as 'p3.*,c4.8xlarge'")
    by_name: dict[str, Hardware] = {}
    for part in parts:
        for hardware in _match_one(part):
            by_name.setdefault(hardware.name, hardware)
    return tuple(by_name.values())


def _match_one(pattern: str) -> Iterable[Hardware]:
    names = _names()
    if any(sign in pattern for sign in "*?[") and not looks_like_path(pattern):
        kept_files = [name for name in names.files if fnmatchcase(name.lower(), pattern.lower())]
        if not kept_files:
            families = ", ".join(sorted(set(names.families.values())))
            raise BadInput(f"no hardware matches {pattern!r}; families: {families}")
        return [load_hardware(name) for name in kept_files]
    members = [name for name, family in names.families.items() if family == pattern]
    if members and pattern not in names.files:
        return [load_hardware(name) for name in members]
    return [load_hardware(pattern)]


def _from_file(path: Path, wanted: str) -> Hardware:
    """A machine of one file; devices, fabrics and kernels it does not define come from the catalogue."""
    own = Entries()
    read_into(own, read(path))
    if not own.machines:
        raise BadInput(f"{path}: defines no machine; it needs a table [machines.NAME] (docs/hardware.md)")
    name = own.aliases.get(wanted, wanted) or next(iter(own.machines))
    if name not in own.machines:
        raise unknown_name(f"machine in {path}:", wanted, own.machines)
    if not wanted and len(own.machines) > 1:
        names = ", ".join(own.machines)
        raise BadInput(f"{path}: holds several machines ({names}); name one, as in {path}:{name}")
    return _as_own(build(name, own.with_parts_of(_shared_entries(user_folders()))))


def _names() -> _Names:
    return _all_names(user_folders())


@memoize
def _all_names(folders: tuple[Path, ...]) -> _Names:
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
    """The names in a file of the catalogue, by its lines alone."""
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
    """The machines of one file, with the devices, fabrics and kernels of all."""
    own = _own_entries(folders)
    if any(machine.file.path == path for machine in own.machines.values()):
        return own.with_parts_of(_shared_entries(folders))
    entries = Entries()
    read_into(entries, read(path))
    return entries.with_parts_of(_shared_entries(folders))


@memoize
def _shared_entries(folders: tuple[Path, ...]) -> Entries:
    shared = Entries()
    for name in _SHARED:
        read_into(shared, read(shipped_folder("hardware") / name))
    return _own_entries(folders).with_parts_of(shared)


@memoize
def _own_entries(folders: tuple[Path, ...]) -> Entries:
    """All that the user's folders hold, the first folder first."""
    own = Entries()
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"PLANNER_PATH names {folder}, which is not a folder")
        for path in sorted(folder.glob("*.toml")):
            # Models, and what is no TOML at all, may lie in the same folder.
            if is_hardware(path):
                read_into(own, read(path))
        for path in sorted((folder / "hardware").glob("*.toml")):
            read_into(own, read(path))
    return own


@memoize
def _called() -> dict[str, str]:
    text = (files("planner.hardware") / "device_names.toml").read_text("utf-8")
    return {
        called.lower(): name for name, words in tomllib.loads(text)["devices"].items() for called in words
    }


def name_called(words: str, memory_gb: str = "") -> str:
    """The catalogue's name of a device, by any of its names and, where that leaves it open, by its memory;
    the words themselves where it has none of them."""
    name = " ".join(words.lower().split())
    return _called().get(f"{name}/{memory_gb}", _called().get(name, words))


def names_machine(words: str) -> bool:
    """Whether a recording names a machine: one of the catalogue, or a file of the user's own."""
    return words in hardware_names() or ".toml" in words  # names of devices may hold a slash


@memoize
def device_called(words: str) -> Device | None:
    """The device of a machine of the catalogue, or the device itself; None where it holds neither. Of a CPU
    the name alone does not tell how many cores there were: it must be named by its machine."""
    if not words:
        return None
    if names_machine(words):
        return load_hardware(words).device
    name = name_called(words)
    kinds = (kind for kind in match_hardware("*") if kind.device.name == name and kind.device.kind == "gpu")
    first = next(kinds, None)
    return None if first is None else first.device
