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

`site_peers` gives the ranks of a site and the rates that a library reaches on the links between them. Where a
link has measured curves its own figure is the port's rate and the curve gives the time; else the figure is
multiplied by the share that libraries reach on such a link, which is an estimate and labelled as one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from planner.errors import BadInput
from planner.hardware import Fabric, Hardware
from planner.memoize import memoize
from planner.note import Note, Topic
from planner.parallel.collectives import (
    Curves,
    Kind,
    Level,
    Library,
    Link,
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
from planner.parallel.plan import Site, flow_limit_bytes_per_s

Algorithm = Literal["auto", "ring", "tree", "hierarchical"]
Protocol = Literal["LL", "LL128", "Simple"]

# Bandwidth of a protocol as a share of the full one (tuning.cc): a ring's, a tree's.
RING_SHARE: dict[Protocol, float] = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
TREE_SHARE: dict[Protocol, float] = {"LL": 0.92 / 3.8, "LL128": 0.92 * 120 / 128, "Simple": 0.92}
LEVEL_OF = {"fabric": "inside", "network": "between"}
# What a channel passes on at a time between machines: one of the NCCL_STEPS (8) of its NCCL_BUFFSIZE (4 MiB).
CHUNK_BYTES = 2**19
CHANNELS_PER_NIC = 2  # as its log says of p5: 16 with NICs in eight groups (awsome-distributed-ai issue 386)


@dataclass(frozen=True, slots=True)
class Nccl(Library):
    """The collectives of NCCL (and RCCL, which has its algorithms): one at a time, in the order of issue."""

    name: ClassVar[str] = "nccl"
    algorithm: Algorithm = "auto"

    def phases(self, kind: Kind, size: float, peers: Peers, *, opposed: bool = False) -> tuple[Phase, ...]:
        """Transfers in order. NCCL runs one collective after the other, so `opposed` has no effect."""
        return _phases(self, kind, size, peers)

    def flat_phase(self, kind: Kind, size: float, peers: Peers, scope: Scope) -> Phase:
        """Collective as one transfer over all levels of links."""
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
        for protocol, ring_share in RING_SHARE.items():
            if protocol == "LL128" and level.link == "PCI":
                continue  # off where stores of 128 bytes are not one
            if self.algorithm in ("auto", "ring"):
                inside, between = ring_hops(kind, peers)
                latency = _latency_s("Ring", protocol, peers, inside, between)
                seconds.append(_chunked_s(kind, latency, wire_s / ring_share, peers))
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
            library.flat_phase(part, bytes_, Peers.of(**{LEVEL_OF[level.name]: level}), scope)
            for level, scope, part, bytes_ in hierarchical_parts(kind, size, peers)
        )
    return (library.flat_phase(kind, size, peers, "all"),)


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
        """Transfers in order: one over the slower level of links, or none for a single rank."""
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


