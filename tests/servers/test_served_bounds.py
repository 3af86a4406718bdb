"""Bounds of parameter servers hold for what is run, also where a policy cuts transfers into pieces."""

import pytest

from planner.answers.questions import one_plan
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.search.simulations import Simulations
from planner.simulator.bounds.loads import bounds_of


def asked(policy, mode, machine="g4dn.12xlarge", **more):
    request = Request(
        model="alexnet",
        batches=(32,),
        hardware=(machine,),
        workers=(4,),
        server_hardware=("own",),
        policies=(policy,),
        mode=mode,
        exchanges=(("servers", {}),),
        interval_width=0.02,
        max_steps=240,
        **more,
    )
    return one_plan(request), Cases(request, model_of(request))


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("policy", ["p3", "bytescheduler", "prophet", "tic", "multiplexed"])
def test_no_prediction_exceeds_its_bound(policy, mode, servers):
    """A whole tensor waits for its last byte; its pieces do not."""
    plan, cases = asked(policy, mode, servers=(servers,))
    prediction = Simulations(cases).predict(plan)
    assert prediction.samples_per_s_low <= cases.bound(plan)


@pytest.mark.parametrize("policy", ["p3", "bytescheduler", "prophet"])
def test_what_is_bounded_is_what_is_run(policy):
    plan, cases = asked(policy, "sync", "g4dn.xlarge", servers=(1,))
    raised = 1 + cases.request.interval_width
    assert cases.bound(plan) / raised == pytest.approx(bounds_of([cases.case(plan)])[0])
