"""The next best change is one that is better by more than the error."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from planner.answers.advise import next_changes
from planner.exchange import ParameterServers
from planner.plan import Plan
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.search.simulations import Simulations


def test_changes_within_the_error_are_not_advised():
    request = Request(model="alexnet", batches=(64,), hardware=("p3.2xlarge",), interval_width=0.02)
    simulations = Simulations(Cases(request, model_of(request)))
    plan = Plan("alexnet", 64, "p3.2xlarge", 4, ParameterServers(1, "p3.2xlarge"))
    chosen = simulations.cases.scored(plan, simulations.predict(plan))
    wide = replace(chosen.prediction, samples_per_s_high=10 * chosen.samples_per_s)
    with ThreadPoolExecutor(2) as pool:
        changes = next_changes(chosen, simulations, pool)
        assert changes
        low = [change.scored.prediction.samples_per_s_low for change in changes]
        assert min(low) > chosen.samples_per_s
        assert next_changes(replace(chosen, prediction=wide), simulations, pool) == []


def changes_of(request: Request, plan: Plan) -> dict[str, str]:
    simulations = Simulations(Cases(request, model_of(request)))
    chosen = simulations.cases.scored(plan, simulations.predict(plan))
    with ThreadPoolExecutor(2) as pool:
        return {change.kind: change.words for change in next_changes(chosen, simulations, pool)}


def test_fewer_bits_are_advised_where_the_device_has_them():
    from planner.exchange import Alone
    from planner.precision import BF16, TF32

    rough = {"interval_width": 0.02, "max_steps": 200}
    a100 = Request(model="resnet50", hardware=("a2-highgpu-1g",), **rough)
    plan = Plan("resnet50", 64, "a2-highgpu-1g", 1, Alone(), TF32)
    assert changes_of(a100, plan)["precision"] == "bf16 instead of tf32 (check that it converges)"
    assert "precision" not in changes_of(replace(a100, formats=("tf32",)), plan)  # asked for
    assert "precision" not in changes_of(a100, replace(plan, precision=BF16))  # no fp8 for images
    t4 = Request(model="resnet50", hardware=("g4dn.xlarge",), **rough)
    assert changes_of(t4, Plan("resnet50", 64, "g4dn.xlarge", 1, Alone()))["precision"].startswith("fp16 ")
