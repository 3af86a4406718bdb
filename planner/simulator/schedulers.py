"""Schedulers: the chunk that a lane (worker, resource, server) runs next, as scheduler[w, r] in Algorithm
3.1.

`add` queues an op; `take` gives the next chunk, or None; `done` marks the chunk taken last as ended. The
lane runs one chunk at a time. A chunk's bytes may flow from `ready_s` at the earliest, which is when it is
taken plus the delay of its op: the overhead of its direction and the latency of the op (for `credit`: when
it entered the pipe plus the delay; for `blocks` the delay of the first member is all that a block pays).
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass

from planner.simulator.inputs import LinkPolicy


@dataclass(slots=True)
class Chunk:
    """Part of an op that runs without interruption. `size` is in bytes; 0 for computation."""

    op: int
    size: int
    last: bool
    ready_s: float
    start_s: float = 0.0
    flow_s: float = 0.0
    flowing: bool = False


class Scheduler(ABC):
    """Queue of one lane. Sizes (bytes) and delays (seconds) are indexed by op."""

    def __init__(self, policy: LinkPolicy, sizes: list[int], delay_s: list[float]) -> None:
        self.policy = policy
        self.sizes = sizes
        self.delay_s = delay_s
        self.queue: deque[int] = deque()
        self.heap: list[tuple[float, int, int]] = []  # rank, arrival, op
        self.arrivals = 0
        self.rest: dict[int, int] = {}  # bytes left of ops of which a part was sent
        self.sliced: tuple[float, int, int] | None = None  # the place of the op that a slice was taken of

    @abstractmethod
    def add(self, op: int) -> None:
        """Queues an op."""

    @abstractmethod
    def take(self, now: float) -> Chunk | None:
        """Removes and returns the chunk to run next; None if there is none."""

    def has_queued_ops(self) -> bool:
        """Whether any op is queued."""
        return bool(self.queue or self.heap)

    def end_chunk(self, chunk: Chunk, now: float) -> None:
        """Records that the chunk taken last has ended, and requeues the rest of its op."""
        if self.sliced:
            heapq.heappush(self.heap, self.sliced)
            self.sliced = None


class FifoScheduler(Scheduler):
    """Whole ops in order of arrival: computation, and the policy `fifo`."""

    def add(self, op: int) -> None:
        """Queues an op at the tail."""
        self.queue.append(op)

    def take(self, now: float) -> Chunk | None:
        """Removes and returns the first op as one chunk; None if there is none."""
        if not self.queue:
            return None
        op = self.queue.popleft()
        return Chunk(op, self.sizes[op], True, now + self.delay_s[op])


class MultiplexedScheduler(FifoScheduler):
    """First at most a window of each stream; the rest requeues at the tail and is sent in one piece."""

    def take(self, now: float) -> Chunk | None:
        """Removes and returns the next window of the first stream; None if there is none."""
        chunk = super().take(now)
        if chunk is None:
            return None
        if chunk.op in self.rest:
            chunk.size = self.rest.pop(chunk.op)
        elif chunk.size > self.policy.chunk_bytes:
            self.rest[chunk.op] = chunk.size - self.policy.chunk_bytes
            chunk.size, chunk.last = self.policy.chunk_bytes, False
        return chunk

    def end_chunk(self, chunk: Chunk, now: float) -> None:
        """Requeues the rest of a stream at the tail."""
        if not chunk.last:
            self.queue.append(chunk.op)


class OrderedScheduler(Scheduler):
    """Lowest rank first, then order of arrival; in slices if the policy has them (P3), else whole."""

    def add(self, op: int) -> None:
        """Queues an op by rank, then by arrival."""
        heapq.heappush(self.heap, (self.policy.rank[op], self.arrivals, op))
        self.arrivals += 1

    def remaining_bytes(self) -> int:
        """Bytes left to send of the first transfer in the queue."""
        op = self.heap[0][2]
        return self.rest.get(op, self.sizes[op])

    def take(self, now: float) -> Chunk | None:
        """Returns the next slice of the first transfer, which keeps its place until it is complete."""
        if not self.heap:
            return None
        entry, left = self.heap[0], self.remaining_bytes()
        size = min(left, self.policy.chunk_bytes or left)
        heapq.heappop(self.heap)
        if size < left:
            self.sliced, self.rest[entry[2]] = entry, left - size
        else:
            self.rest.pop(entry[2], None)
        return Chunk(entry[2], size, size == left, now + self.delay_s[entry[2]])


class CreditScheduler(OrderedScheduler):
    """Moves slices from the priority queue to a first-in-first-out pipe while its credit lasts."""

    def __init__(self, policy: LinkPolicy, sizes: list[int], delay_s: list[float]) -> None:
        super().__init__(policy, sizes, delay_s)
        self.pipe: deque[Chunk] = deque()
        self.in_flight = 0

    def take(self, now: float) -> Chunk | None:
        """Fills the pipe and returns its first slice; None if there is none. Slices of one transfer follow
        each other."""
        while self.heap and (
            self.in_flight + min(self.remaining_bytes(), self.policy.chunk_bytes) <= self.policy.credit_bytes
        ):
            chunk = super().take(now)
            assert chunk is not None
            super().end_chunk(chunk, now)
            self.in_flight += chunk.size
            self.pipe.append(chunk)
        return self.pipe.popleft() if self.pipe else None

    def end_chunk(self, chunk: Chunk, now: float) -> None:
        """Returns the credit of a slice that was sent."""
        self.in_flight -= chunk.size


class BlocksScheduler(Scheduler):
    """Prophet's blocks: once all members on this link are ready, they are sent without interruption. The
    first member alone has a delay. A transfer in no block is a single block, after the others. `queue` holds
    the members of the block in progress; the heap holds the last member of each block that is ready."""

    def __init__(self, policy: LinkPolicy, sizes: list[int], delay_s: list[float]) -> None:
        super().__init__(policy, sizes, delay_s)
        self.gathering: dict[int, list[int]] = {}
        self.blocks: dict[int, list[int]] = {}  # by the last member

    def add(self, op: int) -> None:
        """Adds an op to its block, and queues the block once all its members are ready."""
        block = int(self.policy.block[op])
        ops = self.gathering.setdefault(block, []) if block >= 0 else []
        ops.append(op)
        if len(ops) == self.policy.members[op]:
            self.gathering.pop(block, None)
            self.blocks[op] = sorted(ops, key=self.policy.place.__getitem__)
            heapq.heappush(self.heap, (self.policy.rank[op], self.arrivals, op))
            self.arrivals += 1

    def take(self, now: float) -> Chunk | None:
        """Removes and returns the next member of the block in progress, else of the next block."""
        first = not self.queue
        if first:
            if not self.heap:
                return None
            self.queue.extend(self.blocks.pop(heapq.heappop(self.heap)[2]))
        op = self.queue.popleft()
        return Chunk(op, self.sizes[op], True, now + (self.delay_s[op] if first else 0.0))


SCHEDULERS: dict[str, type[Scheduler]] = {
    "fifo": FifoScheduler,
    "multiplexed": MultiplexedScheduler,
    "ordered": OrderedScheduler,
    "sliced": OrderedScheduler,
    "credit": CreditScheduler,
    "blocks": BlocksScheduler,
}
