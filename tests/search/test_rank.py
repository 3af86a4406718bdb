"""The decision rule (planner/search/rank.py): its laws, thresholds and the cases that led to it."""

from __future__ import annotations

from math import exp, inf, log
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.answers.scenario import parse_request
from planner.errors import BadInput
from planner.search.rank import (
    LEAST_GAIN,
    NEGLIGIBLE_COST,
    SAME_WIDTH,
    TIED_BELOW,
    Candidate,
    confident_share,
    probability_better,
    probability_cheaper,
    probability_faster,
    probability_of_reaching,
    rank,
    tied_with,
)


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


def test_rank_tied_plan_is_neither_clearly_slower_nor_clearly_more_expensive() -> None:
    """2 x g7e.2xlarge stays ahead of a more certain plan of 19 machines that costs a third more per
    sample."""
    few, many = plan(2201.0, 6.73, 0.32, "new"), plan(2433.0, 9.99, 0.18, "known", n=19)
    assert rank([few, many]).recommended == 0
    small = plan(713.0, 1.86, 0.18, "small")
    assert rank([small, few, many]).recommended == 1
    assert rank([small, few, many]).tied == ()


def test_rank_clearly_better_wide_range_still_wins() -> None:
    wide, narrow = plan(3000.0, 10.0, 0.2, "new"), plan(1000.0, 10.0, 0.05, "known")
    assert rank([wide, narrow]).recommended == 0


def test_rank_same_device_errors_are_shared() -> None:
    """Two machines of one device: whatever its error is, the faster one stays faster."""
    first, two = plan(1000.0, 10.0, 0.3), plan(1900.0, 20.0, 0.3)
    assert probability_better(two, first, inf) == 1.0
    assert tied_with(0, [first, plan(1900.0, 20.0, 0.3, "other")], inf) == []


@pytest.mark.parametrize("own", [0.05, 0.2])
def test_probability_better_matches_sampling(own: float) -> None:
    import numpy as np

    a, b = plan(1000.0, 10.0, 0.2, "A", own=own), plan(1100.0, 14.0, 0.1, "B", own=0.02)
    worth = 2 * 10.0 / 3600 / 1000.0
    rng = np.random.default_rng(7)
    z = rng.standard_normal((2, 400_000))
    value_a = worth * 1000 * np.exp(a.total_sigma * z[0]) - 10.0 / 3600
    value_b = worth * 1100 * np.exp(b.total_sigma * z[1]) - 14.0 / 3600
    assert probability_better(a, b, worth) == pytest.approx((value_a > value_b).mean(), abs=0.004)


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


@given(st.floats(0.51, 0.99), st.floats(0.01, 0.5))
def test_probability_better_is_antisymmetric(p: float, sigma: float) -> None:
    a, b = plan(1000.0 * exp(p), 1.0, sigma, "A"), plan(1000.0, 1.0, sigma / 2, "B")
    assert probability_better(a, b, inf) + probability_better(b, a, inf) == pytest.approx(1.0)
    assert (probability_better(a, b, inf) < TIED_BELOW) == (1 in tied_with(0, [a, b], inf))
    assert probability_cheaper(a, b) == probability_faster(a, b)


@pytest.mark.parametrize("flags", [{"confidence": 2}, {"confidence": 1}, {"min_marginal_efficiency": 0}])
def test_request_refuses_shares_out_of_range(flags: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="it lies"):
        parse_request("resnet50", **flags)


def test_clearly_slower_plan_is_not_tied_though_its_net_value_is() -> None:
    chosen, slower = plan(1000.0, 10.0, 0.3, "A"), plan(600.0, 5.5, 0.05, "B")
    worth = 2 * 5.5 / 3600 / 600
    assert 1 - TIED_BELOW < probability_better(slower, chosen, worth) < TIED_BELOW
    assert tied_with(0, [chosen, slower], worth) == []
