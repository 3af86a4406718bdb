"""Gloo, PyTorch's library for CPUs and plain networks: a ring of segments, each a rendezvous.

Read in pytorch/gloo and checked against byte counters and times (docs/communication.md):

- The message is cut into segments, at least two a rank and none above 1 MiB; two may be under way at a time.
- A sender waits for the receiver's notice, so that a hop costs a round trip. Two segments of s bytes take
  max(2 s / B, s / B + round trip): small messages are a chain of round trips, and a large message pays one
  round trip for each pass over the ring.
- `reduce_scatter` is an all-reduce of which a part is kept: twice the bytes of a true one.
- Two threads: two collectives are under way at once, started in the order of issue, and share the wire.
- All messages between two ranks share a connection, first come, first served. An all-gather goes the other
  way round the ring than an all-reduce; where both run at once, the first notice of each pass stands behind a
  segment of the other. With two ranks both ways are one connection, which always has something to send; but
  an all-gather meets itself there: the rank that is later sends half of its block before its notice, so that
  the other waits for it. Who is later is a matter of chance.
- `broadcast` goes down a binomial tree in whole messages; those that one rank sends share its link.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from planner.parallel.collectives import Kind, Level, Library, Peers, Phase, passes, phase_lasting, ring_bytes

SEGMENT_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Gloo(Library):
    """The collectives of Gloo. A level's `round_trip_s` is what one rendezvous takes, CPU time included."""

    name: ClassVar[str] = "gloo"
    in_flight: ClassVar[int] = 2

    def phases(self, kind: Kind, size: float, peers: Peers, *, opposed: bool = False) -> tuple[Phase, ...]:
        level = peers.outermost
        if level is None or size <= 0:
            return ()
        if kind == "broadcast":
            waits_s = math.ceil(math.log2(peers.ranks)) * level.round_trip_s
            return (Phase(level.name, "all", round(size * _sends(peers.ranks)), waits_s),)
        if kind == "send_recv":
            return (Phase(level.name, "all", round(size), level.round_trip_s),)
        done: Kind = "all_reduce" if kind == "reduce_scatter" else kind
        volume = ring_bytes(done, size, peers.ranks)
        seconds = _measured(done, size, peers, level) or _seconds(done, size, peers.ranks, level)
        extra = 0.0
        if opposed and done == "all_reduce" and peers.ranks > 2:
            extra = passes(done) * _segment(done, size, peers.ranks)
        return (phase_lasting(level, "all", volume + extra, seconds + extra / level.bytes_per_s),)


def _measured(kind: Kind, size: float, peers: Peers, level: Level) -> float | None:
    return level.curves.seconds(kind, peers.ranks, size) if level.curves else None


def _sends(ranks: int, rank: int = 0, bit: int = 1) -> int:
    """Consecutive messages until all ranks below `rank` in the binomial tree have the data: its own, to
    ranks with one higher bit set, and those of its busiest child."""
    children = []
    while rank + bit < ranks:
        children.append((rank + bit, 2 * bit))
        bit *= 2
    return len(children) + max((_sends(ranks, *child) for child in children), default=0)


def _segments(kind: Kind, size: float, ranks: int) -> int:
    """A multiple of the ranks, two each at least; an all-gather always has two."""
    if kind == "all_gather":
        return 2 * ranks
    return math.ceil(max(math.ceil(size / SEGMENT_BYTES), 2 * ranks) / ranks) * ranks


def _segment(kind: Kind, size: float, ranks: int) -> float:
    return size / _segments(kind, size, ranks)


def _seconds(kind: Kind, size: float, ranks: int, level: Level) -> float:
    """Seconds of a collective alone."""
    segments = _segments(kind, size, ranks)
    segment, rate = size / segments, level.bytes_per_s
    pairs = (ranks - 1) * segments / ranks / 2
    round_trip_s = level.round_trip_s
    # A link that waited for the notice lets the start of the next segment through at once.
    after_wait_s = max(segment - level.burst_bytes, 0.0) / rate
    streaming_s = pairs * 2 * segment / rate + round_trip_s
    waiting_s = pairs * (after_wait_s + round_trip_s)
    # Half a block more or none, as likely as not: one segment in two.
    met_s = segment / rate / 2 if kind == "all_gather" and ranks == 2 else 0.0
    return passes(kind) * max(streaming_s, waiting_s) + met_s
