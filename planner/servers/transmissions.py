"""Reconstruction of what a recorded network did: who was sent when, through the port of one worker.

Li et al. (throughput prediction of asynchronous SGD in TensorFlow), sections 2, 3.2.2 and 5. A recorded
transfer starts when it is requested and ends when the receiver has parsed it. In between it waits for the
link, is sent in one chunk, or in two (the first WIN bytes, then, after the other streams that wait, the
rest), and is parsed (alpha * bytes + beta). A link (a server's connection) sends one stream at a time, and
servers that send at the same time share the worker's NIC: a fluid model.

What differs from the paper, because real runs show it (`infer=False` leaves out the first three):
- Where a step's own records contradict the order of requests, they are believed: a transfer that arrived
  before an earlier one by more than half of that one's time on the wire was sent before it (requests race).
  Between servers too: none is completed before one that is recorded to have arrived earlier.
- A link may start to send long after the first request (the server is busy with the others), so its first
  arrival tells when it began.
- The paper's shares of the port are equal. TCP connections into one port get unequal shares, others in every
  step: the port is a FIFO queue, and a connection's share of the bytes in it is its congestion window. The
  arrival of the largest transfer of each server tells its share, except for the server that ends last, which
  has what is left. Until the windows have filled the port's buffer every server sends at its NIC's rate, so
  the port is shared equally at first.
- A bandwidth-limited link (tc) lets `burst_bytes` through at once after it was idle (token bucket).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import NamedTuple

import numpy as np

from planner.errors import BadInput
from planner.simulator.step import DOWNLINK, UPLINK, Profile

Intervals = tuple[tuple[float, float], ...]

NOTHING_BYTES = 1e-3  # what is left of rounding is far below


@dataclass(frozen=True, slots=True)
class Wire:
    """Network and receiver: bandwidth, flow-control window, and the costs of parsing."""

    bandwidth_bytes_per_s: float
    window_bytes: float = inf
    burst_bytes: float = 0.0
    alpha_s_per_byte: float = 0.0
    beta_s: float = 0.0
    buffer_bytes: float = 0.0  # of the port towards the worker

    def parse_s(self, size: float) -> float:
        """Seconds to parse a message of this many bytes."""
        return self.alpha_s_per_byte * size + self.beta_s


@dataclass(frozen=True, slots=True)
class Stream:
    """A recorded transfer of one tensor, with its times of request and arrival."""

    op: int
    server: int
    bytes: int
    requested_s: float
    recorded_end_s: float


class Transmission(NamedTuple):
    """Reconstructed transfer: when its bytes were on the wire, and when it was parsed.

    `anchor` marks a transfer whose recorded end the reconstruction used.
    """

    stream: Stream
    intervals_s: Intervals
    end_s: float
    anchor: bool = False


@dataclass(slots=True, eq=False)
class _Link:
    """Connection from one server: requests to come, streams that wait, and the stream being sent."""

    share: float
    requests: deque[tuple[float, Stream]]
    next_request_s: float = field(init=False)
    ready: deque[tuple[Stream, float, Intervals]] = field(default_factory=deque)  # bytes left, when sent
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
        """Moves streams requested by now to the queue of streams that may be sent."""
        while self.next_request_s <= now:
            stream = self.requests.popleft()[1]
            self.ready.append((stream, float(stream.bytes), ()))
            self.next_request_s = self.requests[0][0] if self.requests else inf

    def start(self, now: float, window_bytes: float) -> None:
        """Starts sending the next chunk of a queued stream."""
        self.stream, left, self.were_s = self.ready.popleft()
        self.left_bytes = left if self.were_s else min(left, window_bytes)
        self.rest_bytes = left - self.left_bytes
        self.since_s = now
        self.sends = True


def simulate_links(
    links: Mapping[int, Sequence[Stream]],
    wire: Wire,
    begin_s: Mapping[int, float],
    shares: Mapping[int, float] | None = None,
    recorded_order: bool = False,
    *,
    until: Collection[int] = (),
) -> list[Transmission]:
    """Transmissions of all streams, simulated link by link in the given order. None begins before its request
    or `begin_s`. Stops after the ops in `until`, if given. With `recorded_order`, streams of other servers
    that were recorded to arrive later do not interrupt a stream."""
    state = [
        _Link(shares[server] if shares else 1.0, _request_queue(link, begin_s[server]))
        for server, link in links.items()
    ]
    bandwidth, window_bytes, parse_s = wire.bandwidth_bytes_per_s, wire.window_bytes, wire.parse_s
    done: list[Transmission] = []
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
            sharing, equal_bytes = active, _set_rates(active, wire, contended_bytes)
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
            if recorded_order and len(sending) > 1 and _should_wait(link, sending, wire):
                continue
            link.sends = False
            busy -= 1
            link.admit(then)  # who was requested by now is sent before the rest of a preempted stream
            stream, sent_s = link.stream, (*link.were_s, (link.since_s, then))
            if link.rest_bytes > 0:
                link.ready.append((stream, link.rest_bytes, sent_s))
            else:
                done.append(Transmission(stream, sent_s, then + parse_s(stream.bytes)))
                if stream.op in missing:
                    missing.remove(stream.op)
                    if not missing:
                        return done
        now = idle_since = then


def _set_rates(active: Sequence[_Link], wire: Wire, contended_bytes: float) -> float:
    """Sets the rates of links that send concurrently; returns after how many bytes the rates change."""
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


def _should_wait(link: _Link, sending: Iterable[_Link], wire: Wire) -> bool:
    """Whether a stream must wait for a concurrent one that is recorded to have arrived earlier."""
    if link.rest_bytes > 0:
        return False
    rivals = [other.stream for other in sending if other.left_bytes > NOTHING_BYTES and other.rest_bytes <= 0]
    if not rivals:
        return False
    arrived_s = link.stream.recorded_end_s - wire.parse_s(link.stream.bytes)
    return any(rival.recorded_end_s - wire.parse_s(rival.bytes) < arrived_s for rival in rivals)


def _request_queue(link: Sequence[Stream], begin_s: float) -> deque[tuple[float, Stream]]:
    """Queue of (request time, stream) in sending order; request times never decrease."""
    earliest_s = list(accumulate([stream.requested_s for stream in reversed(link)], min))
    return deque(zip([max(begin_s, time_s) for time_s in reversed(earliest_s)], link, strict=True))


SETTLED_S = 1e-4  # what the clock of a record is worth
MAX_ROUNDS = 10
PASSES = 3
SMALLEST_WEIGHT = 1 / 20  # against the server that ends last; TCP starves nobody for long


def recorded_streams(profile: Profile, step: int, resource: int = DOWNLINK) -> list[Stream]:
    """Transfers in one direction of one recorded step."""
    if profile.starts_s is None:
        raise BadInput(
            "the profile does not say when its transfers were requested (starts_s); give one that was "
            "imported from TensorFlow"
        )
    ops = np.flatnonzero((profile.resource == resource) & (profile.durations_s[step] > 0))
    starts = profile.starts_s[step, ops]
    ends = starts + profile.durations_s[step, ops]
    columns = (ops, profile.server[ops], profile.bytes[ops], starts, ends)
    return [Stream(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def reconstruct(streams: Sequence[Stream], wire: Wire, infer: bool = True) -> list[Transmission]:
    """Reconstructs when the bytes of each recorded transfer were on the wire.

    With `infer`, recorded ends correct the order, and the anchors' ends give each link's begin and share;
    without, request times alone count and shares are equal (the paper's model).
    """
    links: dict[int, list[Stream]] = {}
    for stream in sorted(streams, key=lambda s: (s.requested_s, s.op)):
        links.setdefault(stream.server, []).append(stream)
    if not infer:
        return simulate_links(links, wire, dict.fromkeys(links, 0.0))
    links = {server: sent_order(link, wire) for server, link in links.items()}
    requested = {server: min(s.requested_s for s in link) for server, link in links.items()}
    first = {server: link[0] for server, link in links.items()}
    sharers = _share_anchors(links)
    # One record does not tell both when a server began and which share it had.
    begins = {server: anchor for server, anchor in first.items() if sharers.get(server) is not anchor}
    begin, shares = dict(requested), dict.fromkeys(links, 1.0)
    # Shares explain first what they can, late begins the rest: fitted at once, a late begin of one server
    # makes a small share of the other, and that a later begin.
    for _ in range(PASSES if sharers else 1):
        shares = _fit_shares(links, wire, begin, shares, sharers)
        end_s = _parsed_at_s(begins.values(), links, wire, begin, shares)
        for server, anchor in begins.items():
            late_s = anchor.recorded_end_s - end_s[anchor.op]
            begin[server] = max(begin[server] + late_s, requested[server])
    shares = _fit_shares(links, wire, begin, shares, sharers)
    anchors = {stream.op for stream in (*first.values(), *sharers.values())}
    sent = simulate_links(links, wire, begin, shares, True)
    return [each._replace(anchor=each.stream.op in anchors) for each in sent]


def _parsed_at_s(
    anchors: Iterable[Stream],
    links: dict[int, list[Stream]],
    wire: Wire,
    begin_s: dict[int, float],
    shares: dict[int, float],
) -> dict[int, float]:
    """Simulated time in seconds at which each anchor is parsed, by op."""
    sent = simulate_links(links, wire, begin_s, shares, True, until=[stream.op for stream in anchors])
    return {each.stream.op: each.end_s for each in sent}


def _fit_shares(
    links: dict[int, list[Stream]],
    wire: Wire,
    begin_s: dict[int, float],
    shares: dict[int, float],
    sharers: dict[int, Stream],
) -> dict[int, float]:
    """Fits each server's share of the port, by fixed-point iteration, until its anchor ends as recorded."""
    shares, late_s = dict(shares), inf
    for _ in range(MAX_ROUNDS):
        if not sharers or late_s < SETTLED_S:
            break
        end_s = _parsed_at_s(sharers.values(), links, wire, begin_s, shares)
        late_s = 0.0
        for server, anchor in sharers.items():
            took_s = max(end_s[anchor.op] - begin_s[server], SETTLED_S)
            recorded_s = max(anchor.recorded_end_s - begin_s[server], SETTLED_S)
            others = sum(shares.values()) - shares[server]
            share = shares[server] / (shares[server] + others) * took_s / recorded_s
            weight = others * share / (1 - share) if share < 1 else inf
            shares[server] = min(max(weight, SMALLEST_WEIGHT), 1 / SMALLEST_WEIGHT)
            late_s = max(late_s, abs(took_s - recorded_s))
    return shares


def _share_anchors(links: dict[int, list[Stream]]) -> dict[int, Stream]:
    """Largest transfer of each server but the last to end, whose share is the remainder."""
    last = max(links, key=lambda server: (max(s.recorded_end_s for s in links[server]), server), default=None)
    return {
        server: max(link, key=lambda s: (s.bytes, s.recorded_end_s))
        for server, link in links.items()
        if server != last
    }


def sent_order(link: Sequence[Stream], wire: Wire) -> list[Stream]:
    """Streams of one link in the order sent: that of their requests, corrected by their arrivals.

    If i was sent before j, j arrives after i; if j was sent before i, i arrives after j by at least its own
    time on the wire. Half of that time decides. Streams larger than WIN arrive late for another reason and
    are never overtaken here.
    """
    order: list[Stream] = []
    for stream in link:
        at = len(order)
        arrived_s = stream.recorded_end_s - wire.parse_s(stream.bytes)
        while at > 0:
            other = order[at - 1]
            lead_s = other.recorded_end_s - wire.parse_s(other.bytes) - arrived_s
            wire_s = other.bytes / wire.bandwidth_bytes_per_s
            if other.bytes > wire.window_bytes or lead_s <= max(wire_s / 2, wire.beta_s):
                break
            at -= 1
        order.insert(at, stream)
    return order


def correct_sent_order(profile: Profile) -> Profile:
    """Copy of a profile whose transfer order is corrected by the recorded arrivals (`sent_order`).

    Without a known bandwidth, a link counts as busy from its first request to its last arrival.
    """
    if profile.starts_s is None or profile.order is None:
        return profile
    order = profile.order.copy()
    for step in range(profile.steps):
        links: dict[tuple[int, int], list[Stream]] = {}
        for resource in (DOWNLINK, UPLINK):
            for stream in recorded_streams(profile, step, resource):
                links.setdefault((resource, stream.server), []).append(stream)
        for link in links.values():
            link.sort(key=lambda s: (s.requested_s, s.op))
            busy_s = max(s.recorded_end_s for s in link) - link[0].requested_s
            bandwidth = profile.bandwidth_bytes_per_s or sum(s.bytes for s in link) / busy_s
            ranks = sorted(int(order[step, s.op]) for s in link)
            for rank, stream in zip(ranks, sent_order(link, Wire(bandwidth)), strict=True):
                order[step, stream.op] = rank
    order.flags.writeable = False
    return replace(profile, order=order)
