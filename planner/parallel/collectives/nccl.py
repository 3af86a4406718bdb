"""NCCL's own model of a collective (`ncclTopoTuneModel` in src/graph/tuning.cc), as far as it needs no graph.

The library picks the fastest of its algorithms and protocols by latency + bytes / bandwidth; so do we.
Latency is a base and a time a hop, by kind of link; LL and LL128 trade bandwidth for latency. The constants
are in `hardware/collectives/nccl.csv`. Where a level has measured curves, they are used instead.

A sum over machines goes in chunks, each of which waits for every hop there and back: many chunks pay latency
often, few leave hops idle. With hops of L seconds in all and W seconds on the wire, the best number of equal
chunks takes (sqrt(L) + sqrt(W))^2, which measured all-reduces follow (benchmarks/accuracy/collectives.py); L
+ W is half of it where both are alike. A ring's single pass has as many parts as ranks on their way at any
time: L + W. A broadcast has one part: it goes on from machine to machine in chunks that have to be there as a
whole, one for each channel, and the last chunk leaves its owner when all others have left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from planner.hardware.collective_curves import nccl_latencies_us
from planner.memoize import memoize
from planner.parallel.collectives import (
    Kind,
    Level,
    Library,
    Link,
    Peers,
    Phase,
    Scope,
    hierarchical_parts,
    phase_lasting,
    ring_bytes,
    ring_hops,
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

    def flat(self, kind: Kind, size: float, peers: Peers, scope: Scope) -> Phase:
        """The collective as one transfer over all levels."""
        level = peers.outermost
        assert level is not None
        volume = ring_bytes(kind, size, peers.ranks)
        measured = _measured(kind, size, peers)
        seconds = self._estimated_s(kind, size, peers, level) if measured is None else measured
        return phase_lasting(level, scope, volume, seconds)

    def _estimated_s(self, kind: Kind, size: float, peers: Peers, level: Level) -> float:
        """A pass of parts takes half of the fastest all-reduce at least: it has half of its hops, and waits
        as that does."""
        alone_s = self._chosen_s(kind, size, peers, level)
        if kind in ("all_reduce", "broadcast"):
            return alone_s + _passed_on_s(kind, peers)
        return max(alone_s, Nccl()._chosen_s("all_reduce", size, peers, level) / 2)

    def _chosen_s(self, kind: Kind, size: float, peers: Peers, level: Level) -> float:
        wire_s = ring_bytes(kind, size, peers.ranks) / level.bytes_per_s
        seconds = []
        for protocol in PROTOCOLS:
            if protocol == "LL128" and level.link == "PCI":
                continue  # off where stores of 128 bytes are not one
            if self.algorithm in ("auto", "ring"):
                inside, between = ring_hops(kind, peers)
                latency = _latency_s("Ring", protocol, peers, inside, between)
                seconds.append(_piped_s(kind, latency, wire_s / RING_SHARE[protocol], peers))
            if self.algorithm in ("auto", "tree") and kind == "all_reduce":
                up, across = tree_hops(peers)
                latency = _latency_s("Tree", protocol, peers, up, across)
                sent_s = tree_bytes(size, peers) / level.bytes_per_s
                seconds.append(_piped_s(kind, latency, sent_s / TREE_SHARE[protocol], peers))
        if not seconds:  # a tree does all-reduce only
            return Nccl("ring")._chosen_s(kind, size, peers, level)
        return min(seconds)


@memoize(most_bytes=16 << 20)
def _phases(library: Nccl, kind: Kind, size: float, peers: Peers) -> tuple[Phase, ...]:
    """The phases of a collective, kept: a search asks for the same units and buckets on the same machines."""
    if peers.outermost is None or size <= 0:
        return ()
    if library.algorithm == "hierarchical":
        return tuple(
            library.flat(part, bytes_, _only(level), scope)
            for level, scope, part, bytes_ in hierarchical_parts(kind, size, peers)
        )
    return (library.flat(kind, size, peers, "all"),)


def _only(level: Level) -> Peers:
    return Peers.of(inside=level) if level.name == "fabric" else Peers.of(between=level)


def _measured(kind: Kind, size: float, peers: Peers) -> float | None:
    """By the curve of the machines where there are several of them, of the devices else.

    On more machines than were measured no faster than the wire: on two machines a tree sends half of what
    others have to. A pass that was not measured takes half of an all-reduce, and no less than the wire.
    """
    level = peers.between or peers.inside
    if level is None or level.curves is None:
        return None
    wire_s = ring_bytes(kind, size, peers.ranks) / level.bytes_per_s
    seconds = level.curves.seconds(kind, level.members, size)
    if seconds is None:
        both_s = level.curves.seconds("all_reduce", level.members, size)
        return None if both_s is None else max(both_s / 2, wire_s) + _passed_on_s(kind, peers)
    return seconds if level.curves.knows(kind, level.members) else max(seconds, wire_s)


def _piped_s(kind: Kind, latency_s: float, wire_s: float, peers: Peers) -> float:
    """Seconds of a message in chunks over hops; inside a machine, links pass on data as it comes in."""
    waits = kind == "all_reduce" and peers.between is not None
    return latency_s + wire_s + (2 * math.sqrt(latency_s * wire_s) if waits else 0.0)


def _passed_on_s(kind: Kind, peers: Peers) -> float:
    """Seconds that the last chunks of a broadcast need from machine to machine; none inside a machine."""
    if kind != "broadcast" or peers.between is None:
        return 0.0
    chunks_bytes = peers.between.channels * CHUNK_BYTES
    return (peers.machines - 1) * chunks_bytes / peers.between.bytes_per_s


def _latency_s(algorithm: str, protocol: Protocol, peers: Peers, inside: float, between: float) -> float:
    known = nccl_latencies_us()
    total_us = known["base_latency", "", algorithm, protocol]
    for level, hops in ((peers.inside, inside), (peers.between, between)):
        if level is not None:
            total_us += hops * (
                known["hw_latency_per_step", level.link, algorithm, protocol] + level.round_trip_s * 1e6
            )
    return total_us * 1e-6


def link_of(kind: str) -> Link:
    """The link of a fabric's kind, as NCCL's constants name it."""
    return "NVLink" if kind in ("nvlink", "nvswitch", "xgmi") else "PCI"
