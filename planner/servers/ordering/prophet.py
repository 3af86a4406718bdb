"""Prophet: blocks of gradients that fit the time before a more urgent gradient (Prophet, Algorithm 1).

Gradients come in steps (section 2.2 and figure 4): the times at which backward propagation makes them are
grouped first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from planner.servers.ordering.graph import StepGraph
from planner.servers.ordering.strategies import (
    DEFAULT_PARTITION_BYTES,
    Schedule,
    Setting,
    layer_priorities,
)
from planner.servers.placement import cut_tensors, replace_deps
from planner.simulator.policy import Blocks
from planner.simulator.step import UPLINK, WORKER, Profile

GAP_FACTOR = 2.0  # the released Prophet: a step ends where a gap exceeds twice the mean gap


def generation_times_s(profile: Profile) -> dict[int, float]:
    """Seconds until each gradient is ready if the worker never waits for the network (Prophet's c(i)).

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


def gradient_bursts(times_s: Sequence[float]) -> list[list[int]]:
    """Groups gradients into bursts that become ready close together, earliest burst first.

    A new burst begins where the gap exceeds twice the mean gap; evenly spaced gradients form one.
    """
    by_time = sorted(range(len(times_s)), key=lambda i: (times_s[i], i))
    gaps = [times_s[b] - times_s[a] for a, b in pairwise(by_time)]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    out = [[by_time[0]]] if by_time else []
    for gap, index in zip(gaps, by_time[1:], strict=True):
        if gap > GAP_FACTOR * mean:
            out.append([])
        out[-1].append(index)
    return out


def plan_blocks(
    generated_s: Sequence[float], transfer_s: Sequence[float]
) -> tuple[list[list[int]], list[int]]:
    """Gradients of each block sent during backward, and the gradients sent after it (Prophet, Algorithm 1).

    `generated_s` is c(i), `transfer_s` E(i). Gradients come in steps (see `gradient_bursts`), and all of a
    step are there when its last one is. At each step but the last, gradients that are there go into the
    block, most urgent first, while they fit the time A until the next step. At the last step, which brings
    gradient 0, whatever is left goes by priority. Where we differ: A(i), printed as the distance to the
    nearest gradient of higher priority, would be about zero inside a step; the text, and the released code,
    mean the time to the next step.
    """
    steps = gradient_bursts(generated_s)
    complete = [max(generated_s[i] for i in step) for step in steps]
    waiting: list[int] = []
    blocks: list[list[int]] = []
    for now, until, step in zip(complete, complete[1:], steps, strict=False):
        waiting = sorted(waiting + step)
        used_s = 0.0
        block = []
        while waiting and used_s + transfer_s[waiting[0]] <= until - now:
            block.append(waiting.pop(0))
            used_s += transfer_s[block[-1]]
        if block:
            blocks.append(block)
    return blocks, sorted(waiting + (steps[-1] if steps else []))


def plan_prophet(
    profile: Profile, setting: Setting, partition_bytes: int = DEFAULT_PARTITION_BYTES
) -> Schedule:
    """Schedules uploads in Prophet's blocks, with one overhead per block, and downloads by layer.

    Gradients are cut into partitions first, as in BytePS; those that fit no block wait for backward to end.
    """
    profile = cut_tensors(profile, partition_bytes)
    times, priority, names = generation_times_s(profile), layer_priorities(profile), profile.names
    uploads = np.flatnonzero(profile.resource == UPLINK).tolist()
    uploads.sort(key=lambda op: (priority[names[op]], op))
    blocks, held = plan_blocks(
        [times[op] for op in uploads],
        [int(profile.bytes[op]) / setting.bandwidth_bytes_per_s for op in uploads],
    )
    in_block = {i for block in blocks for i in block}
    alone = [[i] for i in range(len(uploads)) if i not in in_block]
    by_priority = sorted(blocks + alone)  # each block is sorted: its first is its most urgent
    policy = Blocks(
        blocks=(
            *(tuple(names[uploads[i]] for i in block) for block in by_priority),
            *((names[op],) for op in StepGraph.build(profile).pulls),
        ),
    )
    last = max(uploads, key=lambda op: (times[op], op))
    ends = profile.deps(last).tolist()  # what generates the last gradient ends backward propagation
    deps: list[list[int]] = [profile.deps(op).tolist() for op in range(profile.ops)]
    for op in (uploads[i] for i in held):
        deps[op] = sorted({*deps[op], *ends})
    return Schedule(replace_deps(profile, deps), policy)
