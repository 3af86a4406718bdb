"""The computation of a device of a sharded replica, as far as searches share what they find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.device.computation import COMPUTE, SUM
from planner.device.precision import BF16
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.parallel import replica
from planner.parallel.data import Site
from planner.parallel.data.ddp import bucket_gradients
from planner.parallel.data.joint import slowest_factor, usual_sigma
from planner.parallel.data.units import stretches, units_of
from planner.parallel.mesh import Mesh
from planner.parallel.replica import replica_computation, slowest_stage
from planner.parallel.tensor import TensorParallel

MODEL = load_model("gpt2-medium")
MACHINE = load_hardware("p4d.24xlarge")


def seconds(site: Site, batch: int = 2, **settings: str) -> float:
    return float(slowest_stage(MODEL, batch, site, BF16, **settings)[0].seconds.sum())  # type: ignore[arg-type]


def test_sums_are_those_of_the_machine_that_is_asked_for() -> None:
    """Also where another machine of its name was asked for before."""
    assert MACHINE.fabric is not None
    slow = replace(MACHINE, fabric=replace(MACHINE.fabric, curve=None, bytes_per_s=1e9))
    mesh = Mesh.of(tensor=4)
    fast_s, slow_s = (seconds(Site(machine, 8, mesh=mesh)) for machine in (MACHINE, slow))
    assert slow_s > 1.5 * fast_s
    assert seconds(Site(MACHINE, 8, mesh=mesh)) == fast_s


@pytest.mark.parametrize("market", [Market(bandwidth_bytes_per_s=1e8), Market(rdma=False)])
def test_sums_over_machines_are_those_of_the_market(market: Market) -> None:
    mesh = Mesh.of(tensor=16)
    assert seconds(Site(MACHINE, 16, market, mesh)) > 1.2 * seconds(Site(MACHINE, 16, mesh=mesh))


def test_stages_share_what_units_take_and_differ_in_what_they_wait_for() -> None:
    first, two, often = (
        slowest_stage(
            MODEL, 2, Site(MACHINE, 8, mesh=Mesh.of(tensor=2, pipeline=pipeline, interleave=interleave)), BF16
        )[0]
        for pipeline, interleave in ((1, 1), (4, 1), (4, 2))
    )
    assert two.schedule.ends == often.schedule.ends != first.schedule.ends
    assert two.seconds.sum() > often.seconds.sum()


def test_stage_time_grows_with_recompute_and_batch() -> None:
    site = Site(MACHINE, 8, mesh=Mesh.of(tensor=2, pipeline=2))
    assert seconds(site) < seconds(site, recompute="full") < seconds(site, 4, recompute="full")


def test_stretches_and_buckets_are_derived_once_for_all_batches() -> None:
    site = Site(MACHINE, 8, mesh=Mesh.of(tensor=2, pipeline=2))
    first, second = (replica_computation(MODEL, batch, site, BF16) for batch in (1, 2))
    assert not np.array_equal(first.durations_s, second.durations_s)
    units = units_of(first, 0)
    assert stretches(second, units_of(second, 0)) is stretches(first, units)
    assert bucket_gradients(second, 1 << 20, 1 << 20, 2) is bucket_gradients(first, 1 << 20, 1 << 20, 2)
    assert bucket_gradients(second, 1 << 20, 1 << 20, 4) != bucket_gradients(first, 1 << 20, 1 << 20, 2)


def test_model_is_sharded_once_however_the_mesh_is_written() -> None:
    assert Mesh.of(tensor=4).shard(MODEL) is Mesh((TensorParallel(4),)).shard(MODEL)
    assert Mesh((TensorParallel(4, sequence_parallel=False),)).shard(MODEL) != Mesh.of(tensor=4).shard(MODEL)


def test_devices_that_share_layers_lose_what_the_slowest_of_them_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a pass above a second as much as in one of a second: they meet at every sum."""

    def spent(kind: int) -> float:
        machine = replace(load_hardware("p5.48xlarge"))  # of which nothing is known yet
        site = Site(machine, 8, mesh=Mesh.of(tensor=8))
        work = slowest_stage(load_model("llama3-8b"), 16, site, BF16)[0]
        return float(work.seconds[work.layout.work == kind].sum())

    uneven_s, computed_s = spent(SUM), spent(COMPUTE)
    assert computed_s > 1
    monkeypatch.setattr(replica, "_straggler_lag", lambda pass_s, mesh: 0.0)
    behind = slowest_factor(usual_sigma(1.0, 1), 8) - 1
    assert uneven_s - spent(SUM) == pytest.approx(behind * computed_s)
