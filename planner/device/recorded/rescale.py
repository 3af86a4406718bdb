"""Recorded steps on another device or at another batch, and how far off they may be.

On another device every part of every op takes as much longer or shorter as the rates of both devices say for
its kind, size and number format. What the host does (input, Python, launching) stays. Where a device beside
the host computes, the host issues ops ahead of it. On a faster device it may set the pace: ops start when the
op before them has ended on the device and the host has issued them,

    start[k] = max(issued[k], end[k - 1]),  issued[k] = launch[0] + ... + launch[k],

and an op waits for as much longer (or shorter) before its start as this says for both devices.

At another batch, from several recordings, every op's time is a straight line in the batch; from one, every
part grows as the rates of its device say for its kind and size (or, on a device without rates, as what it
computes or moves does), the input grows with the batch, and the host's time stays.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

import msgspec.structs
import numpy as np
import numpy.typing as npt

from planner.device.precision import PRECISIONS
from planner.device.rates import (
    DeviceRates,
    Error,
    Spread,
    constants,
    device_family,
    device_rates,
    is_pre_volta,
)
from planner.device.rates.times import kernel_s
from planner.errors import BadInput
from planner.files.tomlfile import convert
from planner.hardware import Device
from planner.memoize import memoize
from planner.model.layers.base import KERNEL_KINDS
from planner.simulator.step import PS, WORKER, Profile
from planner.simulator.step.recorded import INPUT, OVERHEAD, OpPart, Recorded, host_time_share

Floats = npt.NDArray[np.float64]


def rescale(profile: Profile, source: Device, target: Device) -> Profile:
    """Scales the op times of recorded steps from the source device to the target device."""
    recorded = profile.recorded
    if recorded is None or source == target:
        return profile
    own = not is_deviation_shared(source, target)
    memory = OpPart("memory", 1.0, 1.0, moved_bytes=1e9, format="fp32")
    update = part_s(memory, target) / part_s(memory, source, own=own)  # an optimizer only moves data
    durations_s = profile.durations_s.copy()
    durations_s[:, profile.resource == PS] *= update
    worker = np.flatnonzero(profile.resource == WORKER)
    before_s = durations_s[:, worker]
    work = [recorded.work.get(profile.names[op], ()) for op in worker]
    device, factor = np.array([1.0 - host_time_share(parts) for parts in work]), np.ones(len(worker))
    for at, parts in enumerate(work):
        if parts and device[at] > 0:
            after = sum(part.share * part_s(part, target) / part_s(part, source, own=own) for part in parts)
            factor[at] = after / device[at]
    computing_s = before_s * device
    waiting_s = before_s - computing_s
    if recorded.launch_s:
        launch_s = np.array([recorded.launch_s.get(profile.names[op], 0.0) for op in worker])
        longer_s = host_waits_s(computing_s * factor, launch_s) - host_waits_s(computing_s, launch_s)
        waiting_s = np.maximum(waiting_s + longer_s, 0.0)
    durations_s[:, worker] = computing_s * factor + waiting_s
    durations_s.flags.writeable = False
    return replace(profile, durations_s=durations_s, recorded=None)


def is_deviation_shared(source: Device, target: Device) -> bool:
    """Whether to assume that the target's times deviate from fitted rates as the source's do. True if the
    target has no published runs, and both are of one vendor and no older than Volta. Older devices each
    differ in their own way (benchmarks/fit/moved.py)."""
    return not has_published_runs(target) and is_comparable(source, target)


def has_published_runs(device: Device) -> bool:
    """Whether the rates of a device's family were fitted to published runs."""
    known = constants().devices.get(device_family(device, constants()))
    return known is not None and bool(known.rows)


def is_of_one_vendor(source: Device, target: Device) -> bool:
    """Whether two devices are of one vendor; unnamed vendors are NVIDIA."""
    return (source.vendor or "nvidia") == (target.vendor or "nvidia")


def is_comparable(source: Device, target: Device) -> bool:
    """Whether two devices are of one vendor and neither predates Volta."""
    return is_of_one_vendor(source, target) and not is_pre_volta(source) and not is_pre_volta(target)


def host_waits_s(computing_s: Floats, launch_s: Floats) -> Floats:
    """Seconds that the device waits for the host before each op, as an array of steps x ops."""
    issued_s = np.cumsum(launch_s)
    out, end_s = np.zeros_like(computing_s), np.zeros(len(computing_s))
    for op in range(computing_s.shape[1]):
        start_s = np.maximum(issued_s[op], end_s)
        out[:, op] = start_s - end_s
        end_s = start_s + computing_s[:, op]
    return out


