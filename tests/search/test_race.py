from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.search.front import cheapest_of_fastest, front, knee
from planner.search.heats import cautious
from planner.search.race import race


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
    outcome = race(bound, usd, lambda batch, heat: [Exact(truth[i]) for i in batch], heats=False)
    found = sorted(outcome.long)
    cost = usd / 3600 / truth
    everything = {(truth[i], cost[i]) for i in front(truth, cost)}
    assert {(truth[found[k]], cost[found[k]]) for k in front(truth[found], cost[found])} == everything
    assert len(outcome.scores) + outcome.pruned_by_bound == len(cases)


@given(plans, st.integers(0, 2**32))
@settings(max_examples=50)
def test_race_keeps_the_front_when_intervals_hold_the_truth(cases, seed):
    bound, truth, usd = arrays(cases)
    rng = np.random.default_rng(seed)

    def evaluate(batch, heat):
        if heat == "long":
            return [Exact(truth[i]) for i in batch]
        widths = truth[batch] * rng.uniform(0, 0.1, len(batch))
        middles = truth[batch] + widths * rng.uniform(-1, 1, len(batch))
        return [Rough(m, m - w, m + w) for m, w in zip(middles, widths, strict=True)]

    outcome = race(bound, usd, evaluate)
    cost = usd / 3600 / truth
    wanted = {(truth[i], cost[i]) for i in front(truth, cost)}
    assert wanted <= {(truth[i], cost[i]) for i in outcome.long}


def test_interrupt_keeps_what_is_done():
    def evaluate(batch, heat):
        if 40 in batch:
            raise KeyboardInterrupt
        return [Exact(1.0 + i) for i in batch]

    outcome = race(np.arange(50, 0, -1.0) + 100, np.arange(50) + 1.0, evaluate, heats=False)
    assert outcome.partial
    assert 0 < len(outcome.scores) < 50


def test_front_and_choices():
    speed = np.array([10.0, 20.0, 19.8, 30.0, 5.0])
    cost = np.array([1.0, 1.5, 1.2, 4.0, 1.1])
    assert front(speed, cost) == [3, 1, 2, 0]
    assert cheapest_of_fastest(speed, cost) == 3
    assert cheapest_of_fastest(speed[:3], cost[:3]) == 2
    assert knee(speed[[3, 1, 2, 0]], cost[[3, 1, 2, 0]]) == 2


def test_the_best_value_of_few_plans_is_the_most_throughput_for_its_cost_a_sample():
    for speed, cost, best in (
        ([20.0, 10.0], [3.0, 1.0], 1),  # twice as fast at three times the cost
        ([20.0, 10.0], [1.5, 1.0], 0),
        ([10.0], [1.0], 0),
        ([30.0, 10.0, 20.0], [1.0, 1.0, 1.0], 0),  # one price, and no line between the ends
        ([10.0, 10.0, 10.0], [2.0, 1.0, 3.0], 1),
    ):
        assert knee(np.array(speed), np.array(cost)) == best


def test_the_best_value_of_many_is_the_furthest_from_the_line_between_the_ends():
    speed, cost = np.array([100.0, 80.0, 20.0, 10.0]), np.array([100.0, 20.0, 15.0, 10.0])
    assert knee(speed, cost) == 1
    assert knee(speed * 1000, cost / 7) == 1
    assert knee(np.array([100.0, 50.0, 30.0, 10.0]), np.array([100.0, 80.0, 20.0, 10.0])) == 2


def test_a_rough_score_is_taken_with_caution():
    score = Rough(100.0, 99.0, 101.0)
    assert cautious(score, "short") == (96.0, 104.0)  # runs too short to forget their start
    assert cautious(Rough(100.0, 90.0, 110.0), "short") == (80.0, 120.0)
    assert cautious(score, "trial") == (98.75, 101.25)
    assert cautious(score, "long") == (99.0, 101.0)
