"""Small cases whose outcome can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.errors import BadInput
from planner.simulator.cluster import Cluster, Node
from planner.simulator.policy import Blocks, Credit, Fifo, Multiplexed, Ordered
from planner.simulator.run import Generator, RunOptions, run
from planner.simulator.sharing import max_min_limits, max_min_rates
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile


def profile(ops: list[Op], durations: list[float], servers: int = 1, **about: object) -> Profile:
    tensors = max((op.tensor for op in ops), default=-1) + 1
    return Profile.build(
        ops,
        [durations],
        model="test",
        batch=1,
        servers=servers,
        tensors=[f"t{i}" for i in range(tensors)],
        order=[list(range(len(ops)))],
        **about,
    )


def alternation(down_bytes: int, compute_s: float, up_bytes: int) -> Profile:
    return profile(
        [
            Op("down", DOWNLINK, 0, down_bytes, (), 0),
            Op("compute", WORKER, -1, 0, (0,)),
            Op("up", UPLINK, 0, up_bytes, (1,), 0),
        ],
        [0, compute_s, 0],
    )


def test_one_transfer_takes_bytes_over_bandwidth() -> None:
    result = run(
        profile([Op("down", DOWNLINK, 0, 3000)], [0]), Cluster.uniform(1, 1, 1000.0), Fifo(), "async",
        RunOptions(steps=2),
    )  # fmt: skip
    assert result.step_ends_s[0].tolist() == [3.0, 6.0]
    assert result.link_bytes[0, 0, 0] == 6000


def test_two_equal_flows_take_twice_as_long() -> None:
    result = run(
        profile([Op("down", DOWNLINK, 0, 3000)], [0]), Cluster.uniform(2, 1, 1000.0), Fifo(), "async",
        RunOptions(steps=1, until="all"),
    )  # fmt: skip
    assert [ends.tolist() for ends in result.step_ends_s] == [[6.0], [6.0]]


def test_two_workers_that_start_half_a_period_apart_never_meet() -> None:
    # Each uses the link half of the time, so the second fits exactly in the gaps of the first.
    result = run(
        alternation(1000, 2.0, 1000), Cluster.uniform(2, 1, 1000.0), Fifo(), "async",
        RunOptions(steps=10, start_offsets_s=(0.0, 2.0), until="all"),
    )  # fmt: skip
    assert result.step_ends_s[0].tolist() == [4.0 * (k + 1) for k in range(10)]
    assert result.step_ends_s[1].tolist() == [2.0 + 4.0 * (k + 1) for k in range(10)]


def test_saturated_link_is_the_bottleneck() -> None:
    # 5 workers x 1 s of downloading against about 2 s of a lone step: out of step, they keep the downlink
    # busy all the time (started together, they would stay together and leave it idle while they compute).
    result = run(
        alternation(1000, 1.0, 10), Cluster.uniform(5, 1, 1000.0), Fifo(), "async",
        RunOptions(steps=40, warmup_steps=10, start_offsets_s=(0.0, 0.9, 1.8, 2.7, 3.6)),
    )  # fmt: skip
    seconds = result.end_s - result.measured_from_s
    assert result.link_bytes[0].sum() / 1000.0 / seconds == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_two_servers_share_as_the_paper_says(n: int) -> None:
    # File 000, section 5: worker 0 alone talks to ps 0 and competes with n - 1 others for ps 1.
    crosses = [(0, 10)] + [(1, 10 + w) for w in range(n)]
    rates = max_min_rates(crosses, [1.0] * (n + 1), [1.0] * (10 + n), math.inf)
    assert rates == pytest.approx([1 - 1 / n] + [1 / n] * n)


def test_links_that_fill_together_count_as_one_level() -> None:
    # Three workers (links 0 to 2) and three servers, all in thirds: rounding must not decide what limits.
    crosses = [(w, 3 + s) for w in range(3) for s in range(3)]
    assert max_min_limits(crosses, [1.0] * 9, [1.0] * 6, math.inf) == [(w, 1 / 3) for w, _ in crosses]
    # Worker 0 alone talks to two servers of half its width: the first of two full links limits.
    assert max_min_limits([(0, 1), (0, 2)], [1.0, 1.0], [1.0, 0.5, 0.5], math.inf) == [(0, 0.5), (0, 0.5)]


@pytest.mark.parametrize("sigma", [0.17, 3.0])
def test_weights_are_log_normal_and_sum_exactly(sigma: float) -> None:
    generator = Generator(1, 0, 0)
    weights = np.array([generator.weight(sigma) for _ in range(4000)])
    assert np.all(weights * 2**20 == np.round(weights * 2**20))
    assert weights.min() >= 2**-20
    assert weights.max() <= 2**20
    assert np.log(weights).std() == pytest.approx(sigma, rel=0.05)
    assert sum(weights) == sum(sorted(weights)) == math.fsum(weights)


def test_flow_limits_and_weights() -> None:
    rates = max_min_rates([(0, 1), (0, 2), (0, 3)], [1.0, 2.0, 5.0], [8.0, 9.0, 9.0, 9.0], math.inf)
    assert rates == pytest.approx([1.0, 2.0, 5.0])
    rates = max_min_rates([(0, 1), (0, 2), (0, 3)], [1.0, 2.0, 5.0], [8.0, 9.0, 9.0, 9.0], 3.0)
    assert rates == pytest.approx([2.0, 3.0, 3.0])


def test_narrow_worker_nics_limit_each_flow() -> None:
    cluster = Cluster(
        nodes=(Node(1000.0, 1000.0), Node(300.0, 300.0), Node(300.0, 300.0)),
        worker_nodes=(1, 2),
        server_nodes=(0,),
    )
    result = run(profile([Op("down", DOWNLINK, 0, 3000)], [0]), cluster, Fifo(), "async", RunOptions(steps=1))
    assert result.end_s == pytest.approx(10.0)


def test_workers_of_one_node_share_its_nic() -> None:
    cluster = Cluster(
        nodes=(Node(1000.0, 1000.0), Node(500.0, 500.0)), worker_nodes=(1, 1), server_nodes=(0,)
    )
    result = run(profile([Op("down", DOWNLINK, 0, 3000)], [0]), cluster, Fifo(), "async", RunOptions(steps=1))
    assert result.end_s == pytest.approx(12.0)


def test_server_on_the_workers_node_costs_no_network() -> None:
    cluster = Cluster(nodes=(Node(1.0, 1.0),), worker_nodes=(0,), server_nodes=(0,))
    options = RunOptions(steps=1, local_bytes_per_s=1000.0)
    assert run(alternation(1000, 1.0, 500), cluster, Fifo(), "async", options).end_s == 2.5


def test_window_switches_once() -> None:
    # 2500 bytes and 100 bytes at 1000 bytes/s, window 1000: 1000 of a, b whole, then the rest of a.
    ops = [Op("a", DOWNLINK, 0, 2500), Op("b", DOWNLINK, 0, 100)]
    result = run(
        profile(ops, [0, 0]), Cluster.uniform(1, 1, 1000.0), Multiplexed(window_bytes=1000), "async",
        RunOptions(steps=1, timeline=True),
    )  # fmt: skip
    assert result.timeline is not None
    assert result.timeline["op"].tolist() == [0, 1, 0]
    assert result.timeline["end_s"].tolist() == pytest.approx([1.0, 1.1, 2.6])


def test_priorities_order_what_waits() -> None:
    ops = [Op("a", DOWNLINK, 0, 100), Op("b", DOWNLINK, 0, 100), Op("c", DOWNLINK, 0, 100)]
    policy = Ordered(priorities={"c": 0, "b": 1})
    result = run(
        profile(ops, [0] * 3), Cluster.uniform(1, 1, 1000.0), policy, "async",
        RunOptions(steps=1, timeline=True),
    )  # fmt: skip
    assert result.timeline is not None
    assert result.timeline["op"].tolist() == [2, 1, 0]


def test_credit_hides_overheads_behind_transmission() -> None:
    # 10 slices of 1 s; overhead 0.5 s. One slice in flight: every slice pays. Two: only the first does.
    ops = [Op("a", DOWNLINK, 0, 10_000)]
    cluster = Cluster.uniform(1, 1, 1000.0)
    ends = [
        run(
            profile(ops, [0]), cluster,
            Credit(slice_bytes=1000, credit_bytes=credit, overhead_s=0.5), "async", RunOptions(steps=1),
        ).end_s
        for credit in (1000, 2000)
    ]  # fmt: skip
    assert ends == [15.0, 10.5]


def test_sync_waits_for_the_slowest() -> None:
    cluster = Cluster.uniform(2, 1, 1e9)
    slow = Cluster(cluster.nodes, cluster.worker_nodes, cluster.server_nodes, worker_speeds=(1.0, 0.5))
    ops = [
        Op("down", DOWNLINK, 0, 1, (), 0),
        Op("compute", WORKER, -1, 0, (0,)),
        Op("up", UPLINK, 0, 1, (1,), 0),
        Op("update", PS, 0, 0, (2,), 0),
    ]
    for mode, step_s in (("async", 1.0), ("sync", 2.0)):
        result = run(profile(ops, [0, 1.0, 0, 0]), slow, Fifo(), mode, RunOptions(steps=5))  # type: ignore[arg-type]
        assert result.step_ends_s[0][-1] == pytest.approx(5 * step_s, rel=1e-6)


def test_one_core_serves_one_update_at_a_time() -> None:
    ops = [Op("update", PS, 0, 0, (), 0)]
    for cores, end_s in ((None, 1.0), (1, 3.0), (2, 2.0)):
        options = RunOptions(steps=1, until="all", server_cores=cores)
        result = run(profile(ops, [1.0]), Cluster.uniform(3, 1, 1.0), Fifo(), "async", options)
        assert result.end_s == end_s


def test_refuses_what_does_not_fit() -> None:
    result = alternation(1000, 1.0, 1000)
    waiting = profile([Op("a", UPLINK, 0, 1), Op("b", UPLINK, 0, 1, (0,))], [0, 0])
    with pytest.raises(BadInput, match=r"1 parameter server.* cluster has 2"):
        run(result, Cluster.uniform(1, 2), Fifo())
    with pytest.raises(BadInput, match="unknown op in the policy 'dwn'; nearest: down"):
        run(result, Cluster.uniform(1, 1), Ordered(priorities={"dwn": 1}))
    with pytest.raises(BadInput, match="'compute', which is no transfer"):
        run(result, Cluster.uniform(1, 1), Ordered(priorities={"compute": 1}))
    with pytest.raises(BadInput, match=r"the block of .* can never be sent"):
        run(waiting, Cluster.uniform(1, 1), Blocks(blocks=(("a", "b"),)))
    with pytest.raises(BadInput, match="unknown mode"):
        run(result, Cluster.uniform(1, 1), Fifo(), "asink")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="3 start offsets"):
        run(result, Cluster.uniform(1, 1), Fifo(), "async", RunOptions(start_offsets_s=(0.0, 0.0, 0.0)))


def test_downloads_may_have_an_overhead_of_their_own() -> None:
    ops = [Op("down", DOWNLINK, 0, 1000), Op("up", UPLINK, 0, 1000, deps=(0,))]
    for down_s, expected in ((None, 3.0), (0.0, 2.5), (2.0, 4.5)):
        policy = Ordered(overhead_s=0.5, download_overhead_s=down_s)
        cluster = Cluster.uniform(1, 1, 1000.0)
        result = run(profile(ops, [0, 0]), cluster, policy, "async", RunOptions(steps=1))
        assert result.end_s == expected
    with pytest.raises(BadInput, match="overhead_s is -1"):
        run(profile(ops, [0, 0]), Cluster.uniform(1), Fifo(download_overhead_s=-1), "async")
