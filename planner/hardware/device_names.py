"""The device of the catalogue that a recording names: by its machine, or as frameworks call the device."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from planner.hardware import Device
from planner.memoize import memoize


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
    from planner.hardware.catalog import hardware_names

    return words in hardware_names() or ".toml" in words  # names of devices may hold a slash


@memoize
def device_called(words: str) -> Device | None:
    """The device of a machine of the catalogue, or the device itself; None where it holds neither. Of a CPU
    the name alone does not tell how many cores there were: it must be named by its machine."""
    from planner.hardware.catalog import load_hardware, match_hardware

    if not words:
        return None
    if names_machine(words):
        return load_hardware(words).device
    name = name_called(words)
    kinds = (kind for kind in match_hardware("*") if kind.device.name == name and kind.device.kind == "gpu")
    first = next(kinds, None)
    return None if first is None else first.device
