"""Recorded steps at another batch. From several recordings every op's time is a straight line in the batch;
from one, every part grows as the rates of its device say for its kind and size (or, on a device without
rates, as what it computes or moves does), the input grows with the batch, and the host's time stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from planner.device.recorded.part_times import part_s
from planner.errors import BadInput
from planner.hardware import Device
from planner.simulator.step import WORKER, Profile
from planner.simulator.step.recorded import INPUT, OVERHEAD, OpPart, Recorded, host_share


def at_batch(profile: Profile, batch: int, device: Device | None) -> Profile:
    """One recording at another batch."""
    recorded = profile.recorded
    if recorded is None or batch == profile.batch:
        return profile
    grown = batch / profile.batch
    work: dict[str, tuple[OpPart, ...]] = {}
    factors = np.ones(profile.ops)
    for op in np.flatnonzero(profile.resource == WORKER):
        name = profile.names[op]
        parts = recorded.work.get(name, ())
        longer = [growth(part, grown, device) for part in parts]
        rest = host_share(parts) * (grown if name == INPUT else 1.0)
        factors[op] = rest + sum(part.share * by for part, by in zip(parts, longer, strict=True))
        work[name] = tuple(
            _larger(part, grown, part.share * by / factors[op])
            for part, by in zip(parts, longer, strict=True)
        )
    return _with(profile, batch, profile.durations_s * factors, replace(recorded, work=work))


def growth(part: OpPart, grown: float, device: Device | None) -> float:
    """How much longer a part takes when the batch is `grown` times as large."""
    if part.kind == OVERHEAD:
        return 1.0
    if device is not None:
        return part_s(part, device, grown) / part_s(part, device)
    if part.kind != "memory":
        return grown
    moved = part.moved_bytes + part.weight_bytes
    return (part.moved_bytes * grown + part.weight_bytes) / moved if moved else grown


def between(profiles: Sequence[Profile], batch: int) -> Profile:
    """Several recordings of one loop at different batches, as it would be at another: affine by op."""
    first = profiles[0]
    for other in profiles[1:]:
        if other.names != first.names:
            raise BadInput(
                f"{first.source} and {other.source} run different ops ({first.ops} and {other.ops}); record "
                "the same loop at each batch"
            )
    near = min(profiles, key=lambda one: abs(np.log(one.batch / batch)))
    if near.batch == batch:
        return near
    batches = np.array([one.batch for one in profiles], float)
    times_s = np.array([np.median(one.durations_s, axis=0) for one in profiles])
    fixed_s, slope_s = lines(batches, times_s)
    now_s, then_s = fixed_s + slope_s * near.batch, fixed_s + slope_s * batch
    factors = np.divide(then_s, now_s, out=np.ones_like(now_s), where=now_s > 0)
    recorded = near.recorded
    if recorded is not None:
        grown = batch / near.batch
        work = {
            name: tuple(_larger(part, grown, part.share) for part in parts)
            for name, parts in recorded.work.items()
        }
        recorded = replace(recorded, work=work)
    return _with(near, batch, near.durations_s * factors, recorded)


def lines(batches: np.ndarray, times_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The straight line of least squares of each column, neither falling nor below zero at no samples."""
    mean, middle_s = batches.mean(), times_s.mean(axis=0)
    spread = ((batches - mean) ** 2).sum()
    slope_s = np.maximum((batches - mean) @ (times_s - middle_s) / spread, 0.0)
    fixed_s = middle_s - slope_s * mean
    through = batches @ times_s / (batches @ batches)  # where the line would begin below zero
    return np.where(fixed_s < 0, 0.0, fixed_s), np.where(fixed_s < 0, through, slope_s)


def _larger(part: OpPart, grown: float, share: float) -> OpPart:
    return msgspec.structs.replace(
        part,
        share=share,
        flops=part.flops * grown,
        edge_flops=part.edge_flops * grown,
        moved_bytes=part.moved_bytes * grown,
    )


def _with(profile: Profile, batch: int, durations_s: np.ndarray, recorded: Recorded | None) -> Profile:
    durations_s.flags.writeable = False
    return replace(profile, batch=batch, durations_s=durations_s, starts_s=None, recorded=recorded)