# Shares of a link's figure, at large messages, in measured runs (hardware/collectives/curves.csv):
# NVLink: a ring on 8 A100 222 of 300 GB/s, on 8 H100 335 (all-gather) of 450, on 8 B200 617 of 900.
NVLINK_SHARE = 0.74
# PCIe, by devices: between two boxes, one whose devices reach each other (39, 26, 25 of 63 GB/s with 2, 4, 8
# RTX PRO 6000) and one where all goes through the host (20, 5.2, 1.4 of 31.5 with L40S): the geometric mean.
PCIE_SHARE = {2: 0.63, 4: 0.26, 8: 0.13}
# Networks with RDMA from four machines on: p5 357 of 400 GB/s (321 on 32 machines), 12 machines with
# InfiniBand 387 of 400, p3dn 7 of 12.5.
RDMA_SHARE = 0.85
# NCCL over sockets (hardware/collectives/sockets.csv): the wire's payload with frames of 1,500 bytes, and the
# copies of a NIC's threads, in turns. A connection is slower than that on some networks. A NIC has two
# channels with one connection each, more on clouds that NCCL knows by their NICs (net_socket.cc).
TCP_PAYLOAD = 0.94
TCP_COPIED_BYTES_PER_S = 4e9
SOCKETS = {"aws": 16, "gcp": 4}  # of a channel
# Payload over line rate with frames of 9000 bytes, gloo between two hosts (docs/communication.md).
GLOO_SHARE = 0.987
# A hop beyond what NCCL's constants count with: EFA's latency in aws-ofi-nccl's tuner; its first generation,
# from 150 to 160 us for a small all-reduce of two p3dn or p4d; sockets, from 175 to 307 us. Two machines
# are two hops.
EFA_HOP_S = 20e-6
FIRST_EFA_HOP_S = 65e-6
FIRST_EFA_BEFORE = 2022  # years of devices whose machines have it
TCP_HOP_S = 100e-6
LINK_NAMES = {"nvswitch": "NVSwitch", "nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe", "host": "the host"}
GLOO_ROUND_TRIP_S = 0.2e-3  # of a notice and its answer between two hosts, CPU time included


def site_peers(site: Site, library: Library) -> Peers:
    """Ranks of a site and the levels of links that connect them; cached per site."""
    return site.get_or_make(("peers", library), lambda: _build_peers(site, library))


def _build_peers(site: Site, library: Library) -> Peers:
    """Builds the levels of links inside and between the machines of a site."""
    inside = between = None
    if site.machines > 1 and site.fabric is not None and site.machines <= site.fabric.machines:
        # One domain of the fabric spans all machines, as in a rack.
        return Peers(_fabric_level(site, site.workers, library), None, site.workers)
    if min(site.devices, site.workers) > 1:
        inside = _fabric_level(site, min(site.devices, site.workers), library)
    if site.machines > 1:
        between = _network_level(site, library)
    return Peers(inside, between, site.workers)


def link_notes(site: Site, library: Library) -> tuple[Note, ...]:
    """Notes on the links that collectives use, and on the source of their times."""
    peers, name, hardware = site_peers(site, library), library.name.upper(), site.hardware
    sentences = []
    if peers.inside is not None:
        kind = hardware.fabric.kind if hardware.fabric else "the host"
        link = LINK_NAMES.get(kind, kind)
        sentences.append(f"inside {hardware.name} over {link}, {_bandwidth_text(peers.inside)}")
    if peers.between is not None:
        way = "RDMA" if site.uses_rdma else "TCP, without RDMA"
        if site.uses_rdma and hardware.rdma_kind:
            way = f"RDMA ({hardware.rdma_kind})"
        sentences.append(f"between machines over {way}, {_bandwidth_text(peers.between)}")
    return tuple(Note(Topic.COLLECTIVES, f"{sentence}.", of=name) for sentence in sentences)


def _bandwidth_text(level: Level) -> str:
    """Text on the source of a level's times: measured curves, or an estimated bandwidth."""
    if level.curves is not None:
        return f"times as measured ({level.curves.name})"
    return f"{level.bytes_per_s / 1e9:.3g} GB/s of bus bandwidth, estimated"


def _fabric_level(site: Site, members: int, library: Library) -> Level:
    """Level of the links between `members` devices of a machine; raises BadInput if unknown."""
    fabric = site.fabric
    if fabric is None:
        raise BadInput(
            f"{site.hardware.name}: how its {site.devices} devices are joined is not known; add a [fabric] "
            "with kind and gbyte_per_s to its hardware file (docs/hardware.md)"
        )
    rate, link = _fabric_rate(fabric, members, site.devices), nccl_link(fabric.kind)
    if fabric.topology == "pairs" and members > 2:
        link = "PCI"
    elif fabric.curve is not None and isinstance(library, Nccl):
        return Level("fabric", link, members, fabric.bytes_per_s, curves=Curves.load(fabric.curve, "ranks"))
    waits_s = 0.0 if isinstance(library, Nccl) else GLOO_ROUND_TRIP_S
    return Level("fabric", link, members, rate, round_trip_s=waits_s)


