"""Writes hardware files: tables as TOML, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from planner.errors import BadInput


def to_toml(tables: Mapping[str, Any], where: tuple[str, ...] = ()) -> str:
    """Nested tables of texts, numbers, flags and lists as TOML; tables after the values of their parent."""
    lines = [f"{_key(k)} = {_value(v)}" for k, v in tables.items() if not isinstance(v, Mapping)]
    text = "\n".join(lines) + "\n" if lines else ""
    if where and lines:
        text = f"[{'.'.join(_key(part) for part in where)}]\n" + text + "\n"
    elif lines:
        text += "\n"
    return text + "".join(to_toml(v, (*where, k)) for k, v in tables.items() if isinstance(v, Mapping))


def _key(key: str) -> str:
    plain = key.replace("-", "").replace("_", "")
    return key if plain.isalnum() and plain.isascii() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(f"{value:.6g}"))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value) if isinstance(value, str) else str(value)


def check_name(path: Path) -> None:
    """Refuse a name that the catalogue would not take for a file."""
    if path.suffix != ".toml":
        raise BadInput(f"a hardware file's name ends in .toml; {path} would not be recognised as one")


def write_hardware_file(path: Path, tables: Mapping[str, Any]) -> None:
    """Write the file and read it back: what comes out of here is what the other commands accept."""
    from planner.files.regular_file import write_file
    from planner.hardware.catalog import load_hardware

    check_name(path)
    head = "# Measured by `planner calibrate`; docs/hardware.md and docs/partition.md explain the figures.\n"
    write_file(path, head + to_toml(tables))
    for name in tables.get("machines", {}):
        load_hardware(f"{path}:{name}")


def merge_network(tables: dict[str, Any], network: Mapping[str, Any], source: Mapping[str, str]) -> None:
    """Put the network's figures into every machine of a hardware file's tables."""
    if not tables.get("machines"):
        raise BadInput("the file defines no machine to put the network into; it needs [machines.NAME]")
    for machine in tables["machines"].values():
        machine["nic_baseline_gbit_per_s"] = network["nic_gbit_per_s"]
        machine["nic_burst_gbit_per_s"] = network["nic_gbit_per_s"]
        threads = len(machine.get("calibration", {}).get("interference", [])) or int(machine.get("cores", 1))
        curve = list(network["latency_s"])
        curve = (curve + [curve[-1]] * threads)[:threads]
        machine.setdefault("calibration", {})["latency_s"] = curve
        machine.setdefault("sources", {}).update({"nic_baseline": dict(source), "nic_burst": dict(source)})


def measured_source(source: str) -> dict[str, str]:
    """Of figures that were measured today."""
    return {"basis": "measured", "source": source, "as_of": date.today().isoformat()}


def own_machine(
    name: str,
    machine: Mapping[str, Any],
    device: Mapping[str, Any],
    source: Mapping[str, str],
    usd_per_hour: float | None,
) -> dict[str, Any]:
    """The tables of a machine of one's own and of its only kind of device."""
    called = f"{name}-{device['kind']}"
    price = {} if usd_per_hour is None else {"on_demand_usd_per_hour": usd_per_hour}
    return {
        "family": name,
        "provider": "own",
        "machines": {name: {"device": called, **machine, "sources": {"machine": dict(source)}, **price}},
        "devices": {called: {**device, **source}},
    }
