"""The cost of collectives: volumes, hops, latencies, measured curves."""

import csv
import math
from dataclasses import replace

import pytest

from planner.errors import BadInput
from planner.files.regular_file import shipped_folder
from planner.hardware import Hardware
from planner.hardware.catalog import load_hardware
from planner.parallel.collectives import (
    Curves,
    Level,
    Peers,
    TimeCurve,
    hierarchical_parts,
    ring_bytes,
    ring_hops,
    tree_hops,
)
from planner.parallel.collectives.libraries import CHUNK_BYTES, Gloo, Nccl, site_peers, sockets_bytes_per_s
from planner.parallel.data import Site

MIB = 2**20


def fabric(members: int = 8, **more: object) -> Level:
    return Level("fabric", "NVLink", members, 360e9, **more)  # type: ignore[arg-type]


def network(members: int = 4, **more: object) -> Level:
    return Level("network", "Net", members, 40e9, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("members", [2, 3, 8, 1024])
def test_all_reduce_is_a_reduce_scatter_and_an_all_gather(members: int) -> None:
    parts = ring_bytes("reduce_scatter", 1e6, members) + ring_bytes("all_gather", 1e6, members)
    assert ring_bytes("all_reduce", 1e6, members) == pytest.approx(parts)
    assert ring_bytes("all_gather", 1e6, members) == pytest.approx(1e6 * (members - 1) / members)


@pytest.mark.parametrize("library", [Nccl(), Nccl("hierarchical"), Gloo()])
def test_all_to_all_moves_what_an_all_gather_does_and_a_send_all_of_it(library: Nccl | Gloo) -> None:
    for peers in (Peers.of(fabric(8)), Peers.of(between=network(4))):
        for kind, share in (("all_to_all", (peers.ranks - 1) / peers.ranks), ("send_recv", 1.0)):
            sent = sum(phase.bytes for phase in library.phases(kind, 1e9, peers))
            assert sent == pytest.approx(1e9 * share)
            assert library.seconds(kind, 1e9, peers) >= sent / peers.slower_level.bytes_per_s
    both = Peers.of(fabric(8), network(4))
    assert ring_hops("send_recv", both) == (0, 1)
    assert [part[0].name for part in hierarchical_parts("send_recv", 1e6, both)] == ["network"]
    assert library.seconds("all_to_all", 1e8, both) < library.seconds("all_reduce", 1e8, both)


def test_ring_crosses_each_machine_once_a_pass() -> None:
    peers = Peers.of(fabric(8), network(4))
    assert ring_hops("all_reduce", peers) == (2 * 31 - 2 * 3, 2 * 3)
    assert ring_hops("all_gather", Peers.of(fabric(8))) == (7, 0)
    assert tree_hops(peers) == (14, 4)


def test_flat_ring_is_as_fast_as_its_slowest_link() -> None:
    peers = Peers.of(fabric(8), network(4))
    (phase,) = Nccl("ring").phases("all_reduce", 1e9, peers)
    assert phase.level == "network"
    assert phase.bytes == round(2 * 31 / 32 * 1e9)
    slow_inside = Peers.of(Level("fabric", "PCI", 8, 5e9), network(4))
    assert Nccl("ring").phases("all_reduce", 1e9, slow_inside)[0].level == "fabric"


def test_hierarchy_moves_the_data_once_over_the_network_and_twice_over_the_fabric() -> None:
    peers = Peers.of(fabric(8), network(4))
    phases = Nccl("hierarchical").phases("all_reduce", 8e6, peers)
    assert [(p.level, p.scope) for p in phases] == [
        ("fabric", "machine"),
        ("network", "all"),
        ("fabric", "machine"),
    ]
    assert phases[0].bytes == phases[2].bytes == 7_000_000
    assert phases[1].bytes == 12_000_000
    gather = hierarchical_parts("all_gather", 8e6, peers)
    assert [part[0].name for part in gather] == ["network", "fabric"]
    assert hierarchical_parts("all_gather", 8e6, Peers.of()) == []


def test_small_messages_cost_what_nccls_latency_model_says() -> None:
    """Eight devices on NVLink: tree LL, 6.8 + 14 x 0.6 us; 8 H100 were measured at 16 us."""
    (phase,) = Nccl("tree").phases("all_reduce", 8, Peers.of(fabric(8)))
    assert phase.latency_s == pytest.approx(15.2e-6, rel=0.01)
    auto = Nccl().phases("all_reduce", 8, Peers.of(fabric(8)))[0]
    assert auto.latency_s <= phase.latency_s


def test_library_takes_the_fastest_algorithm() -> None:
    peers = Peers.of(fabric(8), network(64))
    for size in (8, 2**16, 2**24, 2**30):
        seconds = {
            name: Nccl(name).phases("all_reduce", size, peers)[0].seconds(40e9)
            for name in ("auto", "ring", "tree")
        }
        assert seconds["auto"] == min(seconds.values())
    gathers = [Nccl(name).phases("all_gather", 2**30, peers) for name in ("tree", "ring")]
    assert gathers[0] == gathers[1]  # a tree does all-reduce only


def test_one_pass_takes_half_of_an_all_reduce_at_least() -> None:
    peers = Peers.of(fabric(8), network(64))
    for size in (2**12, 2**20, 2**24, 2**30):
        both_s = Nccl().phases("all_reduce", size, peers)[0].seconds(40e9)
        one_s = Nccl().phases("all_gather", size, peers)[0].seconds(40e9)
        assert both_s / 2 <= one_s * (1 + 1e-9)
    assert one_s < both_s


def test_time_grows_with_size_and_ranks() -> None:
    for library in (Nccl(), Nccl("hierarchical"), Gloo()):
        before = 0.0
        for size in (1, 10, 1e4, 1e6, 1e8, 1e9):
            peers = Peers.of(fabric(4), network(4, round_trip_s=1e-4))
            rates = {"fabric": 360e9, "network": 40e9}
            seconds = sum(p.seconds(rates[p.level]) for p in library.phases("all_reduce", size, peers))
            assert seconds >= before
            before = seconds


def test_collective_of_one_rank_costs_nothing() -> None:
    assert Nccl().phases("all_reduce", 1e6, Peers.of()) == ()
    assert Gloo().phases("all_reduce", 1e6, Peers.of()) == ()


def test_curve_is_interpolated_in_the_logarithm_of_the_size() -> None:
    curve = TimeCurve.from_points([(MIB, 1e-3), (1024, 1e-5), (4 * MIB, 4e-3)])
    assert curve.seconds(MIB) == pytest.approx(1e-3)
    assert curve.seconds(2 * MIB) == pytest.approx(2e-3)
    assert curve.seconds(math.sqrt(1024 * MIB)) == pytest.approx(math.sqrt(1e-5 * 1e-3))
    assert curve.seconds(1) == 1e-5
    assert curve.seconds(8 * MIB) == pytest.approx(8e-3)


@pytest.mark.parametrize("points", [[], [(1, 1.0), (1, 2.0)], [(0, 1.0)], [(1, 0.0)]])
def test_curve_of_nonsense_is_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises((BadInput, ValueError)):
        TimeCurve.from_points(points)


def test_measured_curves_go_before_the_formula() -> None:
    curves = Curves({"all_reduce": {8: TimeCurve.from_points([(MIB, 1e-3), (64 * MIB, 1e-2)])}})
    level = fabric(8, curves=curves)
    (phase,) = Nccl().phases("all_reduce", 64 * MIB, Peers.of(level))
    assert phase.seconds(level.bytes_per_s) == pytest.approx(1e-2, rel=1e-6)
    (half,) = Nccl().phases("all_gather", 64 * MIB, Peers.of(level))
    assert half.seconds(level.bytes_per_s) == pytest.approx(0.5e-2, rel=1e-6)
    four = Nccl().phases("all_reduce", 64 * MIB, Peers.of(fabric(4, curves=curves)))[0]
    assert 0.5e-2 < four.seconds(level.bytes_per_s) < 1e-2


def test_more_machines_than_were_measured_are_not_faster_than_their_wire() -> None:
    """Trees report more than the NIC on exactly two machines; that is no figure to scale from."""
    curves = Curves({"all_reduce": {2: TimeCurve.from_points([(MIB, 1e-4), (2**30, 5e-3)])}})
    two = network(2, curves=curves)
    (phase,) = Nccl().phases("all_reduce", 2**30, Peers.of(fabric(8), two))
    assert phase.seconds(two.bytes_per_s) == pytest.approx(5e-3)
    four = network(4, curves=curves)
    (phase,) = Nccl().phases("all_reduce", 2**30, Peers.of(fabric(8), four))
    assert phase.seconds(four.bytes_per_s) >= 2 * 31 / 32 * 2**30 / four.bytes_per_s * (1 - 1e-9)


def test_shipped_curves_are_found_by_name() -> None:
    """8 x H100: 445 to 483 GB/s of bus bandwidth in the largest message; p5 over EFA: 357 on 4 machines."""
    h100 = Curves.load("h100-sxm", "ranks")
    bus = 2 * 7 / 8 * 2**29 / (h100.seconds("all_reduce", 8, 2**29) or math.nan)
    assert 440e9 < bus < 490e9
    p5 = Curves.load("h100-efa", "machines")
    bus = 2 * 31 / 32 * 2**33 / (p5.seconds("all_reduce", 4, 2**33) or math.nan)
    assert bus == pytest.approx(357e9, rel=0.01)
    assert p5.seconds("reduce_scatter", 4, 2**20) is None


# Gloo over 100 Mbit/s (payload 98.7% of it): measured times of raw collectives, one-way delay 5 ms.
@pytest.mark.parametrize(
    ("kind", "ranks", "size", "measured_s"),
    [
        ("all_reduce", 4, 1024, 62.6e-3),
        ("all_reduce", 4, 262144, 73.8e-3),
        ("all_reduce", 4, 1048576, 145.1e-3),
        ("all_reduce", 2, 1048576, 102.4e-3),
        ("all_gather", 4, 1024, 31.3e-3),
        ("all_gather", 4, 262144, 37.5e-3),
        ("all_gather", 4, 1048576, 74.1e-3),
    ],
)
def test_gloo_pays_a_round_trip_a_hop_or_a_pass(kind: str, ranks: int, size: int, measured_s: float) -> None:
    level = Level("network", "Net", ranks, 0.987 * 12.5e6, round_trip_s=10.4e-3, burst_bytes=10_000)
    (phase,) = Gloo().phases(kind, size, Peers.of(between=level))  # type: ignore[arg-type]
    assert phase.seconds(level.bytes_per_s) == pytest.approx(measured_s, rel=0.04)


def test_gloo_scatters_by_an_all_reduce() -> None:
    level = Level("network", "Net", 4, 25e6, round_trip_s=2e-4)
    peers = Peers.of(between=level)
    assert Gloo().phases("reduce_scatter", 1e6, peers) == Gloo().phases("all_reduce", 1e6, peers)
    (alone,) = Gloo().phases("all_reduce", 1e6, peers)
    (opposed,) = Gloo().phases("all_reduce", 1e6, peers, opposed=True)
    assert opposed.bytes - alone.bytes == pytest.approx(2 * 1e6 / 8, abs=1)


@pytest.mark.parametrize(("members", "rate"), [(1, 1e9), (2, 0.0), (2, -1.0)])
def test_level_needs_two_members_and_a_rate(members: int, rate: float) -> None:
    with pytest.raises(BadInput):
        Level("network", "Net", members, rate)


def test_chunks_between_machines_wait_for_every_hop() -> None:
    """(sqrt(latency) + sqrt(wire)) squared: twice the sum where both are alike, close to it at both ends."""
    between = Peers.of(between=Level("network", "Net", 4, 1e9))
    inside = Peers.of(inside=Level("fabric", "PCI", 4, 1e9))
    for size in (1e3, 1e5, 1e8):
        latency_s = Nccl("ring").seconds("all_reduce", 1.0, between)
        sum_s = latency_s + 1.5 * size / 1e9
        seconds = Nccl("ring").seconds("all_reduce", size, between)
        assert 0.9 * sum_s <= seconds <= 2.1 * sum_s
    few, many = (Nccl("ring").seconds("all_reduce", size, inside) for size in (1e8, 2e8))
    assert many - few == pytest.approx(1.5 * 1e8 / 1e9, rel=1e-6)  # what comes in is passed on at once


@pytest.mark.parametrize(
    ("machine", "least", "most"), [("p4d.24xlarge", 0.8, 1.3), ("p5.48xlarge", 0.9, 1.2)]
)
def test_estimates_between_machines_are_near_measured_curves(machine: str, least: float, most: float) -> None:
    known = load_hardware(machine)
    bare = replace(known, network_curves={}, fabric=known.fabric and replace(known.fabric, curve=None))
    for size in (2**20, 2**22, 2**24, 2**26):
        measured, estimated = (
            Nccl().seconds("all_reduce", size, site_peers(Site(entry, 16), Nccl())) for entry in (known, bare)
        )
        assert least <= estimated / measured <= most


def test_nccl_broadcasts_down_a_chain_of_machines() -> None:
    """All of it crosses every port, and the last chunk of each channel has to be whole in every machine
    before it is passed on."""
    near, far = (Peers.of(fabric(8), network(machines, channels=8)) for machines in (2, 66))
    sizes = (1e8, 2e8)
    short, long = (Nccl("ring").seconds("broadcast", size, far) for size in sizes)
    assert long - short == pytest.approx(1e8 / 40e9, rel=0.1)
    few, many = (Nccl("ring").seconds("broadcast", 1e8, peers) for peers in (near, far))
    waits_s = 64 * (8 * CHUNK_BYTES / 40e9)
    assert waits_s < many - few < waits_s + 64 * 8 * 20e-6
    result = Peers.of(fabric(8), network(66, channels=1))
    assert Nccl("ring").seconds("broadcast", 1e8, result) == pytest.approx(many - 65 * 7 * CHUNK_BYTES / 40e9)
    inside = Nccl("ring").seconds("broadcast", 1e8, Peers.of(inside=fabric(8)))
    assert 1e8 / 360e9 <= inside < 1.3 * 1e8 / 360e9


def test_broadcast_that_was_not_measured_takes_half_of_an_all_reduce_and_its_way() -> None:
    where = Site(load_hardware("p4d.24xlarge"), 16)
    peers = site_peers(where, Nccl())
    assert peers.between is not None
    assert peers.between.channels == 8  # two for each of four NICs
    both_s = Nccl().seconds("all_reduce", 1e8, peers)
    passed_s = 8 * CHUNK_BYTES / peers.between.bytes_per_s
    assert Nccl().seconds("broadcast", 1e8, peers) == pytest.approx(both_s / 2 + passed_s, rel=0.3)
    assert site_peers(Site(load_hardware("p5.48xlarge"), 16), Nccl()).between.channels == 16  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("ranks", "size", "measured_s"),
    [
        (2, 8388608, 0.3381),
        (3, 8388600, 0.6754),
        (4, 8388608, 1.0126),
        (6, 8388600, 1.6878),
        (8, 8388608, 2.0248),
    ],
)
def test_gloo_broadcasts_down_a_binomial_tree(ranks: int, size: int, measured_s: float) -> None:
    """Medians of PyTorch's over links of 200 Mbit/s: 1, 2, 3, 5 and 6 messages follow each other."""
    level = Level("network", "Net", ranks, 0.987 * 25e6, round_trip_s=2e-4)
    (phase,) = Gloo().phases("broadcast", size, Peers.of(between=level))
    assert phase.seconds(level.bytes_per_s) == pytest.approx(measured_s, rel=0.02)


