"""Recorded steps on another device: every part of every op takes as much longer or shorter as the rates of
both devices say for its kind, size and number format. What the host does (input, Python, launching) stays.

Where a device beside the host computes, the host issues ops ahead of it. On a faster device it may set the
pace: ops start when the op before them has ended on the device and the host has issued them,

    start[k] = max(issued[k], end[k - 1]),  issued[k] = launch[0] + ... + launch[k],

and an op waits for as much longer (or shorter) before its start as this says for both devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from planner.device.rates.constants import constants
from planner.device.rates.device import family_of, is_old
from planner.device.recorded.part_times import part_s
from planner.hardware import Device
from planner.simulator.step import PS, WORKER, Profile
from planner.simulator.step.recorded import OpPart, Recorded, host_share

Floats = npt.NDArray[np.float64]


def moved(profile: Profile, source: Device, target: Device) -> Profile:
    """The recorded steps as another device would do them."""
    recorded = profile.recorded
    if recorded is None or source == target:
        return profile
    own = not carries_over(source, target)
    memory = OpPart("memory", 1.0, 1.0, moved_bytes=1e9, format="fp32")
    update = part_s(memory, target) / part_s(memory, source, own=own)  # an optimizer only moves data
    durations_s = profile.durations_s.copy()
    durations_s[:, profile.resource == PS] *= update
    worker = np.flatnonzero(profile.resource == WORKER)
    before_s = durations_s[:, worker]
    device, factor = shares(profile, worker, recorded), np.ones(len(worker))
    for at, op in enumerate(worker):
        parts = recorded.work.get(profile.names[op], ())
        if parts and device[at] > 0:
            after = sum(part.share * part_s(part, target) / part_s(part, source, own=own) for part in parts)
            factor[at] = after / device[at]
    computing_s = before_s * device
    waiting_s = before_s - computing_s
    if recorded.launch_s:
        launch_s = np.array([recorded.launch_s.get(profile.names[op], 0.0) for op in worker])
        longer_s = waits_s(computing_s * factor, launch_s) - waits_s(computing_s, launch_s)
        waiting_s = np.maximum(waiting_s + longer_s, 0.0)
    durations_s[:, worker] = computing_s * factor + waiting_s
    durations_s.flags.writeable = False
    return replace(profile, durations_s=durations_s, recorded=None)


def carries_over(source: Device, target: Device) -> bool:
    """Whether what a device does better or worse than the mean of all is expected of the other too: nobody
    has published runs of that one, and both are of one vendor and of Volta's time or later. Older ones differ
    each in its own way (benchmarks/fit/moved.py)."""
    figures = constants()
    known = figures.devices.get(family_of(target, figures))
    seen = known is not None and bool(known.rows)
    return not seen and relatives(source, target)


def relatives(source: Device, target: Device) -> bool:
    vendors = {one.vendor or "nvidia" for one in (source, target)}
    return len(vendors) == 1 and not is_old(source) and not is_old(target)


def shares(profile: Profile, worker: npt.NDArray[np.intp], recorded: Recorded) -> Floats:
    """Of each op's time, what its parts explain: the device's."""
    return np.array([1.0 - host_share(recorded.work.get(profile.names[op], ())) for op in worker])


def waits_s(computing_s: Floats, launch_s: Floats) -> Floats:
    """How long the device waits for the host before each op (steps x ops)."""
    issued_s = np.cumsum(launch_s)
    out, end_s = np.zeros_like(computing_s), np.zeros(len(computing_s))
    for op in range(computing_s.shape[1]):
        start_s = np.maximum(issued_s[op], end_s)
        out[:, op] = start_s - end_s
        end_s = start_s + computing_s[:, op]
    return out


def seconds_by_kind(profile: Profile) -> Mapping[str, float]:
    """Seconds of a mean step by kind of kernels, with `host`, `input` and `optimizer`."""
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
        out[rest] = out.get(rest, 0.0) + host_share(parts) * lasts_s
    out["optimizer"] = float(mean_s[profile.resource == PS].sum())
    return out
