"""One random order, the same in every step and on every worker: it shows what agreement alone is worth."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from planner.servers.ordering._base import Setting, Strategy
from planner.servers.ordering.graph import StepGraph, with_pushes
from planner.simulator.policy import Ordered
from planner.simulator.step import Profile


@dataclass(frozen=True, slots=True)
class Shuffled(Strategy):
    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "one random order, enforced in every step"

    def policy(self, profile: Profile, setting: Setting) -> Ordered:
        pulls = list(StepGraph.of(profile).pulls)
        random.Random(setting.seed).shuffle(pulls)
        return Ordered(priorities=with_pushes(profile, pulls))
