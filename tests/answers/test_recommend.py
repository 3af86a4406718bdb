import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import planner
from planner.answers.choice import choose
from planner.answers.questions import parse_request
from planner.answers.recommend import recommend_for
from planner.answers.refusals import _reached_limit
from planner.errors import BadInput, Infeasible
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.report.page import page_of
from planner.search.request import Request
from planner.search.simulations import Simulations
from planner.search.space import enumerate_plans
from planner.servers.parameter_servers import ParameterServers
from planner.units import usd

SMALL = Request(
    model="alexnet",
    batches=(64,),
    hardware=("p3.2xlarge", "p3.8xlarge", "c4.8xlarge"),
    server_hardware=("own", "c5n.xlarge", "colocated"),
    workers=(1, 2, 4),
    servers=(1, 2),
    placements=("greedy", "mxnet"),
    budget_usd_per_hour=40,
    interval_width=0.02,
)


@pytest.fixture(scope="module")
def answer():
    return recommend_for(SMALL, jobs=2)


def test_pruning_loses_nothing(answer):
    """The race finds the plans that simulating everything finds, with less work."""
    everything = recommend_for(SMALL, jobs=2, exhaustive=True, advice=False)
    assert answer.simulated < everything.simulated
    for goal in ("fastest", "cheapest", "balanced"):
        result = choose(answer.everything, replace(SMALL, objective=goal)).recommended
        best = choose(everything.everything, replace(SMALL, objective=goal)).recommended
        assert result.plan == best.plan
        assert result.samples_per_s == best.samples_per_s


def test_answer_does_not_depend_on_jobs(answer):
    alone = recommend_for(SMALL, jobs=1)
    assert alone.as_dict() == answer.as_dict()


def test_counts_add_up(answer):
    pruned = sum(answer.pruned.values())
    assert answer.considered == pruned + answer.simulated


def test_fields_of_a_plan_are_consistent(answer):
    for plan in answer.plans:
        data = plan.as_dict()
        assert data["samples_per_s_low"] <= data["samples_per_s"] <= data["samples_per_s_high"]
        assert data["samples_per_s"] <= data["bound_samples_per_s"]
        cost = data["usd_per_hour"] / 3600 / data["samples_per_s"] * 1e6
        assert data["usd_per_million_samples"] == pytest.approx(cost)
        assert data["usd_per_hour"] <= 40
        assert data["bottleneck"] in data["utilisation"]
    costs = [plan.usd_per_million_samples for plan in answer.plans]
    assert costs == sorted(costs)
    marks = [mark for plan in answer.plans for mark in plan.marks]
    assert sorted(marks) == ["cheapest", "fastest", "recommended"]


def test_headline_says_what_is_no_longer_sold(answer):
    def headline(**machines):
        exchange = ParameterServers(1, "c5n.xlarge")
        plan = replace(answer.chosen.plan, exchange=exchange, workers_per_machine=1, **machines)
        return page_of(replace(answer, chosen=replace(answer.chosen, plan=plan))).headline

    old = headline(machine="p3.2xlarge")
    assert old.endswith(", p3.2xlarge is retired")
    assert "retired" not in headline(machine="c4.8xlarge")


def test_json_has_what_is_promised(answer):
    data = json.loads(json.dumps(answer.as_dict(), default=str))
    assert {"request", "recommendation", "plans", "considered", "pruned", "simulated", "assumptions"} <= set(
        data
    )
    machine = load_hardware(data["recommendation"]["worker_hardware"])
    price = machine.price
    (prices,) = [text for text in data["assumptions"] if text.startswith("Price: ")]
    assert f"{machine.name} {usd(price.on_demand_usd_per_hour)}/h" in prices
    assert prices.endswith(f", on demand in {price.region} ({price.as_of}, {price.basis}).")


def test_optuna_finds_the_enumerated_optimum(answer):
    sampled = recommend_for(SMALL, jobs=2, trials=120, advice=False)
    assert sampled.chosen.plan == answer.chosen.plan
    assert sampled.simulated <= 60


def test_study_is_gone_on_with(tmp_path, monkeypatch):
    study = str(tmp_path / "study.db")
    task, asked = Simulations._case_and_effort, []

    def counted(self, plan, effort):
        asked.append(plan)
        return task(self, plan, effort)

    monkeypatch.setattr(Simulations, "_case_and_effort", counted)
    first = recommend_for(SMALL, jobs=2, trials=16, study=study, advice=False)
    assert 0 < len(set(asked)) <= 17  # every simulation passes here
    asked.clear()
    again = recommend_for(SMALL, jobs=2, trials=16, study=study, advice=False)
    # whatever is known is not simulated again, but for the baseline, which is no trial
    assert [plan.exchange.kind for plan in asked] == ["alone"]
    assert again.considered == 16
    assert again.chosen == first.chosen


