"""Why more workers gave less: they fall into step with each other (docs/simulator.md)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from planner.search.rungs import Score


def falling(points: Iterable[tuple[int, Score]], *, takes_turns: bool = True) -> str:
    """A sentence for the first number of workers that gives less than one fewer, beyond their intervals;
    empty where none does. A point is a number of workers and its prediction; `takes_turns`: workers go
    through servers each at its own time, so that they can fall into step."""
    for (few, before), (many, after) in pairwise(points):
        if after.samples_per_s_high < before.samples_per_s_low:
            share = 1 - after.samples_per_s / before.samples_per_s
            less = f"{many} workers give {share:.0%} less than {few}: "
            if not takes_turns:
                return f"{less}exchanging gradients takes longer than what another worker computes."
            return (
                f"{less}they fall into step, all download at once and then all upload, and each direction "
                f"of the servers' links idles meanwhile; {few} workers take turns."
            )
    return ""
