"""From recorded transfers to what the network did: who was sent when.

Li et al. (throughput prediction of asynchronous SGD in TensorFlow), sections 2 and 3.2.2. A recorded transfer
starts when it is requested and ends when the receiver has parsed it. In between it waits for the link, is
sent in one chunk, or in two (the first WIN bytes, then, after the other streams that wait, the rest), and is
parsed (alpha * bytes + beta).

What differs from the paper, because real runs show it:
- Where a step's own records contradict the order of requests, they are believed: a transfer that arrived
  before an earlier one by more than half of that one's time on the wire was sent before it (requests race).
- A link may start to send long after the first request (the server is busy with the others), so its first
  arrival tells when it began. `infer=False` leaves both out, which is the paper's model.
- Servers share the worker's NIC equally while several send.
- A shaped link lets `burst_bytes` through at once after it was idle (token bucket).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.profile._profile import DOWNLINK, UPLINK, Profile


@dataclass(frozen=True, slots=True)
class Wire:
    """What the model needs to know of the network and of the receiver."""

    bandwidth_bytes_per_s: float
    window_bytes: float = inf
    burst_bytes: float = 0.0
    alpha_s_per_byte: float = 0.0
    beta_s: float = 0.0

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
    marks the first arrival of its link, whose recorded end the reconstruction has used."""

    stream: Stream
    intervals_s: tuple[tuple[float, float], ...]
    end_s: float
    anchor: bool = False

    @property
    def relative_error(self) -> float:
        """|predicted end - recorded end| / recorded end, times counted from the start of the step."""
        return abs(self.end_s - self.stream.recorded_end_s) / self.stream.recorded_end_s


def streams_of(profile: Profile, step: int, resource: int = DOWNLINK) -> list[Stream]:
    """The transfers of one direction in a recorded step."""
    if profile.starts_s is None:
        raise BadInput(
            "the profile does not say when its transfers were requested (starts_s); give one that was "
            "imported from TensorFlow"
        )
    return [
        Stream(
            int(i),
            int(profile.server[i]),
            int(profile.bytes[i]),
            float(profile.starts_s[step, i]),
            float(profile.starts_s[step, i] + profile.durations_s[step, i]),
        )
        for i in np.flatnonzero(profile.resource == resource)
        if profile.durations_s[step, i] > 0
    ]


def reconstruct(streams: Sequence[Stream], wire: Wire, infer: bool = True) -> list[Transmission]:
    """When each transfer was on the wire. With `infer`, the recorded ends correct the order and tell when
    each link began; without, only the times of the requests are used (the paper's model)."""
    links: dict[int, list[Stream]] = {}
    for stream in sorted(streams, key=lambda s: (s.requested_s, s.op)):
        links.setdefault(stream.server, []).append(stream)
    begin = dict.fromkeys(links, 0.0)
    if not infer:
        return transmit(links, wire, begin)
    links = {server: sent_order(link, wire) for server, link in links.items()}
    first = {server: link[0].op for server, link in links.items()}
    for sent in transmit(links, wire, begin):
        stream = sent.stream
        if stream.op == first[stream.server]:
            late_s = max(stream.recorded_end_s - sent.end_s, 0.0)
            begin[stream.server] = min(s.requested_s for s in links[stream.server]) + late_s
    return [
        Transmission(sent.stream, sent.intervals_s, sent.end_s, sent.stream.op == first[sent.stream.server])
        for sent in transmit(links, wire, begin)
    ]


def sent_order(link: Sequence[Stream], wire: Wire) -> list[Stream]:
    """The order of requests, corrected by arrivals. If i was sent before j, j arrives after i; if j was sent
    before i, then i arrives after j by at least its own time on the wire. Half of that time decides. Streams
    larger than WIN arrive late for another reason and are never overtaken here."""
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


def with_sent_order(profile: Profile) -> Profile:
    """The profile with the order of transfers corrected by their recorded arrivals (`sent_order`). Without a
    known bandwidth, a link is taken to have been busy from its first request to its last arrival."""
    if profile.starts_s is None or profile.order is None:
        return profile
    order = profile.order.copy()
    for step in range(profile.steps):
        links: dict[tuple[int, int], list[Stream]] = {}
        for resource in (DOWNLINK, UPLINK):
            for stream in streams_of(profile, step, resource):
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