def test_constraints_are_met_or_refused():
    fast = recommend_for(replace(SMALL, min_samples_per_s=300.0), jobs=2, advice=False)
    assert all(plan.samples_per_s >= 300 for plan in fast.everything)
    with pytest.raises(Infeasible, match="min-throughput"):
        recommend_for(replace(SMALL, min_samples_per_s=1e9), jobs=2)
    with pytest.raises(Infeasible, match="deadline"):
        recommend_for(replace(SMALL, samples=1e9, deadline_s=60.0), jobs=2)
    with pytest.raises(Infeasible, match="spend"):
        recommend_for(replace(SMALL, samples=1e9, spend_usd=1.0), jobs=2)
    with pytest.raises(Infeasible, match=r"over the budget.*works: --budget .* at \$"):
        recommend_for(replace(SMALL, budget_usd_per_hour=0.05), jobs=2)


def test_plans_out_of_reach_are_counted_once():
    considered = enumerate_plans(SMALL, load_model(SMALL.model)).considered
    with pytest.raises(Infeasible, match=rf"all {considered} candidate plans miss --min-throughput"):
        recommend_for(replace(SMALL, min_samples_per_s=1e9), jobs=2)
    fast = recommend_for(replace(SMALL, min_samples_per_s=300.0), jobs=2, advice=False)
    assert fast.considered == considered == sum(fast.pruned.values()) + fast.simulated


def test_python_api_takes_options_as_text_or_values():
    texts = {"hardware": "p3.2xlarge", "workers": "1-2", "servers": "1", "batch": "32", "budget": "10/h"}
    values = {"hardware": ["p3.2xlarge"], "workers": (1, 2), "servers": 1, "batch": 32, "budget": 10}
    by_text, by_value = (
        planner.recommend("alexnet", interval_width=0.05, **options) for options in (texts, values)
    )
    assert by_text.chosen.plan.machine == "p3.2xlarge"
    assert "<table " in by_text._repr_html_()
    assert by_value.chosen == by_text.chosen


def test_python_api_refuses_names_of_request_fields_with_the_options_name():
    with pytest.raises(BadInput, match=r"unknown option 'budget_usd_per_hour'; .*write budget="):
        planner.recommend("alexnet", budget_usd_per_hour=10)


@pytest.mark.parametrize(
    ("limit", "flag"), [({"deadline": "10min"}, "--deadline"), ({"spend": 0.1}, "--spend")]
)
def test_limit_of_the_job_that_no_plan_meets_comes_with_one_that_works(limit, flag):
    options = {"model": "resnet50", "hardware": "g5.xlarge", "machines": 4, "epochs": 1}
    with pytest.raises(Infeasible, match=f"It works with {flag} ") as error:
        recommend_for(parse_request(**options, **limit), jobs=1)
    value = str(error.value).partition(f"It works with {flag} ")[2].split(" ")[0]
    relaxed = {flag.removeprefix("--"): value if value[-1].isalpha() else float(value)}
    assert recommend_for(parse_request(**options, **relaxed), jobs=1, advice=False).chosen.plan.workers >= 1


def test_recommend_shows_as_many_of_a_machine_once():
    answer = recommend_for(parse_request("resnet50", budget=10, interval_width=0.05), jobs=1, advice=False)
    unnamed = [plan.plan.machines_text for plan in answer.plans if not plan.marks]
    assert len(set(unnamed)) == len(unnamed)
    named = [plan.plan.machines_text for plan in answer.plans if plan.marks]
    assert answer.baseline is not None
    assert not {*named, answer.baseline.plan.machines_text} & set(unnamed)


def test_deadline_missed_within_the_budget_comes_with_a_budget_that_works():
    options = {"model": "resnet50", "hardware": "g5.xlarge", "samples": 1e8, "deadline": "9h"}
    with pytest.raises(Infeasible, match=r"--deadline [\d.]+h .*, or --budget ") as error:
        recommend_for(parse_request(**options, budget=1.5), jobs=1)
    budget = float(str(error.value).partition("or --budget ")[2].split(" ")[0])
    chosen = recommend_for(parse_request(**options, budget=budget), jobs=1).chosen
    assert chosen.usd_per_hour <= budget
    with pytest.raises(Infeasible):
        recommend_for(parse_request(**options, budget=budget / 2), jobs=1)


@pytest.mark.parametrize(
    ("speed", "words"), [(1234.5, "1209"), (102.1, "100"), (101.9, "99.9"), (2.5, "2.45")]
)
def test_throughput_of_a_remedy_is_what_is_typed(speed, words):
    best = SimpleNamespace(samples_per_s=speed)
    value, said = _reached_limit("min_samples_per_s", best, Request(model="resnet50"))
    assert said == f"--min-throughput {words}"
    assert value == float(words) <= speed
