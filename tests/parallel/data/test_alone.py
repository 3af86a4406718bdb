"""One device alone: what it computes, and the baseline of every answer."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from planner.answers.questions import parse_request, simulation_for
from planner.answers.recommend import recommend_for
from planner.cli._app import app
from planner.device.computation.synthesis import synthesize_computation
from planner.device.rates.times import step_times
from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.parallel.data import EXCHANGES, RequestedSettings, Site
from planner.parallel.data.single import Alone
from planner.parallel.plan import Plan, plan_from_dict
from planner.search.request import Request
from planner.search.sizes import allowed_strategies
from planner.search.space import enumerate_plans
from planner.simulator import simulate
from planner.simulator.cluster import COMPUTATION

V100 = load_hardware("p3.2xlarge")


def asked(**words: object) -> Request:
    return parse_request(interval_width=0.05, **words)


@pytest.mark.parametrize("model", ["vgg11", "resnet50"])
def test_alone_computes_and_updates_without_waiting(model: str) -> None:
    network = load_model(model)
    computation = synthesize_computation(network, 32, V100)
    case = Alone().lower(computation, Site(V100, 1))
    result = simulate(case.profile, case.cluster, case.policy, case.mode)
    assert V100.kernels is not None
    assert result.step_s == pytest.approx(step_times(network, 32, V100.kernels).step_s, rel=0.02)
    assert result.utilisation[COMPUTATION] == pytest.approx(1.0)
    assert result.staleness_max == 0


def test_only_one_device_trains_alone() -> None:
    with pytest.raises(BadInput, match="take --workers 1 or another --exchange"):
        simulation_for(asked(model="alexnet", workers=2, exchange="alone"))


def test_alone_keeps_optimizer_state_and_pays_for_one_machine() -> None:
    result = simulation_for(asked(model="alexnet", hardware="p3.8xlarge", exchange="alone")).scored
    assert result.plan.key == "alexnet/512/p3.8xlarge/00001/alone/fp16"
    assert result.usd_per_hour == 12.24
    assert [(cost.role, cost.count) for cost in result.costs] == [("workers", 1)]
    held = Alone().memory_shares(load_model("alexnet"), result.plan.precision, Site(V100, 1))
    assert held.optimizer == 1.0


def test_default_space_has_alone_and_server_settings_mean_servers() -> None:
    assert allowed_strategies(asked(model="alexnet")) == tuple(EXCHANGES)
    assert allowed_strategies(asked(model="alexnet", servers=2)) == ("servers",)
    assert allowed_strategies(asked(model="alexnet", mode="sync")) == ("servers",)
    assert allowed_strategies(asked(model="alexnet", servers=2, exchange="all,")) == ("servers",)
    request = asked(model="alexnet", hardware="p3.2xlarge", batch=512)
    plans = enumerate_plans(request, load_model("alexnet")).plans
    assert sum(plan.exchange == Alone() for plan in plans) == 1


def test_server_is_not_advised_where_one_device_alone_is_faster_and_cheaper() -> None:
    request = asked(model="vgg11", hardware="p3.2xlarge", budget=4.0, batch=64, precision="fp32")
    answer = recommend_for(request, jobs=1)
    assert answer.chosen.plan.exchange == Alone()
    assert answer.chosen.samples_per_s == pytest.approx(505, rel=0.03)
    assert answer.saturation is None
    assert answer.baseline == answer.chosen


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("recommend", ("--workers", "2")),
        ("compare", ("--workers", "2")),
        ("saturation", ("--max-workers", "2")),
        ("simulate", ("--workers", "2")),
    ],
)
def test_baseline_stands_beside_every_answer(command: str, more: tuple[str, ...]) -> None:
    words = ("--model", "alexnet", "--batch", "32", "--hardware", "p3.2xlarge", "--exchange", "servers")
    args = [command, *words, *more, "--interval-width", "0.1"]
    data = json.loads(CliRunner().invoke(app, [*args, "--format", "json"]).stdout)
    assert data["baseline"]["exchange"] == {"kind": "alone"}
    assert data["baseline"]["workers"] == 1
    text = " ".join(CliRunner().invoke(app, args).stdout.split())
    assert "One device (1 x p3.2xlarge): " in text
    assert "; 2 devices are " in text


def test_no_baseline_where_one_device_cannot_hold_the_batch() -> None:
    simulation = simulation_for(asked(model="vgg16", batch=128, hardware="p3.2xlarge", workers=1))
    largest = simulation.scored.plan
    assert simulation.baseline is not None
    assert largest.batch == 128


def test_saturation_is_about_exchanges_that_grow() -> None:
    refused = CliRunner().invoke(app, ["saturation", "--model", "alexnet", "--exchange", "alone"])
    assert "does not grow with workers" in str(refused.exception)


def test_timelines_are_drawn_for_every_exchange(tmp_path) -> None:  # type: ignore[no-untyped-def]
    for kind, workers in (("alone", "1"), ("allreduce", "4"), ("sharded", "8")):
        path = tmp_path / f"{kind}.json"
        args = ["simulate", "--model", "alexnet", "--batch", "32", "--hardware", "p3.8xlarge", "--exchange"]
        done = CliRunner().invoke(
            app, [*args, kind, "--workers", workers, "--interval-width", "0.1", "--timeline", str(path)]
        )
        assert done.exit_code == 0, done.output
        events = json.loads(path.read_text())["traceEvents"]
        assert {event["cat"] for event in events if event["ph"] == "X"} >= {"worker"}


@pytest.mark.parametrize("kind", EXCHANGES)
def test_plans_are_stored_as_plain_values(kind: str) -> None:
    site = Site(load_hardware("p3.8xlarge"), 8 if kind != "alone" else 1)
    for exchange in EXCHANGES[kind].candidates(RequestedSettings(), site, load_model("alexnet")):
        plan = Plan("alexnet", 32, "p3.8xlarge", site.workers, exchange, workers_per_machine=4)
        assert plan_from_dict(json.loads(json.dumps(plan.as_dict()))) == plan