def transmit(links: dict[int, list[Stream]], wire: Wire, begin_s: dict[int, float]) -> list[Transmission]:
    """Send the streams of each link in the order given, none before its request nor before `begin_s`."""
    waiting = {server: deque(_requests(link, begin_s[server])) for server, link in links.items()}
    ready: dict[int, deque[tuple[Stream, float, bool]]] = {server: deque() for server in links}
    running: dict[
        int, tuple[Stream, float, float, bool]
    ] = {}  # stream, bytes left of chunk, of stream, since
    since: dict[int, float] = {}
    intervals: dict[int, list[tuple[float, float]]] = {}
    done: list[Transmission] = []
    now = idle_since = 0.0
    tokens = wire.burst_bytes
    while running or any(waiting.values()) or any(ready.values()):
        for server, requests in waiting.items():
            while requests and requests[0][0] <= now:
                stream = requests.popleft()[1]
                ready[server].append((stream, float(stream.bytes), False))
        for server, queue in ready.items():
            if queue and server not in running:
                stream, left, again = queue.popleft()
                chunk = left if again else min(left, wire.window_bytes)
                if not running:
                    refill = (now - idle_since) * wire.bandwidth_bytes_per_s
                    tokens = min(wire.burst_bytes, tokens + refill)
                free = min(tokens, chunk)
                tokens -= free
                running[server] = (stream, chunk - free, left - chunk, again)
                since[server] = now
        coming = [requests[0][0] for server, requests in waiting.items() if requests]
        if not running:
            now = min(coming)
            continue
        rate = wire.bandwidth_bytes_per_s / len(running)
        finish_s = now + min(chunk for _, chunk, _, _ in running.values()) / rate
        idle = [requests[0][0] for s, requests in waiting.items() if requests and s not in running]
        then = min(finish_s, *idle) if idle else finish_s
        for server, (stream, chunk, rest, again) in list(running.items()):
            left = chunk - (then - now) * rate
            if left > 1e-3:  # bytes; what is left of rounding is far below
                running[server] = (stream, left, rest, again)
                continue
            del running[server]
            intervals.setdefault(stream.op, []).append((since[server], then))
            requests = waiting[server]
            while requests and requests[0][0] <= then:
                arrived = requests.popleft()[1]
                ready[server].append((arrived, float(arrived.bytes), False))
            if rest > 0:
                ready[server].append((stream, rest, True))
            else:
                end_s = then + wire.parse_s(stream.bytes)
                done.append(Transmission(stream, tuple(intervals[stream.op]), end_s))
        now = idle_since = then
    return done


def _requests(link: Sequence[Stream], begin_s: float) -> Iterator[tuple[float, Stream]]:
    """Times that respect the order: who is sent before another cannot have been requested after it."""
    earliest = inf
    times: list[float] = []
    for stream in reversed(link):
        earliest = min(earliest, stream.requested_s)
        times.append(max(earliest, begin_s))
    return zip(reversed(times), link, strict=True)


@dataclass(frozen=True, slots=True)
class EndTimeError:
    """Relative errors of predicted end times, as Table 1 of Li et al. has them."""

    transfers: int
    average: float
    median: float
    p95: float
    worst: float
    signed_median_s: float


def end_time_error(
    profile: Profile, wire: Wire, resource: int = DOWNLINK, infer: bool = True, steps: int | None = None
) -> EndTimeError:
    """How far the model is from the recorded end times of a profile; anchors, which it was told, do not
    count."""
    relative: list[float] = []
    signed: list[float] = []
    for step in range(min(profile.steps, steps or profile.steps)):
        for sent in reconstruct(streams_of(profile, step, resource), wire, infer):
            if not sent.anchor and sent.stream.recorded_end_s > 0:
                relative.append(sent.relative_error)
                signed.append(sent.end_s - sent.stream.recorded_end_s)
    if not relative:
        raise BadInput("the profile has no recorded transfers in this direction beyond the first")
    values: npt.NDArray[np.float64] = np.array(relative)
    return EndTimeError(
        len(values),
        float(values.mean()),
        float(np.median(values)),
        float(np.percentile(values, 95)),
        float(values.max()),
        float(np.median(signed)),
    )
