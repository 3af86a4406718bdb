"""How far off recorded steps are that were moved to another device or another batch: as far as published runs
that were moved in the same way (`benchmarks/fit/moved.py` writes planner/rates/data/moved.toml)."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec

from planner.device.rates.constants import Spread, constants
from planner.device.rates.device import family_of
from planner.device.rates.error import Error
from planner.files.decoding import convert
from planner.hardware import Device


class Moves(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`device`: by what is known of the target and by kind of network. `batch`: by how many doublings it is
    larger or smaller; `batch_unrated`: the same where the device has no rates and steps grow as the batch."""

    as_of: str
    device: dict[str, dict[str, Spread]]
    batch: dict[str, Spread]
    batch_unrated: dict[str, Spread]


@cache
def moves() -> Moves:
    text = (files("planner.device.rates") / "data" / "moved.toml").read_text("utf-8")
    return convert(tomllib.loads(text), Moves)


def move_error(source: Device, target: Device, network: str) -> Error:
    """Of a step that was recorded on one device and scaled to another."""
    figures = constants()
    vendors = {one.vendor or "nvidia" for one in (source, target)}
    known = figures.devices.get(family_of(target, figures))
    basis = "other vendor" if len(vendors) > 1 else "fitted" if known is not None and known.rows else "unseen"
    spreads = moves().device[basis]
    spread = spreads.get(network, spreads["all"])
    words = f"{spread.rows} published pairs of devices, {moves().as_of}"
    return Error("moved", spread.median, spread.q90, spread.rows, words)


def batch_error(recorded: Sequence[int], batch: int, rated: Device | None) -> Error:
    """Of a step at another batch than the recorded ones: the distance to the nearest of them counts. Between
    two of them a straight line is as good as rates are."""
    far = min(abs(math.log2(batch / one)) for one in recorded)
    inside = min(recorded) <= batch <= max(recorded)
    spreads = moves().batch if rated is not None or inside else moves().batch_unrated
    known = sorted((int(name), spread) for name, spread in spreads.items())
    spread = next((spread for most, spread in known if far <= most), known[-1][1])
    words = f"{spread.rows} published pairs of batches, {moves().as_of}"
    return Error("moved", spread.median, spread.q90, spread.rows, words)


def combined_error(one: Error, other: Error) -> Error:
    """Errors that have nothing to do with each other add as the squares of their logarithms do."""
    source = other.source if one.basis == "recorded" else f"{one.source}; {other.source}"
    return Error(
        other.basis,
        math.hypot(one.median, other.median),
        math.hypot(one.q90, other.q90),
        other.rows,
        source,
    )
