"""Policies: how the transfers of one link (worker, server, direction) take turns.

A policy is data; the simulator enforces it. Priorities map the name of a transfer op to a rank, lower first;
equal ranks and transfers without a rank fall back to the order of arrival, the unranked after the ranked.
`overhead_s` is a fixed time that every chunk spends on its link before its bytes flow: the link's turn is
taken, the wire is not used (file 003, equation 10: effective bandwidth grows with size). Downloads may have
another one, `download_overhead_s`: a server that answers without waiting pays none.

Joins: where the steps of different workers wait for each other, besides joint ops.

A gated op waits until it is ready at every worker; then each runs its own on its own lane. A publishing op
helps to make the next version of a tensor: when all of them have ended at all workers, the version is there.
An awaiting op of step k waits for version k of its tensor. All three are columns over the ops of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput, unknown_name
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Profile

Mode = Literal["async", "sync"]
DEFAULT_WINDOW_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageCost:
    """Fields and checks that all policies share."""

    overhead_s: float = 0.0
    download_overhead_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("window_bytes", "slice_bytes"):
            if not getattr(self, name, 1) > 0:
                raise BadInput(f"{name} is {getattr(self, name)}; it must be above zero")

    @property
    def overheads_s(self) -> tuple[float, float]:
        """Seconds of overhead per chunk, on a downlink and on an uplink."""
        down = self.download_overhead_s
        return self.overhead_s if down is None else down, self.overhead_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo(_MessageCost):
    """Whole transfers in the order of arrival."""

    kind: ClassVar[str] = "fifo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplexed(_MessageCost):
    """HTTP/2 streams as in gRPC: at most `window_bytes` first, the rest in one piece later. The rest requeues
    at the tail (Li et al., section 3.2.2)."""

    kind: ClassVar[str] = "multiplexed"
    window_bytes: int = DEFAULT_WINDOW_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered(_MessageCost):
    """Whole transfers, lowest rank first (TIC, TAC, ...)."""

    kind: ClassVar[str] = "ordered"
    priorities: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliced(_MessageCost):
    """P3: fixed slices; at each slice boundary the waiting transfer with the lowest rank continues."""

    kind: ClassVar[str] = "sliced"
    slice_bytes: int
    priorities: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit(_MessageCost):
    """ByteScheduler: slices pass from a priority queue to a first-in-first-out pipe of `credit_bytes`. The
    overhead of a slice overlaps with the transmission of those before it in the pipe."""

    kind: ClassVar[str] = "credit"
    slice_bytes: int
    credit_bytes: int
    priorities: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _MessageCost.__post_init__(self)
        if self.credit_bytes < self.slice_bytes:
            raise BadInput(
                f"credit_bytes ({self.credit_bytes}) is smaller than slice_bytes ({self.slice_bytes}); "
                "nothing could ever be sent"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks(_MessageCost):
    """Prophet: the transfers of a block are sent as one, in the order listed, with a single overhead. Blocks
    that are ready go in the order of the list. A transfer in no block is a block of its own, after the listed
    ones."""

    kind: ClassVar[str] = "blocks"
    blocks: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name in (name for block in self.blocks for name in block):
            if name in seen:
                raise BadInput(f"transfer {name!r} stands in more than one block")
            seen.add(name)


Policy = Fifo | Multiplexed | Ordered | Sliced | Credit | Blocks


def chunk_overhead_s(profile: Profile, policy: Policy | None) -> npt.NDArray[np.float64]:
    """Seconds that fixed overhead adds to each transfer's time on its link. 0 under Blocks and Credit, whose
    transfers share the overhead, and under an unknown policy, so that bounds stay valid."""
    if policy is None:
        return np.zeros(profile.ops)
    chunks = np.zeros(profile.ops)
    if isinstance(policy, Fifo | Ordered):
        chunks += 1.0
    elif isinstance(policy, Multiplexed):
        chunks += 1.0 + (profile.bytes > policy.window_bytes)
    elif isinstance(policy, Sliced):
        chunks += np.ceil(profile.bytes / policy.slice_bytes)
    down_s, up_s = policy.overheads_s
    each_s = np.where(profile.resource == DOWNLINK, down_s, up_s)
    return np.where(profile.is_transfer, chunks * each_s, 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class Joins:
    """Synchronization between workers, one entry per op; -1 in `publishes` and `awaits` means no tensor."""

    gated: npt.NDArray[np.bool_]
    publishes: npt.NDArray[np.int32]
    awaits: npt.NDArray[np.int32]

    @staticmethod
    def none(ops: int) -> Joins:
        """Joins of `ops` ops that never wait for other workers."""
        nothing = np.full(ops, -1, np.int32)
        return Joins(np.zeros(ops, np.bool_), nothing, nothing)

    @property
    def has_joins(self) -> bool:
        """Whether any op waits for other workers."""
        return bool(self.gated.any() or (self.publishes >= 0).any() or (self.awaits >= 0).any())

    def check(self, profile: Profile) -> None:
        """Raises BadInput unless the joins match the profile's ops and tensors."""
        for name in ("gated", "publishes", "awaits"):
            if len(getattr(self, name)) != profile.ops:
                raise BadInput(f"{name} has {len(getattr(self, name))} entries for {profile.ops} ops")
        tied = self.gated | (self.publishes >= 0) | (self.awaits >= 0)
        wrong = tied & (profile.resource == WORKER)
        if wrong.any():
            raise BadInput(
                f"op {profile.names[int(np.argmax(wrong))]!r} is computation and has a join; "
                "only what runs on a link or a server can wait for other workers"
            )
        tensors = tensor_count(profile)
        if max(self.publishes.max(initial=-1), self.awaits.max(initial=-1)) >= tensors:
            raise BadInput(f"a join names a tensor beyond the {tensors} of the step")


