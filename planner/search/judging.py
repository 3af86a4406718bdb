"""Whether a plan of the space may be run: memory, the batch, machines that there are, the budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from planner.hardware.market import Market
from planner.hardware.prices.paying import Paid, paid_for
from planner.parallel.data import Rented
from planner.parallel.plan import Plan
from planner.search.fitting import Fitting
from planner.search.request import Request


class Drop(StrEnum):
    """Why a plan of the space is not to be run, beside memory, as it is said after `plans`."""

    OVER_BUDGET = "over the budget"
    UNDEALT = "whose batches are no divisors of the global batch"
    OVER_OWN = "over the machines there are"
    OVER_MACHINES = "over the number of machines"


def judged(plan: Plan, request: Request, fitting: Fitting) -> tuple[str | None, Paid]:
    """Why a plan of the space is not to be run, None if it is, and what it costs an hour."""
    market = request.market
    rented = plan.rented(market)
    price = paid_for(rented, market, request.spot_terms, fitting.state_bytes)
    step = plan.batch * plan.accumulate * plan.replicas
    if request.global_batch is not None and step != request.global_batch:
        return Drop.UNDEALT, price
    if misfit := fitting.misfit(plan):
        return misfit.short, price
    if not owned(rented, market):
        return Drop.OVER_OWN, price
    if request.machines is not None and sum(one.count for one in rented) > request.machines:
        return Drop.OVER_MACHINES, price
    if request.budget_usd_per_hour is not None and sum(price.usd_per_hour) > request.budget_usd_per_hour:
        return Drop.OVER_BUDGET, price
    return None, price


def owned(rented: Iterable[Rented], market: Market) -> bool:
    """Are there as many machines of one's own as these?"""
    used: Counter[str] = Counter()
    for one in rented:
        used[one.machine] += one.count
    for name, count in used.items():
        own = market.machine(name).ownership
        if own is not None and own.machines is not None and count > own.machines:
            return False
    return True
