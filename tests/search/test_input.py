"""The input pipeline limits devices whose host decodes fewer images than they train on."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from planner.answers.questions import Simulation, parse_request, simulation_for
from planner.answers.recommend import recommend_for
from planner.device.rates import constants
from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.search.cases import LOADER_PROCESSES, input_samples_per_s
from planner.simulator.cluster import INPUT

VCPUS = 4  # of a g5.xlarge
PER_VCPU = constants().loader_images_per_s / LOADER_PROCESSES


def simulated(**options: Any) -> Simulation:
    options = {"model": "alexnet", "hardware": "g5.xlarge", "interval_width": 0.05} | options
    return simulation_for(parse_request(**options))


def test_simulate_images_decoded_by_few_vcpus_are_the_bottleneck() -> None:
    answer = simulated()
    scored, parts = answer.scored, answer.details.parts
    assert scored.samples_per_s == pytest.approx(VCPUS * PER_VCPU)
    assert scored.prediction.bottleneck == INPUT
    assert scored.range is not None
    assert scored.range[1] == pytest.approx(VCPUS * PER_VCPU)  # nobody is faster than the hosts decode
    free = simulated(input="none").scored
    waiting = scored.prediction.step_s - free.prediction.step_s
    assert parts.input_s == pytest.approx(waiting)
    assert parts.step_s == pytest.approx(scored.prediction.step_s)


@pytest.mark.parametrize("source", ["dali", "none"])
def test_simulate_input_decoded_elsewhere_does_not_wait(source: str) -> None:
    answer = simulated(input=source)
    assert answer.scored.samples_per_s > 2 * VCPUS * PER_VCPU
    assert answer.details.parts.input_s == 0


def test_simulate_rate_of_a_vcpu_is_the_users() -> None:
    assert simulated(input=150).scored.samples_per_s == pytest.approx(VCPUS * 150)
    assert simulated(input="150", workers=2).scored.samples_per_s <= 2 * VCPUS * 150 * 1.0001


@pytest.mark.parametrize(
    ("model", "hardware"),
    [("bert-large", "g5.xlarge"), ("resnet50", "c5.4xlarge"), ("mnist-adam", "g5.xlarge")],
)
def test_text_small_images_and_cpus_are_not_limited(model: str, hardware: str) -> None:
    answer = simulated(model=model, hardware=hardware, workers=1)
    plan = answer.scored.plan
    assert input_samples_per_s(plan, answer.request, load_model(model)) == inf


@pytest.mark.parametrize("value", ["png", "0", "-3", "nan"])
def test_input_unknown_is_refused(value: str) -> None:
    with pytest.raises(BadInput, match=r"--input is .*jpeg, dali, none or images per second per vCPU"):
        parse_request("resnet50", input=value)


def test_recommend_no_plan_is_faster_than_its_hosts() -> None:
    request = parse_request("alexnet", hardware="g5.xlarge,g5.4xlarge", machines=2, interval_width=0.05)
    answer = recommend_for(request, jobs=1, advice=False)
    model = load_model("alexnet")
    for scored in answer.everything:
        assert scored.samples_per_s <= input_samples_per_s(scored.plan, request, model) * 1.0001
        assert scored.samples_per_s <= scored.bound_samples_per_s * 1.0001
    assert any(scored.prediction.bottleneck == INPUT for scored in answer.everything)
