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
