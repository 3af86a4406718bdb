"""The smallest plan of its kind that can be run: where questions about more and more workers begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.errors import BadInput
from planner.exchange import Sharded
from planner.market import Market
from planner.note import Note, Topic
from planner.plan import Plan
from planner.recompute import CHECKPOINTING
from planner.search.cases import Cases
from planner.search.limits import MOST_WORKERS
from planner.search.request import Request

LARGEST = 1024  # workers that nobody named


def fewest_workers(plan: Plan, market: Market) -> Plan:
    """The plan with as many more workers as its exchange needs: servers beside workers need machines."""
    step = max(1, plan.cut.workers)
    for more in range(0, MOST_WORKERS, step):
        enough = replace(plan, workers=plan.workers + more)
        if not enough.exchange.refusal(enough.site(market)):
            return enough
    return plan


def fewest_that_hold(plan: Plan, cases: Cases, plan_for: Callable[[Request], Plan]) -> Plan:
    """The plan, or where its workers cannot hold the model and nobody named how many: that of the fewest
    machines that can, with as little computed again as they need. Where no exchange is named either, a model
    that no single device holds is sharded. `plan_for` gives the plan of a request."""
    request, market = cases.request, cases.market
    if request.workers is not None or cases.fitting.misfit(fewest_workers(plan, market)) is None:
        return plan
    for asked in _larger(plan, request):
        try:
            tried = plan_for(asked)
        except BadInput:  # a global batch that so many do not share, degrees that do not fit
            continue
        if cases.fitting.misfit(fewest_workers(tried, market)) is None:
            return tried
    return plan


def _larger(plan: Plan, request: Request) -> Iterator[Request]:
    """Fewer workers first, then plain exchanges, then little that is computed again."""
    exchanges = [request.exchanges]
    if request.exchanges is None and plan.exchange.plain:
        exchanges.append(((Sharded.kind, {}),))
    workers = plan.workers
    while workers <= LARGEST:
        for exchange in exchanges:
            for again in request.checkpointing or CHECKPOINTING:
                yield replace(request, workers=(workers,), exchanges=exchange, checkpointing=(again,))
        workers = plan.workers_per_machine if workers < plan.workers_per_machine else 2 * workers


def held_words(asked: Plan, found: Plan) -> list[Note]:
    """What was changed so that a model is held, and how to choose otherwise."""
    if found == asked:
        return []
    return [
        Note(
            Topic.MEMORY,
            f"{asked.workers} x {asked.machine} cannot hold {asked.model}; counted from {found.workers} on, "
            f"{found.exchange.title}, {found.checkpointing} checkpointing (--workers, --exchange, "
            "--checkpointing and --batch choose).",
        )
    ]
