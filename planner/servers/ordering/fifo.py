"""No order: what a framework does by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planner.servers.ordering._base import Setting, Strategy
from planner.simulator.policy import Fifo
from planner.simulator.step import Profile


@dataclass(frozen=True, slots=True)
class NoOrder(Strategy):
    """Whole transfers as they are requested, which is another order in every step and on every worker."""

    name: ClassVar[str] = "fifo"
    summary: ClassVar[str] = "no order: whole transfers as they arrive"

    def policy(self, profile: Profile, setting: Setting) -> Fifo:
        return Fifo()
