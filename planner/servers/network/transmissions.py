"""From recorded transfers to what the network did: who was sent when.

Li et al. (throughput prediction of asynchronous SGD in TensorFlow), sections 2 and 3.2.2. A recorded transfer
starts when it is requested and ends when the receiver has parsed it. In between it waits for the link, is
sent in one chunk, or in two (the first WIN bytes, then, after the other streams that wait, the rest), and is
parsed (alpha * bytes + beta). How links pass the worker's port is told in `port.py`.

What differs from the paper, because real runs show it (`infer=False` leaves all of it out):
- Where a step's own records contradict the order of requests, they are believed: a transfer that arrived
  before an earlier one by more than half of that one's time on the wire was sent before it (requests race).
  Between servers too: none is completed before one that is recorded to have arrived earlier.
- A link may start to send long after the first request (the server is busy with the others), so its first
  arrival tells when it began.
- TCP gives servers unequal shares of the worker's port, others in every step. The arrival of the largest
  transfer of each server tells its share, except for the server that ends last, which has what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.servers.network.worker_port import Stream, Transmission, Wire, sent_through, transmit
from planner.simulator.step._profile import DOWNLINK, UPLINK, Profile

__all__ = [
    "EndTimeError",
    "Stream",
    "Transmission",
    "Wire",
    "end_time_error",
    "reconstruct",
    "sent_order",
    "streams_of",
    "transmit",
    "with_sent_order",
]

SETTLED_S = 1e-4  # what the clock of a record is worth
MAX_ROUNDS = 10
PASSES = 3
SMALLEST_WEIGHT = 1 / 20  # against the server that ends last; TCP starves nobody for long


def streams_of(profile: Profile, step: int, resource: int = DOWNLINK) -> list[Stream]:
    """The transfers of one direction in a recorded step."""
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
    """When each transfer was on the wire. With `infer`, the recorded ends correct the order, and those of the
    anchors tell when each link began and which share it had; without, only the times of the requests are used
    and shares are equal (the paper's model)."""
    links: dict[int, list[Stream]] = {}
    for stream in sorted(streams, key=lambda s: (s.requested_s, s.op)):
        links.setdefault(stream.server, []).append(stream)
    if not infer:
        return transmit(links, wire, dict.fromkeys(links, 0.0))
    links = {server: sent_order(link, wire) for server, link in links.items()}
    requested = {server: min(s.requested_s for s in link) for server, link in links.items()}
    first = {server: link[0] for server, link in links.items()}
    sharers = _sharers(links)
    # One record does not tell both when a server began and which share it had.
    begins = {server: anchor for server, anchor in first.items() if sharers.get(server) is not anchor}
    begin, shares = dict(requested), dict.fromkeys(links, 1.0)
    # Shares explain first what they can, late begins the rest: fitted at once, a late begin of one server
    # makes a small share of the other, and that a later begin.
    for _ in range(PASSES if sharers else 1):
        shares = _fitted_shares(links, wire, begin, shares, sharers)
        end_s = _ends_s(begins.values(), links, wire, begin, shares)
        for server, anchor in begins.items():
            late_s = anchor.recorded_end_s - end_s[anchor.op]
            begin[server] = max(begin[server] + late_s, requested[server])
    shares = _fitted_shares(links, wire, begin, shares, sharers)
    anchors = {stream.op for stream in (*first.values(), *sharers.values())}
    return [
        Transmission(*sent, anchor=sent[0].op in anchors)
        for sent in sent_through(links, wire, begin, shares, True)
    ]


def _ends_s(
    anchors: Iterable[Stream],
    links: dict[int, list[Stream]],
    wire: Wire,
    begin_s: dict[int, float],
    shares: dict[int, float],
) -> dict[int, float]:
    """When the anchors are parsed, by op."""
    sent = sent_through(links, wire, begin_s, shares, True, until=[stream.op for stream in anchors])
    return {stream.op: end_s for stream, _, end_s in sent}


def _fitted_shares(
    links: dict[int, list[Stream]],
    wire: Wire,
    begin_s: dict[int, float],
    shares: dict[int, float],
    sharers: dict[int, Stream],
) -> dict[int, float]:
    """The shares with which the anchors end as recorded, by repeated substitution: a server whose anchor
    takes k times as long as recorded has k times the share."""
    shares, late_s = dict(shares), inf
    for _ in range(MAX_ROUNDS):
        if not sharers or late_s < SETTLED_S:
            break
        end_s = _ends_s(sharers.values(), links, wire, begin_s, shares)
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


def _sharers(links: dict[int, list[Stream]]) -> dict[int, Stream]:
    """The largest transfer of each server but the one whose last arrival is the latest."""
    last = max(links, key=lambda server: (max(s.recorded_end_s for s in links[server]), server), default=None)
    return {
        server: max(link, key=lambda s: (s.bytes, s.recorded_end_s))
        for server, link in links.items()
        if server != last
    }


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


@dataclass(frozen=True, slots=True)
class EndTimeError:
    """Relative errors of predicted end times, as Table 1 of Li et al. has them."""

    transfers: int
    average: float
    median: float
    p95: float
    worst: float

    @classmethod
    def of(cls, ends: Sequence[Transmission]) -> EndTimeError:
        if not ends:
            raise BadInput("the profile has no recorded transfers in this direction beyond the first")
        values: npt.NDArray[np.float64] = np.array([sent.relative_error for sent in ends])
        return cls(
            len(values),
            float(values.mean()),
            float(np.median(values)),
            float(np.percentile(values, 95)),
            float(values.max()),
        )


def predicted_ends(
    profile: Profile,
    wire: Wire,
    resource: int = DOWNLINK,
    infer: bool = True,
    *,
    steps: int | None = None,
    apart_s: float = 0.0,
) -> list[Transmission]:
    """What the model says of the recorded transfers of a profile; anchors, which it was told, are left out,
    and so are transfers recorded within `apart_s` of one, which it was nearly told."""
    ends: list[Transmission] = []
    for step in range(min(profile.steps, steps or profile.steps)):
        result = reconstruct(streams_of(profile, step, resource), wire, infer)
        told_s = [sent.stream.recorded_end_s for sent in result if sent.anchor]
        for sent in result:
            near = any(abs(sent.stream.recorded_end_s - at_s) < apart_s for at_s in told_s)
            if not sent.anchor and not near and sent.stream.recorded_end_s > 0:
                ends.append(sent)
    return ends


def end_time_error(profile: Profile, wire: Wire, *, infer: bool = True, **which: Any) -> EndTimeError:
    """How far the model is from the recorded end times of a profile (`predicted_ends`)."""
    return EndTimeError.of(predicted_ends(profile, wire, infer=infer, **which))
