"""NCCL and Gloo: the algorithms that each takes, their latencies, and how many run at a time.

NCCL's own model of a collective (`ncclTopoTuneModel` in src/graph/tuning.cc), as far as it needs no graph:
the library picks the fastest of its algorithms and protocols by latency + bytes / bandwidth; so do we.
Latency is a base and a time a hop, by kind of link; LL and LL128 trade bandwidth for latency. The constants
are in `hardware/collectives/nccl.csv`. Where a level has measured curves, they are used instead.

A sum over machines goes in chunks, each of which waits for every hop there and back: many chunks pay latency
often, few leave hops idle. With hops of L seconds in all and W seconds on the wire, the best number of equal
chunks takes (sqrt(L) + sqrt(W))^2, which measured all-reduces follow (benchmarks/accuracy/collectives.py); L
+ W is half of it where both are alike. A ring's single pass has as many parts as ranks on their way at any
time: L + W. A broadcast has one part: it goes on from machine to machine in chunks that have to be there as a
whole, one for each channel, and the last chunk leaves its owner when all others have left.

Gloo, PyTorch's library for CPUs and plain networks, goes around a ring of segments, each a rendezvous. Read
in pytorch/gloo and checked against byte counters and times (docs/communication.md):

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
from typing import ClassVar, Literal

from planner.memoize import memoize
from planner.parallel.collectives import (
    Kind,
    Level,
    Library,
    Peers,
    Phase,
    Scope,
    hierarchical_parts,
    make_phase,
    nccl_latencies_us,
    ring_bytes,
    ring_hops,
    ring_passes,
    tree_bytes,
    tree_hops,
)

Algorithm = Literal["auto", "ring", "tree", "hierarchical"]
Protocol = Literal["LL", "LL128", "Simple"]

# Bandwidth of a protocol as a share of the full one (tuning.cc): a ring's, a tree's.
RING_SHARE: dict[Protocol, float] = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
TREE_SHARE: dict[Protocol, float] = {"LL": 0.92 / 3.8, "LL128": 0.92 * 120 / 128, "Simple": 0.92}
PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
# What a channel passes on at a time between machines: one of the NCCL_STEPS (8) of its NCCL_BUFFSIZE (4 MiB).
CHUNK_BYTES = 2**19
CHANNELS_PER_NIC = 2  # as its log says of p5: 16 with NICs in eight groups (awsome-distributed-ai issue 386)


@dataclass(frozen=True, slots=True)
class Nccl(Library):
    """The collectives of NCCL (and RCCL, which has its algorithms): one at a time, in the order of issue."""

    name: ClassVar[str] = "nccl"
    algorithm: Algorithm = "auto"

    def phases(self, kind: Kind, size: float, peers: Peers, *, opposed: bool = False) -> tuple[Phase, ...]:
        # one after the other, so that none is opposed
        return _phases(self, kind, size, peers)

    def flat_phase(self, kind: Kind, size: float, peers: Peers, scope: Scope) -> Phase:
        """The collective as one transfer over all levels of links."""
        level = peers.slower_level
        assert level is not None
        volume = ring_bytes(kind, size, peers.ranks)
        measured = _measured_s(kind, size, peers)
        seconds = self._estimated_s(kind, size, peers, level) if measured is None else measured
        return make_phase(level, scope, volume, seconds)

    def _estimated_s(self, kind: Kind, size: float, peers: Peers, level: Level) -> float:
        """Seconds of a collective without a measured curve. A reduce-scatter or all-gather takes at least
        half of the fastest all-reduce: it has half of its hops, and the same waits."""
        uncontended_s = self._fastest_protocol_s(kind, size, peers, level)
        if kind in ("all_reduce", "broadcast", "send_recv"):
            return uncontended_s + _broadcast_relay_s(kind, peers)
        return max(uncontended_s, Nccl()._fastest_protocol_s("all_reduce", size, peers, level) / 2)

    def _fastest_protocol_s(self, kind: Kind, size: float, peers: Peers, level: Level) -> float:
        """Seconds of NCCL's fastest algorithm and protocol, without measured curves."""
        wire_s = ring_bytes(kind, size, peers.ranks) / level.bytes_per_s
        seconds = []
        for protocol in PROTOCOLS:
            if protocol == "LL128" and level.link == "PCI":
                continue  # off where stores of 128 bytes are not one
            if self.algorithm in ("auto", "ring"):
                inside, between = ring_hops(kind, peers)
                latency = _latency_s("Ring", protocol, peers, inside, between)
                seconds.append(_chunked_s(kind, latency, wire_s / RING_SHARE[protocol], peers))
            if self.algorithm in ("auto", "tree") and kind == "all_reduce":
                up, across = tree_hops(peers)
                latency = _latency_s("Tree", protocol, peers, up, across)
                sent_s = tree_bytes(size, peers) / level.bytes_per_s
                seconds.append(_chunked_s(kind, latency, sent_s / TREE_SHARE[protocol], peers))
        if not seconds:  # a tree does all-reduce only
            return Nccl("ring")._fastest_protocol_s(kind, size, peers, level)
        return min(seconds)


@memoize(most_bytes=16 << 20)
def _phases(library: Nccl, kind: Kind, size: float, peers: Peers) -> tuple[Phase, ...]:
    """Phases of an NCCL collective, cached because a search repeats units and buckets."""
    if peers.slower_level is None or size <= 0:
        return ()
    if library.algorithm == "hierarchical":
        return tuple(
            library.flat_phase(part, bytes_, _single_level_peers(level), scope)
            for level, scope, part, bytes_ in hierarchical_parts(kind, size, peers)
        )
    return (library.flat_phase(kind, size, peers, "all"),)


