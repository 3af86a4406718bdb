"""The decision rule (planner/search/rank.py): its laws, thresholds and the cases that led to it."""

from __future__ import annotations

from math import exp, inf, log
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.answers.questions import parse_request
from planner.errors import BadInput
from planner.search.flag_values import MIN_MARGINAL_EFFICIENCY, Objective
from planner.search.rank import (
    LEAST_GAIN,
    NEGLIGIBLE_COST,
    SAME_WIDTH,
    TIED_BELOW,
    TIED_SCORE,
    Contenders,
    rank,
)
from planner.search.scored import Candidate, confident_share, probability_of_reaching


def contenders(candidates: list[Candidate], objective: Objective = "balanced") -> Contenders:
    return Contenders(candidates, objective, MIN_MARGINAL_EFFICIENCY)


def plan(speed: float, usd: float, sigma: float = 0.0, device: str = "A", **about: float) -> Candidate:
    return Candidate(
        device, speed, usd, sigma, own_sigma=about.get("own", 0.0), machines=int(about.get("n", 1))
    )


def test_rank_balanced_leaves_budget_unspent_when_samples_get_expensive() -> None:
    """19 machines at $1.14 per million samples are 9.5% faster than 2 at $0.85: not worth it."""
    small, large = plan(1000.0, 0.85 * 3.6), plan(1095.0, 1.14 * 3.6 * 1.095, n=19)
    assert rank([small, large]).recommended == 0
    assert rank([small, large], "fastest").recommended == 1


def test_rank_balanced_takes_much_faster_plan_for_little_more() -> None:
    slow, fast = plan(1000.0, 10.0), plan(3200.0, 32.0 * 1.0024)
    assert rank([slow, fast]).recommended == 1


@pytest.mark.parametrize(("factor", "chosen"), [(1.999, 1), (2.001, 0)])
def test_rank_balanced_marginal_cost_threshold(factor: float, chosen: int) -> None:
    base, more = plan(1000.0, 10.0), plan(1500.0, 10.0 + 5.0 * factor)
    assert rank([base, more]).recommended == chosen


def test_rank_min_marginal_efficiency_one_never_pays_more() -> None:
    base, more = plan(1000.0, 10.0), plan(1500.0, 16.0)
    assert rank([base, more], min_marginal_efficiency=1.0).recommended == 0
    assert rank([base, more]).recommended == 1


@pytest.mark.parametrize(("gain", "chosen"), [(LEAST_GAIN + 1e-9, 1), (LEAST_GAIN - 1e-6, 0)])
def test_rank_step_must_gain_five_percent(gain: float, chosen: int) -> None:
    base, more = plan(1000.0, 10.0), plan(1000.0 * (1 + gain), 10.0 * (1 + gain) * 1.0001)
    assert rank([base, more]).recommended == chosen


@pytest.mark.parametrize(("extra", "chosen"), [(NEGLIGIBLE_COST - 1e-6, 1), (NEGLIGIBLE_COST + 1e-3, 0)])
def test_rank_cheapest_takes_faster_plan_for_one_percent(extra: float, chosen: int) -> None:
    base, more = plan(1000.0, 10.0), plan(2000.0, 20.0 * (1 + extra))
    assert rank([base, more], "cheapest").recommended == chosen


def test_rank_tied_narrower_range_wins() -> None:
    wide, narrow = plan(1030.0, 10.0, 0.4, "new"), plan(1000.0, 10.2, 0.05, "known")
    ranking = rank([wide, narrow])
    assert ranking.recommended == 1
    assert ranking.tied == (0,)


def test_rank_tied_plan_is_not_clearly_more_expensive() -> None:
    """2 x g7e.2xlarge stays ahead of a more certain plan of 19 machines that costs a third more per
    sample."""
    few, many = plan(2201.0, 6.73, 0.32, "new"), plan(2433.0, 9.99, 0.18, "known", n=19)
    assert rank([few, many]).recommended == 0
    small = plan(713.0, 1.86, 0.18, "small")
    assert rank([small, few, many]).recommended == 1
    assert rank([small, few, many]).tied == ()


