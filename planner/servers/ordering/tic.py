"""TIC: timing-independent ordering of downloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planner.servers.ordering._base import Setting, Strategy
from planner.servers.ordering.graph import StepGraph, bits, with_pushes
from planner.simulator.policy import Ordered
from planner.simulator.step import Profile


def impending_counts(graph: StepGraph) -> list[float]:
    """M+ of each download (by bit) when every download costs 1 and computation nothing.

    TicTac (file 001), Algorithms 1 and 2: M+ is the smallest number of downloads that an op waits for, over
    the ops that wait for this one and at least one more; infinite if there is no such op. It is also
    Order(read) of file 004, equation 3.
    """
    out = [float("inf")] * len(graph.pulls)
    open_bits = (1 << len(graph.pulls)) - 1
    sets = {graph.needs[op] for op in graph.computation()}
    for need in sorted((s for s in sets if s.bit_count() > 1), key=int.bit_count):
        for bit in bits(need & open_bits):
            out[bit] = need.bit_count()
        open_bits &= ~need
    return out


def tied_ranks(graph: StepGraph) -> list[int]:
    """TIC's priorities with ties, by bit: how many downloads have a smaller M+."""
    counts = impending_counts(graph)
    return [sum(other < own for other in counts) for own in counts]


def tic_order(graph: StepGraph) -> list[int]:
    """Downloads (ops) by M+. Ties, of which the first two of any chain are one, by order of consumption."""
    counts = impending_counts(graph)
    return [graph.pulls[bit] for bit in sorted(range(len(counts)), key=lambda bit: (counts[bit], bit))]


@dataclass(frozen=True, slots=True)
class Tic(Strategy):
    name: ClassVar[str] = "tic"
    summary: ClassVar[str] = "TicTac without timing: fewest downloads to the next op first"

    def policy(self, profile: Profile, setting: Setting) -> Ordered:
        order = tic_order(StepGraph.of(profile))
        return Ordered(priorities=with_pushes(profile, order))
