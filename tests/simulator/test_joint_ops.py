"""Joint ops, ends and latencies: times that can be worked out by hand, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from planner.errors import BadInput
from planner.simulator import simulate
from planner.simulator.cluster import COMPUTATION, Cluster, Node, Resource
from planner.simulator.policy import Blocks, Fifo, Joins, Multiplexed
from planner.simulator.run import RunOptions, RunResult, run
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile

RING = Resource.link("ring")


def profile(ops: list[Op], durations: list[list[float]], channels: int = 1) -> Profile:
    return Profile.build(ops, durations, model="m", batch=4, servers=channels)


def ring(workers: int, speeds: tuple[float, ...] = (), groups: int = 1) -> Cluster:
    """Every worker sends to the next; all form one group, or groups of neighbours of the same size."""
    size = workers // groups
    return Cluster(
        (Node(100.0, 100.0),) * workers,
        tuple(range(workers)),
        (),
        worker_speeds=speeds,
        links=tuple(((w, (w + 1) % workers),) for w in range(workers)),
        link_resources=(RING,),
        leaders=(tuple(w // size * size for w in range(workers)),),
    )


ALL_REDUCE = [
    Op("backward", WORKER),
    Op("all-reduce", UPLINK, 0, 200, (0,), scope=0, latency_s=0.25),
    Op("optimizer", WORKER, -1, 0, (1,)),
]


def both(step: Profile, cluster: Cluster, options: RunOptions, **more: object) -> RunResult:
    engine = run(step, cluster, Fifo(), "async", options, **more)  # type: ignore[arg-type]
    reference = run(step, cluster, Fifo(), "async", options, path="reference", **more)  # type: ignore[arg-type]
    for ours, theirs in zip(engine.step_ends_s, reference.step_ends_s, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return engine


def test_joint_op_waits_for_the_slowest_and_ends_for_all() -> None:
    result = both(
        profile(ALL_REDUCE, [[1.0, 0.0, 0.5]]), ring(3, (1.0, 0.5, 2.0)), RunOptions(steps=1, until="all")
    )
    # Ready at 2 s at the slowest; 0.25 s of latency, 2 s of bytes; then each optimizer at its own speed.
    assert [float(ends[0]) for ends in result.step_ends_s] == [4.75, 5.25, 4.5]
    assert result.link_bytes[1].tolist() == [[200.0], [0.0], [0.0]]
    assert all(staleness.tolist() == [0] for staleness in result.staleness)


def test_groups_go_their_own_ways() -> None:
    cluster = ring(4, (1.0, 1.0, 0.5, 1.0), groups=2)
    result = both(profile(ALL_REDUCE, [[1.0, 0.0, 0.0]]), cluster, RunOptions(steps=1, until="all"))
    assert [float(ends[0]) for ends in result.step_ends_s] == [3.25, 3.25, 4.25, 4.25]
    assert result.link_bytes[1].ravel().tolist() == [200.0, 0.0, 200.0, 0.0]


def test_joint_flows_that_meet_at_a_port_share_it() -> None:
    cluster = replace(ring(4, groups=2), links=(((0, 3),), ((1, 3),), ((2, 3),), ((3, 0),)))
    result = both(profile(ALL_REDUCE, [[1.0, 0.0, 0.0]]), cluster, RunOptions(steps=1, until="all"))
    assert {float(ends[0]) for ends in result.step_ends_s} == {1 + 0.25 + 400 / 100}


def test_joint_op_can_be_a_mere_duration() -> None:
    ops = [Op("backward", WORKER), Op("collective", PS, 0, 0, (0,), scope=0)]
    result = both(profile(ops, [[1.0, 3.0]]), ring(3), RunOptions(steps=2, until="all"))
    assert [ends.tolist() for ends in result.step_ends_s] == [[4.0, 8.0]] * 3
    assert result.ps_busy_s.ravel().tolist() == [6.0, 0.0, 0.0]


def test_ranks_draw_their_steps_independently_so_the_slowest_decides() -> None:
    step = profile(ALL_REDUCE, [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    means = []
    for workers in (2, 4):
        ends = both(step, ring(workers), RunOptions(steps=400, until="all")).step_ends_s[0]
        means.append(float(ends[-1]) / 400 - 2.25)
    assert means[0] == pytest.approx(2 - 1 / 4, abs=0.06)
    assert means[1] == pytest.approx(2 - 1 / 16, abs=0.05)


def test_timeline_shows_a_joint_op_on_its_leaders_lane() -> None:
    options = RunOptions(steps=1, until="all", timeline=True)
    timeline = both(profile(ALL_REDUCE, [[1.0, 0.0, 0.0]]), ring(4, groups=2), options).timeline
    assert timeline is not None
    assert sorted(timeline[timeline["op"] == 1]["worker"].tolist()) == [0, 2]


def test_gated_joint_op_waits_for_all_groups_and_publishes_once_a_group() -> None:
    """Devices of a machine send one gradient to a server, which updates when all machines' are in."""
    ops = [
        Op("down", DOWNLINK, 0, 100, (), 0, scope=0),
        Op("compute", WORKER, -1, 0, (0,)),
        Op("up", UPLINK, 0, 100, (1,), 0, scope=0),
        Op("update", PS, 0, 0, (2,), 0, scope=0),
    ]
    cluster = Cluster(
        (Node(100.0, 100.0),) * 3,
        (1, 1, 2, 2),
        (0,),
        worker_speeds=(1.0, 1.0, 1.0, 0.5),
        leaders=((0, 0, 2, 2),),
    )
    step = Profile.build(ops, [[0.0, 1.0, 0.0, 0.5]], model="m", batch=1, servers=1, tensors=["t"])
    options = RunOptions(steps=2, until="all")
    engine, reference = (
        run(step, cluster, Fifo(), "sync", options, path=path) for path in ("engine", "reference")
    )  # type: ignore[arg-type]
    ends = [worker.tolist() for worker in engine.step_ends_s]
    assert ends == [worker.tolist() for worker in reference.step_ends_s]
    # Two downloads share the server's port (2 s), the slow machine computes 2 s; its upload is alone by then
    # (1 s); both updates wait for it.
    assert ends == [[2 + 2 + 1 + 0.5, 11.0]] * 4