def test_rank_tied_plan_with_fewest_machines_wins_across_devices() -> None:
    """resnet50 within $10 per hour: 19 T4 are a third faster than 2 RTX PRO 6000 for 9% more per sample, and
    probably no better value."""
    single = plan(344.0, 0.526, 0.183, "T4")
    few, many = plan(3710.0, 6.73, 0.211, "RTX"), plan(5060.0, 9.99, 0.211, "T4", n=19)
    ranking = rank([single, few, many])
    assert ranking.recommended == 1
    assert ranking.fastest == 2
    assert ranking.tied == (2,)
    assert rank([single, few, many], "fastest").recommended == 2


@pytest.mark.parametrize(("speed", "chosen"), [(1.4, 1), (1.5, 0)])
def test_rank_more_machines_win_where_they_are_likely_to_be_better_value(speed: float, chosen: int) -> None:
    many, few = plan(1000.0 * speed, 10.3 * speed, 0.2, "A", n=8), plan(1000.0, 10.0, 0.2, "B")
    assert rank([many, few]).recommended == chosen


@pytest.mark.parametrize(("width", "chosen"), [(SAME_WIDTH + 0.001, 1), (SAME_WIDTH - 0.001, 0)])
def test_rank_widths_closer_than_the_threshold_count_as_equal(width: float, chosen: int) -> None:
    first, narrower = plan(1010.0, 10.0, 0.3, "A"), plan(1000.0, 10.0, 0.3 - width, "B")
    assert rank([first, narrower]).recommended == chosen


def test_rank_tied_plan_that_another_beats_for_certain_is_not_chosen() -> None:
    """The more certain plan would be chosen beside the best alone; a faster one on its own machines that
    costs as much rules it out."""
    best, slow = plan(1150.0, 10.0, 0.3, "new", n=2), plan(1000.0, 10.0, 0.05, "known")
    assert rank([best, slow]).recommended == 1
    assert rank([best, slow, plan(1050.0, 10.0, 0.05, "known")]).recommended == 2


@pytest.mark.parametrize(("sigma", "chosen"), [(0.2 + SAME_WIDTH - 1e-3, 0), (0.4, 1)])
def test_rank_faster_and_cheaper_plan_loses_to_a_clearly_narrower_range_only(
    sigma: float, chosen: int
) -> None:
    """14 machines that are 12% faster than 2 for less per sample are chosen though the two are tied."""
    faster, fewer = plan(1120.0, 11.0, sigma, "A", n=14), plan(1000.0, 10.0, 0.2, "B", n=2)
    assert rank([faster, fewer]).recommended == chosen


def test_rank_tied_plan_whose_extra_samples_cost_too_much_is_not_chosen() -> None:
    """A narrow range is no reason to pay three times the least for extra samples."""
    best, narrow = plan(1000.0, 10.0, 0.3, "A"), plan(1030.0, 12.0, 0.05, "B")
    assert contenders([best, narrow]).tied_with(0) == [1]
    assert rank([best, narrow]).recommended == 0


def test_rank_clearly_better_wide_range_still_wins() -> None:
    wide, narrow = plan(3000.0, 10.0, 0.2, "new"), plan(1000.0, 10.0, 0.05, "known")
    assert rank([wide, narrow]).recommended == 0


def test_rank_same_device_errors_are_shared() -> None:
    """Two machines of one device: whatever its error is, the faster one stays faster."""
    first, two = plan(1000.0, 10.0, 0.3), plan(1900.0, 20.0, 0.3)
    assert contenders([first, two], "fastest").score_better(0)[1] == inf
    assert contenders([first, plan(1100.0, 11.0, 0.3, "other")], "fastest").tied_with(0) == [1]


