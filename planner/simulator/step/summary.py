"""The summary of a profile, with warnings about suspicious values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.simulator.cluster import Resource, ResourceKind
from planner.simulator.step import DOWNLINK, HOST, PS, RESOURCE_KINDS, UPLINK, WORKER, Profile, resource_of
from planner.units import format_bytes, format_seconds

FEW_STEPS = 10
MANY_OPS = 300
CLOCK_TOLERANCE_S = 1e-3
_AS_IT_IS = ("model", "batch", "servers", "hardware", "basis", "source", "steps", "ops", "notes")


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Use of one resource in a mean step. A link's time is bytes / bandwidth, if that is known."""

    resource: Resource
    ops: int
    bytes: int
    time_s: float | None


@dataclass(frozen=True, slots=True)
class OpUse:
    """Mean seconds of one op per step, with their standard deviation."""

    name: str
    resource: ResourceKind
    time_s: float
    std_s: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a profile; times are means over steps."""

    model: str
    batch: int
    servers: int
    hardware: str
    basis: str
    source: str
    steps: int
    ops: int
    tensors: int
    bandwidth_bytes_per_s: float | None
    resources: tuple[ResourceUse, ...]
    compute_s: float
    communication_s: float | None
    communication_to_computation: float | None
    critical_path_s: float
    critical_path: tuple[str, ...]
    recorded_step_s: float | None
    slowest: tuple[OpUse, ...]
    notes: tuple[str, ...]
    suspicious: tuple[str, ...]


def summarize(profile: Profile, bandwidth_bytes_per_s: float | None = None, slowest: int = 10) -> Summary:
    """Summary of a profile at this bandwidth; by default at the recorded one."""
    bandwidth = bandwidth_bytes_per_s or profile.bandwidth_bytes_per_s
    if bandwidth is not None and not bandwidth > 0:
        raise BadInput(f"bandwidth is {bandwidth}; it must be above zero")
    mean = profile.durations_s.mean(axis=0)
    lasts = np.where(profile.is_transfer, profile.bytes / bandwidth if bandwidth else 0.0, mean)
    resources = []
    for resource in (DOWNLINK, WORKER, HOST, UPLINK, PS):
        for server in range(profile.servers) if resource not in (WORKER, HOST) else (-1,):
            mine = profile.resource == resource
            if server >= 0:
                mine &= profile.server == server
            if mine.any():
                link = resource in (DOWNLINK, UPLINK)
                time_s = None if link and not bandwidth else float(lasts[mine].sum())
                used = resource_of(resource, server)
                resources.append(ResourceUse(used, int(mine.sum()), int(profile.bytes[mine].sum()), time_s))
    compute_s = float(mean[profile.resource == WORKER].sum())
    communication_s = float(lasts[profile.is_transfer].sum()) if bandwidth else None
    path = critical_path(profile, lasts)
    ranked = np.argsort(-lasts, kind="stable")[:slowest]
    std = profile.durations_s.std(axis=0)
    ends_s = None if profile.starts_s is None else profile.starts_s + profile.durations_s
    return Summary(
        **{name: getattr(profile, name) for name in _AS_IT_IS},
        tensors=len(profile.tensors),
        bandwidth_bytes_per_s=bandwidth,
        resources=tuple(resources),
        compute_s=compute_s,
        communication_s=communication_s,
        communication_to_computation=communication_s / compute_s if communication_s and compute_s else None,
        critical_path_s=float(lasts[path].sum()),
        critical_path=tuple(profile.names[i] for i in path),
        recorded_step_s=None if ends_s is None else float(ends_s.max(axis=1).mean()),
        slowest=tuple(
            OpUse(
                profile.names[i],
                RESOURCE_KINDS[profile.resource[i]],
                float(lasts[i]),
                0.0 if profile.is_transfer[i] else float(std[i]),
                int(profile.bytes[i]),
            )
            for i in ranked.tolist()
        ),
        suspicious=tuple(_profile_warnings(profile, bandwidth)),
    )


def critical_path(profile: Profile, lasts_s: npt.NDArray[np.float64]) -> list[int]:
    """Op indices of the longest chain of dependencies, first to last."""
    end = np.zeros(profile.ops)
    before = np.full(profile.ops, -1)
    for i in profile.topological_order().tolist():
        deps = profile.deps(i)
        if len(deps):
            before[i] = deps[np.argmax(end[deps])]
            end[i] = end[before[i]]
        end[i] += lasts_s[i]
    path = [int(np.argmax(end))]
    while before[path[-1]] >= 0:
        path.append(int(before[path[-1]]))
    return path[::-1]


def _profile_warnings(profile: Profile, bandwidth: float | None) -> list[str]:
    """Warnings about values that make predictions from this profile doubtful, each with a remedy."""
    out = []
    measured = profile.basis == "measured"
    if measured and profile.steps == 1:
        out.append("one step only: no variation between steps is known; record 20 to 100")
    elif measured and profile.steps < FEW_STEPS:
        out.append(f"{profile.steps} steps only: their variation is poorly known; record 20 to 100")
    if measured and profile.ops > MANY_OPS:
        out.append(f"{profile.ops} traced ops a step: tracing can add 5 to 9%; compare with an untraced step")
    out += [f"{note}" for note in profile.notes if "lost" in note or "rounded" in note]
    if bandwidth is None and profile.recorded is None:
        out.append("no bandwidth is recorded; times of links are unknown, give --bandwidth")
    worker = profile.durations_s[:, profile.resource == WORKER].sum(axis=1)
    if not worker.any():
        out.append("the worker's ops take no time at all")
    elif profile.steps > 2:
        middle = float(np.median(worker))
        if worker[0] > 1.5 * middle:
            out.append(f"the first step computes {worker[0] / middle:.1f} times the median: a warm-up step?")
        slow = int((worker > 2 * middle).sum())
        if slow:
            out.append(f"{slow} of {profile.steps} steps compute more than twice the median time")
        spread = float(worker.std() / worker.mean())
        if spread > 0.2:
            out.append(f"compute time varies by {spread:.0%} between steps: was the machine shared?")
    down = int(profile.bytes[profile.resource == DOWNLINK].sum())
    up = int(profile.bytes[profile.resource == UPLINK].sum())
    if max(down, up) > 1.01 * min(down, up):
        out.append(
            f"{format_bytes(down)} down but {format_bytes(up)} up: gradients or parameters are missing"
        )
    if profile.starts_s is not None:
        out += _timing_warnings(profile, bandwidth)
    return out


def _timing_warnings(profile: Profile, bandwidth: float | None) -> list[str]:
    """Warnings about recorded start times that contradict dependencies or the bandwidth."""
    assert profile.starts_s is not None
    out = []
    ends = profile.starts_s + profile.durations_s
    consumer = np.repeat(np.arange(profile.ops), np.diff(profile.dep_start))
    early = ends[:, profile.dep_index] - profile.starts_s[:, consumer]
    # A parsed tensor may be used before the record of its transfer is closed: a millisecond means nothing.
    bad = early > CLOCK_TOLERANCE_S
    if bad.any():
        step, edge = np.unravel_index(int(np.argmax(early)), early.shape)
        late = f"{profile.names[consumer[edge]]} in step {step}, by {format_seconds(float(early.max()))}"
        out.append(
            f"{int(bad.any(axis=0).sum())} ops start before what they wait for has ended ({late}): clocks "
            "of the hosts differ, or one jumped"
        )
    if bandwidth:
        for server in range(profile.servers):
            mine = (profile.resource == DOWNLINK) & (profile.server == server)
            if mine.sum() > 1:
                busy_s = ends[:, mine].max(axis=1) - profile.starts_s[:, mine].min(axis=1)
                used = float(np.median(profile.bytes[mine].sum() / np.maximum(busy_s, 1e-9)) / bandwidth)
                if used > 1.1 or (used < 0.5 and profile.servers == 1):
                    link = resource_of(DOWNLINK, server)
                    out.append(f"{link} ran at {used:.0%} of the stated bandwidth: is it right?")
    return out
