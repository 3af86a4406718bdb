"""What exchanges do where few plans come: each rule by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.parallel.collectives import Level, Peers, hierarchical_parts
from planner.parallel.collectives.libraries import site_peers
from planner.parallel.data import Site
from planner.parallel.data.collective import _parse_setting, library
from planner.parallel.data.ddp import _all_reduces_s, overlap_loss_s
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.joint import SHARE_UNKNOWN, slowest_factor, step_factors
from planner.parallel.plan import Plan
from planner.search.scored import _version_1_settings
from planner.servers.parameter_servers import ParameterServers
from planner.servers.placement import move_to_servers
from planner.servers.synthesis import Parsing
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Op, Profile


def site(workers: int, machine: str) -> Site:
    return Site(load_hardware(machine), workers)


def test_slowest_of_many_is_further_behind_and_as_far_as_drawn() -> None:
    assert slowest_factor(0.0, 8) == 1.0
    assert slowest_factor(0.1, 1) == pytest.approx(1.0)
    factors = [slowest_factor(0.1, workers) for workers in (2, 8, 32)]
    assert factors == sorted(factors)
    drawn = np.random.default_rng(0).choice(step_factors(0.1, 8), (40_000, 8)).max(axis=1).mean()
    assert factors[1] == pytest.approx(drawn, rel=2e-3)


def test_overlap_loss_with_unknown_memory_is_a_share() -> None:
    here = site(8, "p3.16xlarge")
    unknown = replace(here.hardware, device=replace(here.hardware.device, memory_bytes_per_s=None))
    there = replace(here, hardware=unknown)
    chosen = library("auto", "auto", there)
    peers = site_peers(there, chosen)
    busy_s = _all_reduces_s([1e8], chosen, peers)
    assert busy_s > 0
    assert overlap_loss_s(2.0, [1e8], chosen, peers, there) == pytest.approx(SHARE_UNKNOWN * busy_s)
    assert overlap_loss_s(1e9, [1e8], chosen, peers, here) == pytest.approx(busy_s)  # no more than they last
    assert overlap_loss_s(0.0, [1e8], chosen, peers, here) == 0.0


def test_collectives_over_machines_are_made_of_those_within() -> None:
    inside, between = Level("fabric", "NVLink", 8, 3e11), Level("network", "Net", 4, 4e10)
    both = Peers.of(inside, between)
    scattered, gathered = (
        (inside, "machine", "reduce_scatter", 1e6),
        (inside, "machine", "all_gather", 1e6),
    )
    assert hierarchical_parts("reduce_scatter", 1e6, both) == [
        scattered,
        (between, "all", "reduce_scatter", 1e6),
    ]
    assert hierarchical_parts("all_gather", 1e6, both) == [(between, "all", "all_gather", 1e6), gathered]
    assert hierarchical_parts("all_reduce", 1e6, both) == [
        scattered,
        (between, "all", "all_reduce", 1e6),
        gathered,
    ]
    assert hierarchical_parts("all_gather", 1e6, Peers.of(inside)) == [(inside, "all", "all_gather", 1e6)]


@pytest.mark.parametrize("wrong", [-1e-9, math.nan, math.inf])
def test_parsing_takes_time_or_none(wrong: float) -> None:
    with pytest.raises(BadInput, match="alpha_s_per_byte is"):
        Parsing(wrong, 0.0)
    with pytest.raises(BadInput, match="beta_s is"):
        Parsing(0.0, wrong)
    assert not Parsing(0.0, 0.0)
    assert Parsing(1e-9, 0.0)
    assert Parsing(0.0, 1e-6)


def test_ops_without_tensor_go_to_the_servers_in_turn() -> None:
    untied = [
        Op(f"{resource}/{server}", resource, server, 8 if resource != PS else 0)
        for resource in (DOWNLINK, UPLINK, PS)
        for server in range(4)
    ]
    ops = [Op("tied", DOWNLINK, 0, 8, (), 0), *untied, Op("parse", HOST), Op("compute", WORKER)]
    profile = Profile.build(ops, [[0.0] * len(ops)], model="x", batch=1, servers=4, tensors=["t"])
    moved = move_to_servers(profile, 3)
    server_of = dict(zip(moved.names, moved.server.tolist(), strict=True))
    assert [server_of[op.name] for op in untied] == [0, 1, 2, 0] * 3
    assert (server_of["parse"], server_of["compute"]) == (-1, -1)


def test_setting_is_yes_or_no_in_words() -> None:
    assert _parse_setting("rebuilt", "yes", bool) is True
    assert _parse_setting("rebuilt", "no", bool) is False
    with pytest.raises(BadInput, match="give yes or no"):
        _parse_setting("rebuilt", "true", bool)


@pytest.mark.parametrize(
    ("exchange", "workers", "machine", "words"),
    [
        (Sharded(stage=3), 8, "p3.16xlarge", ["stage 2", "two units ahead"]),
        (
            Sharded(stage=2),
            16,
            "p3.16xlarge",
            ["stage 1", "sharding inside machines only", "two units ahead"],
        ),
        (Sharded(stage=1), 16, "p3.16xlarge", ["sharding inside machines only", "two units ahead"]),
        (Sharded(stage=1, within="machine"), 16, "p3.16xlarge", ["two units ahead"]),
        (Sharded(stage=1), 4, "p3.2xlarge", ["two units ahead"]),
    ],
)
def test_sharded_plan_is_tried_with_less_sharding(
    exchange: Sharded, workers: int, machine: str, words: list[str]
) -> None:
    variants = list(exchange.variants(site(workers, machine)))
    assert [match.label for match in variants] == words
    assert variants[-1].exchange == replace(exchange, prefetch=2)
    if exchange.stage > 1:
        assert variants[0].exchange == replace(exchange, stage=exchange.stage - 1)


def test_servers_are_colocated_where_they_have_no_machines_of_their_own() -> None:
    """As JSON says it, with the hardware that they run on."""
    plan = Plan("alexnet", 32, "p3.2xlarge", 2, ParameterServers(servers=2, host=None))
    beside = _version_1_settings(plan)
    assert (beside["colocated"], beside["server_hardware"], beside["servers"]) == (True, "p3.2xlarge", 2)
    apart = _version_1_settings(
        replace(plan, exchange=ParameterServers(servers=1, host="c5n.large", mode="sync"))
    )
    assert (apart["colocated"], apart["server_hardware"], apart["mode"]) == (False, "c5n.large", "sync")


def test_servers_are_reached_over_tcp_and_that_is_said_where_rdma_is_asked_for() -> None:
    plain = site(2, "p3.2xlarge")
    servers = ParameterServers(servers=1, host="c5n.large")
    own = servers.labels().assumptions
    assert servers.labels(plain).assumptions == own
    *rest, note = servers.labels(replace(plain, market=replace(plain.market, rdma=True))).assumptions
    assert tuple(rest) == own
    assert note.text.startswith("servers are reached over TCP;")
