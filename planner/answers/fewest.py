"""The smallest plan of its kind that can be run: where questions about more and more workers begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from planner.errors import BadInput, Infeasible
from planner.hardware import Market
from planner.model import Model
from planner.note import Note, Topic
from planner.parallel.data import EXCHANGES, Tier
from planner.parallel.data.fsdp import memory_saving_variants
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.limits import MOST_WORKERS
from planner.search.request import Request
from planner.search.sizes import MAX_LARGE_WORKERS, recompute_options, with_workers


def fewest_workers(plan: Plan, market: Market) -> Plan:
    """The plan with as many more workers as its exchange needs: servers beside workers need machines."""
    step = max(1, plan.mesh.size)
    for more in range(0, MOST_WORKERS, step):
        enough = replace(plan, workers=plan.workers + more)
        if enough.exchange.infeasibility(enough.site(market)) is None:
            return enough
    return plan


def minimum_feasible_plan(plan: Plan, cases: Cases, plan_for: Callable[[Request], Plan]) -> Plan:
    """The plan, or where its workers cannot hold the model and nobody named how many: that of the fewest
    machines that can, with as little recomputed as they need. Where no exchange is named either, a model
    that no single device holds is sharded. `plan_for` gives the plan of a request."""
    request, market = cases.request, cases.market
    fits = cases.feasibility.out_of_memory(fewest_workers(plan, market)) is None
    if request.workers is not None or fits or not _shares(plan):
        return plan
    for asked in _larger(plan, request, cases.model):
        try:
            tried = plan_for(asked)
        except BadInput:  # a global batch that so many do not share, degrees that do not fit
            continue
        if cases.feasibility.out_of_memory(fewest_workers(tried, market)) is None:
            return tried
    if request.global_batch is not None:
        raise Infeasible(
            f"no number of workers of {plan.machine} up to {MAX_LARGE_WORKERS:,} that shares --global-batch "
            f"{request.global_batch} holds {plan.model}; take another, or larger devices"
        )
    return plan


def _shares(plan: Plan) -> bool:
    """Whether devices train among themselves, so that more of them, or keeping less, can help."""
    return EXCHANGES.tier(plan.exchange) is not Tier.CONTENDER


def _larger(plan: Plan, request: Request, model: Model) -> Iterator[Request]:
    """Fewer workers first, then baselines, then little that is recomputed."""
    exchanges = [request.exchanges]
    if request.exchanges is None and (saving := list(memory_saving_variants(plan.exchange))):
        exchanges.append(((saving[-1].exchange.kind, {}),))
    for workers in _sizes(plan, request.global_batch):
        for exchange in exchanges:
            for again in recompute_options(request, model):
                yield replace(request, workers=(workers,), exchanges=exchange, recompute=(again,))


def _sizes(plan: Plan, batch: int | None) -> Iterator[int]:
    """The plan's workers, a machine's, and doublings of it; with a global batch all that share it."""
    step = max(plan.workers_per_machine, plan.mesh.size)
    yield plan.workers
    workers = step if plan.workers < step else plan.workers + step
    while workers <= MAX_LARGE_WORKERS:
        if batch is None or with_workers(plan, workers, batch) is not None:
            yield workers
        workers += step if batch else workers


def held_plan(plan: Plan, cases: Cases) -> Plan | None:
    """The plan, with as little recomputed as its workers need to hold it where nobody says how much; None
    where they do not hold it."""
    again = recompute_options(cases.request, cases.model) if _shares(plan) else (plan.recompute,)
    tried = (replace(plan, recompute=entry) for entry in again)
    return next((entry for entry in tried if cases.feasibility.out_of_memory(entry) is None), None)


def held_words(asked: Plan, plans: Sequence[Plan]) -> list[Note]:
    """What had to differ from what was asked for so that a model is held, and how to choose otherwise."""
    first, last = plans[0], plans[-1]
    parts = []
    if first.workers > asked.workers:
        parts.append(f"points begin with {first.workers} workers")
    if first.exchange.kind != asked.exchange.kind:
        parts.append(f"by {first.exchange.labels().name or first.exchange.labels().cell}")
    if first.recompute != asked.recompute:
        parts.append(f"with {first.recompute} recompute")
    if not parts:
        return []
    if last.recompute != first.recompute:
        enough = next(plan.workers for plan in plans if plan.recompute == last.recompute)
        parts.append(f"{last.recompute} from {enough} workers on")
    many = f"{asked.workers} worker{'s' if asked.workers > 1 else ''}"
    return [
        Note(
            Topic.MEMORY,
            f"{many} of {asked.machine} cannot hold {asked.model} as it is asked for: {', '.join(parts)} "
            "(--workers, --exchange, --recompute and --batch choose).",
        )
    ]
