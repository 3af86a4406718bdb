"""The door: what a prediction says, that it is reproducible, and what it refuses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from planner.errors import BadInput
from planner.simulator import Case, Prediction, simulate, simulate_many
from planner.simulator.cluster import COMPUTATION, Cluster, Node, Resource, ResourceKind, figures_by_name
from planner.simulator.policy import Fifo, Multiplexed, Ordered
from planner.simulator.run import RunOptions, run, run_all
from planner.simulator.simulate import FIRST_RUNS, run_length, start_offsets_s
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile


def profile(compute_s: tuple[float, ...] = (2.0,), servers: int = 1, batch: int = 8) -> Profile:
    """Download 100 bytes, compute, upload 100 bytes, update for 1 s; one step for each duration."""
    ops = [
        Op("down", DOWNLINK, 0, 100, tensor=0),
        Op("compute", WORKER, deps=(0,)),
        Op("up", UPLINK, 0, 100, (1,), tensor=0),
        Op("update", PS, 0, deps=(2,), tensor=0),
    ]
    durations = [[0.0, seconds, 0.0, 1.0] for seconds in compute_s]
    return Profile.build(ops, durations, model="m", batch=batch, servers=servers, tensors=["t"])


def cluster(workers: int = 1, bandwidth: float = 100.0) -> Cluster:
    return Cluster.uniform(workers, 1, bandwidth)


def same(a: Prediction, b: Prediction) -> bool:
    return replace(a, timeline=None, engine="") == replace(b, timeline=None, engine="")


def test_one_worker_by_hand() -> None:
    prediction = simulate(profile(), cluster())
    assert prediction.samples_per_s == pytest.approx(8 / 5)
    assert prediction.samples_per_s_low == pytest.approx(8 / 5)
    assert prediction.samples_per_s_high == pytest.approx(8 / 5)
    assert prediction.precision == pytest.approx(0, abs=1e-12)
    assert prediction.runs == FIRST_RUNS
    assert prediction.steps == FIRST_RUNS * run_length(1)[1]
    assert prediction.step_s == pytest.approx(5)
    assert prediction.step_s_quantiles == pytest.approx({"p5": 5, "p50": 5, "p95": 5})
    used = {"downlink[0]": 0.2, "worker": 0.4, "uplink[0]": 0.2, "ps[0]": 0.2}
    assert figures_by_name(prediction.utilisation) == pytest.approx(used)
    assert prediction.bottleneck == COMPUTATION
    assert (prediction.staleness_mean, prediction.staleness_max) == (0, 0)
    assert prediction.timeline is None
    assert prediction.notes == ()


def test_saturated_link_is_the_bottleneck_and_is_never_exceeded() -> None:
    prediction = simulate(profile((1.0, 2.0, 3.0)), cluster(16))
    assert prediction.samples_per_s <= 8 * 1.0 * (1 + 1e-9)  # 100 bytes a step at 100 bytes/s
    assert prediction.utilisation[prediction.bottleneck] > 0.9
    assert str(prediction.bottleneck) in ("downlink[0]", "uplink[0]")
    assert sum(prediction.worker_samples_per_s) == pytest.approx(prediction.samples_per_s)
    # Each step of a worker sees about one step of every other.
    assert prediction.staleness_mean == pytest.approx(15, rel=0.05)


def test_interval_is_as_narrow_as_asked() -> None:
    for precision in (0.05, 0.01, 0.002):
        prediction = simulate(profile((1.0, 2.0, 3.0)), cluster(3), precision=precision, max_steps=10**5)
        assert prediction.precision <= precision
        low, high = prediction.samples_per_s_low, prediction.samples_per_s_high
        assert high - low == pytest.approx(2 * prediction.precision * prediction.samples_per_s)
        assert prediction.notes == ()


def test_precision_out_of_reach_is_reported() -> None:
    prediction = simulate(profile((1.0, 2.0, 3.0)), cluster(3), precision=1e-6, max_steps=1000)
    assert prediction.precision > 1e-6
    assert "instead of 0.00%" in prediction.notes[0]
    assert "1000 steps" in prediction.notes[0]


def test_very_few_steps_still_give_an_answer() -> None:
    prediction = simulate(profile((1.0, 2.0, 3.0)), cluster(3), max_steps=1)
    assert prediction.samples_per_s_low <= prediction.samples_per_s <= prediction.samples_per_s_high
    assert prediction.steps < 50


def test_seed_gives_the_same_answer_however_it_is_run() -> None:
    case = profile((1.0, 2.0, 3.0)), cluster(3)
    alone = simulate(*case, seed=3)
    assert same(alone, simulate(*case, seed=3))
    assert not same(alone, simulate(*case, seed=4))
    with ThreadPoolExecutor(3) as threads:
        assert same(alone, simulate(*case, seed=3, executor=threads))


def test_many_come_in_order_whatever_the_number_of_jobs() -> None:
    cases = [Case(profile=profile((1.0, 2.0, 3.0)), cluster=cluster(workers)) for workers in (4, 1, 3, 2)]
    one_by_one = [simulate(case.profile, case.cluster, precision=0.05) for case in cases]
    for jobs in (1, 3):
        together = list(simulate_many(cases, jobs=jobs, precision=0.05))
        assert all(same(a, b) for a, b in zip(one_by_one, together, strict=True))
    with ThreadPoolExecutor(2) as threads:
        together = list(simulate_many(cases, executor=threads, precision=0.05))
    assert all(same(a, b) for a, b in zip(one_by_one, together, strict=True))
    with pytest.raises(BadInput, match="jobs is 0"):
        list(simulate_many(cases, jobs=0))


def test_timeline_is_that_of_the_first_run() -> None:
    prediction = simulate(profile(), cluster(2), timeline=True)
    assert prediction.timeline is not None
    assert set(prediction.timeline["worker"].tolist()) == {0, 1}
    assert same(prediction, simulate(profile(), cluster(2)))


def test_sync_workers_go_in_step() -> None:
    prediction = simulate(profile((1.0, 3.0)), cluster(2), mode="sync")
    assert prediction.staleness_max == 0
    first, second = prediction.worker_samples_per_s
    assert first == pytest.approx(second)
    # Downloads are shared, 2 s. Then 1 + 2 or 3 + 2 s if both compute as long and share the uplink, each in
    # a quarter of cases, else 3 s and an upload of 1 s alone. The update takes 1 s.
    assert prediction.step_s == pytest.approx(2 + (3 / 4 + 5 / 4 + 4 / 2) + 1, rel=0.02)


def test_slow_worker_is_given_time_to_warm_up() -> None:
    nodes = Cluster.uniform(2, 1, 100.0)
    slow = replace(nodes, worker_speeds=(1.0, 0.01))
    fast, slowest = simulate(profile(), slow).worker_samples_per_s
    assert fast / slowest == pytest.approx(203 / 5, rel=0.1)


def test_narrow_worker_nic_shows_in_the_utilisation() -> None:
    narrow = Cluster((Node(1e4, 1e4), Node(25.0, 25.0)), worker_nodes=(1,), server_nodes=(0,))
    prediction = simulate(profile((0.5,)), narrow)
    assert prediction.bottleneck.kind in (ResourceKind.WORKER_DOWNLINK, ResourceKind.WORKER_UPLINK)
    assert prediction.utilisation[Resource(ResourceKind.WORKER_UPLINK)] == pytest.approx(4 / 9.5)


def test_start_offsets_differ_by_run_and_stay_within_a_step() -> None:
    offsets = [start_offsets_s(profile(), cluster(50), 0, number) for number in range(2)]
    assert offsets[0] != offsets[1]
    assert 4 < max(offsets[0]) <= 2 + 1 + 2  # compute, update, two transfers
    assert min(offsets[0]) >= 0


def test_uneven_shares_move_only_uploads_that_meet() -> None:
    plain = simulate(profile(), cluster(), fairness_sigma=0.0)
    assert same(plain, simulate(profile(), cluster(), fairness_sigma=0.5))
    pair = [
        simulate(profile((1.0, 2.0, 3.0)), cluster(2), fairness_sigma=s).samples_per_s for s in (0.0, 0.5)
    ]
    assert pair[0] != pair[1]


@pytest.mark.parametrize("precision", [0.0, -0.1, float("nan"), float("inf")])
def test_precision_must_be_above_zero(precision: float) -> None:
    with pytest.raises(BadInput, match="precision is"):
        simulate(profile(), cluster(), precision=precision)


def test_plans_that_do_not_fit_together() -> None:
    with pytest.raises(BadInput, match=r"for 2 parameter server\(s\) but the cluster has 1"):
        simulate(profile(servers=2), cluster())
    with pytest.raises(BadInput, match="unknown op in the policy 'dwn'; nearest: down"):
        simulate(profile(), cluster(), Ordered(priorities={"dwn": 1}))
    with pytest.raises(BadInput, match="max_steps is 0"):
        simulate(profile(), cluster(), max_steps=0)
    with pytest.raises(BadInput, match="unknown mode"):
        simulate(profile(), cluster(), mode="asink")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="at least one worker"):
        Cluster.uniform(0)
    with pytest.raises(BadInput, match="above zero"):
        Cluster.uniform(1, 1, 0.0)
    with pytest.raises(BadInput, match="confidence"):
        simulate(profile(), cluster(), confidence=95)


def test_whole_transfers_are_the_default_below_the_window() -> None:
    assert same(simulate(profile(), cluster(2)), simulate(profile(), cluster(2), Multiplexed()))
    assert same(simulate(profile(), cluster(2)), simulate(profile(), cluster(2), Fifo()))


def test_runs_together_are_as_each_for_itself() -> None:
    """Also where other cores or other shares lay the plan out in another way than for the run before."""
    step, nodes = profile((1.0, 2.0, 3.0)), Cluster.uniform(3, 1, 100.0)
    options = [
        RunOptions(run=1, steps=5),
        RunOptions(run=2, steps=7, start_offsets_s=(0.0, 1.0, 2.0)),
        RunOptions(run=2, steps=7, fairness_sigma=0.5),
        RunOptions(run=2, steps=7, fairness_sigma=0.5, server_cores=1),
    ]
    together = run_all(step, nodes, Fifo(), "async", options)
    alone = [run(step, nodes, Fifo(), "async", option) for option in options]
    for a, b in zip(together, alone, strict=True):
        assert (a.end_s, a.events, a.path) == (b.end_s, b.events, b.path)
        assert all((x == y).all() for x, y in zip(a.step_ends_s, b.step_ends_s, strict=True))
    assert len({entry.end_s for entry in together}) == len(options)
