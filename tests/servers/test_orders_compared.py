"""Strategies side by side on a simulated cluster, the bounds beside them, and tuning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.search.cases import Cases
from planner.search.request import Request
from planner.search.space import enumerate_plans
from planner.servers.order_request import tune_bytescheduler
from planner.servers.ordering import STRATEGIES, Setting
from planner.servers.ordering.graph import pipeline_step
from planner.servers.orders import cluster_bounds, cluster_with_straggler, compare_orders
from planner.simulator.cluster import Cluster, Resource, ResourceKind
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile

LAYERS = 6
GBIT = 1.25e8


def training(servers: int = 1, compute_s: float = 0.02) -> Profile:
    """A chain of layers of 1 MB whose forward op takes `compute_s` and backward op twice that."""
    ops = [Op(f"w{i}/down", DOWNLINK, i % servers, 1_000_000, (), i) for i in range(LAYERS)]
    for i in range(LAYERS):
        ops.append(Op(f"f{i}/forward", WORKER, deps=(i, *((len(ops) - 1,) if i else ()))))
    for i in reversed(range(LAYERS)):
        ops.append(Op(f"f{i}/backward", WORKER, deps=(len(ops) - 1,)))
    for i in range(LAYERS):
        backward = 3 * LAYERS - 1 - i
        ops.append(Op(f"w{i}/up", UPLINK, i % servers, 1_000_000, (backward,), i))
        ops.append(Op(f"w{i}/update", PS, i % servers, deps=(len(ops) - 1,), tensor=i))
    seconds = [0.0] * LAYERS + [compute_s] * LAYERS + [2 * compute_s] * LAYERS + [0.0] * 2 * LAYERS
    tensors = [f"w{i}" for i in range(LAYERS)]
    return Profile.build(ops, seconds, model="toy", batch=10, servers=servers, tensors=tensors)


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_no_strategy_beats_the_ideal(mode: str, barrier: bool) -> None:
    cluster = cluster_with_straggler(2, 1, GBIT)
    outcome = compare_orders(
        training(), cluster, mode=mode, barrier=barrier, precision=0.05, overhead_s=0.001  # type: ignore[arg-type]
    )  # fmt: skip
    assert [r.strategy for r in outcome.results] == list(STRATEGIES)
    for result in outcome.results:
        if mode == "sync":
            assert result.step_s >= outcome.ideal_step_s * 0.999
            assert result.samples_per_s <= outcome.ideal_samples_per_s * 1.001
        assert 0 <= result.straggler_share < 1
    assert "Communication takes" in outcome.sentence()


def test_ordering_gains_near_a_ratio_of_one_and_not_far_from_it() -> None:
    """Sync training with TIC against no order, with a barrier as TensorFlow has it."""
    gains, stragglers = {}, {}
    cluster = cluster_with_straggler(2, 1, GBIT)
    for ratio in (0.05, 1.0, 20.0):  # N is 2 workers x 12 MB at 1 Gbit/s: 0.192 s
        profile = training(compute_s=0.192 / ratio / (3 * LAYERS))
        result = compare_orders(profile, cluster, ["tic"], barrier=True, precision=0.02)
        none, tic = result.results
        gains[ratio], stragglers[ratio] = tic.gain, (none.straggler_share, tic.straggler_share)
        assert result.bounds.communication_s / result.bounds.computation_s == pytest.approx(ratio)
        assert none.orders_seen > 10
        assert tic.orders_seen <= 2  # a download waits where its update is late
    assert gains[1.0] > 0.05
    assert abs(gains[0.05]) < 0.03
    assert abs(gains[20.0]) < 0.03
    assert stragglers[1.0][1] < stragglers[1.0][0] / 2


def test_order_states_when_ordering_cannot_help() -> None:
    cluster = cluster_with_straggler(2, 1, GBIT)
    slow_network = compare_orders(training(compute_s=1e-5), cluster, ["tac"], barrier=True, precision=0.05)
    assert "Ordering cannot help" in slow_network.sentence()
    assert "the network is busy anyway" in slow_network.sentence()
    slow_worker = compare_orders(training(compute_s=1.0), cluster, ["tac"], barrier=True, precision=0.05)
    assert "transfers hide behind computation anyway" in slow_worker.sentence()


def test_bounds_of_a_cluster() -> None:
    profile = training(compute_s=0.02)
    result = cluster_bounds(profile, cluster_with_straggler(2, 1, GBIT))
    assert result.resource_s[Resource(ResourceKind.DOWNLINK)] == pytest.approx(2 * 6e6 / GBIT)
    assert result.computation_s == pytest.approx(0.36)
    barrier = cluster_bounds(profile, cluster_with_straggler(2, 1, GBIT), barrier=True)
    assert barrier.communication_s == pytest.approx(4 * 6e6 / GBIT)
    # Three servers of 2 MB each: two workers load a server with 4 MB, a worker's own NIC with 6 MB.
    several = cluster_bounds(training(servers=3), cluster_with_straggler(2, 3, GBIT))
    assert several.resource_s[Resource(ResourceKind.DOWNLINK)] == pytest.approx(6e6 / GBIT)
    slow = cluster_with_straggler(2, 1, GBIT, slow_worker=0.5, slow_link_bytes_per_s=GBIT / 4)
    assert cluster_bounds(profile, slow).computation_s == pytest.approx(0.72)
    assert cluster_bounds(profile, slow).resource_s[Resource(ResourceKind.UPLINK)] == pytest.approx(
        4 * 6e6 / GBIT
    )


def test_dealing_slices_evens_out_servers() -> None:
    """Three quarters of the bytes lie on one of two servers; P3 deals its slices over both."""
    whole = training(servers=2, compute_s=0.001)
    profile = replace(whole, bytes=np.where(whole.server == 0, whole.bytes * 3, whole.bytes))
    result = compare_orders(profile, cluster_with_straggler(4, 2, GBIT), ["layer", "p3"], precision=0.05)
    _, layer, p3 = result.results
    assert p3.step_s < 0.75 * layer.step_s
    assert p3.efficiency <= 1
    assert result.ideal_step_s == pytest.approx(4 * 6e6 / GBIT, rel=0.03)


def test_slow_worker_and_a_slow_link_slow_all_in_sync() -> None:
    profile = training()
    alike = compare_orders(profile, cluster_with_straggler(2, 1, GBIT), ["layer"], precision=0.05).results[1]
    for slower in (
        cluster_with_straggler(2, 1, GBIT, slow_worker=0.5),
        cluster_with_straggler(2, 1, GBIT, slow_link_bytes_per_s=GBIT / 16),
    ):
        assert (
            compare_orders(profile, slower, ["layer"], precision=0.05).results[1].step_s > 1.5 * alike.step_s
        )
    with pytest.raises(BadInput, match="slow worker's speed is -1"):
        cluster_with_straggler(2, 1, GBIT, slow_worker=-1)


def test_own_priorities_are_a_row() -> None:
    profile = training()
    own = {f"w{i}/{way}": float(-i) for i in range(LAYERS) for way in ("down", "up")}
    result = compare_orders(
        profile, cluster_with_straggler(2, 1, GBIT), ["reverse"], priorities=own, precision=0.05
    )
    assert [r.strategy for r in result.results] == ["fifo", "reverse", "priorities"]
    assert result.results[2].step_s == pytest.approx(result.results[1].step_s, rel=1e-9)


def test_small_slices_cost_and_large_ones_delay() -> None:
    """File 003, equation 10: effective bandwidth grows with the size of a message."""
    profile = training()
    steps = {}
    for slice_bytes in (10_000, 250_000, 1_000_000):
        result = compare_orders(
            profile,
            cluster_with_straggler(1, 1, GBIT),
            ["p3"],
            overhead_s=0.002,
            precision=0.05,
            options={"p3": {"slice_bytes": slice_bytes}},
        )
        steps[slice_bytes] = result.results[1].step_s
    assert steps[10_000] > 2 * steps[250_000]
    assert steps[1_000_000] != steps[250_000]


def tuned(trials: int, storage: Path | None = None, seed: int = 0) -> object:
    profile = pipeline_step(training())
    setting = Setting(bandwidth_bytes_per_s=GBIT, overhead_s=0.002, seed=seed)
    return tune_bytescheduler(
        replace(profile, bytes=profile.bytes * 4), cluster_with_straggler(2, 1, GBIT), setting,
        trials=trials, storage=storage, precision=0.3,
    )  # fmt: skip


def test_tuning_is_seeded_and_resumable(tmp_path: Path) -> None:
    whole = tuned(13)
    assert whole == tuned(13)
    assert whole != tuned(13, seed=1)
    tuned(11, tmp_path / "study")
    assert tuned(13, tmp_path / "study") == whole
    assert tuned(5, tmp_path / "study") == whole  # the budget is spent already


def test_tuning_finds_what_a_grid_finds() -> None:
    best = tuned(16)
    assert best.samples_per_s == max(t[2] for t in best.trials)  # type: ignore[attr-defined]
    assert best.credit_bytes >= best.partition_bytes  # type: ignore[attr-defined]
    assert best.samples_per_s > 1.02 * min(t[2] for t in best.trials)  # type: ignore[attr-defined]


def test_tuning_refuses_what_is_no_study(tmp_path: Path) -> None:
    path = tmp_path / "study"
    path.write_text("not a study\n")
    with pytest.raises(BadInput, match="cannot use"):
        tuned(1, path)
    with pytest.raises(BadInput, match="at least one simulation"):
        tuned(0)


def test_uniform_machines() -> None:
    assert cluster_with_straggler(3, 2, GBIT) == Cluster.uniform(3, 2, GBIT)
    assert np.isfinite(cluster_with_straggler(3, 1, GBIT, flow_bytes_per_s=GBIT / 2).flow_bytes_per_s)


def test_bound_of_a_plan_whose_slices_are_dealt() -> None:
    """VGG-11 over two servers is split 407 : 100; P3's slices are not, and its bound must say so."""
    request = Request(
        model="vgg11", hardware=("g3.8xlarge",), server_hardware=("own",),
        workers=(4,), servers=(2,), batches=(16,),
        placements=("greedy",), policies=("layer", "p3"), bandwidth_bytes_per_s=5 * GBIT, interval_width=0.05,
    )  # fmt: skip
    model = load_model("vgg11")
    plans = enumerate_plans(request, model).plans
    assert sorted(plan.exchange.policy for plan in plans) == ["layer", "p3"]
    result = Cases(request, model).bounds(plans)
    bounds = {plan.exchange.policy: bound for plan, bound in zip(plans, result, strict=True)}
    assert bounds["p3"] > 1.5 * bounds["layer"]
