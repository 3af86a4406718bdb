"""One device of a sharded replica: work of the model, waits of the schedule, and what searches share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from played import pipeline_s

from planner.device.computation import BACKWARD, COMPUTE, FORWARD, RECOMPUTE, SUM, WAIT
from planner.device.precision import BF16
from planner.errors import BadInput
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.model import Floats, Model, group_into_units
from planner.model.catalog import load_model
from planner.parallel import replica
from planner.parallel.data import Site
from planner.parallel.data.ddp import bucket_gradients
from planner.parallel.data.joint import slowest_factor, usual_sigma
from planner.parallel.data.units import sharding_units, unit_stretches
from planner.parallel.mesh import Mesh
from planner.parallel.replica import (
    Costs,
    StageWork,
    TimeRow,
    replica_computation,
    slowest_stage,
    stage_work,
    unit_times,
)
from planner.parallel.tensor import TensorParallel

MODEL = load_model("gpt2-medium")
MACHINE = load_hardware("p4d.24xlarge")


def stage_s(site: Site, batch: int = 2, **settings: str) -> float:
    return float(slowest_stage(MODEL, batch, site, BF16, **settings)[0].seconds.sum())  # type: ignore[arg-type]


def test_sums_are_those_of_the_machine_that_is_asked_for() -> None:
    """Also where another machine of its name was asked for before."""
    assert MACHINE.fabric is not None
    slow = replace(MACHINE, fabric=replace(MACHINE.fabric, curve=None, bytes_per_s=1e9))
    mesh = Mesh.of(tensor=4)
    fast_s, slow_s = (stage_s(Site(machine, 8, mesh=mesh)) for machine in (MACHINE, slow))
    assert slow_s > 1.5 * fast_s
    assert stage_s(Site(MACHINE, 8, mesh=mesh)) == fast_s


@pytest.mark.parametrize("market", [Market(bandwidth_bytes_per_s=1e8), Market(rdma=False)])
def test_sums_over_machines_are_those_of_the_market(market: Market) -> None:
    mesh = Mesh.of(tensor=16)
    assert stage_s(Site(MACHINE, 16, market, mesh)) > 1.2 * stage_s(Site(MACHINE, 16, mesh=mesh))


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
    assert stage_s(site) < stage_s(site, recompute="full") < stage_s(site, 4, recompute="full")


def test_stretches_and_buckets_are_derived_once_for_all_batches() -> None:
    site = Site(MACHINE, 8, mesh=Mesh.of(tensor=2, pipeline=2))
    first, second = (replica_computation(MODEL, batch, site, BF16) for batch in (1, 2))
    assert not np.array_equal(first.durations_s, second.durations_s)
    units = sharding_units(first, 0)
    assert unit_stretches(second, sharding_units(second, 0)) is unit_stretches(first, units)
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


@dataclass(frozen=True)
class Times:
    forward_s: Floats
    backward_s: Floats
    optimizer_s: float
    launch_s: tuple[Floats, Floats]
    late: float = 0.0


def times(model: Model, batch: int) -> Times:
    """A second for 10^12 multiply-adds, and a microsecond a layer; the host launches it at once."""
    forward = np.array([layer.macs * batch / 1e12 + 1e-6 for layer in model.layers])
    return Times(forward, 2 * forward, model.parameters / 1e12, (0 * forward, 0 * forward))


COSTS = Costs(times, collective_s=lambda axis, each, batch, kind: each.elements * batch / 1e12)


def send_s(elements: float) -> float:
    return elements / 1e11


def work(model: Model, tensor: int = 1, recompute: str = "none", **settings: int) -> StageWork:
    result = unit_times(model, 2, Mesh.of(tensor=tensor), recompute, COSTS)  # type: ignore[arg-type]
    return stage_work(result, send_s, Mesh.of(**settings))


def seconds(of: StageWork, kind: int) -> float:
    return float(of.seconds[of.layout.work == kind].sum())


def test_whole_replica_computes_what_its_layers_do() -> None:
    model = load_model("gpt2")
    whole = work(model)
    assert seconds(whole, COMPUTE) == pytest.approx(3 * times(model, 2).forward_s.sum())
    assert [seconds(whole, kind) for kind in (RECOMPUTE, SUM, WAIT)] == [0, 0, 0]
    assert sum(parameter.elements for parameter in whole.layout.parameters) == model.parameters
    assert len(whole.layout.blocks) == 14
    for parameter in whole.layout.parameters:
        assert whole.layout.role[parameter.readers[0]] == FORWARD
        assert parameter.ready is not None
        assert whole.layout.role[parameter.ready] == BACKWARD


def test_full_recompute_computes_the_blocks_forward_again() -> None:
    model = load_model("gpt2")
    chain, once = group_into_units(model), times(model, 2).forward_s
    blocks = chain.sum_by_unit(once)[chain.repeats].sum()
    assert seconds(work(model, recompute="full"), RECOMPUTE) == pytest.approx(blocks)
    attention = sum(t for t, layer in zip(once, model.layers, strict=True) if layer.kind == "attention")
    assert seconds(work(model, recompute="attention"), RECOMPUTE) == pytest.approx(attention)


def test_layers_that_are_shared_are_summed_in_every_pass() -> None:
    model = load_model("gpt2")
    one_pass = (2 * 12 + 1) * 1024 * 768 * 2 / 1e12  # two a block and the embedding, batch 2
    assert seconds(work(model, 4), SUM) == pytest.approx(2 * one_pass)
    again = 2 * 12 * 1024 * 768 * 2 / 1e12
    assert seconds(work(model, 4, "full"), SUM) == pytest.approx(2 * one_pass + again)


def test_stages_wait_as_long_as_the_schedule_says() -> None:
    model, micro = load_model("gpt2"), 8
    staged = work(model, pipeline=4)
    chain = group_into_units(model)
    each = chain.sum_by_unit(times(model, 2).forward_s)
    stages = [each[a:b].sum() for a, b in pairwise(staged.schedule.ends)]
    sent = 1024 * 768 * 2 / 1e11
    whole = pipeline_s(stages, [2 * stage for stage in stages], micro, send_s=sent)
    busy = float(staged.seconds.sum()) - seconds(staged, WAIT)
    assert micro * busy + seconds(staged, WAIT) == pytest.approx(whole)
    interleaved = work(model, pipeline=4, interleave=2)
    assert seconds(interleaved, WAIT) < seconds(staged, WAIT)


def test_device_updates_the_parameters_of_its_stage() -> None:
    model = load_model("gpt2")
    staged = work(model, pipeline=2)
    held = sum(parameter.elements for parameter in staged.layout.parameters)
    assert staged.optimizer_s == pytest.approx(held / 1e12)
    assert held < model.parameters


def test_more_stages_than_units_are_refused_with_what_works() -> None:
    with pytest.raises(BadInput, match=r"20 pipeline stages for 14 units; the nearest that works is 14"):
        work(load_model("gpt2"), pipeline=20)


def test_devices_that_share_layers_wait_for_the_slowest_of_them_at_every_sum() -> None:
    model = load_model("gpt2")
    even, uneven = (
        unit_times(model, 2, Mesh.of(tensor=2), "full", replace(COSTS, lag=lambda pass_s, by=by: by))  # type: ignore[misc]
        for by in (0.0, 0.1)
    )
    computed_s = even.seconds[TimeRow.FORWARD] + even.seconds[TimeRow.BACKWARD] + even.seconds[TimeRow.AGAIN]
    assert (uneven.seconds - even.seconds).sum(axis=0) == pytest.approx(0.1 * computed_s)


def test_stages_s_of_a_slow_host_are_its_launches() -> None:
    """A stage whose kernels take the host longer to launch than the device to compute goes at the host's
    pace, with what its sends and receives take the host; one of large kernels goes at the device's."""
    model, launch_s = load_model("gpt2"), np.full(151, 1.0)

    def slowly(one: Model, batch: int) -> Times:
        return replace(times(one, batch), launch_s=(launch_s, 2 * launch_s))

    slow = unit_times(model, 2, Mesh(), "none", replace(COSTS, times=slowly, send_launch_s=40.0))  # type: ignore[arg-type]
    stages_s = slow.stages_s((0, 7, 14))
    assert stages_s.sum() == pytest.approx(3 * len(model.layers) + 2 * 40.0, rel=1e-6)
    staged = stage_work(slow, send_s, Mesh.of(pipeline=2))
    assert seconds(staged, COMPUTE) == pytest.approx(slow.stages_s(staged.schedule.ends).max(), rel=1e-6)
    fast = unit_times(model, 2, Mesh(), "none", replace(COSTS, send_launch_s=1e-6))  # type: ignore[arg-type]
    assert fast.stages_s((0, 7, 14)).sum() == pytest.approx(3 * times(model, 2).forward_s.sum())


