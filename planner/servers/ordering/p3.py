"""P3: priority-based parameter propagation (Jayarajan et al., MLSys 2019; file 003, section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planner.servers.ordering._base import Setting, Strategy
from planner.servers.ordering.cut import cut
from planner.servers.ordering.layer import layer_priorities
from planner.simulator.policy import Sliced
from planner.simulator.step import Profile

DEFAULT_SLICE_BYTES = 160_000  # 40,000 parameters, MXNET_KVSTORE_BIGARRAY_BOUND of the released code


@dataclass(frozen=True, slots=True)
class P3(Strategy):
    """Every array is cut into slices, spread over the servers; the slice of the earliest layer goes first,
    and one slice is on the wire at a time, so each pays its overhead."""

    name: ClassVar[str] = "p3"
    summary: ClassVar[str] = "slices spread over servers, one at a time, earliest layer first"
    slice_bytes: int = DEFAULT_SLICE_BYTES

    def rewrite(self, profile: Profile, setting: Setting) -> Profile:
        return cut(profile, self.slice_bytes, deal=True)

    def policy(self, profile: Profile, setting: Setting) -> Sliced:
        return Sliced(
            slice_bytes=self.slice_bytes,
            priorities=layer_priorities(profile),
        )
