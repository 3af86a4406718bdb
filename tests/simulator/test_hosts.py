"""Hosts and cores: what is parsed beside the accelerator, and processors that servers and hosts share."""

from __future__ import annotations

import pytest

from planner.errors import BadInput
from planner.simulator import Case, simulate
from planner.simulator.bounds import throughput_bounds
from planner.simulator.cluster import HOSTS, Cluster, Node
from planner.simulator.policy import Fifo
from planner.simulator.run import RunOptions, RunResult, run
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Op, Profile


def profile(ops: list[Op], durations: list[float]) -> Profile:
    return Profile.build(ops, [durations], model="m", batch=1, servers=1)


def both(step: Profile, cluster: Cluster, **options: object) -> RunResult:
    settings = RunOptions(steps=1, until="all", **options)  # type: ignore[arg-type]
    engine, reference = (
        run(step, cluster, Fifo(), "async", settings, path=path)  # type: ignore[arg-type]
        for path in ("engine", "reference")
    )
    assert [ends.tolist() for ends in engine.step_ends_s] == [ends.tolist() for ends in reference.step_ends_s]
    assert engine.host_busy_s.tolist() == pytest.approx(reference.host_busy_s.tolist())
    return engine


def parsing_on(resource: int) -> list[Op]:
    return [
        Op("d0", DOWNLINK, 0, 100),
        Op("d1", DOWNLINK, 0, 100),
        Op("parse0", resource, deps=(0,)),
        Op("parse1", resource, deps=(1,)),
        Op("forward0", WORKER, deps=(2,)),
        Op("forward1", WORKER, deps=(3, 4)),
    ]


def test_parsing_on_the_host_delays_the_tensor_and_not_the_accelerator() -> None:
    cluster, durations = Cluster.uniform(1, 1, 100.0), [0.0, 0.0, 0.5, 0.5, 3.0, 1.0]
    order = [[0, 1, 2, 3, 4, 5]]
    step = Profile.build(parsing_on(HOST), [durations], model="m", batch=1, servers=1, order=order)
    result = both(step, cluster)
    assert result.step_ends_s[0].tolist() == [1 + 0.5 + 3 + 1]  # the second tensor is parsed meanwhile
    assert result.host_busy_s.tolist() == [1.0]
    assert result.worker_busy_s.tolist() == [4.0]
    step = Profile.build(parsing_on(WORKER), [durations], model="m", batch=1, servers=1, order=order)
    assert both(step, cluster).step_ends_s[0].tolist() == [1 + 0.5 + 3 + 0.5 + 1]


def test_host_does_one_op_at_a_time_at_its_own_speed() -> None:
    step = profile([Op("a", HOST), Op("b", HOST), Op("c", WORKER, deps=(0, 1))], [1.0, 2.0, 3.0])
    cluster = Cluster((Node(1.0, 1.0),) * 2, (0,), (1,), worker_speeds=(2.0,))
    assert both(step, cluster).step_ends_s[0].tolist() == [3.0 + 1.5]


@pytest.mark.parametrize(("cores", "last_s"), [(None, 1.0), (4, 1.0), (2, 2.0), (1, 4.0)])
def test_workers_of_a_node_share_its_cores(cores: int | None, last_s: float) -> None:
    cluster = Cluster((Node(1.0, 1.0, "", cores), Node(1.0, 1.0)), (0, 0, 0, 0), (1,))
    result = both(profile([Op("parse", HOST)], [1.0]), cluster)
    assert max(float(ends[0]) for ends in result.step_ends_s) == last_s


@pytest.mark.parametrize(("cores", "last_s"), [(None, 2.0), (4, 2.0), (2, 4.0), (1, 8.0)])
def test_server_beside_its_workers_runs_out_of_cores(cores: int | None, last_s: float) -> None:
    """Four workers that parse and update on one machine: eight seconds of work."""
    step = profile([Op("parse", HOST), Op("update", PS, 0, deps=(0,))], [1.0, 1.0])
    beside = Cluster((Node(1.0, 1.0, "", cores),), (0, 0, 0, 0), (0,))
    result = both(step, beside)
    assert max(float(ends[0]) for ends in result.step_ends_s) == last_s
    outcome = simulate(step, beside)
    assert outcome.samples_per_s == pytest.approx(4 / last_s, rel=0.02)
    assert throughput_bounds([Case(profile=step, cluster=beside)], "fastest")[0] == pytest.approx(4 / last_s)


def test_cores_of_a_server_can_be_given_for_a_run() -> None:
    step = profile([Op("update", PS, 0)], [1.0])
    cluster = Cluster((Node(1.0, 1.0, "", 1), Node(1.0, 1.0)), (1, 1, 1, 1), (0,))
    for cores, last_s in ((None, 4.0), (2, 2.0)):
        ends = both(step, cluster, server_cores=cores).step_ends_s
        assert max(float(worker[0]) for worker in ends) == last_s


def test_upload_can_wait_for_its_gradient_to_be_serialised() -> None:
    ops = [
        Op("backward", WORKER),
        Op("serialise", HOST, deps=(0,)),
        Op("up", UPLINK, 0, 100, (1,)),
        Op("more", WORKER, deps=(0,)),
    ]
    case = Case(
        profile=profile(ops, [1.0, 0.5, 0.0, 1.0]), cluster=Cluster.uniform(1, 1, 100.0), policy=Fifo()
    )
    result = both(case.profile, case.cluster)
    assert result.step_ends_s[0].tolist() == [2.5]
    assert throughput_bounds([case])[0] == pytest.approx(1 / 2.5)
    assert simulate(case.profile, case.cluster, Fifo()).utilisation[HOSTS] == pytest.approx(0.2)


def test_node_without_cores_is_refused() -> None:
    with pytest.raises(BadInput, match="0 cores"):
        Node(1.0, 1.0, "", 0)
