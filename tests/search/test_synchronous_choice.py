"""A plan whose gradients are stale is chosen where it is well ahead of those whose are not."""

from dataclasses import replace

import pytest

from planner.answers.choice import choose
from planner.answers.questions import simulation_for
from planner.parallel.data.ddp import AllReduce
from planner.search.request import Request
from planner.servers.parameter_servers import ParameterServers

REQUEST = Request(model="alexnet", hardware=("g5.xlarge",), workers=(2,), servers=(1,), interval_width=0.1)

OPEN = Request(model="alexnet", hardware=("g5.xlarge",))


@pytest.fixture(scope="module")
def one():
    return simulation_for(REQUEST).scored


def plan_of(base, exchange, rate):
    prediction = replace(base.prediction, samples_per_s=rate)
    return replace(base, plan=replace(base.plan, exchange=exchange), prediction=prediction)


@pytest.mark.parametrize(("rate", "kind"), [(92.0, "allreduce"), (88.0, "servers")])
@pytest.mark.parametrize("goal", ["fastest", "cheapest", "balanced"])
def test_synchronous_plan_a_little_behind_goes_before_an_asynchronous_one(one, rate, kind, goal):
    stale, fresh = plan_of(one, ParameterServers(mode="async"), 100.0), plan_of(one, AllReduce(), rate)
    decision = choose([stale, fresh], replace(OPEN, objective=goal))
    assert decision.recommended.plan.exchange.kind == kind
    assert {mark for plan in decision.shown for mark in plan.marks} == {"fastest", "cheapest", "recommended"}


def test_servers_in_lockstep_are_as_good_as_any(one):
    sync, fresh = plan_of(one, ParameterServers(mode="sync"), 100.0), plan_of(one, AllReduce(), 99.0)
    chosen = choose([sync, fresh], replace(OPEN, objective="fastest")).recommended
    assert chosen.plan.exchange.kind == "servers"


def test_requested_asynchronous_training_takes_the_fastest(one):
    stale, fresh = plan_of(one, ParameterServers(mode="async"), 100.0), plan_of(one, AllReduce(), 99.0)
    asked = replace(OPEN, objective="fastest", mode="async")
    assert choose([stale, fresh], asked).recommended.plan.exchange.kind == "servers"
    assert choose([stale, fresh], replace(asked, mode=None)).recommended.plan.exchange.kind == "allreduce"
