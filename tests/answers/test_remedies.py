"""Remedies of requests without a plan work when they are followed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from planner.answers.questions import parse_request, simulation_for
from planner.answers.recommend import recommend_for
from planner.answers.remedies import MOST_NAMED, remedies
from planner.errors import Infeasible, PlannerError
from planner.search.sizes import dividing_batches


def followed(flags: str) -> dict[str, Any]:
    pairs = (pair.split(" ") for pair in flags.removeprefix("--").split(" --"))
    return {name.replace("-", "_"): int(value) if value.isdigit() else value for name, value in pairs}


@pytest.mark.parametrize(
    "options",
    [
        {"model": "llama3-70b", "budget": 10},
        {"model": "llama3-8b", "hardware": "g4dn.xlarge", "workers": 1},
        {"model": "resnet50", "global_batch": 32, "batch": 64},
        {"model": "resnet50", "hardware": "g5.xlarge", "budget": 0.5},
        {"model": "llama3-8b", "hardware": "p5.48xlarge", "workers": 16, "batch": 8, "global_batch": 100},
    ],
)
def test_remedies_of_a_request_without_a_plan_work(options: dict[str, Any]) -> None:
    with pytest.raises(Infeasible, match=r"\. Cheapest that works: --"):
        recommend_for(parse_request(**options), jobs=1, advice=False)
    result = remedies(parse_request(**options))
    assert 1 <= len(result) <= MOST_NAMED
    for remedy in result:
        answer = recommend_for(parse_request(**{**options, **followed(remedy.flags)}), jobs=1, advice=False)
        assert answer.chosen.usd_per_hour >= remedy.usd_per_hour - 1e-9


def test_remedies_of_a_small_budget_name_the_cheapest_plan() -> None:
    adapters, remedy = remedies(parse_request("llama3-70b", budget=10))
    assert adapters.flags in ("--train lora", "--train qlora")
    assert adapters.usd_per_hour < 10 < remedy.usd_per_hour
    cents = float(followed(remedy.flags)["budget"])
    assert cents - 0.01 < remedy.usd_per_hour <= cents
    with pytest.raises(Infeasible):
        recommend_for(parse_request("llama3-70b", budget=cents - 0.01), jobs=1)


@pytest.mark.parametrize("words", [{}, {"batch": 4}, {"batch": 400}])
def test_simulate_global_batches_suggested_work(words: dict[str, Any]) -> None:
    options = {"model": "resnet50", "workers": 6, "interval_width": 0.1} | words
    with pytest.raises(PlannerError, match="the nearest that works is") as error:
        simulation_for(parse_request(**options, global_batch=32))
    for size in re.findall(r"\d+", str(error.value).partition("works is")[2]):
        answer = simulation_for(parse_request(**options, global_batch=int(size)))
        assert answer.scored.plan.samples_per_step * answer.scored.plan.replicas == int(size)


@pytest.mark.parametrize("samples", [30, 32, 36, 64])
def test_recommend_any_global_batch_is_trained_with(samples: int) -> None:
    answer = recommend_for(parse_request("resnet50", global_batch=samples), jobs=1, advice=False)
    assert answer.chosen.plan.samples_per_step * answer.chosen.plan.replicas == samples


def test_dividing_batches_are_the_largest_divisors_up_to_each_limit() -> None:
    assert dividing_batches(36, (1, 4, 8, 32)) == [1, 4, 6, 18]
    assert dividing_batches(1024, (8, 16)) == [8, 16]
    assert dividing_batches(7, (1, 2, 4)) == [1]


def test_refusals_of_own_machines_name_no_price(tmp_path) -> None:
    lab = tmp_path / "lab.toml"
    lab.write_text(
        '[machines.lab]\ndevice = "A100-SXM4-80GB"\ndevice_count = 8\nmachines = 2\n'
        "nic_baseline_gbit_per_s = 100.0\n"
    )
    for options in ({"model": "llama3-70b", "machines": 1}, {"model": "gpt2", "deadline": "1min"}):
        with pytest.raises(Infeasible, match=r"works:? .*x lab") as error:
            recommend_for(parse_request(hardware=str(lab), **options), jobs=1)
        assert "$0.00" not in str(error.value)
        assert "workers were tried" not in str(error.value)
