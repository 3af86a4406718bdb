"""How the streams of several servers pass the port of one worker: a fluid model of links and their shares.

Li et al. (throughput prediction of asynchronous SGD in TensorFlow), sections 2 and 5: a link sends one stream
at a time, a stream above WIN in two chunks, and servers that send at the same time share the worker's NIC.
The paper's shares are equal. Two TCP connections into one port do not share it equally: the port is a FIFO
queue, what a connection gets of it is its part of the bytes in the queue, which is its congestion window,
and the windows together fill the queue. So, beyond the paper:

- A server has a share while several send. Its window is that share of the port's buffer.
- Until the windows are full every server sends at its NIC's rate, so the port is shared equally at first.
- A shaped link lets `burst_bytes` through at once after it was idle (token bucket).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

NOTHING_BYTES = 1e-3  # what is left of rounding is far below


@dataclass(frozen=True, slots=True)
class Wire:
    """What the model needs to know of the network and of the receiver."""

    bandwidth_bytes_per_s: float
    window_bytes: float = inf
    burst_bytes: float = 0.0
    alpha_s_per_byte: float = 0.0
    beta_s: float = 0.0
    buffer_bytes: float = 0.0  # of the port towards the worker

    def parse_s(self, size: float) -> float:
        return self.alpha_s_per_byte * size + self.beta_s


@dataclass(frozen=True, slots=True)
class Stream:
    """A transfer as recorded."""

    op: int
    server: int
    bytes: int
    requested_s: float
    recorded_end_s: float


@dataclass(frozen=True, slots=True)
class Transmission:
    """A transfer as it must have been: when its bytes were on the wire, and when it was parsed. `anchor`
    marks a transfer whose recorded end the reconstruction has used."""

    stream: Stream
    intervals_s: tuple[tuple[float, float], ...]
    end_s: float
    anchor: bool = False

    @property
    def relative_error(self) -> float:
        """|predicted end - recorded end| / recorded end, times counted from the start of the step."""
        return abs(self.end_s - self.stream.recorded_end_s) / self.stream.recorded_end_s


@dataclass(slots=True)
class _Chunk:
    stream: Stream
    left_bytes: float
    rest_bytes: float  # of the stream, after this chunk
    since_s: float


class _Link:
    """One server's connection: what was not requested yet, what waits, what is being sent."""

    def __init__(self, requests: Iterator[tuple[float, Stream]]) -> None:
        self.requests = deque(requests)
        self.ready: deque[tuple[Stream, float, bool]] = deque()  # stream, bytes left, was preempted
        self.chunk: _Chunk | None = None

    def admit(self, now: float) -> None:
        while self.requests and self.requests[0][0] <= now:
            stream = self.requests.popleft()[1]
            self.ready.append((stream, float(stream.bytes), False))

    def start(self, now: float, window_bytes: float) -> _Chunk:
        stream, left, again = self.ready.popleft()
        size = left if again else min(left, window_bytes)
        self.chunk = _Chunk(stream, size, left - size, now)
        return self.chunk

    @property
    def next_request_s(self) -> float:
        return self.requests[0][0] if self.requests else inf


def transmit(
    links: Mapping[int, Sequence[Stream]],
    wire: Wire,
    begin_s: Mapping[int, float],
    shares: Mapping[int, float] | None = None,
    recorded_order: bool = False,
) -> list[Transmission]:
    """Send the streams of each link in the order given, none before its request nor before `begin_s`. With
    `recorded_order`, no stream is completed before one of another server that is recorded to have arrived
    earlier and is being sent: the port serves that one first."""
    shares = shares or dict.fromkeys(links, 1.0)
    state = {server: _Link(_requests(link, begin_s[server])) for server, link in links.items()}
    intervals: dict[int, list[tuple[float, float]]] = {}
    done: list[Transmission] = []
    now = idle_since = contended_bytes = 0.0
    tokens = wire.burst_bytes
    while True:
        for link in state.values():
            link.admit(now)
            if link.ready and link.chunk is None:
                if all(other.chunk is None for other in state.values()):
                    refill = (now - idle_since) * wire.bandwidth_bytes_per_s
                    tokens = min(wire.burst_bytes, tokens + refill)
                chunk = link.start(now, wire.window_bytes)
                free = min(tokens, chunk.left_bytes)
                chunk.left_bytes -= free
                tokens -= free
        sending = {server: link.chunk for server, link in state.items() if link.chunk is not None}
        idle = [link.next_request_s for link in state.values() if link.chunk is None]
        if not sending:
            now = min(idle)
            if now == inf:
                return done
            continue
        active = {server: c for server, c in sending.items() if c.left_bytes > NOTHING_BYTES} or sending
        weights = {server: shares[server] for server in active}
        smallest = min(weights.values()) / sum(weights.values())
        equal_bytes = len(active) * smallest * wire.buffer_bytes - contended_bytes
        if len(active) > 1 and equal_bytes > NOTHING_BYTES:
            weights = dict.fromkeys(active, 1.0)
        else:
            equal_bytes = inf
        total = sum(weights.values())
        rates = {server: wire.bandwidth_bytes_per_s * w / total for server, w in weights.items()}
        then = min(
            now + min(c.left_bytes / rates[server] for server, c in active.items()),
            now + equal_bytes / wire.bandwidth_bytes_per_s,
            *idle,
        )
        for server, chunk in active.items():
            chunk.left_bytes -= (then - now) * rates[server]
        if len(active) > 1:
            contended_bytes += (then - now) * wire.bandwidth_bytes_per_s
        for server, chunk in sending.items():
            if chunk.left_bytes > NOTHING_BYTES:
                continue
            if recorded_order and _is_held(chunk, sending.values(), wire):
                continue
            stream, link = chunk.stream, state[server]
            link.chunk = None
            link.admit(then)  # who was requested by now is sent before the rest of a preempted stream
            intervals.setdefault(stream.op, []).append((chunk.since_s, then))
            if chunk.rest_bytes > 0:
                link.ready.append((stream, chunk.rest_bytes, True))
            else:
                end_s = then + wire.parse_s(stream.bytes)
                done.append(Transmission(stream, tuple(intervals[stream.op]), end_s))
        now = idle_since = then


def _is_held(chunk: _Chunk, sending: Iterable[_Chunk], wire: Wire) -> bool:
    """Whether a stream that is sent has to wait for one that is recorded to have arrived before it."""
    arrived_s = chunk.stream.recorded_end_s - wire.parse_s(chunk.stream.bytes)
    return chunk.rest_bytes <= 0 and any(
        other.rest_bytes <= 0
        and other.left_bytes > NOTHING_BYTES
        and other.stream.recorded_end_s - wire.parse_s(other.stream.bytes) < arrived_s
        for other in sending
    )


def _requests(link: Sequence[Stream], begin_s: float) -> Iterator[tuple[float, Stream]]:
    """Times that respect the order: who is sent before another cannot have been requested after it."""
    earliest = inf
    times: list[float] = []
    for stream in reversed(link):
        earliest = min(earliest, stream.requested_s)
        times.append(max(earliest, begin_s))
    return zip(reversed(times), link, strict=True)
