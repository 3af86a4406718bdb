"""ByteScheduler (Peng et al., SOSP 2019; file 003, section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planner.servers.ordering._base import Setting, Strategy
from planner.servers.ordering.cut import cut
from planner.servers.ordering.layer import layer_priorities
from planner.simulator.policy import Credit
from planner.simulator.step import Profile

DEFAULT_PARTITION_BYTES = 4_096_000  # BYTEPS_PARTITION_BYTES
DEFAULT_CREDIT_PARTITIONS = 5  # BytePS: NCCL group size (4) + 1 partitions may be under way


@dataclass(frozen=True, slots=True)
class ByteScheduler(Strategy):
    """Partitions leave a priority queue as long as at most `credit_bytes` are under way. A large credit hides
    the overhead of a partition behind others, and lets more of low priority go before a late one of high."""

    name: ClassVar[str] = "bytescheduler"
    summary: ClassVar[str] = "partitions by layer, a credit of them under way"
    partition_bytes: int = DEFAULT_PARTITION_BYTES
    credit_bytes: int = DEFAULT_PARTITION_BYTES * DEFAULT_CREDIT_PARTITIONS

    def rewrite(self, profile: Profile, setting: Setting) -> Profile:
        return cut(profile, self.partition_bytes)

    def policy(self, profile: Profile, setting: Setting) -> Credit:
        return Credit(
            slice_bytes=self.partition_bytes,
            credit_bytes=self.credit_bytes,
            priorities=layer_priorities(profile),
        )
