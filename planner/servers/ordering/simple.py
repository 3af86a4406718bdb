"""The simple heuristic of file 004, equation 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planner.servers.ordering._base import Setting, Strategy
from planner.servers.ordering.graph import StepGraph, with_pushes
from planner.servers.ordering.tic import tied_ranks
from planner.simulator.policy import Ordered
from planner.simulator.step import Profile


@dataclass(frozen=True, slots=True)
class Simple(Strategy):
    """Order(read) = min |Dep(op)| over the ops with more than one dependency that need it (file 004, eq. 3).

    The figure is TIC's M+; here equal ranks stay equal, and such downloads go in the order of arrival.
    """

    name: ClassVar[str] = "simple"
    summary: ClassVar[str] = "file 004, equation 3: as TIC, equals in order of arrival"

    def policy(self, profile: Profile, setting: Setting) -> Ordered:
        graph = StepGraph.of(profile)
        priorities = with_pushes(profile, list(graph.pulls), tied_ranks(graph))
        return Ordered(priorities=priorities)
