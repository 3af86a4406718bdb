"""When gradients are generated, and the steps in which they come (file 003, section 2.2 and figure 4)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from planner.simulator.step import UPLINK, WORKER, Profile

GAP_FACTOR = 2.0  # the released Prophet: a step ends where a gap exceeds twice the mean gap


def generation_times_s(profile: Profile) -> dict[int, float]:
    """When each upload could start if the network never made the worker wait: c(i) of file 003.

    The worker runs one op at a time, the one that became ready first (then the lowest index); durations are
    the means over the steps of the profile.
    """
    duration = np.where(profile.resource == WORKER, profile.durations_s.mean(axis=0), 0.0).tolist()
    worker = (profile.resource == WORKER).tolist()
    start, index = profile.dependents()
    waiting = np.diff(profile.dep_start).tolist()
    ready = [(0.0, op) for op in range(profile.ops) if waiting[op] == 0]
    heapq.heapify(ready)
    now = 0.0
    out: dict[int, float] = {}
    while ready:
        at, op = heapq.heappop(ready)
        if worker[op]:
            now = max(now, at) + duration[op]
            at = now
        elif profile.resource[op] == UPLINK:
            out[op] = at
        for dependent in index[start[op] : start[op + 1]].tolist():
            waiting[dependent] -= 1
            if waiting[dependent] == 0:
                heapq.heappush(ready, (at, dependent))
    return out


def steps_of(times_s: Sequence[float], gap_factor: float = GAP_FACTOR) -> list[list[int]]:
    """Indices grouped by the steps in which their times come, earliest step first.

    A new step begins where the gap to the one before exceeds `gap_factor` times the mean gap. Gradients that
    come evenly have no such gap: they are one step.
    """
    by_time = sorted(range(len(times_s)), key=lambda i: (times_s[i], i))
    gaps = [times_s[b] - times_s[a] for a, b in pairwise(by_time)]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    out = [[by_time[0]]] if by_time else []
    for gap, index in zip(gaps, by_time[1:], strict=True):
        if gap > gap_factor * mean:
            out.append([])
        out[-1].append(index)
    return out
