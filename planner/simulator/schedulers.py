"""Schedulers: which chunk a lane (worker, resource, server) runs next, as scheduler[w, r] in Algorithm 3.1.

`add` queues an op; `take` gives the next chunk, or None; `done` says that the chunk taken last has ended. The
lane runs one chunk at a time. A chunk's bytes may flow from `ready_s` at the earliest, which is when it is
taken plus the delay of its op: the overhead of its direction and the latency of the op (for `credit`: when it
entered the pipe plus the delay; for `blocks` the delay of the first member is all that a block pays).
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

from planner.simulator.inputs import LinkPolicy


@dataclass(slots=True)
class Chunk:
    """A piece of an op that runs without interruption. `size` is in bytes; 0 for computation."""

    op: int
    size: int
    last: bool
    ready_s: float
    start_s: float = 0.0
    flow_s: float = 0.0
    flowing: bool = False


class FifoScheduler:
    """Whole ops in the order of arrival: computation, and the policy `fifo`."""

    def __init__(self, policy: LinkPolicy, sizes: list[int], delay_s: list[float]) -> None:
        self.policy = policy
        self.sizes = sizes
        self.delay_s = delay_s
        self.queue: deque[int] = deque()

    def add(self, op: int) -> None:
        self.queue.append(op)

    def waiting(self) -> bool:
        return bool(self.queue)

    def take(self, now: float) -> Chunk | None:
        if not self.queue:
            return None
        op = self.queue.popleft()
        return Chunk(op, self.sizes[op], True, now + self.delay_s[op])

    def done(self, chunk: Chunk, now: float) -> None:
        """Nothing to put back."""


class MultiplexedScheduler(FifoScheduler):
    """First at most a window of each stream; the rest queues at the tail and goes in one piece."""

    def __init__(self, policy: LinkPolicy, sizes: list[int], delay_s: list[float]) -> None:
        super().__init__(policy, sizes, delay_s)
        self.rest: dict[int, int] = {}  # bytes left of streams that sent their window

    def take(self, now: float) -> Chunk | None:
        if not self.queue:
            return None
        op = self.queue.popleft()
        size, last = self.sizes[op], True
        if op in self.rest:
            size = self.rest.pop(op)
        elif size > self.policy.chunk_bytes:
            self.rest[op] = size - self.policy.chunk_bytes
            size, last = self.policy.chunk_bytes, False
        return Chunk(op, size, last, now + self.delay_s[op])

    def done(self, chunk: Chunk, now: float) -> None:
        if not chunk.last:
            self.queue.append(chunk.op)


class OrderedScheduler:
    """Lowest rank first, then order of arrival; in slices if the policy has them (P3), else whole."""

    def __init__(self, policy: LinkPolicy, sizes: list[int], delay_s: list[float]) -> None:
        self.policy = policy
        self.sizes = sizes
        self.delay_s = delay_s
        self.heap: list[tuple[float, int, int, int]] = []  # rank, arrival, op, bytes left
        self.arrivals = 0
        self.rest: tuple[float, int, int, int] | None = None

    def add(self, op: int) -> None:
        heapq.heappush(self.heap, (self.policy.rank[op], self.arrivals, op, self.sizes[op]))
        self.arrivals += 1

    def waiting(self) -> bool:
        return bool(self.heap)

    def slice(self) -> tuple[int, int, bool]:
        """Cut the next slice off the first transfer; what is left of it keeps its place in `rest`."""
        rank, arrival, op, left = heapq.heappop(self.heap)
        size = min(left, self.policy.chunk_bytes or left)
        self.rest = (rank, arrival, op, left - size) if size < left else None
        return op, size, size == left

    def take(self, now: float) -> Chunk | None:
        if not self.heap:
            return None
        op, size, last = self.slice()
        return Chunk(op, size, last, now + self.delay_s[op])

    def done(self, chunk: Chunk, now: float) -> None:
        if self.rest:
            heapq.heappush(self.heap, self.rest)
            self.rest = None


class CreditScheduler(OrderedScheduler):
    """Slices pass from the priority queue to a first-in-first-out pipe while its credit lasts."""

    def __init__(self, policy: LinkPolicy, sizes: list[int], delay_s: list[float]) -> None:
        super().__init__(policy, sizes, delay_s)
        self.pipe: deque[Chunk] = deque()
        self.in_flight = 0

    def take(self, now: float) -> Chunk | None:
        self.fill(now)
        return self.pipe.popleft() if self.pipe else None

    def fill(self, now: float) -> None:
        """Admit slices; those of one transfer follow each other, so the rest returns at once."""
        while self.heap:
            left = self.heap[0][3]
            if self.in_flight + min(left, self.policy.chunk_bytes) > self.policy.credit_bytes:
                return
            op, size, last = self.slice()
            if self.rest:
                heapq.heappush(self.heap, self.rest)
                self.rest = None
            self.in_flight += size
            self.pipe.append(Chunk(op, size, last, now + self.delay_s[op]))

    def done(self, chunk: Chunk, now: float) -> None:
        self.in_flight -= chunk.size


class BlocksScheduler:
    """Prophet's blocks: once all members on this link are ready, they go one after the other, undisturbed.

    The first member alone has a delay. A transfer in no block is a block of its own, after the others.
    """

    def __init__(self, policy: LinkPolicy, sizes: list[int], delay_s: list[float]) -> None:
        self.policy = policy
        self.sizes = sizes
        self.delay_s = delay_s
        self.gathering: dict[int, list[int]] = {}
        self.ready: list[tuple[float, int, list[int]]] = []  # heap: rank, arrival, ops
        self.arrivals = 0
        self.sending: deque[int] = deque()

    def add(self, op: int) -> None:
        block = int(self.policy.block[op])
        ops = self.gathering.setdefault(block, []) if block >= 0 else []
        ops.append(op)
        if len(ops) == self.policy.members[op]:
            self.gathering.pop(block, None)
            ops.sort(key=self.policy.place.__getitem__)
            heapq.heappush(self.ready, (self.policy.rank[op], self.arrivals, ops))
            self.arrivals += 1

    def waiting(self) -> bool:
        return bool(self.sending or self.ready)

    def take(self, now: float) -> Chunk | None:
        first = not self.sending
        if first:
            if not self.ready:
                return None
            self.sending = deque(heapq.heappop(self.ready)[2])
        op = self.sending.popleft()
        return Chunk(op, self.sizes[op], True, now + (self.delay_s[op] if first else 0.0))

    def done(self, chunk: Chunk, now: float) -> None:
        """Nothing to put back."""


Scheduler = FifoScheduler | OrderedScheduler | BlocksScheduler

SCHEDULERS: dict[str, type[Scheduler]] = {
    "fifo": FifoScheduler,
    "multiplexed": MultiplexedScheduler,
    "ordered": OrderedScheduler,
    "sliced": OrderedScheduler,
    "credit": CreditScheduler,
    "blocks": BlocksScheduler,
}
