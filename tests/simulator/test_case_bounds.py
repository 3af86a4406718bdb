"""The bound for any case: closed forms, today's bound of parameter servers, and the simulator below it."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.simulator import Case
from planner.simulator.bounds import throughput_bounds
from planner.simulator.cluster import Cluster, Node
from planner.simulator.policy import Fifo
from planner.simulator.run import RunOptions, run
from planner.simulator.simulate import Effort, simulate_case
from planner.simulator.statistics import mean_of_slowest_s
from planner.simulator.step import PS, UPLINK, WORKER, Op, Profile

BENCHMARKS = Path(__file__).parents[2] / "benchmarks/robustness"
cases = runpy.run_path(str(BENCHMARKS / "bounds.py"))
window_tolerance = cases["window_tolerance"]
RING = Cluster(
    (Node(100.0, 100.0),) * 4,
    (0, 1, 2, 3),
    (),
    links=tuple(((w, (w + 1) % 4),) for w in range(4)),
    leaders=((0,) * 4, (0, 0, 2, 2)),
)


def case(ops: list[Op], durations: list[list[float]], cluster: Cluster = RING) -> Case:
    profile = Profile.build(ops, durations, model="m", batch=10, servers=cluster.channels)
    return Case(profile=profile, cluster=cluster, policy=Fifo())


def fastest(found: Case) -> float:
    """The bound that no run exceeds."""
    return float(throughput_bounds([found], "fastest")[0])


def all_reduce(scope: int = 0, buckets: int = 1) -> list[Op]:
    ops = [Op("forward", WORKER)]
    for i in range(buckets):
        ops.append(Op(f"backward{i}", WORKER, -1, 0, (max(0, 2 * i - 1),)))
        ops.append(Op(f"bucket{i}", UPLINK, 0, 200, (2 * i + 1,), scope=scope, latency_s=0.25))
    return [*ops, Op("optimizer", WORKER, -1, 0, tuple(range(2, 2 * buckets + 1, 2)))]


def test_lone_bucket_is_exposed() -> None:
    bound = fastest(case(all_reduce(), [[1.0, 2.0, 0.0, 0.5]]))
    assert bound == pytest.approx(4 * 10 / (1 + 2 + 2.25 + 0.5))


def test_buckets_on_one_lane_count_from_each_one_on() -> None:
    # The first bucket is ready at 1.25 s, when backward is not over: four buckets in line from there.
    result = case(all_reduce(buckets=4), [[1.0, *[0.25, 0.0] * 4, 0.5]])
    bound = fastest(result)
    assert bound == pytest.approx(4 * 10 / (1.25 + 4 * 2.25 + 0.5))
    assert simulate_case(result).samples_per_s == pytest.approx(bound)


def test_slowest_of_the_members_decides() -> None:
    result = case(all_reduce(), [[1.0, 2.0, 0.0, 0.5], [1.0, 6.0, 0.0, 0.5]])
    expected = 4 * 10 / (2.25 + 1 + 0.5 + 6 - 4 / 2**4)
    assert throughput_bounds([result])[0] == pytest.approx(expected)
    assert fastest(result) == pytest.approx(4 * 10 / 5.75)  # any run
    assert simulate_case(result, Effort(precision=0.005)).samples_per_s == pytest.approx(expected, rel=0.01)


def test_groups_go_their_own_ways_unless_they_meet_at_a_port() -> None:
    durations = [[0.25, 0.25, 0.0, 0.25]]
    assert throughput_bounds([case(all_reduce(scope=1), durations)])[0] == pytest.approx(4 * 10 / 3.0)
    # Both groups' leaders send into node 3.
    meeting = replace(RING, links=(((0, 3),), ((1, 3),), ((2, 3),), ((3, 0),)))
    assert fastest(case(all_reduce(scope=1), durations, meeting)) == pytest.approx(10 * 2 * 100 / 200)


def test_slow_rank_holds_all() -> None:
    slow = replace(RING, worker_speeds=(1.0, 1.0, 1.0, 0.5))
    bound = throughput_bounds([case(all_reduce(), [[1.0, 2.0, 0.0, 0.5]], slow)])[0]
    assert bound == pytest.approx(4 * 10 / (2 * 3.5 + 2.25))


def test_joint_ops_of_a_known_duration_count_with_their_mean() -> None:
    ops = [Op("backward", WORKER), Op("collective", PS, 0, 0, (0,), scope=0)]
    result = case(ops, [[1.0, 2.0], [1.0, 4.0]])
    assert throughput_bounds([result])[0] == pytest.approx(4 * 10 / 4.0)
    assert fastest(result) == pytest.approx(4 * 10 / 3.0)


def test_device_alone_computes_one_op_at_a_time() -> None:
    alone = Cluster((Node(1.0, 1.0),), (0,), ())
    ops = [Op("a", WORKER), Op("b", WORKER), Op("c", WORKER, -1, 0, (0, 1))]
    assert throughput_bounds([case(ops, [[1.0, 2.0, 1.0]], alone)])[0] == pytest.approx(10 / 4)


def test_mean_of_the_slowest() -> None:
    dice = np.arange(1.0, 7.0)
    assert mean_of_slowest_s([(dice, np.zeros(1))], np.array([2.0])) == pytest.approx(161 / 36)
    assert mean_of_slowest_s([(dice, dice)], np.array([1.0])) == pytest.approx(7.0)
    many = np.linspace(0.0, 1.0, 1000)  # shortened to fewer, never to greater values
    assert 0.97 < mean_of_slowest_s([(many, np.zeros(1))], np.array([1e6])) <= 1.0


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(10_000, 10**6))
def test_no_run_with_joint_ops_exceeds_its_bound(seed: int) -> None:
    """2,000 cases in benchmarks/robustness/bounds.py, a few here. The period is between steps: n have n -
    1."""
    outcome = cases["random_joint_case"](seed)
    result = run(outcome.profile, outcome.cluster, outcome.policy, options=RunOptions(seed=seed, steps=20))
    done = sum(len(ends) for ends in result.step_ends_s)
    last = max(float(ends[-1]) for ends in result.step_ends_s if len(ends))
    bound = fastest(outcome)
    assert done * outcome.profile.batch / last <= bound * (20 / 19)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(10_000, 10**6), equal=st.booleans())
def test_no_long_run_with_joint_ops_exceeds_the_bound_in_the_mean(seed: int, equal: bool) -> None:
    result = cases["allreduce_case" if equal else "random_joint_case"](seed)
    prediction = simulate_case(result, Effort(seed=seed, max_steps=1000, confidence=0.9999))
    tolerance = window_tolerance(prediction.steps, result.cluster.workers, prediction.runs)
    assert prediction.samples_per_s_low <= throughput_bounds([result])[0] * (1 + tolerance)


def test_bound_is_tight_for_all_reduce_on_equal_ranks() -> None:
    kept_range = [cases["allreduce_case"](seed) for seed in range(30)]
    shares = [simulate_case(match).samples_per_s for match in kept_range] / throughput_bounds(kept_range)
    assert np.median(shares) > 0.99
    assert shares.min() > 0.9


def test_many_at_once_are_what_each_is_alone() -> None:
    kept_range = [cases["random_joint_case"](seed) for seed in range(20)]
    kept_range += [
        replace(match, cluster=replace(match.cluster, flow_bytes_per_s=1e6)) for match in kept_range
    ]
    assert throughput_bounds(kept_range).tolist() == [throughput_bounds([match])[0] for match in kept_range]
