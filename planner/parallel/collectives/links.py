"""The links that collectives of a site run over: the ranks in each level, and the rates that libraries reach.

`site_peers` gives the ranks of a site and the rates that a library reaches on the links between them. Where a
link has measured curves its own figure is the port's rate and the curve gives the time; else the figure is
multiplied by the share that libraries reach on such a link, which is an estimate and labelled as one.
"""

from __future__ import annotations

from planner.errors import BadInput
from planner.hardware import Fabric, Hardware
from planner.note import Note, Topic
from planner.parallel.collectives import Curves, Level, Library, Link, Peers
from planner.parallel.collectives.libraries import CHANNELS_PER_NIC, Nccl
from planner.parallel.plan import Site, flow_limit_bytes_per_s

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
    return site.once(("peers", library), lambda: _build_peers(site, library))


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
        link = hardware.fabric.kind if hardware.fabric else "the host"
        sentences.append(
            f"inside {hardware.name} over {LINK_NAMES.get(link, link)}, {_bandwidth_text(peers.inside)}"
        )
    if peers.between is not None:
        way = (hardware.rdma_kind or "RDMA") if site.uses_rdma else "TCP, without RDMA"
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
    if fabric.allreduce_bytes_per_s is not None and members == devices:
        return fabric.allreduce_bytes_per_s
    if fabric.topology == "pairs" and members > 2:
        return (fabric.between_bytes_per_s or fabric.bytes_per_s) * _pcie_share(members)
    if fabric.topology == "pcie":
        return fabric.bytes_per_s * _pcie_share(members)
    if fabric.topology == "mesh" and members < devices:
        # A device is linked to some others only; two of eight share two links of six.
        return fabric.bytes_per_s * max((members - 1) / (devices - 1), 1 / 3) * NVLINK_SHARE
    return fabric.bytes_per_s * NVLINK_SHARE


def _pcie_share(members: int) -> float:
    """Fraction of the PCIe bandwidth that a ring of `members` devices reaches."""
    return next((share for count, share in PCIE_SHARE.items() if members <= count), PCIE_SHARE[8])


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
    """Bytes per second that NCCL moves over the sockets of a machine in each direction, at a rate of its NICs
    together: its rings go on when the last connection has, so that the slowest limits all."""
    nics = hardware.nics or 1
    rate = 1 / (1 / (TCP_PAYLOAD * nic_bytes_per_s) + 1 / (nics * TCP_COPIED_BYTES_PER_S))
    sockets = CHANNELS_PER_NIC * SOCKETS.get(hardware.provider, 1)
    return min(rate, nics * sockets * flow_limit_bytes_per_s(hardware))


def _round_trip_s(site: Site, library: Library) -> float:
    """Round trip in seconds between two machines beyond the library's own constants."""
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