def mode_joins(profile: Profile, mode: Mode) -> Joins:
    """Joins of training through parameter servers; in `async` mode no op waits for other workers.
    Synchronous: the update of a tensor consists of its server ops that no other server op of that tensor
    depends on (the others, as parsing, precede it); it is gated, and publishes the version that the next
    download awaits. A tensor without server ops is updated when its uploads are in."""
    if mode not in ("async", "sync"):
        raise unknown_name("mode", str(mode), ("async", "sync"))
    n, tensors = profile.ops, tensor_count(profile)
    if mode == "async":
        return Joins.none(n)
    publishes, awaits = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    on_server = (profile.resource == PS) & (profile.tensor >= 0)
    precedes = np.zeros(n, np.bool_)
    for op in np.flatnonzero(on_server):
        deps = profile.deps(int(op))
        precedes[deps[on_server[deps] & (profile.tensor[deps] == profile.tensor[op])]] = True
    gated = on_server & ~precedes
    updated = np.zeros(tensors + 1, np.bool_)
    updated[profile.tensor[gated]] = True
    uploads = (profile.resource == UPLINK) & (profile.tensor >= 0) & ~updated[profile.tensor]
    publishing = gated | uploads
    if not publishing.any():
        raise BadInput(
            "synchronous mode needs to know which upload updates which tensor, "
            "but the profile's uploads and updates name no tensor; give them one or use mode async"
        )
    publishes[publishing] = profile.tensor[publishing]
    published = np.zeros(tensors, np.bool_)
    published[publishes[publishing]] = True
    downloads = (profile.resource == DOWNLINK) & (profile.tensor >= 0)
    downloads[downloads] = published[profile.tensor[downloads]]
    awaits[downloads] = profile.tensor[downloads]
    return Joins(gated, publishes, awaits)


def tensor_count(profile: Profile) -> int:
    """Number of tensors that ops refer to by index."""
    return max(len(profile.tensors), int(profile.tensor.max(initial=-1)) + 1)