def seconds_by_kind(profile: Profile) -> Mapping[str, float]:
    """Seconds of a mean step by kernel kind, plus `host`, `input` and `optimizer`."""
    recorded = profile.recorded
    out: dict[str, float] = {}
    if recorded is None:
        return out
    mean_s = profile.durations_s.mean(axis=0)
    for op in np.flatnonzero(profile.resource == WORKER):
        name, lasts_s = profile.names[op], float(mean_s[op])
        parts = recorded.work.get(name, ())
        for part in parts:
            out[part.kind] = out.get(part.kind, 0.0) + part.share * lasts_s
        rest = "input" if name == "input" else "host"
        out[rest] = out.get(rest, 0.0) + host_time_share(parts) * lasts_s
    out["optimizer"] = float(mean_s[profile.resource == PS].sum())
    return out


KERNEL_S = 5e-6


@memoize
def _rates_in_format(device: Device, format: str, own: bool) -> DeviceRates:
    """Rates of a device in a number format, with its family's fitted factors if `own`; cached."""
    known = "fp32" if format == "tf32" and "tf32" not in device.flops else format
    figures = constants() if own else msgspec.structs.replace(constants(), devices={})
    return device_rates(device, PRECISIONS[known], figures)


def part_s(part: OpPart, device: Device, growth: float = 1.0, *, own: bool = True) -> float:
    """Seconds of a part of an op on a device, for a batch `growth` times as large. With `own` false, without
    the fitted factors of this device's family."""
    if part.kind == OVERHEAD:
        return KERNEL_S
    figures, rates = constants(), _rates_in_format(device, part.format, own)
    launches = max(part.launches, 1.0)
    flops = (part.flops + figures.small_sides * part.edge_flops) * growth
    flops += part.row_flops * figures.small_rows
    flop_s = flops / launches / float(rates.flops[KERNEL_KINDS.index(part.kind)])
    move_s = (part.moved_bytes * growth + part.weight_bytes) / launches / rates.memory_bytes_per_s
    cache_s = rates.cache_bytes / rates.memory_bytes_per_s
    fixed_s = KERNEL_S * rates.fixed
    return float(kernel_s(np.array(flop_s), np.array(move_s), cache_s, fixed_s, figures.overlap)) * launches


def rescale_batch(profile: Profile, batch: int, device: Device | None) -> Profile:
    """Scales one recording's times and work to another batch."""
    recorded = profile.recorded
    if recorded is None or batch == profile.batch:
        return profile
    growth = batch / profile.batch
    work: dict[str, tuple[OpPart, ...]] = {}
    factors = np.ones(profile.ops)
    for op in np.flatnonzero(profile.resource == WORKER):
        name = profile.names[op]
        parts = recorded.work.get(name, ())
        shares = [part.share * time_growth(part, growth, device) for part in parts]
        factors[op] = host_time_share(parts) * (growth if name == INPUT else 1.0) + sum(shares)
        scaled = zip(parts, shares, strict=True)
        work[name] = tuple(_scale_part(part, growth, share / factors[op]) for part, share in scaled)
    recorded = msgspec.structs.replace(recorded, work=work)
    return _set_durations(profile, batch, profile.durations_s * factors, recorded)


def time_growth(part: OpPart, growth: float, device: Device | None) -> float:
    """Factor on the time of a part of an op if the batch is `growth` times as large."""
    if part.kind == OVERHEAD:
        return 1.0
    if device is not None:
        return part_s(part, device, growth) / part_s(part, device)
    if part.kind != "memory":
        return growth
    moved = part.moved_bytes + part.weight_bytes
    return (part.moved_bytes * growth + part.weight_bytes) / moved if moved else growth


