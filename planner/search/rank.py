"""The decision rule: which of the scored plans is recommended.

1. A plan's speed is log-normal around its prediction; its 90% range gives sigma. Errors of plans on one
device are
   the same error; those of two devices are independent; the error of the simulation is a plan's own.
2. A plan is feasible if it meets the budget, and meets deadline, spend and least throughput with probability
   `confidence`.
3. Expected cost per sample is price / speed * exp(sigma^2 / 2): what is uncertain costs more than its median.
4. `balanced` starts from the lowest expected cost per sample and moves to a faster plan while the step gains
at
   least 5% and its extra samples cost at most 1 / `min_marginal_efficiency` times the lowest cost (or the
   plan costs at most 1% more per sample). That is the plan with the highest net value: speed * (highest price
   worth paying per sample) - price. 5. `cheapest` takes the lowest expected cost, and a plan 5% faster for at
   most 1% more; `fastest` the highest speed. 6. A plan is tied with another if neither is better, by what the
   objective maximises, with 75% probability, and it is neither slower nor more expensive per sample with that
   probability. Of the plans tied with the choice the one with the narrowest range wins, then the one with the
   fewest machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from planner.search.limits import CONFIDENCE, MIN_MARGINAL_EFFICIENCY, Objective

Floats = npt.NDArray[np.float64]

LEAST_GAIN = 0.05  # in speed, of a step to a faster plan
NEGLIGIBLE_COST = 0.01  # per sample, for a plan that is faster by `LEAST_GAIN`
TIED_BELOW = 0.75  # probability of being better
SAME_WIDTH = 0.02  # by which two sigmas differ at most that count as equally certain
RANGE_SIGMAS = NormalDist().inv_cdf(0.95)  # half a 90% range, in standard deviations
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A feasible plan as the rule sees it. `sigma` is the error shared by all plans on `device`, `own_sigma`
    that of the simulation, both of the logarithm of the speed."""

    device: str
    samples_per_s: float
    usd_per_hour: float
    sigma: float = 0.0
    own_sigma: float = 0.0
    machines: int = 1

    @property
    def total_sigma(self) -> float:
        return float(np.hypot(self.sigma, self.own_sigma))

    @property
    def effective_samples_per_s(self) -> float:
        """The inverse of the expected time per sample."""
        return self.samples_per_s * exp(-(self.total_sigma**2) / 2)

    @property
    def expected_usd_per_sample(self) -> float:
        return self.usd_per_hour / 3600 / self.effective_samples_per_s


@dataclass(frozen=True, slots=True)
class Ranking:
    """Indices of candidates: what is recommended, the two ends, and what is tied with the recommendation."""

    recommended: int
    cheapest: int
    fastest: int
    tied: tuple[int, ...]


def confident_share(sigma: float, confidence: float = CONFIDENCE) -> float:
    """The share of its predicted speed that a plan reaches with this probability."""
    return exp(-sigma * NormalDist().inv_cdf(confidence))


def probability_of_reaching(samples_per_s: float, predicted: float, sigma: float) -> float:
    """Probability that a plan predicted at one speed runs at least at another."""
    if sigma <= 0:
        return 1.0 if predicted >= samples_per_s else 0.0
    return NormalDist().cdf(log(predicted / samples_per_s) / sigma) if samples_per_s > 0 else 1.0


def rank(
    candidates: Sequence[Candidate],
    objective: Objective = "balanced",
    *,
    min_marginal_efficiency: float = MIN_MARGINAL_EFFICIENCY,
) -> Ranking:
    """The recommendation among feasible plans, by the rule above; ties of equal plans go to the earlier
    one."""
    speed = np.array([candidate.effective_samples_per_s for candidate in candidates])
    usd_per_s = np.array([candidate.usd_per_hour for candidate in candidates]) / 3600
    cost = usd_per_s / speed
    cheapest = int(np.lexsort((-speed, cost))[0])
    fastest = int(np.lexsort((cost, -speed))[0])
    worth = worth_per_sample(objective, float(cost[cheapest]), min_marginal_efficiency)
    if objective == "fastest" or not usd_per_s.any():
        best, worth = fastest, inf
    else:
        best = _climb(cheapest, speed, usd_per_s, worth)
    tied = tied_with(best, candidates, worth)
    choice = _most_certain(best, tied, candidates, worth)
    if choice != best:
        tied = tied_with(choice, candidates, worth)
    return Ranking(choice, cheapest, fastest, tuple(tied))


def worth_per_sample(
    objective: Objective, least_usd_per_sample: float, min_marginal_efficiency: float
) -> float:
    """The highest price in USD worth paying for one more sample."""
    if objective == "fastest":
        return inf
    return least_usd_per_sample / (min_marginal_efficiency if objective == "balanced" else 1.0)


