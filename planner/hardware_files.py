"""Reads `hardware/*.toml`: machines, the devices they hold and how fast those run kernels.

Every file has the same form (docs/hardware.md): `[machines.*]` with what they share in `[defaults]`,
`[devices.*]` and `[kernels.*]`. Machines name a device, which may stand in any file. A name in the user's
folders hides the same name of the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.catalog_folders import looks_like_path, shipped_folder, user_folders
from planner.errors import BadInput, unknown_name
from planner.hardware import Hardware
from planner.hardware_build import Entries, MachineAt, build
from planner.hardware_schema import FIGURES, DeviceEntry, KernelsEntry, MachineEntry
from planner.regular_file import expanded, text_of
from planner.tomlfile import Source as File
from planner.tomlfile import decode, read

_TABLES = ("defaults", "machines", "devices", "kernels")
_TABLES_OURS = ("machines", "devices", "kernels")
_HEADS = ("family", "provider", "description")


def hardware_names() -> tuple[str, ...]:
    """Names of all machines, by family and size as the files list them."""
    return tuple(_catalogue().machines)


def load_hardware(name: str) -> Hardware:
    """A machine by its name or from a file: `p3.2xlarge`, `./mine.toml`, or `./mine.toml:big` where a file
    holds several."""
    file, _, wanted = name.partition(".toml:")
    if wanted or looks_like_path(name):
        return _from_file(expanded(file + ".toml" if wanted else name), wanted)
    catalogue = _catalogue()
    key = catalogue.aliases.get(name, name)
    if key not in catalogue.machines:
        lower = {known.lower(): known for known in (*catalogue.machines, *catalogue.aliases)}
        if name.lower() not in lower:
            hint = "`planner hardware` lists them; a file of your own is given by its path"
            raise unknown_name("hardware", name, (*catalogue.machines, *catalogue.aliases), hint)
        return load_hardware(lower[name.lower()])
    return build(key, catalogue)


def match_hardware(patterns: str | Iterable[str]) -> tuple[Hardware, ...]:
    """Machines whose names match: `p3.*`, `g5.*,p4d.*`, names and paths among them, each once and in order.

    A pattern without wildcards is a name; a family's name (`p3`) stands for all its members.
    """
    parts = patterns.split(",") if isinstance(patterns, str) else list(patterns)
    parts = [part.strip() for part in parts if part.strip()]
    if not parts:
        raise BadInput("no hardware is named; give names or patterns such as 'p3.*,c4.8xlarge'")
    found: dict[str, Hardware] = {}
    for part in parts:
        for hardware in _match_one(part):
            found.setdefault(hardware.name, hardware)
    return tuple(found.values())


def _match_one(pattern: str) -> Iterable[Hardware]:
    catalogue = _catalogue()
    if any(sign in pattern for sign in "*?[") and not looks_like_path(pattern):
        names = [name for name in catalogue.machines if fnmatchcase(name.lower(), pattern.lower())]
        if not names:
            families = sorted({machine.family for machine in catalogue.machines.values()})
            raise BadInput(f"no hardware matches {pattern!r}; families: {', '.join(families)}")
        return [build(name, catalogue) for name in names]
    members = [name for name, machine in catalogue.machines.items() if machine.family == pattern]
    if members and pattern not in catalogue.machines:
        return [build(name, catalogue) for name in members]
    return [load_hardware(pattern)]


def _from_file(path: Path, wanted: str) -> Hardware:
    """A machine of one file; devices and kernels it does not define come from the catalogue."""
    own = Entries()
    _read_into(own, read(path))
    if not own.machines:
        raise BadInput(f"{path}: defines no machine; it needs a table [machines.NAME] (docs/hardware.md)")
    name = own.aliases.get(wanted, wanted) or next(iter(own.machines))
    if name not in own.machines:
        raise unknown_name(f"machine in {path}:", wanted, own.machines)
    if not wanted and len(own.machines) > 1:
        names = ", ".join(own.machines)
        raise BadInput(f"{path}: holds several machines ({names}); name one, as in {path}:{name}")
    shared = _catalogue()
    own.devices = shared.devices | own.devices
    own.kernels = shared.kernels | own.kernels
    return build(name, own)


def _catalogue() -> Entries:
    return _read_folders(user_folders())


@lru_cache(maxsize=8)
def _read_folders(folders: tuple[Path, ...]) -> Entries:
    catalogue = Entries()
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"PLANNER_PATH names {folder}, which is not a folder")
        for path in sorted(folder.glob("*.toml")):
            # Models, and what is no TOML at all, may lie in the same folder.
            if _is_hardware(path):
                _read_into(catalogue, read(path))
        for path in sorted((folder / "hardware").glob("*.toml")):
            _read_into(catalogue, read(path))
    for path in sorted(shipped_folder("hardware").glob("*.toml")):
        _read_into(catalogue, read(path))
    return catalogue


def _is_hardware(path: Path) -> bool:
    """Whether a file that lies directly in a user's folder is ours: it has one of our tables."""
    try:
        text = text_of(path)
    except BadInput:
        return False
    # a table may be written in many ways, but the name of it always stands at the start of a line
    if not any(line.strip(" \t[\"'").startswith(_TABLES_OURS) for line in text.splitlines()):
        return False
    return bool(read(path).data.keys() & set(_TABLES_OURS))


