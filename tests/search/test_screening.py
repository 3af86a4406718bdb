"""Plans that are not made because something known beats them: no answer changes by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.answers.recommend import recommend_for
from planner.model.catalog import load_model
from planner.parallel.data import EXCHANGES
from planner.parallel.data._base import Exchange, Job
from planner.parallel.mesh import data_parallel_group
from planner.search.cases import Cases
from planner.search.executors import executor_of
from planner.search.request import Request
from planner.search.screening import ABOVE, screened_space
from planner.search.simulations import Simulations
from planner.search.space import enumerate_plans, worker_machines

ASKED = Request(
    model="alexnet",
    batches=(64,),
    hardware=("p3.2xlarge", "p3.8xlarge", "g4dn.12xlarge"),
    workers=(1, 2, 4, 8),
    interval_width=0.02,
)


@pytest.fixture(scope="module")
def cases() -> Cases:
    return Cases(ASKED, load_model("alexnet"))


def test_no_bound_is_above_the_ceiling(cases: Cases) -> None:
    plans = [plan for plan in enumerate_plans(ASKED, cases.model).plans if plan.exchange.kind == "servers"]
    bounds = cases.bounds(plans) / (1 + ASKED.interval_width)
    ceilings = np.array(
        [
            plan.exchange.ceiling(cases.computation(plan), data_parallel_group(cases.site(plan)))
            for plan in plans
        ]
    )
    assert len(plans) > 300
    assert (bounds <= ceilings * ABOVE).all()
    assert np.median(ceilings / bounds) < 2.5  # near enough to rule something out
    for plan, ceiling in zip(plans, ceilings, strict=True):
        site = data_parallel_group(cases.site(plan))
        assert ceiling <= plan.exchange.ceiling(cases.computation(plan), site, links=False)


def test_what_is_given_up_could_not_win() -> None:
    asked = replace(ASKED, hardware=("p3.2xlarge", "g4dn.12xlarge"), workers=(1, 2, 4))
    screened, everything = (
        recommend_for(asked, advice=False),
        recommend_for(asked, exhaustive=True, advice=False),
    )
    assert screened.considered == everything.considered == screened.simulated + sum(screened.pruned.values())
    assert screened.chosen.plan == everything.chosen.plan
    best = [[(one.plan, one.marks) for one in found.plans if one.marks] for found in (screened, everything)]
    assert best[0] == best[1]


def test_most_plans_with_servers_are_never_made(cases: Cases) -> None:
    simulations = Simulations(cases)
    told: list[int] = []
    with executor_of(None, 2) as pool:
        space = screened_space(
            simulations, pool, worker_machines(ASKED), lambda scored: told.append(len(scored))
        )
    whole = enumerate_plans(ASKED, cases.model)
    assert space.considered == whole.considered
    assert 0 < len(space.plans) < len(whole.plans) / 3
    assert space.hopeless == whole.considered - len(space.plans) - sum(space.dropped.values())
    assert told  # what looks best is known before the race


def test_where_servers_are_named_all_their_plans_are_made(cases: Cases) -> None:
    asked = replace(ASKED, exchanges=(("servers", {}),))
    with executor_of(None, 1) as pool:
        space = screened_space(Simulations(Cases(asked, cases.model)), pool, worker_machines(asked))
    assert space.hopeless == 0
    assert {plan.exchange.kind for plan in space.plans} == {"servers"}


def test_an_exchange_that_knows_no_ceiling_is_always_looked_at(cases: Cases) -> None:
    plan = enumerate_plans(ASKED, cases.model, only=("allreduce",)).plans[0]
    assert plan.exchange.ceiling(cases.computation(plan), cases.site(plan)) == float("inf")
    assert [kind for kind, one in EXCHANGES.items() if one.many] == ["servers"]


def test_one_device_is_bounded_by_the_mean_of_its_steps(cases: Cases) -> None:
    plans = enumerate_plans(ASKED, cases.model, only=("alone",)).plans
    jobs = [Job(plan.exchange, cases.computation(plan), cases.site(plan)) for plan in plans]
    alone = EXCHANGES["alone"]
    np.testing.assert_allclose(alone.bounds(jobs), Exchange.bounds.__func__(alone, jobs), rtol=1e-12)  # type: ignore[attr-defined]
