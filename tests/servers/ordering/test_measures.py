"""Measures by hand, and as they come out of simulated runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ordering_graphs import MB_PER_S, chain, makespan_s, step_graph

from planner.errors import BadInput
from planner.servers import orders
from planner.servers.order_request import priorities_json, read_priorities
from planner.servers.ordering import schedule
from planner.servers.ordering.graph import forward_ops, pipeline_step
from planner.simulator.cluster import COMPUTATION, Cluster, Resource
from planner.simulator.policy import Ordered, Policy
from planner.simulator.run import RunOptions, RunResult, run
from planner.simulator.step import Profile

TRAINING = step_graph(
    {"w0": 0.5, "w1": 2, "w2": 3},
    {
        "f0": (["w0"], 1),
        "f1": (["f0", "w1"], 1),
        "f2": (["f1", "w2"], 1),
        "b2": (["f2", "w2"], 2),  # gradients read parameters again
        "b1": (["b2", "w1"], 2),
        "b0": (["b1"], 2),
    },
    {"g2": ("b2", "w2"), "g1": ("b1", "w1"), "g0": ("b0", "w0")},
)


def simulated(profile: Profile, policy: Policy, mode: str = "async", workers: int = 1) -> RunResult:
    cluster = Cluster.uniform(workers, profile.servers, MB_PER_S)
    options = RunOptions(steps=20, timeline=True, until="all")
    return run(profile, cluster, policy, mode, options, path="reference")  # type: ignore[arg-type]


def test_bounds_and_efficiency() -> None:
    """Figure 1 of Hashemi et al. (2018): two downloads and two ops of 1 s."""
    profile = chain([1, 1], [1, 1])
    bounds = orders.step_bounds(profile, MB_PER_S)
    assert bounds.resource_s == {Resource.parse("downlink[0]"): 2, COMPUTATION: 2}
    assert (bounds.lower_s, bounds.upper_s) == (2, 4)
    assert orders.ordering_efficiency(makespan_s(profile, [0, 1]), bounds) == 0.5
    assert orders.ordering_efficiency(makespan_s(profile, [1, 0]), bounds) == 0
    assert orders.overlap_coefficient(2, 2, makespan_s(profile, [0, 1])) == 0.5
    with pytest.raises(BadInput, match="above zero"):
        orders.step_bounds(profile, 0)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0, 1))
def test_overlap_is_the_share_that_is_hidden(n: float, c: float, share: float) -> None:
    assert orders.overlap_coefficient(n, c, n + c - share * min(n, c)) == pytest.approx(share, abs=1e-9)


def test_forward_and_backward_are_told_apart() -> None:
    assert {TRAINING.names[op] for op in forward_ops(TRAINING)} == {"f0", "f1", "f2"}
    turned = pipeline_step(TRAINING)
    index = {name: i for i, name in enumerate(turned.names)}
    deps = {name: {turned.names[d] for d in turned.deps(i)} for name, i in index.items()}
    assert deps["b2"] == set()
    assert deps["b1"] == {"b2"}
    assert deps["w1"] == {"g1/update"}
    assert deps["f0"] == {"w0", "b0"}
    assert deps["f1"] == {"f0", "w1"}
    with pytest.raises(BadInput, match="no backward pass"):
        pipeline_step(chain([1, 1], [1, 1]))


def test_pipelined_step_overlaps_uploads_with_the_next_forward_pass() -> None:
    """By hand: g2 is sent from 2 to 5, g1 to 7, g0 to 7.5; w2 comes back from 5 to 8, w0 to 8.5, w1 to 10.5;
    forward runs at 8.5, 10.5 and 11.5 and is over at 12.5, of which 9 are computation."""
    layer = schedule(TRAINING, "layer", bandwidth_bytes_per_s=MB_PER_S).policy
    turned = pipeline_step(TRAINING)
    result = simulated(turned, layer, "sync")
    assert np.diff(result.step_ends_s[0]) == pytest.approx(12.5)
    assert orders.idle_s(result.timeline) == pytest.approx(3.5)
    barrier = simulated(TRAINING, layer, "sync")
    assert np.diff(barrier.step_ends_s[0]) == pytest.approx(14)


def test_unique_orders_and_stragglers_fall_when_an_order_is_enforced() -> None:
    profile = step_graph(
        {f"w{i}": 1 for i in range(8)},
        {f"f{i}": ([f"w{i}", *([f"f{i - 1}"] if i else [])], 1) for i in range(8)} | {"b": (["f7"], 0.1)},
        {f"g{i}": ("b", f"w{i}") for i in range(8)},
    )
    free = simulated(
        profile, schedule(profile, "fifo", bandwidth_bytes_per_s=MB_PER_S).policy, "sync", workers=2
    )
    tic = simulated(
        profile, schedule(profile, "tic", bandwidth_bytes_per_s=MB_PER_S).policy, "sync", workers=2
    )
    assert orders.count_download_orders(free.timeline) == (40, 40)
    assert orders.count_download_orders(tic.timeline) == (1, 40)
    assert orders.straggler_shares(free.timeline).mean() > 0.01
    assert orders.straggler_shares(tic.timeline).max() == 0
    assert tic.end_s < free.end_s


def test_priorities_survive_a_file(tmp_path: Path) -> None:
    policy = schedule(TRAINING, "tac", bandwidth_bytes_per_s=MB_PER_S).policy
    assert isinstance(policy, Ordered)
    path = tmp_path / "order.json"
    path.write_text(priorities_json(TRAINING, "tac", policy))
    assert read_priorities(path, TRAINING) == policy.priorities


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"transfers": [{"name": "w9", "priority": 0}]}', "unknown transfer in .*'w9'; nearest: w"),
        ('{"transfers": [{"name": "w0", "priority": 0}]}', "no priority for download 'w1' and 1 more"),
        ('{"transfers": [{"name": "w0", "priority": 0}, {"name": "w0", "priority": 1}]}', "stands twice"),
        ('{"transfers": [{"name": "w0", "priority": "high"}]}', "Expected `float`"),
        ('{"transfers": 3}', "Expected `array`"),
        ('{"transfers": [', "truncated"),
    ],
)
def test_bad_priority_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "order.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=message):
        read_priorities(path, TRAINING)


def test_missing_priority_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*none\.json"):
        read_priorities(tmp_path / "none.json", TRAINING)


def test_uploads_without_a_priority_follow_their_download(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    rows = ", ".join(f'{{"name": "w{i}", "priority": {5 - i}}}' for i in range(3))
    path.write_text(f'{{"transfers": [{rows}]}}')
    read = read_priorities(path, TRAINING)
    assert read["g0"] == 5
    assert read["g2"] == 3