def _climb(start: int, speed: Floats, usd_per_s: Floats, worth: float) -> int:
    """From the cheapest plan to faster ones, as long as a step gains enough and its samples are worth it."""
    now = start
    while True:
        faster = np.flatnonzero(speed >= speed[now] * (1 + LEAST_GAIN))
        gained, paid = speed[faster] - speed[now], usd_per_s[faster] - usd_per_s[now]
        cost = usd_per_s[faster] / speed[faster]
        allowed = (paid <= worth * gained) | (cost <= usd_per_s[now] / speed[now] * (1 + NEGLIGIBLE_COST))
        faster = faster[allowed]
        if not len(faster):
            return now
        net_value = worth * speed[faster] - usd_per_s[faster]
        now = int(faster[np.lexsort((faster, -net_value))[0]])


def tied_with(best: int, candidates: Sequence[Candidate], worth: float) -> list[int]:
    """Candidates that are tied with the one at `best`."""
    chosen = candidates[best]
    return [i for i, other in enumerate(candidates) if i != best and is_tied(other, chosen, worth)]


def is_tied(other: Candidate, chosen: Candidate, worth: float) -> bool:
    """Whether a plan is neither clearly better nor clearly worse than the choice, and gives up neither speed
    nor money for certain."""
    faster = probability_faster(other, chosen)
    if faster <= 1 - TIED_BELOW or (worth == inf and faster >= TIED_BELOW):
        return False
    if probability_cheaper(other, chosen) <= 1 - TIED_BELOW:
        return False
    return worth == inf or 1 - TIED_BELOW < probability_better(other, chosen, worth) < TIED_BELOW


def may_be_tied(bound: Candidate, chosen: Candidate, worth: float) -> bool:
    """Whether a plan of which only an upper bound of its speed is known may be tied with the choice."""
    return (
        probability_faster(bound, chosen) > 1 - TIED_BELOW
        and probability_cheaper(bound, chosen) > 1 - TIED_BELOW
        and probability_better(bound, chosen, worth) > 1 - TIED_BELOW
    )


def probability_faster(first: Candidate, other: Candidate) -> float:
    """Probability that the first has the higher throughput."""
    return _normal(log(first.samples_per_s / other.samples_per_s), _difference_sigma(first, other))


def probability_cheaper(first: Candidate, other: Candidate) -> float:
    """Probability that the first costs less per sample; plans without a price cost alike."""
    if first.usd_per_hour <= 0 or other.usd_per_hour <= 0:
        return 0.5
    prices = log(other.usd_per_hour / first.usd_per_hour)
    gain = log(first.samples_per_s / other.samples_per_s)
    return _normal(gain + prices, _difference_sigma(first, other))


def _difference_sigma(first: Candidate, other: Candidate) -> float:
    """Standard deviation of the difference of the logarithms of two speeds; one device's error cancels."""
    shared = min(first.sigma, other.sigma) if first.device == other.device else 0.0
    return float(np.hypot(_rest(first, shared), _rest(other, shared)))


def _most_certain(best: int, tied: Sequence[int], candidates: Sequence[Candidate], worth: float) -> int:
    """The plan with the narrowest range among those tied, then with the fewest machines; as often as another
    one that is tied with the result is narrower still."""
    choice = best
    while True:
        narrower = [i for i in tied if _more_certain(candidates[i], candidates[choice])]
        if not narrower:
            return choice
        choice = min(narrower, key=lambda i: (candidates[i].total_sigma, candidates[i].machines, i))
        tied = tied_with(choice, candidates, worth)


def _more_certain(first: Candidate, other: Candidate) -> bool:
    difference = first.total_sigma - other.total_sigma
    if abs(difference) > SAME_WIDTH:
        return difference < 0
    return first.device == other.device and first.machines < other.machines


def probability_better(first: Candidate, other: Candidate, worth: float) -> float:
    """Probability that the first has the higher net value (speed where `worth` is infinite).

    Of one device the shared error is integrated out and the rest is the simulations' own; of two devices the
    error of the second is. The inner probability is the normal distribution's.
    """
    same = first.device == other.device
    shared = min(first.sigma, other.sigma) if same else 0.0
    own = _rest(first, shared)
    second = _rest(other, shared)
    if worth == inf:
        return probability_faster(first, other)
    total = 0.0
    for node, weight in zip(_NODES, _WEIGHTS, strict=True) if shared else ((0.0, 1.0),):
        common = exp(shared * node)
        for inner, share in zip(_NODES, _WEIGHTS, strict=True) if second else ((0.0, 1.0),):
            rival = worth * other.samples_per_s * common * exp(second * inner)
            needed = rival + (first.usd_per_hour - other.usd_per_hour) / 3600
            reached = worth * first.samples_per_s * common
            p = 1.0 if needed <= 0 else _normal(log(reached / needed), own)
            total += weight * share * p
    return float(total)


def _rest(candidate: Candidate, shared: float) -> float:
    """What is left of a candidate's sigma once the shared part is taken out."""
    return float(np.sqrt(max(candidate.total_sigma**2 - shared**2, 0.0)))


def _normal(distance: float, sigma: float) -> float:
    if sigma <= 0:
        return 0.5 if distance == 0 else float(distance > 0)
    return NormalDist().cdf(distance / sigma)
