"""The one interface of all strategies."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from planner.errors import BadInput
from planner.simulator.policy import Policy
from planner.simulator.step import Profile

MOST_OVERHEAD_S = 1.0  # what is measured is a few milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a strategy may know besides the profile: the bandwidth a worker has, the fixed cost of a message
    (of a download, if it differs), and the seed of a random order."""

    bandwidth_bytes_per_s: float = 1.25e9
    overhead_s: float = 0.0
    download_overhead_s: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bandwidth_bytes_per_s) and self.bandwidth_bytes_per_s > 0):
            raise BadInput(
                f"bandwidth is {self.bandwidth_bytes_per_s} bytes a second; ordering needs one above zero"
            )
        for value in (self.overhead_s, self.download_overhead_s or 0.0):
            if not 0 <= value <= MOST_OVERHEAD_S:
                raise BadInput(
                    f"the overhead of a message is {value:g} s; it must lie between 0 and "
                    f"{MOST_OVERHEAD_S:g} s (--overhead is in milliseconds)"
                )

    def priced(self, policy: Policy) -> Policy:
        """The policy with what a message costs."""
        return replace(policy, overhead_s=self.overhead_s, download_overhead_s=self.download_overhead_s)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the simulator runs: the profile (with transfers cut or held, if the strategy does so) and the
    policy that orders it."""

    profile: Profile
    policy: Policy


class Strategy(ABC):
    """A way to order transfers. `policy` ranks the transfers of a profile as they are, `rewrite` cuts them
    first, for strategies that do; `schedule` is both, with the cost of messages."""

    name: ClassVar[str]
    summary: ClassVar[str]

    def rewrite(self, profile: Profile, setting: Setting) -> Profile:
        return profile

    @abstractmethod
    def policy(self, profile: Profile, setting: Setting) -> Policy: ...

    def schedule(self, profile: Profile, setting: Setting) -> Schedule:
        rewritten = self.rewrite(profile, setting)
        return Schedule(rewritten, setting.priced(self.policy(rewritten, setting)))
