"""Screening: rule out contenders by cheap upper bounds before their plans are made.

Baselines are few and are simulated briefly first. An option of a contender, such as one of dozens of
placements of parameter servers, cannot be on the front if a scored plan beats its ceiling (`Entry.ceiling`)
in both speed and cost per sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.device.precision import Precision
from planner.hardware import Hardware
from planner.parallel.data import EXCHANGES, Exchange, Site, Tier
from planner.parallel.data.single import Alone
from planner.parallel.mesh import WHOLE, data_parallel_group
from planner.search.cases import Cases
from planner.search.objectives import staleness_discount
from planner.search.race import ROUND, Frontier, alternating_order
from planner.search.simulations import Simulations
from planner.search.sizes import allowed_strategies, plan_of
from planner.search.space import Space, enumerate_plans, is_considered, site_of, usual_strategies

if TYPE_CHECKING:
    from planner.device.computation import Computation
    from planner.search.scored import ScoredPlan

ROUNDS = 6  # of plans that rule out others; those of them on the front are raced anyway
LOOK = 2  # plans of a first look
MANY_MACHINES = 8  # on which every option is there
ABOVE = 1.02  # a ceiling is raised by so much: durations vary, and are drawn anew for each exchange

OnImprovement = Callable[[Sequence["ScoredPlan"]], None]


def ignore_progress(scored: Sequence[ScoredPlan]) -> None:
    """No-op progress callback."""


def screened_space(
    simulations: Simulations,
    machines: tuple[Hardware, ...],
    on_improvement: OnImprovement = ignore_progress,
) -> Space:
    """Space of the plans that may win; `on_improvement` receives the plans scored so far."""
    cases, request = simulations.cases, simulations.request
    asked = allowed_strategies(request)
    few = tuple(kind for kind in asked if EXCHANGES.entry(kind).tier is not Tier.CONTENDER)
    if not few or len(few) == len(asked):
        return enumerate_plans(request, cases.model, machines=machines)
    space = enumerate_plans(request, cases.model, machines=machines, only=few)
    contenders = tuple(kind for kind in asked if kind not in few)
    small = [site_of(request, machine, max(machine.device_count, 2)) for machine in machines]
    if not any(
        is_considered(request, kind, site, cases.model, asked) for kind in contenders for site in small
    ):
        _baseline_front(space, simulations, on_improvement, rounds=1, each=LOOK)  # for whoever waits
        return space
    pruner = BoundPruner(cases, _baseline_front(space, simulations, on_improvement), contenders)
    space.add(enumerate_plans(request, cases.model, machines=machines, only=contenders, pruner=pruner))
    return space


def _baseline_front(
    space: Space,
    simulations: Simulations,
    on_improvement: OnImprovement,
    *,
    rounds: int = ROUNDS,
    each: int = ROUND,
) -> Frontier:
    """Simulates the most promising baselines; returns the frontier of the low ends of their intervals."""
    floors = Frontier("front", 0.0)
    if not space.plans:
        return floors
    cases, usd_per_s = simulations.cases, space.usd_per_useful_hour / 3600
    bounds = cases.bounds(space.plans)
    left = alternating_order(bounds, usd_per_s)
    for _ in range(rounds):
        left = [i for i in left if not floors.dominates(bounds[i], usd_per_s[i] / bounds[i], i)]
        batch, left = left[:each], left[each:]
        scored = simulations.score_plans([space.plans[i] for i in batch], "glance")
        for i, entry in zip(batch, scored, strict=True):
            if (sure := entry.prediction.samples_per_s_low) > 0:
                floors.add(sure, usd_per_s[i] / sure, i)
        on_improvement(scored)
    return floors


class BoundPruner:
    """Rejects sites and options if a scored plan beats their upper bound in speed and cost per sample.
    Machines that would lose if they did nothing but compute count as one rejection, as their options are not
    even listed; a site that would lose whatever its transfers took counts as all its options."""

    def __init__(self, cases: Cases, floors: Frontier, contenders: tuple[str, ...]) -> None:
        self.cases = cases
        self.floors = floors
        self.contenders = contenders
        self.asked = allowed_strategies(cases.request)
        self.pruned = 0
        self._computations: dict[Hashable, Computation] = {}
        self._workers: dict[Hashable, tuple[float, float]] = {}
        self._counts: dict[Hashable, int] = {}

    def machines_may_win(self, site: Site, batch: int, precision: Precision) -> bool:
        """Whether the machines could win if they computed without any communication."""
        computation = self._computation(replace(site, mesh=WHOLE), batch, precision)
        rate = site.workers * computation.batch / float(computation.durations_s.sum(axis=1).mean())
        kept = self._may_win(rate, self._usd_per_s(site))
        self.pruned += not kept
        return kept

    def site_may_win(self, site: Site, batch: int, precision: Precision) -> bool:
        """Whether the best option of a site could win at the site's price."""
        if not any(self._is_considered(kind, site) for kind in self.contenders):
            return True  # nothing is offered here
        if self._may_win(self._best_ceiling(site, batch, precision), self._usd_per_s(site)):
            return True
        count = (site.hardware.name, min(site.machines, MANY_MACHINES), site.mesh)
        if count not in self._counts:
            self._counts[count] = sum(1 for _ in self._contender_options(site))
        self.pruned += self._counts[count]
        return False

    def option_may_win(self, site: Site, exchange: Exchange, batch: int, precision: Precision) -> bool:
        """Whether a strategy on a site could win at the price of its machines."""
        best, usd_per_s = self._best_ceiling(site, batch, precision), self._usd_per_s(site, exchange)
        kept = self._may_win(best, usd_per_s)  # as long as nothing but the price of its machines is known
        if kept and (ceiling := EXCHANGES.ceiling(exchange)) is not None:
            computation = self._computation(site, batch, precision)
            worth = staleness_discount(exchange, site.replicas, self.cases.request)
            kept = self._may_win(ceiling(exchange, computation, data_parallel_group(site)) * worth, usd_per_s)
        self.pruned += not kept
        return kept

    def _is_considered(self, kind: str, site: Site) -> bool:
        """Whether the search tries a strategy on a site."""
        return is_considered(self.cases.request, kind, site, self.cases.model, self.asked)

    def _contender_options(self, site: Site) -> Iterator[Exchange]:
        """Yields the contender strategies that the search tries on a site."""
        return usual_strategies(self.cases.request, site, self.cases.model, self.contenders, self.asked)

    def _may_win(self, ceiling: float, usd_per_s: float) -> bool:
        """Whether no scored plan dominates a throughput of `ceiling` samples per second at this price."""
        if ceiling in (0.0, math.inf):  # no option at all, or none of which anything is known
            return ceiling > 0
        raised = ceiling * (ABOVE + self.cases.request.interval_width)
        return not self.floors.dominates(raised, usd_per_s / raised, -1)

    def _best_ceiling(self, site: Site, batch: int, precision: Precision) -> float:
        """Upper bound on the discounted samples per second of any option on a site."""
        where = (site.hardware.name, batch, precision, site.mesh)
        if where not in self._workers:
            self._workers[where] = self._worker_ceilings(site, batch, precision)
        first, several = self._workers[where]
        return (first if site.replicas == 1 else several) * site.workers

    def _worker_ceilings(self, site: Site, batch: int, precision: Precision) -> tuple[float, float]:
        """Upper bounds on one worker's samples per second, without and with the discount for staleness."""
        wide = replace(site, workers=MANY_MACHINES * site.devices * site.mesh.size)
        computation, where = self._computation(site, batch, precision), data_parallel_group(wide)
        rates = []
        for option in self._contender_options(wide):
            if (ceiling := EXCHANGES.ceiling(option)) is None:
                return math.inf, math.inf
            rate = ceiling(option, computation, where, links=False)
            rates.append((rate, rate * staleness_discount(option, wide.replicas, self.cases.request)))
        if not rates:
            return 0.0, 0.0
        return max(rate for rate, _ in rates) / wide.workers, max(rate for _, rate in rates) / wide.workers

    def _usd_per_s(self, site: Site, exchange: Exchange | None = None) -> float:
        """Least price of a site in USD per second, without spot interruptions."""
        market, more = self.cases.market, () if exchange is None else exchange.rented(site)
        counts = [(site.hardware.name, site.machines), *((entry.machine, entry.count) for entry in more)]
        prices = ((market.usd_per_hour(market.find_machine(name)) or 0.0) * count for name, count in counts)
        return sum(prices) / 3600

    def _computation(self, site: Site, batch: int, precision: Precision) -> Computation:
        """The site's computation without recompute, which is the fastest."""
        where = (site.hardware.name, batch, precision, site.replicas, site.mesh)
        if where not in self._computations:
            plan = plan_of(self.cases.model, batch, site, Alone(), self.cases.request, precision=precision)
            self._computations[where] = self.cases.computation(plan)
        return self._computations[where]