@pytest.mark.parametrize("own", [0.05, 0.2])
@pytest.mark.parametrize("device", ["A", "B"])
def test_score_better_matches_sampling(own: float, device: str) -> None:
    a, b = plan(1000.0, 10.0, 0.2, "A", own=own), plan(1150.0, 14.0, 0.1, device, own=0.02)
    both = contenders([a, b])
    rng = np.random.default_rng(7)
    shared, z = rng.standard_normal(400_000), rng.standard_normal((2, 400_000))
    common = 0.1 * shared if device == "A" else 0.0
    rest = np.sqrt(a.total_sigma**2 - 0.01), 0.02
    if device == "B":
        rest = a.total_sigma, b.total_sigma
    speeds = [both.speed[i] * np.exp(common + rest[i] * z[i]) for i in (0, 1)]
    value_a, value_b = (both.worth * speeds[i] - both.usd_per_s[i] for i in (0, 1))
    sampled = (value_a > value_b).mean()
    assert NormalDist().cdf(both.score_better(1)[0]) == pytest.approx(sampled, abs=0.03)


def test_confident_share_meets_deadline_with_that_probability() -> None:
    sigma = log(1250.0 / 800.0) / (2 * NormalDist().inv_cdf(0.95))
    speed = 1000.0 * confident_share(sigma, 0.9)
    assert probability_of_reaching(speed, 1000.0, sigma) == pytest.approx(0.9)
    assert probability_of_reaching(1000.0, 1000.0, sigma) == pytest.approx(0.5)
    assert probability_of_reaching(1000.0, 1000.0, 0.0) == 1.0


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        device=st.sampled_from("ABC"),
        samples_per_s=st.floats(10, 1e5),
        usd_per_hour=st.floats(0.1, 500),
        sigma=st.sampled_from([0.02, 0.1, 0.3, 0.6]),
        own_sigma=st.sampled_from([0.0, 0.01]),
        machines=st.integers(1, 64),
    ),
    min_size=1,
    max_size=12,
)


@given(CANDIDATES)
def test_rank_nothing_tied_is_clearly_narrower(candidates: list[Candidate]) -> None:
    ranking = rank(candidates)
    chosen = candidates[ranking.recommended]
    assert all(candidates[i].total_sigma >= chosen.total_sigma - SAME_WIDTH for i in ranking.tied)


@given(CANDIDATES)
def test_rank_without_uncertainty_obeys_marginal_cost(candidates: list[Candidate]) -> None:
    certain = [Candidate(c.device, c.samples_per_s, c.usd_per_hour, machines=c.machines) for c in candidates]
    ranking = rank(certain)
    chosen, least = certain[ranking.recommended], certain[ranking.cheapest].expected_usd_per_sample
    for other in certain:
        faster = other.samples_per_s >= chosen.samples_per_s * (1 + LEAST_GAIN) * (1 + 1e-9)
        assert not (
            faster and other.expected_usd_per_sample <= chosen.expected_usd_per_sample * (1 + NEGLIGIBLE_COST)
        )
        if faster:
            extra = (other.usd_per_hour - chosen.usd_per_hour) / 3600
            assert extra >= 2 * least * (other.samples_per_s - chosen.samples_per_s) * (1 - 1e-9)


@given(CANDIDATES)
def test_rank_choice_is_beaten_by_no_plan(candidates: list[Candidate]) -> None:
    """Nothing is better than the choice with 75% probability, unless nothing but the best was left."""
    plans = contenders(candidates)
    chosen = rank(candidates).recommended
    assert chosen == plans.best or (plans.score_better(chosen) < TIED_SCORE).all()


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.5), st.sampled_from(["balanced", "cheapest", "fastest"]))
def test_score_better_is_antisymmetric(p: float, sigma: float, objective: Objective) -> None:
    a, b = plan(1000.0 * exp(p), 1.0, sigma, "A"), plan(1000.0, 1.0, sigma / 2, "B")
    plans = contenders([a, b], objective)
    assert plans.score_better(0)[1] == pytest.approx(-plans.score_better(1)[0])