def test_broadcast_of_two_levels_goes_to_machines_and_then_inside() -> None:
    peers = Peers.of(fabric(8), network(4))
    parts = [(scope, kind) for _, scope, kind, _ in hierarchical_parts("broadcast", 1e6, peers)]
    assert parts == [("all", "broadcast"), ("machine", "broadcast")]


def on_sockets(provider: str, nics: int, flow_bytes_per_s: float | None = None) -> Hardware:
    return replace(
        load_hardware("p4d.24xlarge"),
        provider=provider,
        nics=nics,
        flow_bytes_per_s=flow_bytes_per_s,
        placement_group_flow_bytes_per_s=None,
    )


def test_sockets_bytes_per_s_of_measured_machines() -> None:
    """NCCL over TCP as published: half of the machines within a quarter, none off by more than a half."""
    errors = []
    for row in csv.DictReader((shipped_folder("hardware") / "collectives" / "sockets.csv").open()):
        rate = sockets_bytes_per_s(
            float(row["nic_gbit_per_s"]) / 8 * 1e9, on_sockets(row["provider"], int(row["nics"]))
        )
        errors.append(abs(rate / (float(row["bus_gbyte_per_s"]) * 1e9) - 1))
    assert len(errors) == 9
    assert sorted(errors)[4] < 0.25
    assert max(errors) < 0.5


def test_sockets_bytes_per_s_of_slow_connections_are_those_of_two() -> None:
    """40 Gbit/s Ethernet on which iperf measured 4.1 Gbit/s for one connection."""
    slow = on_sockets("", 1, 4.1e9 / 8)
    assert sockets_bytes_per_s(5e9, slow) == pytest.approx(2 * 4.1e9 / 8)
    assert sockets_bytes_per_s(0.125e9, slow) == pytest.approx(0.92 * 0.125e9, rel=0.02)
