"""Thresholds of meshes, strategies and collectives, on both sides of each; figures, not the constants."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from planner.device.precision import BF16
from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.parallel import pipeline
from planner.parallel._base import RequestedSettings
from planner.parallel.collectives import Level, Peers
from planner.parallel.collectives.libraries import PCIE_SHARE, Gloo, site_peers
from planner.parallel.data import Site, collective
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.units import sharding_units
from planner.parallel.pipeline import PipelineParallel
from planner.parallel.tensor import TensorParallel

LLAMA = load_model("llama3-8b")
P5 = load_hardware("p5.48xlarge")


@pytest.mark.parametrize(("units", "virtual"), [(15, (1,)), (16, (1, 2)), (31, (1, 2)), (32, (1, 4))])
def test_candidates_give_each_virtual_stage_at_least_two_units(
    units: int, virtual: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "unit_count", lambda model: units)
    tried = PipelineParallel.candidates(RequestedSettings(), Site(P5, 8), LLAMA)
    assert tuple(axis.virtual_stages for axis in tried if axis.degree == 4) == virtual


@pytest.mark.parametrize(
    ("degree", "virtual", "nearest"), [(8, 1, ""), (9, 1, "is 8"), (4, 2, ""), (4, 3, "--interleave 2")]
)
def test_pipeline_takes_as_many_stages_as_units(
    degree: int, virtual: int, nearest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "unit_count", lambda model: 8)
    refused = PipelineParallel(degree, virtual).infeasibility(None, LLAMA)
    assert (refused is None) is (nearest == "")
    assert nearest in str(refused)


def test_tensor_candidates_end_with_the_devices_of_a_machine() -> None:
    eight, six, asked = Site(P5, 8), Site(replace(P5, device_count=6), 6), RequestedSettings()
    assert [axis.degree for axis in TensorParallel.candidates(asked, eight, LLAMA)] == [1, 2, 4, 8]
    assert [axis.degree for axis in TensorParallel.candidates(asked, six, LLAMA)] == [1, 2, 4]


@pytest.mark.parametrize(("jitter", "good"), [(0.0, True), (1.0, True), (-1e-9, False), (1.000001, False)])
def test_jitter_is_a_share(jitter: float, good: bool) -> None:
    if good:
        AllReduce(jitter=jitter)
    else:
        with pytest.raises(BadInput, match="between 0 and 1"):
            AllReduce(jitter=jitter)


@pytest.mark.parametrize(("workers", "whole"), [(8, False), (12, False), (16, True)])
def test_sharding_inside_machines_needs_several_whole_machines(workers: int, whole: bool) -> None:
    assert collective.can_shard_within_machines(Site(P5, workers)) is whole


@pytest.mark.parametrize(("workers", "refused"), [(1, False), (2, True)])
def test_unknown_fabric_refuses_collectives_of_two_devices(workers: int, refused: bool) -> None:
    error = collective.infeasibility("auto", Site(replace(P5, fabric=None), workers))
    assert (error is not None) is refused


@pytest.mark.parametrize(("workers", "levels"), [(8, 1), (16, 1), (17, 2)])
def test_fabric_of_two_machines_is_one_level_up_to_two_machines(workers: int, levels: int) -> None:
    assert P5.fabric is not None
    rack = replace(P5, fabric=replace(P5.fabric, machines=2))
    peers = site_peers(Site(rack, workers), collective.library("auto", "auto", Site(rack, workers)))
    assert len([level for level in (peers.inside, peers.between) if level]) == levels


@pytest.mark.parametrize(("members", "share"), [(2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (16, 8)])
def test_pcie_share_is_that_of_the_next_measured_count(members: int, share: int) -> None:
    fabric = replace(load_hardware("g5.48xlarge").fabric, allreduce_bytes_per_s=None, curve=None)  # type: ignore[type-var]
    assert fabric.topology == "pcie"
    here = Site(replace(load_hardware("g5.48xlarge"), device_count=16, fabric=fabric), members)
    level = site_peers(here, collective.library("auto", "auto", here)).inside
    assert level is not None
    assert level.bytes_per_s == pytest.approx(fabric.bytes_per_s * PCIE_SHARE[share])


@pytest.mark.parametrize(("between", "name"), [(1e9, "network"), (1.001e9, "fabric")])
def test_outermost_level_of_equal_rates_is_the_network(between: float, name: str) -> None:
    peers = Peers.of(Level("fabric", "PCI", 4, 1e9), Level("network", "Net", 2, between))
    assert peers.slower_level is not None
    assert peers.slower_level.name == name


@pytest.mark.parametrize(("ranks", "slower"), [(2, False), (3, True)])
def test_gloo_opposed_directions_slow_each_other_from_three_ranks_on(ranks: int, slower: bool) -> None:
    peers = Peers.of(between=Level("network", "Net", ranks, 1e9))
    alone, opposed = (
        sum(phase.seconds(1e9) for phase in Gloo().phases("reduce_scatter", 1e7, peers, opposed=both))
        for both in (False, True)
    )
    assert (opposed > alone) is slower


@pytest.mark.parametrize(("least", "units"), [(100, 3), (101, 1)])
def test_units_of_exactly_the_least_elements_stand_alone(least: int, units: int) -> None:
    parameters = tuple(
        SimpleNamespace(name=str(at), elements=100, frozen_bytes=0.0, block=at) for at in range(3)
    )
    computation: Any = SimpleNamespace(blocks=("0", "1", "2"), parameters=parameters, precision=BF16)
    assert len(sharding_units(computation, least)) == units


@pytest.mark.parametrize(("members", "share"), [(2, 0.74), (3, 0.26)])
def test_pairs_of_devices_are_as_fast_as_their_link(members: int, share: float) -> None:
    fabric = replace(load_hardware("p3.16xlarge").fabric, topology="pairs", curve=None)  # type: ignore[type-var]
    here = Site(replace(load_hardware("p3.16xlarge"), fabric=fabric), members)
    level = site_peers(here, collective.library("auto", "auto", here)).inside
    assert level is not None
    assert level.bytes_per_s == pytest.approx(share * fabric.bytes_per_s)
