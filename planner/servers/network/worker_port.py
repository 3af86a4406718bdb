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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
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


Intervals = tuple[tuple[float, float], ...]
Sent = tuple[Stream, Intervals, float]  # a transfer, when its bytes were on the wire, and when it was parsed


@dataclass(slots=True, eq=False)
class _Link:
    """One server's connection: what was not requested yet, what waits, what is being sent."""

    share: float
    requests: deque[tuple[float, Stream]]
    next_request_s: float = field(init=False)
    ready: deque[tuple[Stream, float, Intervals]] = field(
        default_factory=deque
    )  # bytes left, when it was sent
    sends: bool = False
    stream: Stream = field(init=False)  # that the link sends, a chunk of it
    were_s: Intervals = ()  # when the stream was sent before
    left_bytes: float = 0.0  # of the chunk
    rest_bytes: float = 0.0  # of the stream, after the chunk
    since_s: float = 0.0
    rate_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        self.next_request_s = self.requests[0][0] if self.requests else inf

    def admit(self, now: float) -> None:
        while self.next_request_s <= now:
            stream = self.requests.popleft()[1]
            self.ready.append((stream, float(stream.bytes), ()))
            self.next_request_s = self.requests[0][0] if self.requests else inf

    def start(self, now: float, window_bytes: float) -> None:
        self.stream, left, self.were_s = self.ready.popleft()
        self.left_bytes = left if self.were_s else min(left, window_bytes)
        self.rest_bytes = left - self.left_bytes
        self.since_s = now
        self.sends = True


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
    return [Transmission(*sent) for sent in sent_through(links, wire, begin_s, shares, recorded_order)]


def sent_through(
    links: Mapping[int, Sequence[Stream]],
    wire: Wire,
    begin_s: Mapping[int, float],
    shares: Mapping[int, float] | None = None,
    recorded_order: bool = False,
    *,
    until: Collection[int] = (),
) -> list[Sent]:
    """`transmit` as plain tuples, up to the end of all ops in `until` if there are any: a fit sends the same
    streams thousands of times and asks for the ends of a few."""
    state = [
        _Link(shares[server] if shares else 1.0, _requests(link, begin_s[server]))
        for server, link in links.items()
    ]
    bandwidth, window_bytes, parse_s = wire.bandwidth_bytes_per_s, wire.window_bytes, wire.parse_s
    done: list[Sent] = []
    missing = set(until)
    busy = 0  # links that send
    sharing: list[_Link] = []  # links whose rates are set
    equal_bytes = inf  # that they send before their rates change
    now = idle_since = contended_bytes = 0.0
    tokens = wire.burst_bytes
    while True:
        sending: list[_Link] = []
        request_s = inf  # the next to a link that sends nothing
        for link in state:
            if link.next_request_s <= now:
                link.admit(now)
            if link.ready and not link.sends:
                if busy == 0:
                    refill = (now - idle_since) * bandwidth
                    tokens = min(wire.burst_bytes, tokens + refill)
                busy += 1
                link.start(now, window_bytes)
                if tokens > 0:
                    free = min(tokens, link.left_bytes)
                    link.left_bytes -= free
                    tokens -= free
            if link.sends:
                sending.append(link)
            elif link.next_request_s < request_s:
                request_s = link.next_request_s
        if not sending:
            now = request_s
            if now == inf:
                return done
            continue
        active = [link for link in sending if link.left_bytes > NOTHING_BYTES] or sending
        if active != sharing or equal_bytes < inf:
            sharing, equal_bytes = active, _share(active, wire, contended_bytes)
        then = min(
            now + min([link.left_bytes / link.rate_bytes_per_s for link in active]),
            now + equal_bytes / bandwidth,
            request_s,
        )
        for link in active:
            link.left_bytes -= (then - now) * link.rate_bytes_per_s
        if len(active) > 1:
            contended_bytes += (then - now) * bandwidth
        for link in sending:
            if link.left_bytes > NOTHING_BYTES:
                continue
            if recorded_order and len(sending) > 1 and _is_held(link, sending, wire):
                continue
            link.sends = False
            busy -= 1
            link.admit(then)  # who was requested by now is sent before the rest of a preempted stream
            stream, sent_s = link.stream, (*link.were_s, (link.since_s, then))
            if link.rest_bytes > 0:
                link.ready.append((stream, link.rest_bytes, sent_s))
            else:
                done.append((stream, sent_s, then + parse_s(stream.bytes)))
                if stream.op in missing:
                    missing.remove(stream.op)
                    if not missing:
                        return done
        now = idle_since = then


def _share(active: Sequence[_Link], wire: Wire, contended_bytes: float) -> float:
    """Set the rates of links that send at the same time; for how many bytes they hold, if the links stay."""
    weights = [link.share for link in active]
    smallest = min(weights) / sum(weights)
    equal_bytes = len(active) * smallest * wire.buffer_bytes - contended_bytes
    if len(active) > 1 and equal_bytes > NOTHING_BYTES:
        weights = [1.0] * len(active)
    else:
        equal_bytes = inf
    total = sum(weights)
    for link, weight in zip(active, weights, strict=True):
        link.rate_bytes_per_s = wire.bandwidth_bytes_per_s * weight / total
    return equal_bytes


def _is_held(link: _Link, sending: Iterable[_Link], wire: Wire) -> bool:
    """Whether a stream that is sent has to wait for one that is recorded to have arrived before it."""
    if link.rest_bytes > 0:
        return False
    rivals = [other.stream for other in sending if other.left_bytes > NOTHING_BYTES and other.rest_bytes <= 0]
    if not rivals:
        return False
    arrived_s = link.stream.recorded_end_s - wire.parse_s(link.stream.bytes)
    return any(rival.recorded_end_s - wire.parse_s(rival.bytes) < arrived_s for rival in rivals)


def _requests(link: Sequence[Stream], begin_s: float) -> deque[tuple[float, Stream]]:
    """Times that respect the order: who is sent before another cannot have been requested after it."""
    earliest_s = list(accumulate([stream.requested_s for stream in reversed(link)], min))
    return deque(zip([max(begin_s, time_s) for time_s in reversed(earliest_s)], link, strict=True))
