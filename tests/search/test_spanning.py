"""Replicas of several workers in the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.answers.choice import choose
from planner.answers.questions import parse_request, simulation_for
from planner.answers.recommend import recommend_for
from planner.errors import BadInput, Infeasible
from planner.model.catalog import load_model
from planner.parallel.mesh import Mesh
from planner.parallel.plan import Plan
from planner.report.assumed import notes_of
from planner.search.cases import Cases
from planner.search.request import Request
from planner.search.space import enumerate_plans
from planner.servers.parameter_servers import ParameterServers
from planner.simulator.bounds import throughput_bounds

WIDE = """
description = "Fully connected layers, wide"
source = "for a test"
input = [32, 32, 3]
default_batch = 32
samples_per_epoch = 50000
layers = [
  { conv = 16, kernel = 3, then = ["relu"] },
  { max_pool = 2 },
  { fc = 4096, then = ["relu"] },
  { fc = 4096, then = ["relu"] },
  { fc = 1000 },
]
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("models") / "wide.toml"
    path.write_text(WIDE)
    return str(path)


@pytest.fixture(scope="module")
def request_wide(wide: str) -> Request:
    return Request(
        model=wide,
        hardware=("private-32core-1gbe",),
        server_hardware=("own",),
        workers=(1, 2, 4, 8),
        servers=(1, 2, 4),
        placements=("greedy", "mxnet"),
        interval_width=0.03,
        objective="fastest",
    )


def test_spanning_wins_where_weights_are_many_and_the_network_is_slow(request_wide: Request) -> None:
    answer = recommend_for(request_wide, jobs=2, advice=False)
    assert answer.chosen.plan.mesh.size > 1
    alone = recommend_for(replace(request_wide, workers_per_replica=(1,)), jobs=2, advice=False)
    assert answer.chosen.samples_per_s > 1.5 * alone.chosen.samples_per_s
    assert answer.considered > alone.considered
    assert any("workers share a replica" in note.text for note in notes_of(answer.assumptions))
    everything = recommend_for(request_wide, jobs=2, exhaustive=True, advice=False)
    assert answer.simulated < everything.simulated
    for goal in ("fastest", "cheapest", "balanced"):  # the pruning loses nothing
        result = choose(answer.everything, replace(request_wide, objective=goal)).recommended
        best = choose(everything.everything, replace(request_wide, objective=goal)).recommended
        assert result.plan == best.plan
    for scored in everything.everything:
        assert scored.prediction.samples_per_s <= scored.bound_samples_per_s


def test_bounds_of_the_grid_are_those_of_each_plan(request_wide: Request) -> None:
    model = load_model(request_wide.model)
    cases = Cases(request_wide, model)
    plans = [plan for plan in enumerate_plans(request_wide, model).plans if plan.mesh.size > 1]
    assert {plan.mesh.size for plan in plans} == {2, 4}
    one_by_one = throughput_bounds([cases.case(plan) for plan in plans])
    raised = 1 + request_wide.interval_width
    np.testing.assert_allclose(cases.bounds(plans), one_by_one * raised, rtol=1e-9)


def test_all_machines_of_a_replica_are_paid_for(request_wide: Request) -> None:
    model = load_model(request_wide.model)
    cases = Cases(request_wide, model)
    space = enumerate_plans(request_wide, model)
    usd = sum(cases.rental_cost(space.plans[0]).usd_per_hour) / 2  # one worker, one server
    for plan, price in zip(space.plans, space.usd_per_hour.tolist(), strict=True):
        assert price == pytest.approx(cases.usd_per_useful_hour(plan))
        assert price == pytest.approx(usd * (plan.workers + plan.exchange.servers))
        assert plan.replicas * plan.mesh.size == plan.workers


def test_plans_of_one_worker_a_replica_keep_their_names() -> None:
    plan = Plan("vgg11", 64, "c4.8xlarge", 4, ParameterServers(1, "c4.8xlarge"))
    assert plan.key == "vgg11/64/c4.8xlarge/00004/001/c4.8xlarge/greedy/multiplexed/async"
    both = replace(plan, mesh=Mesh.of(workers_per_replica=2))
    assert both.key == plan.key + "/x2"
    assert both.cluster_text == "4 x c4.8xlarge (2 replicas of 2) + 1 server on c4.8xlarge"
    assert both.samples_per_step == 128


