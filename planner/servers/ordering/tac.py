"""TAC: timing-aware ordering of downloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planner.servers.ordering._base import Setting, Strategy
from planner.servers.ordering.graph import StepGraph, bits, with_pushes
from planner.simulator.policy import Ordered
from planner.simulator.step import Profile

_TICKS_PER_S = 10**15


def tac_order(graph: StepGraph, bandwidth_bytes_per_s: float, overhead_s: float = 0.0) -> list[int]:
    """Downloads (ops) in the order of TicTac (file 001), Algorithms 1 and 3.

    Of the outstanding downloads R, take again and again the one that is first under
        A before B  iff  min(P_B, M_A) < min(P_A, M_B), or these are equal and M+_A < M+_B      (equation 2)
    where M is the time of the transfer, P the computation that waits for this download alone, M+ the least
    transfer time that completes an op waiting for it and for others.

    Where we differ: Algorithm 3 prints the comparison the wrong way round, equation 2 has it right. The
    comparator is not transitive, so this is one pass over R in order of consumption, in which a later
    download replaces the best so far only if it comes strictly before it. Ops that wait for the same set are
    one entry, and an entry shrinks as downloads are taken, so that a round costs O(sets). Time is in whole
    femtoseconds: sums are exact and ties are ties. The oracle of an op is its least recorded duration.
    """
    profile = graph.profile
    least_s = profile.durations_s.min(axis=0).tolist()
    transfer = [
        round((overhead_s + int(profile.bytes[op]) / bandwidth_bytes_per_s) * _TICKS_PER_S)
        for op in graph.pulls
    ]
    work: dict[int, int] = {}  # set of outstanding downloads -> computation that waits for exactly them
    for op in graph.computation():
        work[graph.needs[op]] = work.get(graph.needs[op], 0) + round(least_s[op] * _TICKS_PER_S)
    cost = {need: sum(transfer[bit] for bit in bits(need)) for need in work}

    outstanding = list(range(len(transfer)))
    order = []
    while outstanding:
        best = _first(outstanding, transfer, *_loads(work, cost, len(transfer)))
        outstanding.remove(best)
        order.append(graph.pulls[best])
        work, cost = _without(1 << best, transfer[best], work, cost)
    return order


def _loads(work: dict[int, int], cost: dict[int, int], pulls: int) -> tuple[list[int], list[float]]:
    """P and M+ of each download."""
    alone = [0] * pulls
    impending = [float("inf")] * pulls
    open_bits = (1 << pulls) - 1
    for need in sorted(work, key=cost.__getitem__):
        if need.bit_count() == 1:
            alone[need.bit_length() - 1] = work[need]
        elif new := need & open_bits:
            for bit in bits(new):
                impending[bit] = cost[need]
            open_bits ^= new
    return alone, impending


def _first(outstanding: list[int], transfer: list[int], alone: list[int], impending: list[float]) -> int:
    best = outstanding[0]
    for other in outstanding[1:]:
        ours, theirs = min(alone[best], transfer[other]), min(alone[other], transfer[best])
        if ours < theirs or (ours == theirs and impending[other] < impending[best]):
            best = other
    return best


def _without(
    bit: int, time: int, work: dict[int, int], cost: dict[int, int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The entries after a download has arrived; those that now wait for the same set become one."""
    new_work: dict[int, int] = {}
    new_cost: dict[int, int] = {}
    for need, load in work.items():
        rest = need & ~bit
        if rest:
            new_work[rest] = new_work.get(rest, 0) + load
            new_cost[rest] = cost[need] - time if need & bit else cost[need]
    return new_work, new_cost


@dataclass(frozen=True, slots=True)
class Tac(Strategy):
    name: ClassVar[str] = "tac"
    summary: ClassVar[str] = "TicTac with timing: the download that hides most computation first"

    def policy(self, profile: Profile, setting: Setting) -> Ordered:
        order = tac_order(StepGraph.of(profile), setting.bandwidth_bytes_per_s, setting.overhead_s)
        return Ordered(priorities=with_pushes(profile, order))
