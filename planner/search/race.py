"""Branch and bound over plans with noisy scores, by rungs of successive halving.

Every plan has an upper bound on throughput, hence a lower bound on cost per sample. A plan is pruned when one
already scored is at least as fast as its bound for no more than its least cost: it could not enter the front
whatever the simulator said. Plans are scored in the order of their bounds in rounds of a fixed size, so that
the result does not depend on the number of threads.

The first rung (`planner.search.simulations.RUNGS`) gives every plan that its bound does not exclude a rough
interval. A plan goes on while its interval, widened for safety, reaches the front. From the second rung on
the most promising plans go first, in small rounds, since their scores prune the others.

A plan dominates another if it is at least as fast and costs no more per sample; the front holds the
non-dominated plans.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from planner.search.simulations import Rung, cautious_interval

if TYPE_CHECKING:
    from planner.simulator.statistics import Prediction

Floats = npt.NDArray[np.float64]
Goal = Literal["front", "cheapest", "balanced", "fastest"]
ROUND = 16  # plans scored before bounds are looked at again; fixed, whatever the number of threads
LONG_ROUND = 4  # likewise where a plan takes long
ALL_RUNGS: tuple[Rung, ...] = ("glance", "short", "trial", "half", "long")
NEAR_FASTEST = 0.02  # "fastest" means the cheapest of the plans within this of the highest throughput

Evaluate = Callable[[Sequence[int], Rung], Sequence["Prediction"]]
Progress = Callable[[int, int, int], None]  # rung (from 1), plans scored in it, plans left in it


@dataclass(slots=True)
class Outcome:
    """Last score of each plan; `long` holds plans whose score is final."""

    scores: dict[int, Prediction] = field(default_factory=dict)
    long: set[int] = field(default_factory=set)
    pruned_by_bound: int = 0
    partial: bool = False  # interrupted: what is here is right, but not all was looked at


class Frontier:
    """Pareto front of scored plans in throughput and cost per sample."""

    def __init__(self, goal: Goal, tolerance: float, worth_usd_per_sample: float = 0.0) -> None:
        self.goal = goal
        self._tolerance = tolerance
        self._worth = worth_usd_per_sample
        self._points: list[tuple[float, float, int]] = []  # descending throughput, descending cost

    def add(self, samples_per_s: float, usd_per_sample: float, plan: int) -> None:
        """Adds a scored plan unless another dominates it, and removes the plans that it dominates."""
        if not any(speed >= samples_per_s and cost <= usd_per_sample for speed, cost, _ in self._points):
            kept = [p for p in self._points if not (p[0] <= samples_per_s and p[1] >= usd_per_sample)]
            self._points = sorted([*kept, (samples_per_s, usd_per_sample, plan)], reverse=True)

    def dominates(self, samples_per_s: float, usd_per_sample: float, plan: int) -> bool:
        """Whether a plan cannot win: another is as fast and as cheap, or is better for the goal."""
        others = [point for point in self._points if point[2] != plan]
        limit = usd_per_sample * (1 + self._tolerance)
        if others and self.goal == "cheapest" and min(cost for _, cost, _ in others) < limit:
            return True
        if others and self.goal == "fastest" and samples_per_s < others[0][0] * (1 - NEAR_FASTEST):
            return True
        if others and self.goal == "balanced":
            best = max(speed * (self._worth - cost) for speed, cost, _ in others)
            if samples_per_s * (self._worth - usd_per_sample) < best:
                return True
        slack = 1 + self._tolerance
        return any(
            speed * slack >= samples_per_s and cost <= usd_per_sample * slack and other != plan
            for speed, cost, other in self._points
        )


@dataclass
class Race:
    """Scores every plan that can be on the front of throughput and cost per sample.

    A narrower `goal` asks for its cheapest, fastest or best-value plan alone. Plans that improve on another
    by less than `tolerance` are skipped. `worth` are ranking factors of throughput, `least_samples_per_s` the
    minimum feasible speeds, `worth_usd_per_sample` the value of a sample for the goal "balanced". `known` are
    final scores that prune from the start; `only` restricts the plans."""

    bound_samples_per_s: Floats
    usd_per_hour: Floats
    evaluate: Evaluate
    _: KW_ONLY
    goal: Goal = "front"
    tolerance: float = 0.0
    worth: Floats | float = 1.0
    ladder: Sequence[Rung] = ALL_RUNGS
    known: Mapping[int, Prediction] = field(default_factory=dict)
    only: Container[int] | None = None
    least_samples_per_s: Floats | float = 0.0
    worth_usd_per_sample: float = 0.0
    progress: Progress = lambda rung, scored, left: None
    outcome: Outcome = field(default_factory=Outcome, init=False)

    def __post_init__(self) -> None:
        self.usd_per_s = self.usd_per_hour / 3600
        self.factor = np.broadcast_to(self.worth, self.usd_per_s.shape)
        self.least = np.broadcast_to(self.least_samples_per_s, self.usd_per_s.shape)

    def run(self, *, rungs: bool = True, round_size: int = ROUND) -> Outcome:
        """Simulates plans ever longer, dropping those that cannot win; without `rungs`, once in full."""
        bound = self.bound_samples_per_s * self.factor
        order = [
            i
            for i in alternating_order(bound, self.usd_per_s, self.goal)
            if (self.only is None or i in self.only) and bound[i] >= self.least[i]
        ]
        try:
            if not rungs:
                self.run_rung("long", order, bound, round_size)
                return self.outcome
            entrants = self.run_rung(self.ladder[0], order, bound, round_size)
            bounded = self.outcome.pruned_by_bound
            for last, rung in pairwise(self.ladder):
                ceiling = self.narrow_bounds(entrants, bound, last)
                entrants = self.run_rung(rung, self.survivors(entrants, ceiling, last), ceiling, LONG_ROUND)
            self.outcome.pruned_by_bound = bounded
        except KeyboardInterrupt:
            self.outcome.partial = True
        return self.outcome

    def _empty_frontier(self, tolerance: float = 0.0) -> Frontier:
        """New front without plans, for this race's goal."""
        return Frontier(self.goal, tolerance, self.worth_usd_per_sample)

    def run_rung(self, rung: Rung, order: Sequence[int], ceiling: Floats, round_size: int) -> list[int]:
        """Scores the plans that are not dominated, in this order; returns the indices of those scored."""
        frontier, done, left = self._empty_frontier(self.tolerance), list[int](), list(order)
        for i, score in self.known.items():
            self._add(frontier, score.samples_per_s, i)
        while left:
            alive = [i for i in left if not frontier.dominates(ceiling[i], self.usd_per_s[i] / ceiling[i], i)]
            self.outcome.pruned_by_bound += len(left) - len(alive)
            batch, left = alive[:round_size], alive[round_size:]
            for i, score in zip(batch, self.evaluate(batch, rung), strict=True):
                self.outcome.scores[i] = score
                if rung in ("long", self.ladder[-1]):
                    self.outcome.long.add(i)
                self._add(frontier, score.samples_per_s if rung == "long" else score.samples_per_s_low, i)
            done += batch
            self.progress(self.ladder.index(rung) + 1 if rung in self.ladder else 1, len(done), len(left))
        return done

    def _add(self, frontier: Frontier, samples_per_s: float, plan: int) -> None:
        """Adds a plan to the frontier if its discounted speed reaches the plan's minimum."""
        sure = samples_per_s * self.factor[plan]
        if sure > 0 and sure >= self.least[plan]:
            frontier.add(sure, self.usd_per_s[plan] / sure, plan)

    def narrow_bounds(self, entrants: Sequence[int], bound: Floats, rung: Rung) -> Floats:
        """Upper bound of each plan in samples per second, at most the high end of its widened interval."""
        ceiling = bound.copy()
        for i in entrants:
            ceiling[i] = min(ceiling[i], cautious_interval(self.outcome.scores[i], rung)[1] * self.factor[i])
        return ceiling

    def survivors(self, entrants: Sequence[int], ceiling: Floats, rung: Rung) -> list[int]:
        """Plans whose widened interval reaches the frontier, the most promising first. No tolerance applies:
        two close plans would rule each other out."""
        floors = self._empty_frontier()
        for i in entrants:
            self._add(floors, cautious_interval(self.outcome.scores[i], rung)[0], i)
        entrants = [i for i in entrants if ceiling[i] >= self.least[i]]
        reach = [i for i in entrants if not floors.dominates(ceiling[i], self.usd_per_s[i] / ceiling[i], i)]
        return self.sort_by_promise(sorted(reach))

    def sort_by_promise(self, plans: Sequence[int]) -> list[int]:
        """Plans sorted: those on the current speed-cost frontier first, then the others by cost."""
        speed = np.array([self.outcome.scores[i].samples_per_s * self.factor[i] for i in plans])
        if not (speed > 0).all():  # a rough run in which no step ended
            return list(plans)
        cost = self.usd_per_s[list(plans)] / speed
        first = pareto_front(speed, cost)
        if self.goal == "cheapest":
            first.reverse()
        return [plans[at] for at in dict.fromkeys([*first, *np.argsort(cost, kind="stable").tolist()])]


def alternating_order(ceiling: Floats, usd_per_s: Floats, goal: Goal = "front") -> list[int]:
    """Indices of plans, best first for the goal; for the front, fastest and cheapest in turn."""
    index, cost = np.arange(len(ceiling)), usd_per_s / ceiling
    fastest = np.lexsort((index, cost, -ceiling)).tolist()
    cheapest = np.lexsort((index, -ceiling, cost)).tolist()
    if goal != "front":
        return list(fastest if goal == "fastest" else cheapest)
    return list(dict.fromkeys(i for pair in zip(fastest, cheapest, strict=True) for i in pair))


def pareto_front(samples_per_s: Floats, usd_per_sample: Floats) -> list[int]:
    """Indices of non-dominated plans, fastest first; the first of equal plans is kept."""
    order = np.lexsort((np.arange(len(samples_per_s)), usd_per_sample, -samples_per_s))
    out: list[int] = []
    cheapest = np.inf
    for i in order.tolist():
        if usd_per_sample[i] < cheapest:
            out.append(i)
            cheapest = usd_per_sample[i]
    return out