def _fabric_rate(fabric: Fabric, members: int, devices: int) -> float:
    """Bytes per second of one device in a ring of `members` devices of a machine."""
    pcie_share = next((share for count, share in PCIE_SHARE.items() if members <= count), PCIE_SHARE[8])
    if fabric.allreduce_bytes_per_s is not None and members == devices:
        return fabric.allreduce_bytes_per_s
    if fabric.topology == "pairs" and members > 2:
        return (fabric.between_bytes_per_s or fabric.bytes_per_s) * pcie_share
    if fabric.topology == "pcie":
        return fabric.bytes_per_s * pcie_share
    if fabric.topology == "mesh" and members < devices:
        # A device is linked to some others only; two of eight share two links of six.
        return fabric.bytes_per_s * max((members - 1) / (devices - 1), 1 / 3) * NVLINK_SHARE
    return fabric.bytes_per_s * NVLINK_SHARE


def _network_level(site: Site, library: Library) -> Level:
    """Level of the network between the machines of a site."""
    hardware, rdma = site.hardware, site.uses_rdma
    share = min(site.nic_shares, default=1.0)
    nic = site.between_bytes_per_s * share
    # Devices reach the NICs next to them: the machine with the fewest workers decides how many are used.
    in_last = site.workers - (site.machines - 1) * site.devices
    if (hardware.nics or 1) > 1:
        nic *= max(in_last / site.devices, 1 / (hardware.nics or 1))
    if not isinstance(library, Nccl):
        return Level(
            "network",
            "Net",
            site.machines,
            nic * GLOO_SHARE,
            round_trip_s=_round_trip_s(site, library),
            burst_bytes=site.burst_bytes,
        )
    curve = hardware.network_curves.get("rdma" if rdma else "tcp")
    channels = CHANNELS_PER_NIC * min(hardware.nics or 1, site.devices)  # NICs of one device are one
    if curve is not None and share == 1 and in_last == site.devices and not site.market.bandwidth_bytes_per_s:
        curves = Curves.load(curve, "machines")
        return Level("network", "Net", site.machines, nic, channels=channels, curves=curves)
    rate = nic * RDMA_SHARE if rdma else sockets_bytes_per_s(nic, hardware)
    waits_s = _round_trip_s(site, library)
    return Level("network", "Net", site.machines, rate, round_trip_s=waits_s, channels=channels)


def sockets_bytes_per_s(nic_bytes_per_s: float, hardware: Hardware) -> float:
    """Bytes per second each way that NCCL moves over the sockets of a machine, by the rate of its NICs."""
    nics = hardware.nics or 1
    rate = 1 / (1 / (TCP_PAYLOAD * nic_bytes_per_s) + 1 / (nics * TCP_COPIED_BYTES_PER_S))
    sockets = CHANNELS_PER_NIC * SOCKETS.get(hardware.provider, 1)
    return min(rate, nics * sockets * flow_limit_bytes_per_s(hardware))


def _round_trip_s(site: Site, library: Library) -> float:
    """Seconds of a round trip between two machines, minus what the library's own constants include."""
    if site.round_trip_s is not None:
        return site.round_trip_s
    if not isinstance(library, Nccl):
        return GLOO_ROUND_TRIP_S
    if not site.uses_rdma:
        return TCP_HOP_S
    if site.hardware.rdma_kind != "EFA":
        return 0.0
    year = site.hardware.device.year
    return FIRST_EFA_HOP_S if year is not None and year < FIRST_EFA_BEFORE else EFA_HOP_S


def nccl_link(kind: str) -> Link:
    """Name of a fabric's kind of link in NCCL's constants."""
    return "NVLink" if kind in ("nvlink", "nvswitch", "xgmi") else "PCI"
