"""The decision rule: which of the scored plans is recommended.

1. A plan's speed is log-normal around its prediction; its 90% range gives sigma. Errors of plans on one
   device are the same error; those of two devices are independent; the error of the simulation is a plan's
   own.
2. A plan is feasible if it meets the budget and the least throughput as predicted, and meets deadline and
   spend with probability `confidence`.
3. Expected cost per sample is price / speed * exp(sigma^2 / 2): what is uncertain costs more than its
   median.
4. First choice. A faster plan is worth its cost if its extra samples cost at most
   1 / `min_marginal_efficiency` times the lowest cost, or if it costs at most 1% more per sample. `balanced`
   starts from the lowest expected cost and moves to plans that are at least 5% faster and worth their cost.
   That is the plan with the highest net value: speed * (highest price worth paying per sample) - price.
   `cheapest` takes the lowest expected cost, and a plan 5% faster for at most 1% more; `fastest` the highest
   speed.
5. Substitutes. Better means more of what the objective maximizes: net value, low cost or speed. A plan may
   replace the first choice if it is less than 75% likely to be worse and less than 75% likely to cost more
   per sample, no plan is 75% likely to be better than it, it is worth its cost beside the cheapest plan, and
   it is not outdone: no plan of similar certainty is 5% faster for at most 1% more per sample, or 5% faster,
   90% likely to be faster and worth its cost.
6. Winner. Of the first choice and its substitutes the narrowest range wins, then the fewest machines if they
   are worth their cost beside the first choice.
7. Two plans are tied if neither is 75% likely to be better or cheaper per sample, nor 90% likely to be
   faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from planner.search.flag_values import MIN_MARGINAL_EFFICIENCY, Objective
from planner.search.scored import Candidate

Floats = npt.NDArray[np.float64]

LEAST_GAIN = 0.05  # in speed, of a step to a faster plan
NEGLIGIBLE_COST = 0.01  # per sample, for a plan that is faster by `LEAST_GAIN`
TIED_BELOW = 0.75  # probability of being better
SAME_WIDTH = 0.02  # by which two sigmas differ at most that count as equally certain
MUCH_WIDER = 0.1  # by which a sigma must be larger so that being faster and as cheap does not decide
TIED_SCORE = NormalDist().inv_cdf(TIED_BELOW)  # the same, in standard deviations
CLEARLY_FASTER = 0.90  # probability of being faster, from which on plans are not tied
CLEAR_SCORE = NormalDist().inv_cdf(CLEARLY_FASTER)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Indices of the recommended, cheapest, fastest and tied candidates."""

    recommended: int
    cheapest: int
    fastest: int
    tied: tuple[int, ...]


def rank(
    candidates: Sequence[Candidate],
    objective: Objective = "balanced",
    *,
    min_marginal_efficiency: float = MIN_MARGINAL_EFFICIENCY,
) -> Ranking:
    """Ranks candidates by the decision rule of this module; the first of equal plans wins."""
    plans = Contenders(candidates, objective, min_marginal_efficiency)
    choice = plans.choice()
    narrowest = plans.total_sigma[choice] - SAME_WIDTH
    tied = (i for i in plans.tied_with(choice) if plans.total_sigma[i] >= narrowest)
    return Ranking(choice, plans.cheapest, plans.fastest, tuple(i for i in tied if not plans.is_beaten(i)))


def worth_per_sample(
    objective: Objective, least_usd_per_sample: float, min_marginal_efficiency: float
) -> float:
    """Highest price in USD worth paying for one more sample."""
    return least_usd_per_sample / (min_marginal_efficiency if objective == "balanced" else 1.0)