def test_only_cpu_machines_with_servers_apart_span() -> None:
    request = Request(model="vgg11", hardware=("p3.2xlarge", "c4.8xlarge"), workers=(4,))
    plans = enumerate_plans(request, load_model("vgg11")).plans
    spanning = [plan for plan in plans if plan.mesh.size > 1]
    assert {plan.machine for plan in spanning} == {"c4.8xlarge"}
    assert not any(plan.exchange.host is None for plan in spanning)
    resnet = enumerate_plans(replace(request, model="resnet50"), load_model("resnet50")).plans
    assert {plan.mesh.size for plan in resnet} == {1}


def test_model_too_large_for_one_machine_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that fill one machine's memory twice over still train on four."""
    from planner.hardware import catalog
    from planner.hardware.catalog import load_hardware, match_hardware

    def small(name: str) -> object:
        kind = load_hardware(name)
        return replace(kind, device=replace(kind.device, memory_bytes=int(1.6 * 2**30)))

    every = [small(kind.name) for kind in match_hardware("c4.8xlarge")]
    monkeypatch.setattr(catalog, "match_hardware", lambda words: every)
    monkeypatch.setattr(catalog, "load_hardware", small)
    model = load_model("vgg11")  # 0.53 GB of weights, as much of gradients, 0.5 GB of libraries
    request = Request(
        model="vgg11",
        hardware=("c4.8xlarge",),
        server_hardware=("own",),
        batches=(1,),
        workers=(4,),
        servers=(1,),
        interval_width=0.05,
    )
    result = enumerate_plans(request, model)
    assert {plan.mesh.size for plan in result.plans} == {2, 4}
    assert any("memory" in reason for reason in result.dropped)
    answer = recommend_for(request, jobs=1, advice=False)
    assert answer.chosen.plan.mesh.size > 1


def test_simulate_takes_one_number_of_workers_a_replica(wide: str) -> None:
    words = {
        "model": wide,
        "hardware": "private-32core-1gbe",
        "workers": 4,
        "servers": 2,
        "interval_width": 0.05,
    }
    result = simulation_for(parse_request(**words)).scored
    two = simulation_for(parse_request(**words, workers_per_replica=2)).scored
    assert result.plan.mesh.size == 1
    assert two.samples_per_s > result.samples_per_s
    assert two.usd_per_hour == result.usd_per_hour
    assert two.as_dict()["workers_per_replica"] == 2


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"workers": "3", "workers_per_replica": 2}, BadInput, "--workers 2 or 4"),
        ({"workers_per_replica": "2,4"}, BadInput, "needs one"),
        ({"workers_per_replica": 0}, BadInput, "counts from 1 on"),
        ({"hardware": "p3.2xlarge", "workers_per_replica": 2}, Infeasible, "CPU machines"),
        ({"server_hardware": "colocated", "workers_per_replica": 2}, BadInput, "apart"),
        ({"policy": "tic", "workers_per_replica": 2}, BadInput, "--policy"),
        ({"model": "resnet50", "workers_per_replica": 2}, Infeasible, "not worth splitting"),
    ],
)
def test_spanning_replicas_that_cannot_run_are_refused(
    change: dict[str, object], error: type[Exception], words: str
) -> None:
    scenario = {"model": "vgg11", "hardware": "c4.8xlarge", "workers": 4, **change}
    with pytest.raises(error, match=words):
        simulation_for(parse_request(**scenario))


def test_optuna_finds_replicas_of_several_workers(request_wide: Request) -> None:
    narrow = replace(request_wide, workers=(4,), servers=(2,), placements=("mxnet",))
    sampled = recommend_for(narrow, jobs=2, trials=12, advice=False)
    assert sampled.chosen.plan == recommend_for(narrow, jobs=2, advice=False).chosen.plan
    assert sampled.chosen.plan.mesh.size > 1
