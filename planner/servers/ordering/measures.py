"""Measures of an order: they take times, or the timeline of a run.

A timeline is a structured array with a row for each chunk that ended: `worker`, `resource`, `op`, `step`,
`start_s`, `end_s`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.simulator.cluster import COMPUTATION, Cluster, Resource, ResourceKind
from planner.simulator.policy import Mode, Policy
from planner.simulator.run import RunOptions, run
from planner.simulator.step import DOWNLINK, UPLINK, WORKER, Profile, resource_of

Timeline = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
LINKS = (ResourceKind.DOWNLINK, ResourceKind.UPLINK, ResourceKind.LINK)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds per step on each resource (file 004, equation 1)."""

    resource_s: dict[Resource, float]

    @property
    def lower_s(self) -> float:
        """Time of the busiest resource, which no order can beat."""
        return max(self.resource_s.values())

    @property
    def upper_s(self) -> float:
        """Time if nothing overlaps."""
        return sum(self.resource_s.values())

    @property
    def communication_s(self) -> float:
        """N: time of the busiest link in one direction."""
        links = (s for resource, s in self.resource_s.items() if resource.kind in LINKS)
        return max(links, default=0.0)

    @property
    def computation_s(self) -> float:
        """C: time of the worker."""
        return self.resource_s.get(COMPUTATION, 0.0)


def traced(profile: Profile, cluster: Cluster, policy: Policy, mode: Mode, options: RunOptions) -> Timeline:
    """Run a simulation and return its timeline."""
    timeline = run(profile, cluster, policy, mode, replace(options, timeline=True)).timeline
    assert timeline is not None
    return timeline


def bounds(profile: Profile, bandwidth_bytes_per_s: float) -> Bounds:
    """Cost of the mean step on each resource at one worker's share of the bandwidth."""
    if not bandwidth_bytes_per_s > 0:
        raise BadInput(f"bandwidth is {bandwidth_bytes_per_s} bytes a second; it must be above zero")
    cost = np.where(
        profile.is_transfer, profile.bytes / bandwidth_bytes_per_s, profile.durations_s.mean(axis=0)
    )
    out: dict[Resource, float] = {}
    for op, (resource, server) in enumerate(zip(profile.resource, profile.server, strict=True)):
        used = resource_of(int(resource), int(server))
        out[used] = out.get(used, 0.0) + float(cost[op])
    return Bounds(out)


def ordering_efficiency(step_s: float, bounds: Bounds) -> float:
    """E of file 004, equation 2: 1 at the lower bound, 0 without any overlap. A step on one resource only
    has nothing to order: 1."""
    span = bounds.upper_s - bounds.lower_s
    return (bounds.upper_s - step_s) / span if span > 0 else 1.0


def overlap(communication_s: float, computation_s: float, step_s: float) -> float:
    """Alpha of file 001, section 3.2: the achieved share of possible overlap, (N + C - T) / min(N, C). Below
    0 where a step waits for more than its own N and C."""
    shorter = min(communication_s, computation_s)
    return (communication_s + computation_s - step_s) / shorter if shorter > 0 else 1.0


def idle_s(timeline: Timeline) -> Floats:
    """Seconds that the device idles in each (worker, step): T_wait."""
    keys, inverse = _worker_steps(timeline)
    busy = np.zeros(len(keys))
    own = timeline["resource"] == WORKER
    np.add.at(busy, inverse[own], (timeline["end_s"] - timeline["start_s"])[own])
    return np.asarray(_extent(timeline, inverse, len(keys)) - busy)


def straggler_shares(timeline: Timeline) -> Floats:
    """Longest wait for the slowest worker in each step, as a share of the step (file 001, section 6.3). A
    worker has done its part when its last upload (or, without uploads, op) has ended."""
    resource = UPLINK if (timeline["resource"] == UPLINK).any() else WORKER
    own = timeline[timeline["resource"] == resource]
    workers = int(timeline["worker"].max()) + 1
    steps = int(timeline["step"].max()) + 1
    done = np.full((steps, workers), np.nan)
    np.fmax.at(done, (own["step"], own["worker"]), own["end_s"])
    begun = np.full(steps, np.inf)
    ended = np.full(steps, -np.inf)
    np.minimum.at(begun, timeline["step"], timeline["start_s"])
    np.maximum.at(ended, timeline["step"], timeline["end_s"])
    whole = ~np.isnan(done).any(axis=1)  # a run may be cut inside a step
    slowest, fastest = done[whole].max(axis=1), done[whole].min(axis=1)
    return np.asarray((slowest - fastest) / (ended - begun)[whole])


def orders_seen(timeline: Timeline) -> tuple[int, int]:
    """Number of distinct download orders in a run, and of (worker, step) pairs counted."""
    own = timeline[timeline["resource"] == DOWNLINK]
    own = own[np.lexsort((own["start_s"], own["step"], own["worker"]))]
    sequences: dict[tuple[int, int], list[int]] = {}
    for worker, step, op in zip(
        own["worker"].tolist(), own["step"].tolist(), own["op"].tolist(), strict=True
    ):
        sequence = sequences.setdefault((worker, step), [])
        if op not in sequence[-1:]:  # the chunks of a transfer may follow each other
            sequence.append(op)
    longest = max((len(s) for s in sequences.values()), default=0)
    whole = [tuple(s) for s in sequences.values() if len(s) == longest]
    return len(set(whole)), len(whole)


def _worker_steps(timeline: Timeline) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    pairs = timeline["worker"].astype(np.int64) << 32 | timeline["step"].astype(np.int64)
    keys, inverse = np.unique(pairs, return_inverse=True)
    return keys, inverse


def _extent(timeline: Timeline, inverse: npt.NDArray[np.intp], count: int) -> Floats:
    begun = np.full(count, np.inf)
    ended = np.full(count, -np.inf)
    np.minimum.at(begun, inverse, timeline["start_s"])
    np.maximum.at(ended, inverse, timeline["end_s"])
    return np.asarray(ended - begun)