class Contenders:
    """Candidates as arrays, with the values that the objective maximizes and pairwise z-scores."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        objective: Objective,
        min_marginal_efficiency: float,
        decided: int | None = None,
    ) -> None:
        """Builds the arrays. Only the first `decided` candidates may be the best, cheapest or fastest."""
        self.speed = np.array([plan.effective_samples_per_s for plan in candidates])
        self.usd_per_s = np.array([plan.usd_per_hour for plan in candidates]) / 3600
        self.sigma = np.array([plan.sigma for plan in candidates])
        self.total_sigma = np.array([plan.total_sigma for plan in candidates])
        self.machines = np.array([plan.machines for plan in candidates])
        names = {name: i for i, name in enumerate(dict.fromkeys(plan.device for plan in candidates))}
        self.device = np.array([names[plan.device] for plan in candidates])
        self.decided = len(candidates) if decided is None else decided
        cost = self.usd_per_s / self.speed
        self.cheapest = int(np.lexsort((-self.speed[: self.decided], cost[: self.decided]))[0])
        self.fastest = int(np.lexsort((cost[: self.decided], -self.speed[: self.decided]))[0])
        priced = bool(self.usd_per_s.any())
        self.objective: Objective = objective if priced else "fastest"
        self.cost = cost
        self.worth = worth_per_sample(self.objective, float(cost[self.cheapest]), min_marginal_efficiency)
        self.most_per_sample = float(cost[self.cheapest]) / min_marginal_efficiency  # of extra ones
        self.best = self.fastest if self.objective == "fastest" else self._climb_to_faster(self.cheapest)

        values = {
            "balanced": self.net_value,
            "cheapest": -np.log(np.maximum(cost, 1e-300)),
            "fastest": np.log(self.speed),
        }
        self.value = values[self.objective]  # what the objective maximises

    @property
    def net_value(self) -> Floats:
        """Value of each plan's samples minus its price, in USD per second."""
        return np.asarray(self.worth * self.speed - self.usd_per_s)

    def _climb_to_faster(self, start: int) -> int:
        """Moves to faster plans while extra samples are worth their price; returns the last index."""
        now, speed, usd_per_s = start, self.speed, self.usd_per_s
        while True:
            faster = np.flatnonzero(speed[: self.decided] >= speed[now] * (1 + LEAST_GAIN))
            gained, paid = speed[faster] - speed[now], usd_per_s[faster] - usd_per_s[now]
            cost = usd_per_s[faster] / speed[faster]
            limit = usd_per_s[now] / speed[now] * (1 + NEGLIGIBLE_COST)
            faster = faster[(paid <= self.worth * gained) | (cost <= limit)]
            if not len(faster):
                return now
            now = int(faster[np.lexsort((faster, -self.net_value[faster]))[0]])

    def choice(self) -> int:
        """Index of the recommended plan: the most certain of the best plan and those that win its tie."""
        substitutes = np.flatnonzero(self.may_replace(self.best)).tolist()
        return self.most_certain([self.best, *(i for i in substitutes if self.may_win_tie(i))])

    def score_better(self, other: int) -> Floats:
        """Z-score of each plan being better than `other`, to first order in speed errors."""
        shared, own, others = self._error_parts(other)
        amount = self.worth * self.speed if self.objective == "balanced" else np.ones(len(self.speed))
        deviation = np.sqrt(
            ((amount - amount[other]) * shared) ** 2 + (amount * own) ** 2 + (amount[other] * others) ** 2
        )
        return _z_scores(self.value - self.value[other], deviation)

    def score_faster(self, other: int) -> Floats:
        """Z-score of each plan being faster than `other`."""
        logs = np.log(self.speed)
        _, own, others = self._error_parts(other)
        return _z_scores(logs - logs[other], np.hypot(own, others))

    def score_cheaper(self, other: int) -> Floats:
        """Z-score of each plan being cheaper per sample than `other`; zero without prices."""
        if not self.usd_per_s.any():
            return np.zeros(len(self.speed))
        logs = np.log(self.speed / np.maximum(self.usd_per_s, 1e-300))
        _, own, others = self._error_parts(other)
        return _z_scores(logs - logs[other], np.hypot(own, others))

    def _error_parts(self, other: int) -> tuple[Floats, Floats, Floats]:
        """Deviations of log speed per pair with `other`: the shared part, the plan's rest, other's rest."""
        shared = np.where(self.device == self.device[other], np.minimum(self.sigma, self.sigma[other]), 0.0)
        rest = np.sqrt(np.maximum(self.total_sigma**2 - shared**2, 0.0))
        return shared, rest, np.sqrt(np.maximum(self.total_sigma[other] ** 2 - shared**2, 0.0))

    def tied_with(self, plan: int) -> list[int]:
        """Indices of plans whose value, cost per sample and speed do not differ clearly from this one's."""
        is_tied = np.abs(self.score_better(plan)) < TIED_SCORE
        is_tied &= np.abs(self.score_cheaper(plan)) < TIED_SCORE
        is_tied &= np.abs(self.score_faster(plan)) < CLEAR_SCORE
        is_tied[plan] = False
        return [int(i) for i in np.flatnonzero(is_tied)]

    def may_replace(self, plan: int) -> npt.NDArray[np.bool_]:
        """Mask of the plans that are not clearly worse than this one, and not clearly more expensive."""
        out = (self.score_better(plan) > -TIED_SCORE) & (self.score_cheaper(plan) > -TIED_SCORE)
        out[plan] = False
        return np.asarray(out)

    def possible_replacements(self, choice: int) -> list[int]:
        """Undecided plans that could replace the choice at their upper bounds, narrowest range first."""
        score = self.score_better(choice)
        better = set(np.flatnonzero(score >= TIED_SCORE).tolist() if choice != self.best else ())
        ruling_out = better.union(self.outdoing_plans(choice).tolist()) - set(range(self.decided))
        may_tie = self.may_replace(self.best)
        may_tie[: self.decided] = False
        plans = [int(i) for i in np.flatnonzero(may_tie) if self._may_win_at_bound(int(i), choice)]
        tying = sorted(
            plans, key=lambda i: (self.total_sigma[i] // SAME_WIDTH, self.machines[i], -self.value[i])
        )
        return list(dict.fromkeys([*sorted(ruling_out, key=lambda i: (-score[i], i)), *tying]))

    def _may_win_at_bound(self, plan: int, choice: int) -> bool:
        """Whether an undecided plan would win against the choice if it ran at its upper bound. A slower one
        is outdone by the same plans, and its extra samples cost more."""
        if not self.is_preferred(plan, choice) or not self.is_worth_its_cost(plan, self.cheapest):
            return False
        return bool((self.outdoing_plans(plan) >= self.decided).all())

    def may_win_tie(self, plan: int) -> bool:
        """Whether a tied plan is unbeaten, worth its cost and not outdone by another."""
        worth_it = self.is_worth_its_cost(plan, self.cheapest)
        return worth_it and not self.is_beaten(plan) and not len(self.outdoing_plans(plan))

    def is_worth_its_cost(self, plan: int, than: int) -> bool:
        """Whether the extra samples over another plan cost little enough."""
        if self.objective == "fastest":
            return True
        gained = max(self.speed[plan] - self.speed[than], 0.0)
        paid = self.usd_per_s[plan] - self.usd_per_s[than]
        limit = self.cost[than] * (1 + NEGLIGIBLE_COST)
        return bool(paid <= self.most_per_sample * gained or self.cost[plan] <= limit)

    def outdoing_plans(self, plan: int) -> npt.NDArray[np.intp]:
        """Indices of faster plans with similarly narrow ranges that cost no more or are worth it."""
        gained, paid = self.speed - self.speed[plan], self.usd_per_s - self.usd_per_s[plan]
        is_cheap = self.cost <= self.cost[plan] * (1 + NEGLIGIBLE_COST)
        is_worth_it = (paid <= self.worth * gained) | (self.objective == "fastest")
        is_worth_it &= self.score_faster(plan) >= CLEAR_SCORE
        is_sure = self.total_sigma <= self.total_sigma[plan] + MUCH_WIDER
        return np.flatnonzero((gained >= LEAST_GAIN * self.speed[plan]) & (is_cheap | is_worth_it) & is_sure)

    def is_beaten(self, plan: int) -> bool:
        """Whether another plan is significantly better."""
        return bool((self.score_better(plan) >= TIED_SCORE).any())

    def is_preferred(self, plan: int, other: int) -> bool:
        """Whether a plan wins a tie against `other` by a narrower range or fewer machines."""
        wider = self.total_sigma[plan] - self.total_sigma[other]
        return bool(
            wider < -SAME_WIDTH or (wider <= SAME_WIDTH and self.machines[plan] < self.machines[other])
        )

    def most_certain(self, plans: Sequence[int]) -> int:
        """Index of the plan with the narrowest range, then the fewest machines, then the best value."""
        narrowest = min(self.total_sigma[i] for i in plans)
        certain = [i for i in plans if self.total_sigma[i] <= narrowest + SAME_WIDTH]
        if self.best in certain:  # fewer machines alone are not worth paying more
            certain = [i for i in certain if self.is_worth_its_cost(i, self.best)]
        fewest = min(self.machines[i] for i in certain)
        left = [i for i in certain if self.machines[i] == fewest]
        return self.best if self.best in left else max(left, key=lambda i: (self.value[i], -i))


def _z_scores(difference: Floats, deviation: Floats) -> Floats:
    """Z-scores: each difference divided by its standard deviation; infinite without deviation."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.nan_to_num(difference / deviation, nan=0.0, posinf=np.inf, neginf=-np.inf))
