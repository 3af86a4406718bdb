"""Bounds on throughput: closed forms, the grid against the single plan, and the simulator below them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.simulator import Case
from planner.simulator.bounds import throughput_bounds
from planner.simulator.cluster import Cluster, Node
from planner.simulator.policy import Fifo, Multiplexed, Ordered, Sliced
from planner.simulator.run import RunOptions, run
from planner.simulator.simulate import simulate
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile

BENCHMARKS = Path(__file__).parents[2] / "benchmarks/robustness"
cases = runpy.run_path(str(BENCHMARKS / "bounds.py"))
window_tolerance = cases["window_tolerance"]
ANY_ORDER = Ordered(priorities={})


def most_samples_per_s(profile, cluster, policy=ANY_ORDER, mode="async", steps="fastest") -> float:
    return throughput_bounds([Case(profile=profile, cluster=cluster, policy=policy, mode=mode)], steps)[0]


def one_tensor(size: int = 1_000_000, compute_s: float = 0.1, batch: int = 10, servers: int = 1) -> Profile:
    """Per server a download; a compute op after all; uploads; updates."""
    ops = [Op(f"d{s}", DOWNLINK, s, size, (), s) for s in range(servers)]
    ops.append(Op("compute", WORKER, -1, 0, tuple(range(servers))))
    ops += [Op(f"u{s}", UPLINK, s, size, (servers,), s) for s in range(servers)]
    ops += [Op(f"p{s}", PS, s, 0, (servers + 1 + s,), s) for s in range(servers)]
    row = [compute_s if op.resource == WORKER else 0.0 for op in ops]
    return Profile.build(ops, [row], model="one", batch=batch, servers=servers)


def test_one_worker_cannot_beat_its_critical_path() -> None:
    assert most_samples_per_s(one_tensor(), Cluster.uniform(1, bandwidth_bytes_per_s=1e7)) == pytest.approx(
        10 / (0.1 + 0.1 + 0.1)
    )


def test_many_workers_saturate_the_server() -> None:
    assert most_samples_per_s(one_tensor(), Cluster.uniform(50, bandwidth_bytes_per_s=1e7)) == pytest.approx(
        10 * 1e7 / 1e6
    )


def test_workers_of_one_node_share_its_nic() -> None:
    nodes = (Node(1e9, 1e9), Node(1e7, 1e7))
    assert most_samples_per_s(one_tensor(), Cluster(nodes, (1,) * 8, (0,))) == pytest.approx(10 * 1e7 / 1e6)


def test_worker_beside_its_server_is_not_held_by_the_nic() -> None:
    nodes = (Node(1e6, 1e6), Node(1e6, 1e6))
    assert most_samples_per_s(one_tensor(), Cluster(nodes, (0, 1), (0,))) == pytest.approx(
        10 / 0.1 + 10 / (1 + 0.1 + 1)
    )


def test_flow_limit_counts() -> None:
    cluster = Cluster.uniform(1, bandwidth_bytes_per_s=1e9)
    slow = Cluster(cluster.nodes, cluster.worker_nodes, cluster.server_nodes, flow_bytes_per_s=1e7)
    assert most_samples_per_s(one_tensor(), slow) == pytest.approx(10 / 0.3)


def test_sync_runs_at_the_rate_of_the_slowest_worker() -> None:
    base = Cluster.uniform(2, bandwidth_bytes_per_s=1e12)
    cluster = Cluster(base.nodes, base.worker_nodes, base.server_nodes, worker_speeds=(1.0, 0.5))
    profile = one_tensor()
    assert most_samples_per_s(profile, cluster, mode="sync") == pytest.approx(2 * 10 / 0.2, rel=1e-4)
    assert most_samples_per_s(profile, cluster) == pytest.approx(10 / 0.1 + 10 / 0.2, rel=1e-4)


def test_overhead_of_slices_counts() -> None:
    cluster = Cluster.uniform(1, bandwidth_bytes_per_s=1e7)
    sliced = Sliced(slice_bytes=100_000, overhead_s=0.01)
    assert most_samples_per_s(one_tensor(), cluster, sliced) == pytest.approx(10 / 0.5)
    assert most_samples_per_s(one_tensor(), cluster, Fifo(overhead_s=0.05)) == pytest.approx(10 / 0.4)


def test_fastest_step_bounds_every_run_and_the_mean_the_long_run() -> None:
    ops = [Op("compute", WORKER)]
    profile = Profile.build(ops, [[0.1], [0.3]], model="two", batch=1)
    cluster = Cluster.uniform(1)
    assert most_samples_per_s(profile, cluster) == pytest.approx(10)
    assert most_samples_per_s(profile, cluster, steps="mean") == pytest.approx(5)


def test_downloads_in_random_order_are_waited_for() -> None:
    """Two downloads of 1 s each, computations of 1 s after the first and after both, no uploads. In half of
    the steps the first comes first (1 + 1 + 1 s), in the other half second (2 + 1 + 1 s)."""
    ops = [Op("d0", DOWNLINK, 0, 10**6, (), 0), Op("d1", DOWNLINK, 0, 10**6, (), 1)]
    ops += [Op("c0", WORKER, deps=(0,)), Op("c1", WORKER, deps=(1, 2))]
    profile = Profile.build(ops, [[0.0, 0.0, 1.0, 1.0]], model="two", batch=1, tensors=("0", "1"))
    cluster = Cluster.uniform(1, bandwidth_bytes_per_s=1e6)
    in_the_mean = most_samples_per_s(profile, cluster, Fifo(), steps="mean")
    assert in_the_mean == pytest.approx(1 / 3.5)
    assert in_the_mean == pytest.approx(simulate(profile, cluster, Fifo()).samples_per_s, rel=0.02)
    assert most_samples_per_s(profile, cluster, steps="mean") == pytest.approx(1 / 3)  # for any order
    assert most_samples_per_s(profile, cluster, Fifo()) == pytest.approx(1 / 3)  # for any run


def test_rests_of_large_streams_come_after_all_first_pieces() -> None:
    """The small download always passes the large one's rest."""
    ops = [Op("d0", DOWNLINK, 0, 10**6, (), 0), Op("d1", DOWNLINK, 0, 9 * 10**6, (), 1)]
    ops += [Op("c0", WORKER, deps=(0,)), Op("c1", WORKER, deps=(1, 2))]
    cluster = Cluster.uniform(1, bandwidth_bytes_per_s=1e6)
    for compute_s, least_s in ((20.0, 1 + 0.5 + 20 + 1), (0.0, 10 + 1)):
        profile = Profile.build(ops, [[0.0, 0.0, compute_s, 1.0]], model="two", batch=1, tensors=("0", "1"))
        bound = most_samples_per_s(profile, cluster, Multiplexed(window_bytes=10**6), steps="mean")
        assert bound == pytest.approx(1 / least_s)


