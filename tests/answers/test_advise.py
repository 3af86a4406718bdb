"""The next best change is one that is better by more than the error."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import planner
from planner.answers.advise import _change_options, next_changes
from planner.device.precision import PRECISIONS
from planner.parallel.data.ddp import AllReduce
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.search.simulations import Simulations
from planner.servers.parameter_servers import ParameterServers


def test_changes_within_the_error_are_not_advised():
    request = Request(model="alexnet", batches=(64,), hardware=("p3.2xlarge",), interval_width=0.02)
    cases = Cases(request, model_of(request))
    plan = Plan("alexnet", 64, "p3.2xlarge", 4, ParameterServers(1, "p3.2xlarge"))
    chosen = cases.score_plan(plan, cases.predict(plan))
    wide = replace(chosen.prediction, samples_per_s_high=10 * chosen.samples_per_s)
    with ThreadPoolExecutor(2) as pool:
        simulations = Simulations(cases, pool)
        changes = next_changes(chosen, simulations)
        assert changes
        low = [change.scored.prediction.samples_per_s_low for change in changes]
        assert min(low) > chosen.samples_per_s
        assert next_changes(replace(chosen, prediction=wide), simulations) == []


def changes_of(request: Request, plan: Plan) -> dict[str, str]:
    cases = Cases(request, model_of(request))
    chosen = cases.score_plan(plan, cases.predict(plan))
    with ThreadPoolExecutor(2) as pool:
        return {change.kind: change.words for change in next_changes(chosen, Simulations(cases, pool))}


def test_fewer_bits_are_advised_where_the_device_has_them():
    from planner.device.precision import BF16, TF32
    from planner.parallel.data.single import Alone

    rough = {"interval_width": 0.02, "max_steps": 200}
    a100 = Request(model="resnet50", hardware=("a2-highgpu-1g",), **rough)
    plan = Plan("resnet50", 64, "a2-highgpu-1g", 1, Alone(), TF32)
    assert changes_of(a100, plan)["precision"] == "bf16 instead of tf32 (check that it converges)"
    assert "precision" not in changes_of(replace(a100, formats=("tf32",)), plan)  # asked for
    assert "precision" not in changes_of(a100, replace(plan, precision=BF16))  # no fp8 for images
    t4 = Request(model="resnet50", hardware=("g4dn.xlarge",), **rough)
    assert changes_of(t4, Plan("resnet50", 64, "g4dn.xlarge", 1, Alone()))["precision"].startswith("fp16 ")


def options_of(request: Request, plan: Plan) -> dict[str, Plan]:
    return {option.words: option.plan for option in _change_options(plan, Cases(request, model_of(request)))}


def test_with_a_global_batch_changes_keep_it():
    """Of 96 samples 12 workers take 8 each: 16 can share them, 13 cannot; a micro-batch twice as large comes
    half as often."""
    request = Request(model="gpt2", hardware=("g5.xlarge",), global_batch=96)
    plan = Plan("gpt2", 2, "g5.xlarge", 12, AllReduce(), precision=PRECISIONS["bf16"], accumulate=4)
    asked = options_of(request, plan)
    more = asked["4 more workers"]
    assert (more.workers, more.accumulate) == (16, 3)
    larger = asked["micro-batches of 4, half as many"]
    assert (larger.batch, larger.accumulate) == (4, 2)
    assert {entry.samples_per_step * entry.replicas for entry in asked.values()} == {96}
    odd = options_of(request, replace(plan, accumulate=1, batch=8))
    assert not [words for words in odd if "half as many" in words or "twice" in words]


def test_without_a_global_batch_each_worker_keeps_its_own():
    request = Request(model="gpt2", hardware=("g5.xlarge",))
    plan = Plan("gpt2", 2, "g5.xlarge", 12, AllReduce(), precision=PRECISIONS["bf16"], accumulate=4)
    asked = options_of(request, plan)
    assert (asked["1 more worker"].workers, asked["1 more worker"].accumulate) == (13, 4)
    assert asked["twice the batch (4, may need more epochs)"].accumulate == 4


def test_adapters_are_advised_a_second_worker_with_ddp_and_not_fp8():
    answer = planner.recommend("llama3-8b", train="qlora", budget=2, hardware="g6e.xlarge")
    words = [change.words for change in answer.changes]
    assert "1 more worker (DDP)" in words
    assert not any("fp8" in text for text in words)
    full = planner.recommend("bert-large", budget=2, hardware="g6e.xlarge")
    assert any(change.words.startswith("fp8 instead of bf16") for change in full.changes)