def test_whole_replica_waits_for_the_host_as_its_computation_does() -> None:
    model = load_model("gpt2")

    def late(one: Model, batch: int) -> Times:
        alike = times(one, batch)
        return replace(alike, launch_s=(alike.forward_s, alike.backward_s), late=0.25)

    result = unit_times(model, 2, Mesh(), "none", replace(COSTS, times=late))  # type: ignore[arg-type]
    assert result.stages_s((0, 14)) == pytest.approx(3 * times(model, 2).forward_s.sum())
    assert seconds(stage_work(result, send_s), COMPUTE) == pytest.approx(3 * times(model, 2).forward_s.sum())


def test_stage_work_even_puts_the_head_on_top_of_an_equal_share_of_blocks() -> None:
    model = load_model("gpt2")
    result = unit_times(model, 2, Mesh(), "none", COSTS)  # type: ignore[arg-type]
    balanced, even = (stage_work(result, send_s, Mesh.of(pipeline=4), even=flag) for flag in (False, True))
    assert even.schedule.ends == (0, 4, 7, 10, 14)
    assert even.schedule.slowest == 3  # a vocabulary of 50,257 is as much work as five blocks
    computed_s = [seconds(of, COMPUTE) for of in (even, balanced)]
    assert computed_s[0] > 1.4 * computed_s[1]


def test_checkpoints_that_stop_early_leave_out_the_product_that_makes_a_blocks_output_and_its_sum() -> None:
    model = load_model("llama3-8b")
    whole, early = (
        unit_times(model, 2, Mesh.of(tensor=2), "full", COSTS, stops_early=flag) for flag in (False, True)
    )
    blocks = whole.chain.repeats
    assert (early.seconds[TimeRow.AGAIN][blocks] < 0.85 * whole.seconds[TimeRow.AGAIN][blocks]).all()
    assert early.seconds[TimeRow.AGAIN_SUMS][blocks] == pytest.approx(
        whole.seconds[TimeRow.AGAIN_SUMS][blocks] / 2
    )  # attention's is left
    assert (early.seconds[TimeRow.FORWARD] == whole.seconds[TimeRow.FORWARD]).all()