def test_nodes_with_workers_and_servers_cannot_spare_each_other() -> None:
    """A step moves 2 MB out of its own node's NIC and 1 MB out of each of the two others: 4 MB of 3 MB/s."""
    cluster = Cluster((Node(1e6, 1e6),) * 3, (0, 1, 2) * 4, (0, 1, 2))
    assert most_samples_per_s(one_tensor(compute_s=0.001, servers=3), cluster) == pytest.approx(
        10 * 3e6 / 4e6
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(10_000, 10**6), made=st.sampled_from(["random_case", "random_host_case"]))
def test_no_run_exceeds_its_bound(seed: int, made: str) -> None:
    """Whole steps from the start: 2,000 plans in benchmarks/robustness/bounds.py, a few here."""
    profile, cluster, policy, mode = cases[made](seed)
    result = run(profile, cluster, policy, mode, RunOptions(seed=seed, steps=20))
    done = sum(len(ends) for ends in result.step_ends_s)
    last = max(float(ends[-1]) for ends in result.step_ends_s if len(ends))
    bound = most_samples_per_s(profile, cluster, policy, mode)
    assert done * profile.batch / last <= bound * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(10_000, 10**6))
def test_no_long_run_exceeds_the_bound_in_the_mean(seed: int) -> None:
    profile, cluster, policy, mode = cases["random_case"](seed)
    prediction = simulate(profile, cluster, policy, mode, seed=seed, max_steps=3000, confidence=0.9999)
    bound = most_samples_per_s(profile, cluster, policy, mode, steps="mean")
    tolerance = window_tolerance(prediction.steps, cluster.workers, prediction.runs)
    assert prediction.samples_per_s_low <= bound * (1 + tolerance)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(10_000, 10**6))
def test_no_prediction_exceeds_its_bound(seed: int) -> None:
    profile, cluster, policy, mode = cases["random_case"](seed)
    prediction = simulate(profile, cluster, policy, mode, seed=seed, max_steps=2000)
    bound = most_samples_per_s(profile, cluster, policy, mode)
    tolerance = window_tolerance(prediction.steps, cluster.workers, prediction.runs)
    assert prediction.samples_per_s <= bound * (1 + tolerance)
