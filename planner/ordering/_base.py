"""The one interface of all strategies."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from planner.errors import BadInput
from planner.policy import Policy
from planner.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a strategy may know besides the profile: the bandwidth a worker has, the fixed cost of a message,
    and the seed of a random order."""

    bandwidth_bytes_per_s: float = 1.25e9
    overhead_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bandwidth_bytes_per_s) and self.bandwidth_bytes_per_s > 0):
            raise BadInput(
                f"bandwidth is {self.bandwidth_bytes_per_s} bytes a second; ordering needs one above zero"
            )
        if not (math.isfinite(self.overhead_s) and self.overhead_s >= 0):
            raise BadInput(f"overhead_s is {self.overhead_s}; it must be a number of at least zero")


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the simulator runs: the profile (with transfers cut or held, if the strategy does so) and the
    policy that orders it."""

    profile: Profile
    policy: Policy


class Strategy(ABC):
    """A way to order transfers. `policy` ranks the transfers of a profile as they are; `rewrite` cuts or
    holds transfers first, for strategies that do."""

    name: ClassVar[str]
    summary: ClassVar[str]

    def rewrite(self, profile: Profile, setting: Setting) -> Profile:
        return profile

    @abstractmethod
    def policy(self, profile: Profile, setting: Setting) -> Policy: ...

    def schedule(self, profile: Profile, setting: Setting) -> Schedule:
        rewritten = self.rewrite(profile, setting)
        return Schedule(rewritten, self.policy(rewritten, setting))
