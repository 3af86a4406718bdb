"""Sharded data parallelism lowered and simulated: what is sent, when, and what it waits for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_allreduce import check_engine_is_reference, step_s
from test_buckets import chain

from planner.device.computation import Variation, median_steps, repeat_passes
from planner.device.precision import FP32
from planner.errors import BadInput
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.parallel.collectives.libraries import Nccl, site_peers
from planner.parallel.data import Job, Site
from planner.parallel.data.collective import overlap_loss_s
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.joint import MEMORY_SHARE
from planner.parallel.data.units import sharding_units, unit_stretches
from planner.parallel.mesh import Mesh
from planner.simulator.simulate import Case
from planner.simulator.step import UPLINK

SLOW = Market(bandwidth_bytes_per_s=1e9)
PLAIN = Sharded(least_unit=0, accesses=0.0, jitter=0.0)


def site(workers: int, machine: str = "p3.2xlarge", **more: object) -> Site:
    return Site(load_hardware(machine), workers, **more)  # type: ignore[arg-type]


def random_sharded(random: np.random.Generator, where: Site) -> Sharded:
    return Sharded(
        stage=int(random.integers(1, 4)),
        prefetch=int(random.integers(0, 3)),
        within="machine" if where.machines > 1 and where.devices > 1 and random.integers(2) else "all",
        blocking=bool(random.integers(2)),
        each_pass=bool(random.integers(2)),
    )


def names(case: Case, kind: str) -> list[str]:
    return [name for name in case.profile.names if name.startswith(kind)]


def test_step_is_stretches_of_one_unit() -> None:
    computation = chain([10, 20, 30])
    result = unit_stretches(computation, sharding_units(computation))
    assert [match.unit for match in result] == [0, 1, 2, 2, 1, 0]
    assert [match.gathers for match in result] == [True, True, True, False, True, True]
    assert [match.scatters for match in result] == [(), (), (), (2,), (1,), (0,)]
    assert [(match.first, match.last) for match in result] == [(at, at) for at in range(6)]


def test_units_of_several_layers_are_fetched_once() -> None:
    computation = chain([10] * 6)
    parameters = tuple(replace(one, block=at // 3) for at, one in enumerate(computation.parameters))
    wrapped = replace(computation, parameters=parameters, blocks=("a", "b"))
    result = unit_stretches(wrapped, sharding_units(wrapped))
    assert [match.unit for match in result] == [0, 1, 1, 0]
    assert [match.scatters for match in result] == [(), (), (1,), (0,)]


def test_stage_three_gathers_twice_and_scatters_once() -> None:
    case = PLAIN.lower(chain([1000] * 4), site(4, market=SLOW))
    assert len(names(case, "gather")) == 4 + 3  # the last unit stays
    assert len(names(case, "scatter")) == 4
    sent = case.profile.bytes[case.profile.resource == UPLINK].sum()
    assert sent == (7 + 4) * 3000


def test_lower_stages_gather_once_after_the_optimizer() -> None:
    """As DeepSpeed does; beside tensor and pipeline parallelism in the next forward pass."""
    where = site(4, market=SLOW)
    after, ahead = (
        replace(PLAIN, stage=1, gathers=gathers).lower(chain([1000] * 4), where)
        for gathers in ("auto", "next")
    )
    (last,) = names(after, "gather")
    at = after.profile.names.index(last)
    assert [after.profile.names[before] for before in after.profile.deps(at)] == ["optimizer"]
    assert step_s(after) > step_s(ahead)
    meshed = replace(where, mesh=Mesh.of(tensor=2))
    assert [replace(PLAIN, stage=stage).has_late_gather(where) for stage in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert not replace(PLAIN, stage=1).has_late_gather(meshed)


def test_lower_stages_gather_once_for_the_next_forward_pass() -> None:
    for stage in (1, 2):
        exchange, where = replace(PLAIN, stage=stage, gathers="next"), site(4, market=SLOW)
        case = exchange.lower(chain([1000] * 4), where)
        assert names(case, "gather") == [f"gather[{at}]" for at in range(4)]
        first = case.profile.names.index("gather[3]")
        assert not len(case.profile.deps(first))
        late = replace(PLAIN, stage=stage, prefetch=0, gathers="next").lower(
            chain([1000] * 4), site(4, market=SLOW)
        )
        assert len(late.profile.deps(late.profile.names.index("gather[3]")))


def test_blocking_adds_everything_up() -> None:
    computation, where = chain([5_000_000] * 4, 0.1), site(4, market=SLOW)
    peers = site_peers(where, Nccl())
    assert peers.between is not None
    rate = peers.between.bytes_per_s
    gather = Nccl().phases("all_gather", 2e7, peers)[0].seconds(rate)
    scatter = Nccl().phases("reduce_scatter", 2e7, peers)[0].seconds(rate)
    expected = 0.8 + 7 * gather + 4 * scatter + 0.05 / 4
    result = step_s(replace(PLAIN, blocking=True).lower(computation, where))
    assert result == pytest.approx(expected, rel=1e-3)


def test_prefetch_hides_what_is_shorter_than_a_unit() -> None:
    computation, where = chain([5_000_000] * 4, 0.1), site(4, market=SLOW)
    peers = site_peers(where, Nccl())
    assert peers.between is not None
    gather = Nccl().phases("all_gather", 2e7, peers)[0].seconds(peers.between.bytes_per_s)
    assert gather < 0.1 / 2
    # Only the first gather and the last scatter are exposed.
    result = step_s(PLAIN.lower(computation, where))
    assert result == pytest.approx(0.8 + 2 * gather + 0.05 / 4, rel=1e-3)
    # Without it six more gathers are exposed, three of them behind the scatter of the unit before.
    late = step_s(replace(PLAIN, prefetch=0).lower(computation, where))
    assert late == pytest.approx(result + 9 * gather, rel=1e-3)


def test_accumulation_gathers_in_every_pass_and_may_scatter_in_the_last_only() -> None:
    computation = repeat_passes(chain([1000] * 4), 3)
    case = PLAIN.lower(computation, site(4, market=SLOW))
    # The unit that a pass ends with is the one that the next begins with.
    assert len(names(case, "gather")) == 3 * 7
    assert len(names(case, "scatter")) == 12
    once = replace(PLAIN, each_pass=False).lower(computation, site(4, market=SLOW))
    assert len(names(once, "scatter")) == 4


@pytest.mark.parametrize("times", [9, 32])
@pytest.mark.parametrize("bandwidth", [1e8, 1e9, 1e11])  # network-bound, balanced, compute-bound
@pytest.mark.parametrize(
    "exchange",
    [Sharded(), Sharded(each_pass=False), Sharded(stage=1, each_pass=False), AllReduce(accesses=0.0)],
)
def test_few_long_runs_stand_for_many_micro_batches(exchange, bandwidth: float, times: int) -> None:
    computation = chain([1_000_000] * 32, 4e-3)
    where = site(4, "p3.2xlarge", market=Market(bandwidth_bytes_per_s=bandwidth))
    every = step_s(exchange.lower(repeat_passes(computation, times, most=times), where))
    few = step_s(exchange.lower(repeat_passes(computation, times), where))
    assert few == pytest.approx(every, rel=0.03)
    assert repeat_passes(computation, times).batch == times
    assert repeat_passes(computation, times).ops == 3 * computation.ops


def test_sharding_inside_machines_stays_on_the_fabric() -> None:
    computation, where = chain([5_000_000] * 4, 1e-3), site(16, "p3.16xlarge")
    case = replace(PLAIN, within="machine").lower(computation, where)
    profile = case.profile
    for op, name in enumerate(profile.names):
        if name.startswith("gather"):
            assert (int(profile.server[op]), int(profile.scope[op])) == (0, 1)
        if name.endswith("/sum"):
            assert (int(profile.server[op]), int(profile.scope[op])) == (1, 0)
            assert profile.bytes[op] == 2e7
    assert step_s(case) < step_s(PLAIN.lower(computation, where))


def test_shares_of_memory() -> None:
    from planner.model.catalog import load_model

    model, where = load_model("resnet50"), site(16, "p3.16xlarge")
    three, first = (
        PLAIN.memory_shares(model, FP32, where),
        replace(PLAIN, stage=1).memory_shares(model, FP32, where),
    )
    assert (three.parameters, three.gradients, three.optimizer) == (1 / 16, 1 / 16, 1 / 16)
    assert (first.parameters, first.gradients, first.optimizer) == (1, 1, 1 / 16)
    assert replace(PLAIN, within="machine").memory_shares(model, FP32, where).parameters == 1 / 8
    assert three.buffers_bytes > 0


def test_less_is_sent_than_by_all_reduce_with_stage_two_as_much() -> None:
    computation, where = chain([5_000_000] * 4, 1e-4), site(8, "p3.16xlarge")
    sent = [
        int(case.profile.bytes[case.profile.resource == UPLINK].sum())
        for case in (
            AllReduce().lower(computation, where),
            replace(PLAIN, stage=2).lower(computation, where),
            PLAIN.lower(computation, where),
        )
    ]
    assert sent[1] == pytest.approx(sent[0], rel=1e-6)
    assert sent[2] == pytest.approx(sent[0] * 11 / 8, rel=1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_engine_equals_reference(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = [int(size) for size in random.integers(1, 5_000_000, int(random.integers(1, 7)))]
    computation = median_steps(chain(sizes, 2e-3), Variation(0.1, 0.05), steps=8, seed=seed)
    computation = repeat_passes(computation, int(random.integers(1, 3)))
    workers = int(random.integers(1, 20))
    where = site(workers, str(random.choice(["p3.16xlarge", "p3.2xlarge", "c5n.large"])), market=SLOW)
    exchange = random_sharded(random, where)
    check_engine_is_reference(exchange.lower(computation, where), seed, steps=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"stage": 4}, "1, 2 or 3"), ({"prefetch": -1}, "below zero"), ({"within": "rack"}, "rack")],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Sharded(**settings)  # type: ignore[arg-type]


def test_sharding_within_one_machine_alone_is_refused() -> None:
    assert "several whole machines" in str(Sharded(within="machine").infeasibility(site(8, "p3.16xlarge")))


def test_computation_loses_what_collectives_take_of_the_memory() -> None:
    """Three accesses for each byte that a device sends; over the network a machine's devices share that."""
    computation, where = chain([25_000_000] * 4, 0.1), site(16, "p4d.24xlarge")
    reached = MEMORY_SHARE * (where.hardware.device.memory_bytes_per_s or 0)
    unit_bytes, inside = 1e8, 7 / 8
    for within, sent in (("all", 15 / 16), ("machine", inside)):
        exchange = replace(PLAIN, accesses=3.0, within=within)
        traffic = exchange.traffic(computation, where)
        gathers_s, scatters_s = overlap_loss_s(exchange, traffic, Nccl(), site_peers(where, Nccl()), where)
        assert gathers_s == pytest.approx(3 * 7 * sent * unit_bytes / reached)
        across = 2 * 1 / 2 / 8 if within == "machine" else 0.0  # half to and half from the other machine
        assert scatters_s == pytest.approx(3 * 4 * (sent + across) * unit_bytes / reached)
        lost_s = step_s(exchange.lower(computation, where)) - step_s(
            replace(exchange, accesses=0.0).lower(computation, where)
        )
        assert lost_s == pytest.approx(gathers_s + scatters_s, rel=0.1)
        jobs = [Job(replace(exchange, accesses=many), computation, where) for many in (3.0, 0.0)]
        slow, fast = 16 * computation.batch / Sharded.bounds(jobs)
        assert slow - fast == pytest.approx(gathers_s + scatters_s, rel=1e-6)
