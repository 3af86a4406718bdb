"""Policies: how the transfers of one link (worker, server, direction) take turns.

A policy is data; the simulator enforces it. Priorities map the name of a transfer op to a rank, lower first;
equal ranks and transfers without a rank fall back to the order of arrival, the unranked after the ranked.
`overhead_s` is a fixed time that every chunk spends on its link before its bytes flow: the link's turn is
taken, the wire is not used (file 003, equation 10: effective bandwidth grows with size). Downloads may have
another one, `download_overhead_s`: a server that answers without waiting pays none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.simulator.step import DOWNLINK, Profile

Mode = Literal["async", "sync"]
DEFAULT_WINDOW_BYTES = 4 * 2**20


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise BadInput(f"{name} is {value}; it must be above zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo:
    """Whole transfers in the order of arrival."""

    kind: ClassVar[str] = "fifo"
    overhead_s: float = 0.0
    download_overhead_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplexed:
    """HTTP/2 as gRPC does it: a stream's first chunk is at most WIN bytes; then it queues at the tail and is
    finished in one go (file 000, section 3.2.2)."""

    kind: ClassVar[str] = "multiplexed"
    window_bytes: int = DEFAULT_WINDOW_BYTES
    overhead_s: float = 0.0
    download_overhead_s: float | None = None

    def __post_init__(self) -> None:
        _positive("window_bytes", self.window_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """Whole transfers, lowest rank first (TIC, TAC, ...)."""

    kind: ClassVar[str] = "ordered"
    priorities: Mapping[str, float] = field(default_factory=dict)
    overhead_s: float = 0.0
    download_overhead_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliced:
    """P3: fixed slices; at each slice boundary the waiting transfer of lowest rank goes on."""

    kind: ClassVar[str] = "sliced"
    slice_bytes: int
    priorities: Mapping[str, float] = field(default_factory=dict)
    overhead_s: float = 0.0
    download_overhead_s: float | None = None

    def __post_init__(self) -> None:
        _positive("slice_bytes", self.slice_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """ByteScheduler: slices leave a priority queue into a first-in-first-out pipe that holds at most
    `credit_bytes`; the overhead of a slice overlaps with the transmission of those before it in the pipe."""

    kind: ClassVar[str] = "credit"
    slice_bytes: int
    credit_bytes: int
    priorities: Mapping[str, float] = field(default_factory=dict)
    overhead_s: float = 0.0
    download_overhead_s: float | None = None

    def __post_init__(self) -> None:
        _positive("slice_bytes", self.slice_bytes)
        if self.credit_bytes < self.slice_bytes:
            raise BadInput(
                f"credit_bytes ({self.credit_bytes}) is smaller than slice_bytes ({self.slice_bytes}); "
                "nothing could ever be sent"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Prophet: the transfers of a block are sent as one, in the order listed, with one overhead for the
    block; blocks that are ready go in the order of the list. A transfer in no block is a block of its own,
    after the listed ones."""

    kind: ClassVar[str] = "blocks"
    blocks: tuple[tuple[str, ...], ...]
    overhead_s: float = 0.0
    download_overhead_s: float | None = None

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name in (name for block in self.blocks for name in block):
            if name in seen:
                raise BadInput(f"transfer {name!r} stands in more than one block")
            seen.add(name)


Policy = Fifo | Multiplexed | Ordered | Sliced | Credit | Blocks


def overheads_s(policy: Policy) -> tuple[float, float]:
    """The overhead of a chunk on a downlink and on an uplink."""
    down = policy.download_overhead_s
    return policy.overhead_s if down is None else down, policy.overhead_s


def chunk_overhead_s(profile: Profile, policy: Policy | None) -> npt.NDArray[np.float64]:
    """Seconds that each transfer spends on its link besides its bytes. Blocks and Credit share the overhead
    between transfers; none is counted for them, nor for an unknown policy, which keeps the bound valid."""
    if policy is None:
        return np.zeros(profile.ops)
    chunks = np.zeros(profile.ops)
    if isinstance(policy, Fifo | Ordered):
        chunks += 1.0
    elif isinstance(policy, Multiplexed):
        chunks += 1.0 + (profile.bytes > policy.window_bytes)
    elif isinstance(policy, Sliced):
        chunks += np.ceil(profile.bytes / policy.slice_bytes)
    down_s, up_s = overheads_s(policy)
    each_s = np.where(profile.resource == DOWNLINK, down_s, up_s)
    return np.where(profile.is_transfer, chunks * each_s, 0.0)