def interpolate_batch(profiles: Sequence[Profile], batch: int) -> Profile:
    """Interpolates each op's time linearly between recordings of one loop at several batches."""
    first = profiles[0]
    for other in profiles[1:]:
        if other.names != first.names:
            raise BadInput(
                f"{first.source} and {other.source} run different ops ({first.ops} and {other.ops}); record "
                "the same loop at each batch"
            )
    near = min(profiles, key=lambda profile: abs(np.log(profile.batch / batch)))
    if near.batch == batch:
        return near
    batches = np.array([profile.batch for profile in profiles], float)
    times_s = np.array([np.median(profile.durations_s, axis=0) for profile in profiles])
    fixed_s, slope_s = fit_lines(batches, times_s)
    now_s, then_s = fixed_s + slope_s * near.batch, fixed_s + slope_s * batch
    factors = np.divide(then_s, now_s, out=np.ones_like(now_s), where=now_s > 0)
    recorded = near.recorded
    if recorded is not None:
        growth = batch / near.batch
        work = {
            name: tuple(_scale_part(part, growth, part.share) for part in parts)
            for name, parts in recorded.work.items()
        }
        recorded = msgspec.structs.replace(recorded, work=work)
    return _set_durations(near, batch, near.durations_s * factors, recorded)


def fit_lines(batches: np.ndarray, times_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fits a least-squares line to each column of times; returns intercepts and slopes, none negative."""
    mean, middle_s = batches.mean(), times_s.mean(axis=0)
    spread = ((batches - mean) ** 2).sum()
    slope_s = np.maximum((batches - mean) @ (times_s - middle_s) / spread, 0.0)
    fixed_s = middle_s - slope_s * mean
    through = batches @ times_s / (batches @ batches)  # where the line would begin below zero
    return np.where(fixed_s < 0, 0.0, fixed_s), np.where(fixed_s < 0, through, slope_s)


def _scale_part(part: OpPart, growth: float, share: float) -> OpPart:
    """Part of an op with its work multiplied by `growth` and `share` as its share of the op's time."""
    return msgspec.structs.replace(
        part,
        share=share,
        flops=part.flops * growth,
        edge_flops=part.edge_flops * growth,
        moved_bytes=part.moved_bytes * growth,
    )


def _set_durations(profile: Profile, batch: int, durations_s: Floats, recorded: Recorded | None) -> Profile:
    """Returns the profile with another batch, new durations and without recorded start times."""
    durations_s.flags.writeable = False
    return replace(profile, batch=batch, durations_s=durations_s, starts_s=None, recorded=recorded)


class RescaleErrors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Errors of steps that are scaled to another device or batch. `device`: by what is known of the target
    and by kind of network. `batch`: by number of doublings or halvings; `batch_unrated`: the same for devices
    without rates."""

    as_of: str
    device: dict[str, dict[str, Spread]]
    batch: dict[str, Spread]
    batch_unrated: dict[str, Spread]


@memoize
def rescale_errors() -> RescaleErrors:
    """Errors of scaling recorded steps to other devices and batches; cached."""
    text = (files("planner.device.rates") / "data" / "moved.toml").read_text("utf-8")
    return convert(tomllib.loads(text), RescaleErrors)


def device_error(source: Device, target: Device, network: str) -> Error:
    """Error of scaling a step recorded on one device to another, as seen between published runs."""
    basis = "fitted" if has_published_runs(target) else "unseen"
    spreads = rescale_errors().device[basis if is_of_one_vendor(source, target) else "other vendor"]
    spread = spreads.get(network, spreads["all"])
    return _error_from_spread(spread, "devices")


def batch_error(recorded: Sequence[int], batch: int, rated: Device | None) -> Error:
    """Error of a step scaled to another batch, by distance to the nearest recorded batch."""
    far = min(abs(math.log2(batch / known_batch)) for known_batch in recorded)
    inside = min(recorded) <= batch <= max(recorded)
    spreads = rescale_errors().batch if rated is not None or inside else rescale_errors().batch_unrated
    known = sorted((int(name), spread) for name, spread in spreads.items())
    spread = next((spread for most, spread in known if far <= most), known[-1][1])
    return _error_from_spread(spread, "batches")


def _error_from_spread(spread: Spread, pairs: str) -> Error:
    """Prediction error (median, 90% quantile) from a spread; its source text counts the published pairs."""
    source = f"{spread.rows} published pairs of {pairs}, {rescale_errors().as_of}"
    return Error("moved", spread.median, spread.q90, spread.rows, source)


def combine_errors(first: Error, second: Error) -> Error:
    """Error from two independent errors together: the squares of their logarithms add."""
    source = second.source if first.basis == "recorded" else f"{first.source}; {second.source}"
    median, q90 = math.hypot(first.median, second.median), math.hypot(first.q90, second.q90)
    return Error(second.basis, median, q90, second.rows, source)