def _single_level_peers(level: Level) -> Peers:
    """Peers connected by one level of links alone."""
    return Peers.of(inside=level) if level.name == "fabric" else Peers.of(between=level)


def _measured_s(kind: Kind, size: float, peers: Peers) -> float | None:
    """Seconds from measured curves, of the machines if there are several, else of the devices; None
    without a curve.

    On more machines than were measured, the time is at least that of the wire: on two machines a tree
    sends half of what others have to. A collective that was not measured takes half of an all-reduce, and
    at least the time of the wire.
    """
    level = peers.between or peers.inside
    if level is None or level.curves is None:
        return None
    wire_s = ring_bytes(kind, size, peers.ranks) / level.bytes_per_s
    seconds = level.curves.seconds(kind, level.members, size)
    if seconds is None:
        both_s = level.curves.seconds("all_reduce", level.members, size)
        return None if both_s is None else max(both_s / 2, wire_s) + _broadcast_relay_s(kind, peers)
    return seconds if level.curves.has_measured(kind, level.members) else max(seconds, wire_s)


def _chunked_s(kind: Kind, latency_s: float, wire_s: float, peers: Peers) -> float:
    """Seconds of a message sent in chunks over several hops; inside a machine, hops overlap."""
    waits = kind == "all_reduce" and peers.between is not None
    return latency_s + wire_s + (2 * math.sqrt(latency_s * wire_s) if waits else 0.0)


def _broadcast_relay_s(kind: Kind, peers: Peers) -> float:
    """Seconds in which the last chunks of a broadcast pass from machine to machine; 0 inside one machine."""
    if kind != "broadcast" or peers.between is None:
        return 0.0
    chunks_bytes = peers.between.channels * CHUNK_BYTES
    return (peers.machines - 1) * chunks_bytes / peers.between.bytes_per_s


def _latency_s(algorithm: str, protocol: Protocol, peers: Peers, inside: float, between: float) -> float:
    """Latency in seconds of these hops inside and between machines, from NCCL's constants."""
    known = nccl_latencies_us()
    total_us = known["base_latency", "", algorithm, protocol]
    for level, hops in ((peers.inside, inside), (peers.between, between)):
        if level is not None:
            total_us += hops * (
                known["hw_latency_per_step", level.link, algorithm, protocol] + level.round_trip_s * 1e6
            )
    return total_us * 1e-6


SEGMENT_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Gloo(Library):
    """The collectives of Gloo. A level's `round_trip_s` is the time of one rendezvous, CPU time included."""

    name: ClassVar[str] = "gloo"
    in_flight: ClassVar[int] = 2

    def phases(self, kind: Kind, size: float, peers: Peers, *, opposed: bool = False) -> tuple[Phase, ...]:
        level = peers.slower_level
        if level is None or size <= 0:
            return ()
        if kind == "broadcast":
            waits_s = math.ceil(math.log2(peers.ranks)) * level.round_trip_s
            return (Phase(level.name, "all", round(size * _consecutive_sends(peers.ranks)), waits_s),)
        if kind == "send_recv":
            return (Phase(level.name, "all", round(size), level.round_trip_s),)
        done: Kind = "all_reduce" if kind == "reduce_scatter" else kind
        volume = ring_bytes(done, size, peers.ranks)
        known = level.curves.seconds(done, peers.ranks, size) if level.curves else None
        seconds = known or _gloo_s(done, size, peers.ranks, level)
        extra = 0.0
        if opposed and done == "all_reduce" and peers.ranks > 2:
            extra = ring_passes(done) * size / _segment_count(done, size, peers.ranks)
        return (make_phase(level, "all", volume + extra, seconds + extra / level.bytes_per_s),)


def _consecutive_sends(ranks: int, rank: int = 0, bit: int = 1) -> int:
    """Number of consecutive messages until all descendants of `rank` in the binomial tree have the data.
    They are its own messages, to ranks with one higher bit set, and those of its busiest child."""
    children = []
    while rank + bit < ranks:
        children.append((rank + bit, 2 * bit))
        bit *= 2
    return len(children) + max((_consecutive_sends(ranks, *child) for child in children), default=0)


def _segment_count(kind: Kind, size: float, ranks: int) -> int:
    """Number of segments of a message: a multiple of the ranks, at least two per rank."""
    if kind == "all_gather":
        return 2 * ranks
    return math.ceil(max(math.ceil(size / SEGMENT_BYTES), 2 * ranks) / ranks) * ranks


def _gloo_s(kind: Kind, size: float, ranks: int, level: Level) -> float:
    """Seconds of a Gloo collective with no other traffic."""
    segments = _segment_count(kind, size, ranks)
    segment, rate = size / segments, level.bytes_per_s
    pairs = (ranks - 1) * segments / ranks / 2
    round_trip_s = level.round_trip_s
    # A link that waited for the notice lets the start of the next segment through at once.
    after_wait_s = max(segment - level.burst_bytes, 0.0) / rate
    streaming_s = pairs * 2 * segment / rate + round_trip_s
    waiting_s = pairs * (after_wait_s + round_trip_s)
    # Half a block more or none, as likely as not: one segment in two.
    met_s = segment / rate / 2 if kind == "all_gather" and ranks == 2 else 0.0
    return ring_passes(kind) * max(streaming_s, waiting_s) + met_s
