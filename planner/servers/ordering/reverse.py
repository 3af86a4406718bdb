"""The reverse of layer order: the worst order of a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planner.servers.ordering._base import Setting, Strategy
from planner.servers.ordering.graph import StepGraph, with_pushes
from planner.simulator.policy import Ordered
from planner.simulator.step import Profile


@dataclass(frozen=True, slots=True)
class Reverse(Strategy):
    name: ClassVar[str] = "reverse"
    summary: ClassVar[str] = "last consumed, first sent: the worst order of a chain"

    def policy(self, profile: Profile, setting: Setting) -> Ordered:
        pulls = list(reversed(StepGraph.of(profile).pulls))
        return Ordered(priorities=with_pushes(profile, pulls))
