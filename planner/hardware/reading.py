"""One hardware file as entries: keys that are known, figures within bounds, or an error that says where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.files.identifiers import faulty_name, name_fault
from planner.files.regular_file import text_of
from planner.files.tomlfile import TomlSource as File
from planner.files.tomlfile import decode, read
from planner.hardware.build import Entries, MachineAt
from planner.hardware.schema import FIGURES, DeviceEntry, FabricEntry, KernelsEntry, MachineEntry

_OURS = ("machines", "devices", "kernels", "fabrics")
_TABLES = ("defaults", *_OURS)
_HEADS = ("family", "provider", "description")
_PROSE = frozenset(("description", "source", "matmul_source", "reasoning", "status", "note"))  # not names


def is_hardware(path: Path) -> bool:
    """Whether a file that lies directly in a user's folder is ours: it has one of our tables."""
    try:
        text = text_of(path)
    except BadInput:
        return False
    # a table may be written in many ways, but the name of it always stands at the start of a line
    if not any(line.strip(" \t[\"'").startswith(_OURS) for line in text.splitlines()):
        return False
    return bool(read(path).data.keys() & set(_OURS))


def read_into(entries: Entries, file: File) -> None:
    """Add what a file says, except names that an earlier file has taken."""
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
    if faulty := faulty_name(defaults, _PROSE):
        raise file.error(faulty[1], ["defaults", *faulty[0]])
    decode(file, {"device": "", **defaults}, MachineEntry, ["defaults"])
    for name, table in _tables(file, "machines"):
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
        if name not in entries.machines:
            entries.machines[name] = machine
            for alias in filter(None, (*entry.aliases, entry.offered_as)):
                entries.aliases.setdefault(alias, name)
    for name, table in _tables(file, "devices"):
        entries.devices.setdefault(name, (decode(file, table, DeviceEntry, ["devices", name]), file))
    for name, table in _tables(file, "fabrics"):
        entries.fabrics.setdefault(name, (decode(file, table, FabricEntry, ["fabrics", name]), file))
    for name, table in _tables(file, "kernels"):
        kernels = decode(file, table, KernelsEntry, ["kernels", name])
        if bool(kernels.rates) == bool(kernels.like):
            raise file.error('needs either rates or like = "OTHER DEVICE"', ["kernels", name])
        entries.kernels.setdefault(name, (kernels, file))


def _tables(file: File, kind: str) -> Iterable[tuple[str, dict[str, Any]]]:
    for name, table in file.data.get(kind, {}).items():
        if not isinstance(table, dict):
            raise file.error(f"must be a table, as in [{kind}.{name}]", [kind, name])
        if not name.strip() or any(sign in name for sign in "*?[],:/"):
            raise file.error("a name must not be empty nor hold any of * ? [ ] , : /", [kind, name])
        if faulty := faulty_name({name: table}, _PROSE):
            raise file.error(faulty[1], [kind, *faulty[0]])
        yield name, table


def _with_defaults(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**defaults, **table}
    if "sources" in defaults and isinstance(table.get("sources"), dict):
        merged["sources"] = {**defaults["sources"], **table["sources"]}
    return merged
