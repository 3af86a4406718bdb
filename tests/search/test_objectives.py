"""Both ends of the front are found as by a race over all of it; between them nothing is missed by more than a
tenth."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_race import Exact, arrays, plans

from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.single import Alone
from planner.parallel.plan import Plan
from planner.search.objectives import (
    BETWEEN,
    CHOICE,
    CLOSE,
    OTHER_END,
    Contest,
    discounts,
    simulate_contenders,
)
from planner.search.rank import rank
from planner.search.request import Request
from planner.search.scored import Candidate
from planner.servers.parameter_servers import ParameterServers

REQUEST = Request(model="resnet50")
PLAN = Plan("resnet50", 64, "g5.xlarge", 2, AllReduce())


def raced(request, cases, kinds=None, told=lambda stage, done, of: None, least=None):
    bound, truth, usd = arrays(cases)
    rungs = []

    def evaluate(batch, rung):
        rungs.extend((i, rung) for i in batch)
        return [Exact(truth[i]) for i in batch]

    these = kinds or [PLAN] * len(cases)
    zeros = np.zeros(len(cases))
    contest = Contest(these, bound, usd, discounts(these, request), zeros if least is None else least, zeros)
    outcome = simulate_contenders(contest, request.goal, evaluate, min_marginal_efficiency=0.5, report=told)
    return outcome, truth, usd / 3600 / truth, rungs


@given(plans, st.sampled_from(["cheapest", "fastest"]))
@settings(max_examples=100)
def test_ends_are_exact_and_nothing_far_better_is_missed(cases, goal):
    outcome, truth, cost, _ = raced(replace(REQUEST, objective=goal), cases)
    known = sorted(outcome.long)
    assert cost[known].min() == cost.min()
    everything = candidates(truth, cost)
    chosen, kept = (
        some[rank(some, "fastest").recommended] for some in (everything, [everything[i] for i in known])
    )
    assert kept.expected_usd_per_sample == pytest.approx(chosen.expected_usd_per_sample)
    slack = 1 + CLOSE + 1e-9
    for i in range(len(cases)):
        assert any(truth[k] * slack >= truth[i] and cost[k] <= cost[i] * slack for k in known)
    assert len(outcome.scores) + outcome.pruned_by_bound == len(cases)


@given(plans)
@settings(max_examples=100)
def test_race_for_balanced_scores_the_plan_that_the_rule_chooses(cases):
    outcome, truth, cost, _ = raced(REQUEST, cases)
    everything = candidates(truth, cost)
    assert rank(everything).recommended in outcome.long or not_unique(everything, outcome.long)


def candidates(truth, cost):
    return [Candidate("A", speed, usd * speed * 3600) for speed, usd in zip(truth, cost, strict=True)]


def not_unique(everything, known):
    """Whether a plan that was scored has the same net value and cost as the choice."""
    chosen = everything[rank(everything).recommended]
    kept = [everything[i] for i in sorted(known)]
    best = kept[rank(kept).recommended]
    return best.samples_per_s == pytest.approx(chosen.samples_per_s, rel=1e-6) and (
        best.usd_per_hour == pytest.approx(chosen.usd_per_hour, rel=1e-6)
    )


def test_between_the_ends_workers_that_take_turns_run_on_powers_of_two_machines():
    counts = [3, 4, 5, 7, 8]
    stale = [replace(PLAN, workers=many, exchange=ParameterServers()) for many in counts]
    steps = [(100.0 * many, 1.0, 1.0 * many**1.5) for many in counts]
    crowd = [(100.0 - i / 10, 1.0, 0.5) for i in range(20)] + [(6400.0 - i, 1.0, 900.0) for i in range(20)]
    cases = [*steps, *crowd]  # the first rounds at both ends are full
    every = [*stale, *[replace(PLAN, workers=1, exchange=Alone())] * 20, *[replace(PLAN, workers=64)] * 20]
    outcome, *_, rungs = raced(REQUEST, cases, every)
    assert {len(counts), len(counts) + 20} <= outcome.long
    assert {(counts[i], rung) for i, rung in rungs if i < len(counts)} == {
        (many, rung) for many in (4, 8) for rung in ("glance", "short")
    }


def test_aims_are_told_in_their_order():
    said = []
    cases = [(float(100 + i), 0.9, float(1 + i * i)) for i in range(40)]
    raced(REQUEST, cases, told=lambda aim, done, of: said.append((aim, done / of)))
    assert list(dict.fromkeys(aim for aim, _ in said)) == [CHOICE, OTHER_END, BETWEEN]
    assert np.all([0 <= part <= 1 for _, part in said])
