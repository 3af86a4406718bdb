"""Plans that ranges do not tell apart from the choice, and the surer one of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.answers.closeness import close_rivals, surer
from planner.answers.questions import simulation_for
from planner.device.rates.error import Error
from planner.report.decision import close_words
from planner.search.request import Request
from planner.search.scored import ScoredPlan

ASKED = Request(
    model="alexnet", batches=(64,), hardware=("p3.2xlarge",), workers=(1,), exchanges=(("alone", {}),)
)
CHEAPEST = replace(ASKED, objective="cheapest")


@pytest.fixture(scope="module")
def known() -> ScoredPlan:
    return simulation_for(ASKED).scored


def plan(known: ScoredPlan, device: str, faster: float, q90: float | None, workers: int = 1) -> ScoredPlan:
    """On another device, so many times as fast for the same price, with so wide a range."""
    prediction = replace(
        known.prediction,
        samples_per_s=known.samples_per_s * faster,
        samples_per_s_low=known.samples_per_s * faster,
        samples_per_s_high=known.samples_per_s * faster,
    )
    error = None if q90 is None else Error("fitted", q90 / 2, q90, 10, "runs")
    named = replace(known.plan, workers=workers)
    return replace(known, plan=named, prediction=prediction, error=error, device=device)


def test_two_devices_are_told_apart_by_both_ranges_together(known: ScoredPlan) -> None:
    chosen = plan(known, "a", 1.0, 0.3)
    within, beyond = math.exp(-0.49), math.exp(-0.51)  # 0.5: the root of 0.3 and 0.4 squared
    assert close_rivals(chosen, [plan(known, "b", within, 0.4)], CHEAPEST)
    assert not close_rivals(chosen, [plan(known, "b", beyond, 0.4)], CHEAPEST)
    assert not close_rivals(chosen, [plan(known, "b", within, None)], CHEAPEST)
    assert not close_rivals(replace(chosen, error=None), [plan(known, "b", within, 0.4)], CHEAPEST)


def test_a_plan_without_a_price_is_not_compared_with_one_that_has(known: ScoredPlan) -> None:
    chosen, free = plan(known, "a", 1.0, 0.3), replace(plan(known, "b", 0.9, 0.3), costs=())
    assert not free.priced
    assert not close_rivals(chosen, [free], CHEAPEST)
    assert not close_rivals(free, [chosen], CHEAPEST)
    assert close_rivals(replace(chosen, costs=()), [free], CHEAPEST)


def test_plans_on_the_same_device_keep_their_order_and_others_count_once(known: ScoredPlan) -> None:
    chosen = plan(known, "a", 1.0, 0.3)
    rivals = [
        plan(known, "a", 0.99, 0.3, 2),
        plan(known, "b", 0.9, 0.3, 3),
        plan(known, "b", 0.95, 0.3, 4),
        plan(known, "c", 0.97, 0.3, 5),
    ]
    assert [one.plan.workers for one in close_rivals(chosen, rivals, CHEAPEST)] == [5, 4]
    late = replace(CHEAPEST, samples=known.samples_per_s * 3600, deadline_s=3600 / 0.96)
    assert [one.plan.workers for one in close_rivals(chosen, rivals, late)] == [5]


def test_the_surer_one_is_better_at_the_slow_end_of_its_range(known: ScoredPlan) -> None:
    chosen = plan(known, "a", 1.0, 0.5)
    sure, surest = plan(known, "b", 0.9, 0.3, 2), plan(known, "c", 0.85, 0.1, 3)
    assert surer(chosen, [sure, surest], CHEAPEST) is surest
    assert surer(chosen, [], CHEAPEST) is None
    assert surer(plan(known, "a", 1.0, 0.3), [plan(known, "b", 0.9, 0.3)], CHEAPEST) is None
    said = close_words(chosen, [sure, surest, plan(known, "d", 0.8, 0.5, 4)], CHEAPEST)
    least = known.usd_per_million_samples / 0.85 * math.exp(0.1)
    most = known.usd_per_million_samples * math.exp(0.5)
    assert said == (
        "The ranges do not tell it apart from 2 x p3.2xlarge, 3 x p3.2xlarge and 1 more; surer is "
        f"3 x p3.2xlarge: at most ${least:.2f} a million samples, "
        f"the choice at most ${most:.2f} a million samples."
    )
    fast = close_words(chosen, [surest], replace(ASKED, objective="fastest"))
    assert f"at least {known.samples_per_s * 0.85 * math.exp(-0.1):,.0f} samples/s, the choice" in fast
    assert close_words(chosen, [], CHEAPEST) == ""
    unsure = plan(known, "b", 0.9, 0.5, 2)
    assert close_words(chosen, [unsure], CHEAPEST) == "The ranges do not tell it apart from 2 x p3.2xlarge."