def test_upload_that_computation_does_not_unlock_keeps_its_place() -> None:
    ops = [
        Op("c0", WORKER),
        Op("u0", UPLINK, 0, 1000, (0,)),
        Op("c1", WORKER, -1, 0, (0,)),
        Op("u1", UPLINK, 0, 10, (2,)),
        Op("d", DOWNLINK, 0, 300),
        Op("u2", UPLINK, 0, 1000, (4,)),
        Op("c2", WORKER, -1, 0, (2,)),
        Op("u3", UPLINK, 0, 1000, (6,)),
        Op("x", PS, 0, 0, (3,)),
    ]
    step = profile(ops, [[1.0, 0, 1.0, 0, 0, 0, 5.0, 0, 100.0]])
    both(step, Cluster.uniform(1, 1, 100.0), RunOptions(steps=2))


def test_worker_alone_needs_no_channel() -> None:
    step = profile([Op("forward", WORKER), Op("backward", WORKER, -1, 0, (0,))], [[1.0, 2.0]], channels=0)
    cluster = Cluster((Node(1.0, 1.0),), (0,), ())
    assert both(step, cluster, RunOptions(steps=3)).step_ends_s[0].tolist() == [3.0, 6.0, 9.0]
    result = simulate(step, cluster)
    assert result.samples_per_s == pytest.approx(4 / 3)
    assert result.utilisation == {COMPUTATION: pytest.approx(1.0)}


def test_simulate_says_what_a_link_uses() -> None:
    result = simulate(profile(ALL_REDUCE, [[1.0, 0.0, 0.75]]), ring(4))
    assert result.samples_per_s == pytest.approx(4 * 4 / 4.0)
    assert result.utilisation[RING] == pytest.approx(0.5)
    assert result.bottleneck == RING
    assert result.staleness_max == 0


@pytest.mark.parametrize(
    ("ops", "cluster", "policy", "words"),
    [
        ([Op("a", WORKER, scope=0)], ring(2), Fifo(), "'a' is computation and has a scope"),
        ([Op("a", UPLINK, 0, 1, scope=1)], ring(2), Fifo(), "'a' is joint in scope 1.* 1 scope"),
        ([Op("a", UPLINK, 0, 1, scope=0)], ring(2), Blocks(blocks=(("a",),)), "'a' is a joint op.* block"),
        ([Op("a", WORKER, latency_s=1.0)], ring(2), Fifo(), "'a' has a latency"),
        ([Op("a", UPLINK, 0, 1, latency_s=math.nan)], ring(2), Fifo(), "'a' has a latency of nan"),
        ([Op("a", UPLINK, 0, 1)], Cluster((Node(1.0, 1.0),), (0,), ()), Fifo(), "for 1 parameter server"),
        ([Op("a", UPLINK, 1, 1)], ring(2), Multiplexed(), "on server 1 of 1"),
    ],
)
def test_refusals(ops: list[Op], cluster: Cluster, policy: Fifo | Blocks, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        run(profile(ops, [[0.0]]), cluster, policy)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"links": (((0, 1),),)}, "links are given for 1 workers, but there are 2"),
        ({"links": (((0, 1),), ())}, "as many links"),
        ({"links": (((0, 2),), ((0, 1),))}, "a link ends at node 2"),
        ({"link_resources": (RING, RING)}, "2 names are given for 1 link"),
        ({"leaders": ((0,),)}, "scope 0 groups 1 workers"),
        ({"leaders": ((0, 0), (1, 1))}, "scope 1 worker 0 is led by 1"),
    ],
)
def test_clusters_that_do_not_fit_are_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        replace(ring(2), **more)  # type: ignore[arg-type]


def test_joins_of_computation_are_refused() -> None:
    joins = replace(Joins.none(1), gated=np.array([True]))
    with pytest.raises(BadInput, match="'a' is computation and has a join"):
        run(profile([Op("a", WORKER)], [[1.0]]), ring(2), Fifo(), joins=joins)