def _read_into(catalogue: Entries, file: File) -> None:
    """Add what a file says, except names that an earlier file has taken."""
    tables, path = file.data, file.path
    for key, value in tables.items():
        if key not in (*_TABLES, *_HEADS):
            raise file.error(f"unknown key; allowed: {', '.join((*_HEADS, *_TABLES))}", [key])
        if key in _HEADS and not isinstance(value, str):
            raise file.error("must be a text", [key])
        if key in _TABLES and not isinstance(value, dict):
            raise file.error(f"must be a table, as in [{key}.NAME]", [key])
    defaults = tables.get("defaults", {})
    decode(file, {"device": "", **defaults}, MachineEntry, ["defaults"])
    for name, table in _entries(file, "machines"):
        at = ["machines", name]
        entry = decode(file, _with_defaults(table, defaults), MachineEntry, at)
        for figure in entry.sources:
            if figure not in FIGURES:
                raise file.error(f"no such figure; allowed: {', '.join(FIGURES)}", [*at, "sources", figure])
        baseline, burst = entry.nic_baseline_gbit_per_s, entry.nic_burst_gbit_per_s
        if baseline and burst and burst < baseline:
            message = f"{burst:g} is below nic_baseline_gbit_per_s, {baseline:g}"
            raise file.error(message, [*at, "nic_burst_gbit_per_s"])
        machine = MachineAt(entry, tables.get("family", path.stem), tables.get("provider", "own"), file)
        if name not in catalogue.machines:
            catalogue.machines[name] = machine
            for alias in entry.aliases:
                catalogue.aliases.setdefault(alias, name)
    for name, table in _entries(file, "devices"):
        catalogue.devices.setdefault(name, (decode(file, table, DeviceEntry, ["devices", name]), file))
    for name, table in _entries(file, "kernels"):
        kernels = decode(file, table, KernelsEntry, ["kernels", name])
        if bool(kernels.rates) == bool(kernels.like):
            raise file.error('needs either rates or like = "OTHER DEVICE"', ["kernels", name])
        catalogue.kernels.setdefault(name, (kernels, file))


def _entries(file: File, kind: str) -> Iterable[tuple[str, dict[str, Any]]]:
    for name, table in file.data.get(kind, {}).items():
        if not isinstance(table, dict):
            raise file.error(f"must be a table, as in [{kind}.{name}]", [kind, name])
        if not name.strip() or any(sign in name for sign in "*?[],:/"):
            raise file.error("a name must not be empty nor hold any of * ? [ ] , : /", [kind, name])
        yield name, table


def _with_defaults(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**defaults, **table}
    if "sources" in defaults and isinstance(table.get("sources"), dict):
        merged["sources"] = {**defaults["sources"], **table["sources"]}
    return merged
