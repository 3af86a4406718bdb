"""Small step graphs for the tests of ordering, and the time a step takes under a fixed order."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile


def step_graph(
    pulls: Mapping[str, float],
    computation: Mapping[str, tuple[Sequence[str], float]],
    pushes: Mapping[str, tuple[str, str]] | None = None,
) -> Profile:
    """A profile from downloads (name: seconds at 1 MB/s), worker ops (name: (inputs, seconds)) and uploads
    (name: (producer, download of the same tensor)), each with an update that costs nothing."""
    names = [*pulls, *computation, *(pushes or {})]
    index = {name: i for i, name in enumerate(names)}
    ops = [Op(name, DOWNLINK, 0, bytes=round(s * 1e6), tensor=t) for t, (name, s) in enumerate(pulls.items())]
    ops += [Op(n, WORKER, deps=tuple(index[i] for i in ins)) for n, (ins, _) in computation.items()]
    tensor = {name: t for t, name in enumerate(pulls)}
    ops += [
        Op(n, UPLINK, 0, bytes=round(pulls[of] * 1e6), deps=(index[producer],), tensor=tensor[of])
        for n, (producer, of) in (pushes or {}).items()
    ]
    ops += [
        Op(f"{n}/update", PS, 0, deps=(index[n],), tensor=tensor[of]) for n, (_, of) in (pushes or {}).items()
    ]
    durations = [0.0] * len(pulls) + [s for _, s in computation.values()] + [0.0] * 2 * len(pushes or {})
    return Profile.build(ops, durations, model="toy", batch=1, tensors=list(pulls))


MB_PER_S = 1e6  # the bandwidth at which the seconds above hold


def chain(transfer_s: Sequence[float], compute_s: Sequence[float]) -> Profile:
    """r0 -> op0; (op0, r1) -> op1; ..."""
    computation = {f"op{i}": ([*([f"op{i - 1}"] if i else []), f"r{i}"], s) for i, s in enumerate(compute_s)}
    return step_graph({f"r{i}": s for i, s in enumerate(transfer_s)}, computation)


def parallel(transfer_s: Sequence[float], compute_s: Sequence[float]) -> Profile:
    """Branches of one download and one op, joined at the end by an op that costs nothing."""
    computation: dict[str, tuple[Sequence[str], float]] = {
        f"op{i}": ([f"r{i}"], s) for i, s in enumerate(compute_s)
    }
    computation["join"] = (list(computation), 0.0)
    return step_graph({f"r{i}": s for i, s in enumerate(transfer_s)}, computation)


def makespan_s(profile: Profile, order: Sequence[int], bandwidth_bytes_per_s: float = MB_PER_S) -> float:
    """One link that sends downloads in this order, one worker that runs the op that was ready first."""
    waiting = [len(profile.deps(op)) for op in range(profile.ops)]
    start, index = profile.dependents()
    ready: list[tuple[float, int]] = []
    ready_at = [0.0] * profile.ops
    now = 0.0

    def done(op: int, at: float) -> None:
        for dependent in index[start[op] : start[op + 1]].tolist():
            waiting[dependent] -= 1
            ready_at[dependent] = max(ready_at[dependent], at)
            if waiting[dependent] == 0 and profile.resource[dependent] == WORKER:
                heapq.heappush(ready, (ready_at[dependent], dependent))

    arrivals = []
    for op in order:
        now += int(profile.bytes[op]) / bandwidth_bytes_per_s
        arrivals.append((now, op))
    clock = 0.0
    while arrivals or ready:
        if arrivals and (not ready or arrivals[0][0] <= max(clock, ready[0][0])):
            at, op = arrivals.pop(0)
            done(op, at)
            continue
        at, op = heapq.heappop(ready)
        clock = max(clock, at) + float(profile.durations_s[0, op])
        done(op, clock)
    return max(clock, now)