@pytest.mark.parametrize(("more", "tied"), [(-1e-6, [0]), (1e-6, [])])
def test_tied_with_threshold_is_75_percent(more: float, tied: list[int]) -> None:
    gain = exp(0.2 * NormalDist().inv_cdf(TIED_BELOW) + more + 0.2**2 / 2)
    fast = contenders([plan(1000.0, 1.0), plan(1000.0 * gain, 1.0, device="B", own=0.2)], "fastest")
    assert fast.tied_with(1) == tied


@pytest.mark.parametrize(("price", "replaces"), [(10.0, [2, 3]), (40.0, [3])])
def test_possible_replacements_are_preferred_and_may_be_tied(price: float, replaces: list[int]) -> None:
    """Of plans that are only bounded those on fewer machines matter, unless they are too expensive, and those
    that would be faster for as much money."""
    known = [plan(1000.0, 10.0, 0.2, n=4), plan(400.0, 3.5, 0.2, "B", n=2)]
    bounded = [plan(1100.0, price, 0.2, "C"), plan(1100.0, 10.0, 0.2, "C", n=9)]
    plans = Contenders([*known, *bounded], "balanced", 0.5, decided=2)
    assert plans.best == 0
    assert plans.possible_replacements(0) == replaces


@pytest.mark.parametrize(("price", "chosen"), [(10.79, 1), (10.81, 0)])
def test_rank_fewer_machines_win_a_tie_where_their_extra_samples_are_worth_their_cost(
    price: float, chosen: int
) -> None:
    many, few = plan(1000.0, 10.0, 0.2, "A", n=4), plan(1040.0, price, 0.2, "B")
    assert rank([many, few]).recommended == chosen
    assert contenders([many, few]).best == 0


@pytest.mark.parametrize("flags", [{"confidence": 2}, {"confidence": 1}, {"min_marginal_efficiency": 0}])
def test_request_refuses_shares_out_of_range(flags: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="it lies"):
        parse_request("resnet50", **flags)


def test_rank_more_certain_plan_wins_though_it_is_slower_and_cheaper() -> None:
    """Whether the wide plan's extra samples are worth their price is not clear enough."""
    wide, certain = plan(1000.0, 10.0, 0.3, "A"), plan(700.0, 6.5, 0.05, "B")
    assert rank([wide, certain]).recommended == 1
    assert rank([wide, certain]).tied == (0,)


def test_rank_plan_that_is_faster_for_certain_is_not_tied() -> None:
    """vgg11 within $20 per hour: 4 RTX PRO 6000 are 2.1 times as fast as an H100 for 17% more per sample."""
    least, single = plan(2420.0, 3.36, 0.22, "RTX"), plan(4480.0, 6.88, 0.166, "H100")
    four = plan(9250.0, 16.57, 0.234, "RTX")
    ranking = rank([least, single, four])
    assert ranking.recommended == 2
    assert ranking.tied == ()
    assert abs(contenders([least, single, four]).score_better(2)[1]) < TIED_SCORE


@pytest.mark.parametrize(("sigma", "chosen"), [(0.25, 1), (0.54, 0)])
def test_rank_much_less_certain_plan_must_be_likely_better_value(sigma: float, chosen: int) -> None:
    """A GPU with a 5.9x wide range does not win by a speed that may not be worth its price."""
    faster = exp(0.54**2 / 2) * 2.2
    known, wide = plan(1000.0, 10.0, 0.15, "H100"), plan(1000.0 * faster, 27.0, sigma, "MI300X")
    assert rank([known, wide]).recommended == chosen
    assert rank([known, wide]).tied == ()


def test_possible_replacements_leave_out_what_is_outdone_at_its_bound() -> None:
    wide, slow, fast = (plan(s, usd, sigma=g, device=d) for s, usd, g, d in [
        (100.0, 10.0, 0.8, "A"), (10.0, 1.2, 0.75, "B"), (95.0, 9.6, 0.75, "B")
    ])  # fmt: skip
    plans = Contenders([wide, slow, fast], "balanced", MIN_MARGINAL_EFFICIENCY, decided=1)
    assert plans.may_replace(0)[1]
    assert plans.possible_replacements(0) == [2]
