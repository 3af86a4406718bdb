from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.search.race import Race, pareto_front
from planner.search.simulations import cautious_interval


@dataclass
class Exact:
    samples_per_s: float

    @property
    def samples_per_s_low(self):
        return self.samples_per_s

    samples_per_s_high = samples_per_s_low


@dataclass
class Rough:
    samples_per_s: float
    samples_per_s_low: float
    samples_per_s_high: float


plans = st.lists(
    st.tuples(st.floats(1, 1000), st.floats(0.1, 1.0), st.floats(0.1, 100)), min_size=1, max_size=60
)


def arrays(cases):
    bound = np.array([c[0] for c in cases])
    return bound, bound * np.array([c[1] for c in cases]), np.array([c[2] for c in cases])


@given(plans)
def test_pruning_by_bound_loses_nothing(cases):
    bound, truth, usd = arrays(cases)
    outcome = Race(bound, usd, lambda batch, rung: [Exact(truth[i]) for i in batch]).run(rungs=False)
    long = sorted(outcome.long)
    cost = usd / 3600 / truth
    everything = {(truth[i], cost[i]) for i in pareto_front(truth, cost)}
    assert {(truth[long[k]], cost[long[k]]) for k in pareto_front(truth[long], cost[long])} == everything
    assert len(outcome.scores) + outcome.pruned_by_bound == len(cases)


@given(plans, st.integers(0, 2**32))
@settings(max_examples=50)
def test_race_keeps_the_front_when_intervals_hold_the_truth(cases, seed):
    bound, truth, usd = arrays(cases)
    rng = np.random.default_rng(seed)

    def evaluate(batch, rung):
        if rung == "long":
            return [Exact(truth[i]) for i in batch]
        widths = truth[batch] * rng.uniform(0, 0.1, len(batch))
        middles = truth[batch] + widths * rng.uniform(-1, 1, len(batch))
        return [Rough(m, m - w, m + w) for m, w in zip(middles, widths, strict=True)]

    outcome = Race(bound, usd, evaluate).run()
    cost = usd / 3600 / truth
    wanted = {(truth[i], cost[i]) for i in pareto_front(truth, cost)}
    assert wanted <= {(truth[i], cost[i]) for i in outcome.long}


def test_interrupt_keeps_what_is_done():
    def evaluate(batch, rung):
        if 40 in batch:
            raise KeyboardInterrupt
        return [Exact(1.0 + i) for i in batch]

    outcome = Race(np.arange(50, 0, -1.0) + 100, np.arange(50) + 1.0, evaluate).run(rungs=False)
    assert outcome.partial
    assert 0 < len(outcome.scores) < 50


def test_front_holds_plans_that_nothing_dominates():
    speed = np.array([10.0, 20.0, 19.8, 30.0, 5.0])
    cost = np.array([1.0, 1.5, 1.2, 4.0, 1.1])
    assert pareto_front(speed, cost) == [3, 1, 2, 0]


def test_rough_score_is_taken_with_caution():
    score = Rough(100.0, 99.0, 101.0)
    assert cautious_interval(score, "short") == (96.0, 104.0)  # runs too short to forget their start
    assert cautious_interval(Rough(100.0, 90.0, 110.0), "short") == (80.0, 120.0)
    assert cautious_interval(score, "trial") == (98.75, 101.25)
    assert cautious_interval(score, "long") == (99.0, 101.0)


@given(plans, st.floats(1.0, 4.0))
@settings(max_examples=100)
def test_race_balanced_finds_highest_net_value(cases, factor):
    bound, truth, usd = arrays(cases)
    worth = factor * float((usd / 3600 / truth).min())
    outcome = Race(
        bound,
        usd,
        lambda batch, rung: [Exact(truth[i]) for i in batch],
        goal="balanced",
        worth_usd_per_sample=worth,
    ).run()
    value = worth * truth - usd / 3600
    assert value[sorted(outcome.long)].max() >= value.max() - 1e-12 * abs(value).max()


@given(plans, st.floats(0.05, 0.95))
@settings(max_examples=100)
def test_race_infeasible_plans_rule_out_no_other(cases, quantile):
    """A cheap plan that is too slow for the deadline does not hide the cheapest that is fast enough."""
    bound, truth, usd = arrays(cases)
    least = np.full(len(cases), float(np.quantile(truth, quantile)))
    outcome = Race(
        bound,
        usd,
        lambda batch, rung: [Exact(truth[i]) for i in batch],
        goal="cheapest",
        least_samples_per_s=least,
    ).run()
    feasible = np.flatnonzero(truth >= least)
    cost = usd / 3600 / truth
    kept_long = [i for i in outcome.long if truth[i] >= least[i]]
    assert cost[kept_long].min() == cost[feasible].min()
