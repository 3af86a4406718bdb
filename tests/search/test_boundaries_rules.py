"""Thresholds of the decision rule, the race and its rungs, on both sides; figures, not the constants."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

import numpy as np
import pytest

from planner.search.race import Frontier, Race, alternating_order, pareto_front
from planner.search.rank import Contenders, rank
from planner.search.scored import Candidate, confident_share, probability_of_reaching
from planner.search.simulations import RUNGS, cautious_interval, is_within_error, relative_gain


@dataclass
class Score:
    samples_per_s: float
    samples_per_s_low: float
    samples_per_s_high: float


def exact(speed: float) -> Score:
    return Score(speed, speed, speed)


def plan(speed: float, usd: float, sigma: float = 0.0, device: str = "A", machines: int = 1) -> Candidate:
    return Candidate(device, speed, usd, sigma, machines=machines)


# Samples at half the cost of the budget's: 1,024 samples/s for $8/h; all figures are exact in binary.
BASE = plan(1024.0, 8.0)


@pytest.mark.parametrize(("usd", "chosen"), [(16.0, 1), (16.001, 0)])
def test_rank_extra_samples_at_exactly_twice_the_least_cost_are_taken(usd: float, chosen: int) -> None:
    assert rank([BASE, plan(1536.0, usd)]).recommended == chosen  # 512 more for $8: twice $8 per 1,024


@pytest.mark.parametrize(("speed", "chosen"), [(1075.3, 1), (1075.1, 0)])
def test_rank_faster_plan_is_a_step_from_five_percent_on(speed: float, chosen: int) -> None:
    more = plan(speed, 8.001 * speed / 1024)
    assert rank([BASE, more]).recommended == chosen
    assert rank([BASE, more], "cheapest").recommended == chosen


@pytest.mark.parametrize(("factor", "chosen"), [(1.0099, 1), (1.0101, 0)])
def test_rank_cheapest_pays_one_percent_for_a_faster_plan(factor: float, chosen: int) -> None:
    assert rank([BASE, plan(2048.0, 16.0 * factor)], "cheapest").recommended == chosen


def test_rank_cheapest_end_is_the_faster_of_equal_costs() -> None:
    ranking = rank([BASE, plan(1050.0, 8.0 * 1050 / 1024)], "cheapest")
    assert (ranking.cheapest, ranking.fastest) == (1, 1)


@pytest.mark.parametrize(("sigma", "chosen"), [(0.119, 0), (0.121, 1)])
def test_rank_tie_goes_to_the_narrower_range_from_two_hundredths_on(sigma: float, chosen: int) -> None:
    """Two devices of the same speed and price: below a difference of 0.02 the better value stays."""
    wide, narrow = plan(1024.0 * exp((sigma**2 - 0.01) / 2 + 0.001), 8.0, sigma), plan(1024.0, 8.0, 0.1, "B")
    assert rank([wide, narrow]).recommended == chosen


@pytest.mark.parametrize(("machines", "chosen"), [(3, 1), (2, 0)])
def test_rank_tie_of_equal_ranges_goes_to_strictly_fewer_machines(machines: int, chosen: int) -> None:
    better, other = plan(1030.0, 8.0, 0.1, "A", machines), plan(1024.0, 8.0, 0.1, "B", 2)
    assert rank([better, other]).recommended == chosen


def test_contenders_prefer_no_plan_with_as_many_machines_and_as_wide_a_range() -> None:
    plans = Contenders([plan(1024.0, 8.0, 0.1, "A", 2), plan(1024.0, 8.0, 0.1, "B", 2)], "balanced", 0.5)
    assert not plans.is_preferred(0, 1)
    assert not plans.is_preferred(1, 0)


@pytest.mark.parametrize(("sigmas", "tied"), [(0.674, True), (0.675, False)])
def test_contenders_tie_ends_at_three_quarters(sigmas: float, tied: bool) -> None:
    """75% is 0.6745 standard deviations; independent errors of 0.06 and 0.08 are 0.1 together."""
    faster = plan(1024.0 * exp(sigmas * 0.1 + (0.08**2 - 0.06**2) / 2), 8.0, 0.08, "B")
    plans = Contenders([plan(1024.0, 8.0, 0.06), faster], "fastest", 0.5)
    assert (plans.tied_with(0) == [1]) is tied
    assert plans.is_beaten(0) is not tied


@pytest.mark.parametrize(("sigmas", "tied"), [(-0.674, True), (-0.675, False)])
def test_contenders_tied_plan_is_not_more_expensive_with_three_quarters(sigmas: float, tied: bool) -> None:
    """Speed decides, and is equal with the errors counted: only the cost per sample tells them apart."""
    effective = exp((0.08**2 - 0.06**2) / 2)
    dear = plan(1024.0 * effective, 8.0 * exp(-sigmas * 0.1), 0.08, "B")
    plans = Contenders([plan(1024.0, 8.0, 0.06), dear], "fastest", 0.5)
    assert (plans.tied_with(0) == [1]) is tied


def test_probability_without_error_is_one_from_the_prediction_down() -> None:
    assert probability_of_reaching(100.0, 100.0, 0.0) == 1.0
    assert probability_of_reaching(np.nextafter(100.0, 200), 100.0, 0.0) == 0.0
    assert probability_of_reaching(100.0, 100.0, 0.1) == pytest.approx(0.5)
    assert probability_of_reaching(0.0, 100.0, 0.1) == 1.0


def test_confident_share_is_reached_with_nine_tenths_by_default() -> None:
    share = confident_share(0.2)
    assert probability_of_reaching(share, 1.0, 0.2) == pytest.approx(0.9)
    assert -log(share) == pytest.approx(0.2 * 1.2815515655)


@pytest.mark.parametrize(
    ("speed", "usd", "kept"),
    [(10.0, 1.0, [0]), (10.0, 0.99, [1]), (10.01, 1.0, [1]), (10.01, 1.01, [1, 0]), (9.99, 0.99, [0, 1])],
)
def test_front_keeps_what_is_faster_or_cheaper_than_all(speed: float, usd: float, kept: list[int]) -> None:
    assert pareto_front(np.array([10.0, speed]), np.array([1.0, usd])) == kept


@pytest.mark.parametrize(
    ("speed", "usd", "dominated"),
    [(10.0, 1.0, True), (10.0, 0.99, False), (10.01, 1.0, False), (9.99, 1.01, True)],
)
def test_frontier_equal_plan_is_dominated(speed: float, usd: float, dominated: bool) -> None:
    frontier = Frontier("front", 0.0)
    frontier.add(10.0, 1.0, 0)
    assert frontier.dominates(speed, usd, 1) is dominated
    assert not frontier.dominates(speed, usd, 0)  # not by itself


def test_frontier_keeps_the_first_of_equal_plans() -> None:
    frontier = Frontier("front", 0.0)
    frontier.add(10.0, 1.0, 0)
    frontier.add(10.0, 1.0, 1)
    assert frontier.dominates(10.0, 1.0, 1)
    assert not frontier.dominates(10.0, 1.0, 0)


@pytest.mark.parametrize(("speed", "pruned"), [(98.1, False), (98.0, False), (97.9, True)])
def test_frontier_fastest_prunes_below_two_percent(speed: float, pruned: bool) -> None:
    """A plan cheaper than all stays in the race for the fastest while it may come within 2% of the best."""
    frontier = Frontier("fastest", 0.0)
    frontier.add(100.0, 1.0, 0)
    assert frontier.dominates(speed, 0.5, 1) is pruned


@pytest.mark.parametrize(("usd", "pruned"), [(1.0, True), (0.99, False), (1.01, True)])
def test_frontier_cheapest_prunes_what_costs_no_less(usd: float, pruned: bool) -> None:
    frontier = Frontier("cheapest", 0.0)
    frontier.add(100.0, 1.0, 0)
    assert frontier.dominates(99.0, usd, 1) is pruned


@pytest.mark.parametrize(("usd", "pruned"), [(1.01, True), (0.92, True), (0.9, False)])
def test_frontier_cheapest_tolerance_prunes_what_is_hardly_cheaper(usd: float, pruned: bool) -> None:
    frontier = Frontier("cheapest", 0.1)
    frontier.add(100.0, 1.0, 0)
    assert frontier.dominates(200.0, usd, 1) is pruned


@pytest.mark.parametrize(("speed", "pruned"), [(199.0, True), (201.0, False)])
def test_frontier_balanced_prunes_below_the_best_net_value(speed: float, pruned: bool) -> None:
    """100 samples/s at 1 of 2 USD are worth 100 USD/s; at 1.5 of 2 it takes 200 samples/s to be worth it."""
    frontier = Frontier("balanced", 0.0, 2.0)
    frontier.add(100.0, 1.0, 0)
    assert frontier.dominates(speed, 1.5, 1) is pruned


def test_race_takes_the_plan_whose_bound_is_exactly_the_least_speed() -> None:
    bound, usd = np.array([100.0, 99.0]), np.array([1.0, 1.0])
    outcome = Race(
        bound,
        usd,
        lambda batch, rung: [exact(bound[i]) for i in batch],  # type: ignore[misc]
        least_samples_per_s=np.array([100.0, 100.0]),
    ).run()
    assert set(outcome.scores) == {0} == outcome.long


def test_race_plan_at_exactly_the_least_speed_rules_out_worse_ones() -> None:
    bound, usd = np.array([100.0, 90.0]), np.array([1.0, 2.0])
    evaluated: list[int] = []

    def evaluate(batch: list[int], rung: str) -> list[Score]:
        evaluated.extend(batch)
        return [exact(bound[i]) for i in batch]

    for least, seen in ((100.0, {0}), (100.1, {0, 1})):
        evaluated.clear()
        Race(
            np.array([101.0, 90.0]),
            usd,
            evaluate,  # type: ignore[arg-type]
            least_samples_per_s=np.array([least, 0.0]),
        ).run(rungs=False, round_size=1)
        assert set(evaluated) == seen


def test_turns_alternate_from_the_fastest_and_the_cheapest_end() -> None:
    speed, usd = np.array([3.0, 2.0, 1.0]), np.array([9.0, 4.0, 1.0])
    assert alternating_order(speed, usd) == [0, 2, 1]
    assert alternating_order(speed, usd, "fastest") == [0, 1, 2]
    assert alternating_order(speed, usd, "cheapest") == [2, 1, 0]
    assert alternating_order(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == [0, 1]


@pytest.mark.parametrize(
    ("rung", "low", "high"),
    [
        ("glance", 80.0, 120.0),  # twice the interval
        ("short", 80.0, 120.0),
        ("medium", 90.0, 110.0),
        ("trial", 87.5, 112.5),
        ("half", 87.5, 112.5),
        ("long", 90.0, 110.0),
    ],
)
def test_cautious_widens_the_interval_by_the_rung(rung: str, low: float, high: float) -> None:
    assert cautious_interval(Score(100.0, 90.0, 110.0), rung) == pytest.approx((low, high))  # type: ignore[arg-type]


@pytest.mark.parametrize(("rung", "width"), [("glance", 4.0), ("short", 4.0), ("trial", 0.0), ("long", 0.0)])
def test_cautious_short_runs_are_off_by_four_percent_at_least(rung: str, width: float) -> None:
    assert cautious_interval(exact(100.0), rung) == pytest.approx((100 - width, 100 + width))  # type: ignore[arg-type]


@pytest.mark.parametrize(("workers", "steps"), [(8, 180), (9, 160), (20, 72), (1000, 72)])
def test_short_rung_takes_fewer_steps_above_eight_workers(workers: int, steps: int) -> None:
    assert RUNGS["short"][0].steps(workers) == steps
    assert RUNGS["medium"][0].steps(workers) == 240
    assert RUNGS["long"][0].steps(workers) is None


@pytest.mark.parametrize(("difference", "untold"), [(5.0, True), (-5.0, True), (5.001, False)])
def test_cannot_tell_differences_up_to_both_errors(difference: float, untold: bool) -> None:
    one, other = Score(100.0, 97.0, 103.0), Score(100.0, 96.0, 104.0)  # 3 and 4 make 5
    assert is_within_error(difference, one, other) is untold


def test_gain_has_the_errors_of_both() -> None:
    assert relative_gain(Score(100.0, 97.0, 103.0), Score(200.0, 192.0, 208.0)) == pytest.approx((1.0, 0.1))
