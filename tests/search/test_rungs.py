"""Rungs of one effort share their runs; what ended before Ctrl-C is kept."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from planner.answers.compare import compare_for
from planner.answers.recommend import recommend_for
from planner.answers.saturation import saturation_for
from planner.model.catalog import load_model
from planner.parallel.plan import Plan
from planner.report.page import page_of
from planner.search.cases import Cases
from planner.search.request import Request
from planner.search.simulations import Simulations
from planner.servers.parameter_servers import ParameterServers

PLAN = Plan("alexnet", 64, "p3.2xlarge", 2, ParameterServers(1, "p3.2xlarge"))
REQUEST = Request(model="alexnet", batches=(64,), hardware=("p3.2xlarge",), workers=(1, 2), servers=(1,))


def simulations(pool):
    return Simulations(Cases(REQUEST, load_model("alexnet")), pool)


def test_long_heat_gives_the_same_whatever_ran_before():
    with ThreadPoolExecutor(2) as pool:
        stepwise = simulations(pool)
        predictions = [stepwise.predict_all([PLAN], rung)[0] for rung in ("glance", "short", "trial", "half")]
        long = stepwise.predict_all([PLAN], "long")[0]
        assert [prediction.runs for prediction in predictions] == [3, 6, 3, 6]
        assert long == simulations(pool).predict_all([PLAN], "long")[0]
        assert stepwise.predict_all([PLAN], "medium")[0] is long
        assert stepwise.longest_prediction(PLAN) is long


class _StopsAfter(ThreadPoolExecutor):
    """Ctrl-C while the second task is waited for, once the first has ended; the others never do."""

    tasks = 0

    def submit(self, fn, /, *args, **kwargs):
        self.tasks += 1
        if self.tasks == 1:
            return super().submit(fn, *args, **kwargs)
        future = Future()
        if self.tasks == 2:
            future.set_exception(KeyboardInterrupt())
        return future


def test_ctrl_c_shows_finished_plans():
    with _StopsAfter(1) as pool:
        answer = recommend_for(REQUEST, executor=pool)
    assert answer.partial
    assert answer.simulated == 1
    assert answer.chosen.plan in {plan.plan for plan in answer.plans}


@pytest.mark.parametrize("command", [compare_for, saturation_for])
def test_interrupted_answer_says_so(command):
    with _StopsAfter(1) as pool:
        answer = command(replace(REQUEST, workers=None), executor=pool)
    assert answer.partial
    assert page_of(answer).verdict == "So far"
    assert page_of(replace(answer, partial=False)).verdict != "So far"


def test_ctrl_c_while_looking_further_keeps_the_answer(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    whole = recommend_for(REQUEST, jobs=1)
    monkeypatch.setattr("planner.answers.recommend.changes_and_saturation", interrupted)
    answer = recommend_for(REQUEST, jobs=1)
    assert (answer.partial, answer.changes, answer.saturation) == (True, [], None)
    assert answer.chosen == whole.chosen


@pytest.mark.parametrize("command", ["compare_for", "recommend_for"])
def test_before_a_simulation_ends_the_bounds_are_said(command, monkeypatch):
    from planner.answers import compare, recommend

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Simulations, "predict_all", interrupted)
    function = {"compare_for": compare.compare_for, "recommend_for": recommend.recommend_for}[command]
    with pytest.raises(KeyboardInterrupt, match=r"of \d+ plans, by their bounds, the fastest is"):
        function(REQUEST, jobs=1)
