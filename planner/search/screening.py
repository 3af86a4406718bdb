"""Which plans are worth making: an exchange with dozens of options on a site is looked at where it can win.

Plans with one device and with all-reduce are few and are glanced at first. What they are sure to reach rules
out most of the others by a ceiling that costs next to nothing (`Exchange.ceiling`), before these are made: an
option that something already seen beats in both speed and cost a sample cannot be on the front.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.device.precision import Precision
from planner.hardware import Hardware
from planner.parallel.data import EXCHANGES, Exchange, Site
from planner.parallel.mesh import data_parallel_group
from planner.search.cases import Cases
from planner.search.race import ROUND, Frontier, turns
from planner.search.simulations import Simulations
from planner.search.space import Space, enumerate_plans, kinds, offered, plan_of
from planner.search.worth import staleness_discount

if TYPE_CHECKING:
    from planner.device.computation import Computation
    from planner.search.scored import ScoredPlan

ROUNDS = 6  # of plans that rule out others; those of them on the front are raced anyway
LOOK = 2  # plans of a first look
MANY_MACHINES = 8  # on which every option is there
ABOVE = 1.02  # a ceiling is raised by so much: durations vary, and are drawn anew for each exchange

Seen = Callable[[Sequence["ScoredPlan"]], None]


def nobody(scored: Sequence[ScoredPlan]) -> None:
    """For whoever does not ask."""


def screened_space(
    simulations: Simulations,
    pool: Executor,
    machines: tuple[Hardware, ...],
    seen: Seen = nobody,
) -> Space:
    """The plans of a request that may win; `seen` is told what looks best so far."""
    cases, request = simulations.cases, simulations.request
    asked = kinds(request)
    few = tuple(kind for kind in asked if not EXCHANGES[kind].many)
    if not few or len(few) == len(asked):
        return enumerate_plans(request, cases.model, machines=machines)
    space = enumerate_plans(request, cases.model, machines=machines, only=few)
    size = cases.model.parameters
    many = tuple(kind for kind in asked if EXCHANGES[kind].many and size <= EXCHANGES[kind].most_parameters)
    if not many:  # nothing is there to be ruled out: one look, for whoever waits
        _floors(space, simulations, pool, seen, rounds=1, each=LOOK)
        return space
    floors = _floors(space, simulations, pool, seen)
    hope = _Hope(cases, floors, many)
    space.add(enumerate_plans(request, cases.model, machines=machines, only=many, hope=hope))
    return space


def _floors(
    space: Space,
    simulations: Simulations,
    pool: Executor,
    seen: Seen,
    *,
    rounds: int = ROUNDS,
    each: int = ROUND,
) -> Frontier:
    """What the plans that look best by their bounds are sure to reach."""
    floors = Frontier("front", 0.0)
    if not space.plans:
        return floors
    cases, usd_per_s = simulations.cases, space.usd_per_useful_hour / 3600
    bounds = cases.bounds(space.plans)
    left = turns(bounds, usd_per_s)
    for _ in range(rounds):
        left = [i for i in left if not floors.dominates(bounds[i], usd_per_s[i] / bounds[i], i)]
        batch, left = left[:each], left[each:]
        scored = simulations.scored([space.plans[i] for i in batch], pool, "glance")
        for i, one in zip(batch, scored, strict=True):
            if (sure := one.prediction.samples_per_s_low) > 0:
                floors.add(sure, usd_per_s[i] / sure, i)
        seen(scored)
    return floors


class _Hope:
    """Whether an option may beat everything that was seen. A site that would lose whatever transfers took is
    given up without looking at its options."""

    def __init__(self, cases: Cases, floors: Frontier, kinds: tuple[str, ...]) -> None:
        self.cases = cases
        self.floors = floors
        self.kinds = kinds
        self.given_up = 0
        self._computations: dict[Hashable, Computation] = {}
        self._workers: dict[Hashable, tuple[float, float]] = {}
        self._counts: dict[Hashable, int] = {}
        self._prices: dict[str, float] = {}

    def at(self, site: Site, batch: int, precision: Precision) -> bool:
        """The best worker of any option, as often as there are workers, for the price of these alone."""
        if self._wins(self._best(site, batch, precision), self._usd_per_s(site)):
            return True
        count = (site.hardware.name, min(site.machines, MANY_MACHINES), site.mesh)
        if count not in self._counts:
            self._counts[count] = sum(
                1 for _ in offered(self.cases.request, site, self.cases.model, self.kinds)
            )
        self.given_up += self._counts[count]
        return False

    def of(self, site: Site, exchange: Exchange, batch: int, precision: Precision) -> bool:
        best, usd_per_s = self._best(site, batch, precision), self._usd_per_s(site, exchange)
        kept = self._wins(best, usd_per_s)  # as long as nothing but the price of its machines is known
        if kept:
            computation = self._computation(site, exchange, batch, precision)
            worth = staleness_discount(exchange, site.replicas, self.cases.request)
            kept = self._wins(exchange.ceiling(computation, data_parallel_group(site)) * worth, usd_per_s)
        self.given_up += not kept
        return kept

    def _wins(self, ceiling: float, usd_per_s: float) -> bool:
        if ceiling in (0.0, math.inf):  # no option at all, or none of which anything is known
            return ceiling > 0
        raised = ceiling * (ABOVE + self.cases.request.interval_width)
        return not self.floors.dominates(raised, usd_per_s / raised, -1)

    def _best(self, site: Site, batch: int, precision: Precision) -> float:
        """What any option is worth at most."""
        where = (site.hardware.name, batch, precision, site.mesh)
        if where not in self._workers:
            self._workers[where] = self._worker(site, batch, precision)
        one, many = self._workers[where]
        return (one if site.replicas == 1 else many) * site.workers

    def _worker(self, site: Site, batch: int, precision: Precision) -> tuple[float, float]:
        """Samples a second of one worker at most, of one replica and as one of many is worth; on many
        machines, which have all options."""
        wide = replace(site, workers=MANY_MACHINES * site.devices * site.mesh.size)
        rates = [
            (rate, rate * staleness_discount(one, wide.replicas, self.cases.request))
            for one in offered(self.cases.request, wide, self.cases.model, self.kinds)
            for rate in [
                one.ceiling(
                    self._computation(site, one, batch, precision), data_parallel_group(wide), links=False
                )
            ]
        ]
        if not rates:
            return 0.0, 0.0
        return max(rate for rate, _ in rates) / wide.workers, max(rate for _, rate in rates) / wide.workers

    def _usd_per_s(self, site: Site, exchange: Exchange | None = None) -> float:
        """At least, whatever interruptions cost."""
        more = () if exchange is None else exchange.rented(site)
        usd_per_hour = self._price(site.hardware.name) * site.machines
        return (usd_per_hour + sum(self._price(one.machine) * one.count for one in more)) / 3600

    def _price(self, machine: str) -> float:
        if machine not in self._prices:
            market = self.cases.market
            self._prices[machine] = market.usd_per_hour(market.machine(machine)) or 0.0
        return self._prices[machine]

    def _computation(self, site: Site, exchange: Exchange, batch: int, precision: Precision) -> Computation:
        """With nothing computed again, which is the fastest."""
        where = (site.hardware.name, batch, precision, site.replicas)
        if where not in self._computations:
            plan = plan_of(self.cases.model, batch, site, exchange, self.cases.request, precision=precision)
            self._computations[where] = self.cases.computation(plan)
        return self._computations[where]
