"""Layer order: first consumed, first sent. Obvious for a chain; P3, ByteScheduler and Prophet rank by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planner.servers.ordering._base import Setting, Strategy
from planner.servers.ordering.graph import StepGraph, with_pushes
from planner.simulator.policy import Ordered
from planner.simulator.step import Profile


def layer_priorities(profile: Profile) -> dict[str, float]:
    """Downloads by order of consumption, each upload as its tensor's download."""
    return with_pushes(profile, list(StepGraph.of(profile).pulls))


@dataclass(frozen=True, slots=True)
class LayerOrder(Strategy):
    name: ClassVar[str] = "layer"
    summary: ClassVar[str] = "first consumed, first sent"

    def policy(self, profile: Profile, setting: Setting) -> Ordered:
        return Ordered(priorities=layer_priorities(profile))
