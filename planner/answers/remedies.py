"""Remedies of a request without a plan: changes of its flags, each tried before it is named.

Changes are tried in the order of what they cost: settings of the software, training adapters, another global
batch or number of workers, other machines, then a higher limit. The work is capped by the number of spaces
that are enumerated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.device.memory import OFFLOADED as PARTS
from planner.errors import PlannerError
from planner.model import Floats
from planner.search.cases import Cases
from planner.search.field import candidate_machines
from planner.search.request import Request, model_of
from planner.search.scored import confident_share
from planner.search.space import Space, enumerate_plans

if TYPE_CHECKING:
    from planner.parallel.plan import Plan
    from planner.search.scored import ScoredPlan


MOST_TRIED = 24  # spaces enumerated in all
MOST_NAMED = 3  # remedies that a sentence has room for
NEIGHBOURS = 4  # global batches tried on either side
BUDGET_STEP = 4  # factor between budgets tried
MOST_BUDGET = 1e6  # USD per hour
BIG_BATCH = 1 << 20
ADAPTERS = ("lora", "qlora")
LEAST_ADAPTED = 1_000_000_000  # parameters of a model that people train adapters of
REACHED = 0.9  # of its bound, which a plan is likely to reach

Ask = Callable[[Request], "ScoredPlan"]  # the choice for a request


@dataclass(frozen=True, slots=True)
class Remedy:
    """Flags that give a request a plan, with the cheapest plan they allow."""

    flags: str
    plan: Plan
    usd_per_hour: float
    note: str = ""

    @property
    def words(self) -> str:
        return f"{self.flags} ({self.plan.rental_text}{price_words(self.usd_per_hour, ' at')}{self.note})"


def price_words(usd_per_hour: float, preposition: str) -> str:
    """A price such as ` at $5.50/h`; empty string for machines without a price."""
    return f"{preposition} ${usd_per_hour:,.2f}/h" if usd_per_hour else ""


def remedies(request: Request, ask: Ask | None = None) -> list[Remedy]:
    """Flag changes that give a request a plan, sorted by price; `ask` recommends under limits of the job."""
    attempts = _Attempts(MOST_TRIED, ask)
    working = (remedy for remedy in _try_all_changes(request, attempts) if remedy is not None)
    return sorted(islice(working, MOST_NAMED), key=lambda remedy: remedy.usd_per_hour)


def remedy_words(request: Request, ask: Ask | None = None) -> str:
    """Sentence that lists the remedies."""
    result = remedies(request, ask)
    if not result:
        return ". No change of a single flag that was tried gives a plan"
    return f". Cheapest that works: {', or '.join(remedy.words for remedy in result)}"


@dataclass
class _Attempts:
    """Tries changed requests; `left` is the number of spaces that may still be enumerated."""

    left: int
    ask: Ask | None = None

    def remedy(self, flags: str, request: Request, **changes: Any) -> Remedy | None:
        """Tries a change and returns it as a remedy; None if it gives no plan."""
        result = self.cheapest(request, **changes)
        if result is None:
            return None
        if self.ask is not None and has_job_limits(request):
            try:
                chosen = self.ask(replace(request, **changes))
            except PlannerError:
                return None
            result = chosen.plan, chosen.usd_per_hour
        return Remedy(flags, *result)

    def cheapest(
        self, request: Request, *, per_sample: bool = False, **changes: Any
    ) -> tuple[Plan, float] | None:
        if not self.left:
            return None
        self.left -= 1
        try:
            return cheapest_plan(replace(request, **changes), per_sample=per_sample)
        except PlannerError:
            return None


def cheapest_plan(request: Request, *, per_sample: bool = False) -> tuple[Plan, float] | None:
    """The cheapest plan per hour, or per sample by bounds, with its USD per hour; None without a plan."""
    cases = Cases(request, model_of(request))
    space = enumerate_plans(request, cases.model, machines=candidate_machines(cases).machines)
    if not space.plans:
        return None
    prices = space.usd_per_hour
    if has_job_limits(request) or per_sample:
        bounds = cases.bounds(space.plans)
        late = bounds * REACHED < _least_samples_per_s(cases, space)
        prices = np.where(late, np.inf, prices / bounds if per_sample else prices)
    index = int(prices.argmin())
    return (space.plans[index], float(space.usd_per_hour[index])) if np.isfinite(prices[index]) else None


def has_job_limits(request: Request) -> bool:
    """Whether the request sets a deadline, spend or minimum throughput."""
    return any(
        limit is not None for limit in (request.deadline_s, request.spend_usd, request.min_samples_per_s)
    )


def _least_samples_per_s(cases: Cases, space: Space) -> Floats:
    """Samples per second that each plan needs to meet the job's limits."""
    request = cases.request
    least = np.full(len(space.plans), request.min_samples_per_s or 0.0)
    share = np.array([confident_share(cases.sigma(plan), request.confidence) for plan in space.plans])
    if request.samples is not None and request.deadline_s is not None:
        least = np.maximum(least, request.samples / request.deadline_s / share)
    if request.samples is not None and request.spend_usd is not None:
        usd_per_s = space.usd_per_useful_hour / 3600
        least = np.maximum(least, usd_per_s * request.samples / request.spend_usd / share)
    return least


def _try_all_changes(request: Request, attempts: _Attempts) -> Iterator[Remedy | None]:
    yield _first_remedy(_try_settings(request, attempts))
    yield _try_adapters(request, attempts)
    yield _first_remedy(_try_global_batches(request, attempts, -1))
    yield _first_remedy(_try_global_batches(request, attempts, 1))
    yield _first_remedy(_try_counts(request, attempts))
    yield _try_budget(request, attempts)
    yield _try_other_machine(request, attempts)
    yield _first_remedy(_try_offloads(request, attempts))


def _first_remedy(tried: Iterator[Remedy | None]) -> Remedy | None:
    return next((remedy for remedy in tried if remedy is not None), None)


def _try_settings(request: Request, attempts: _Attempts) -> Iterator[Remedy | None]:
    """Tries software settings that need less memory or divide the global batch."""
    if request.recompute not in (None, ("full",)):
        yield attempts.remedy("--recompute full", request, recompute=("full",))
    if isinstance(request.batches, tuple):
        batch = min(request.batches)
        keeps = request.accumulate is None and request.global_batch is None  # the samples of a step
        while (batch := batch // 2) >= 1:
            changes: dict[str, Any] = {"batches": (batch,)}
            if keeps and min(request.batches) % batch == 0:
                changes["accumulate"] = min(request.batches) // batch
            steps = f" --accumulate {changes['accumulate']}" if "accumulate" in changes else ""
            yield attempts.remedy(f"--batch {batch}{steps}", request, **changes)
    named = request.exchanges is not None and any(kind == "sharded" for kind, _ in request.exchanges)
    if request.exchanges is not None and not named:
        yield attempts.remedy("--exchange sharded", request, exchanges=(("sharded", {}),))
    if request.accumulate is not None and request.accumulate > 1:
        yield attempts.remedy("--accumulate 1", request, accumulate=1)


def _try_adapters(request: Request, attempts: _Attempts) -> Remedy | None:
    """Tries LoRA and QLoRA instead of full fine-tuning; returns the cheaper one that fits."""
    model = model_of(request)
    language = model.sequence_length is not None and model.parameters >= LEAST_ADAPTED
    if not language or request.profile is not None or request.extra.get("train"):
        return None
    tried = (
        attempts.remedy(f"--train {method}", request, extra={**request.extra, "train": method})
        for method in ADAPTERS
    )
    working = [replace(remedy, note=", adapters only") for remedy in tried if remedy is not None]
    return min(working, key=lambda remedy: remedy.usd_per_hour, default=None)


def _try_global_batches(request: Request, attempts: _Attempts, sign: int) -> Iterator[Remedy | None]:
    """Tries the next global batches below (`sign` -1) or above (1) the requested one."""
    if request.global_batch is None:
        return
    sizes = request.batches if isinstance(request.batches, tuple) else (1,)
    steps = {batch * count for batch in sizes for count in request.workers or (1,)}
    step, asked = min(steps), request.global_batch
    first = asked // step * step if sign < 0 else -(-asked // step) * step
    if first == asked:
        first += sign * step
    for k in range(NEIGHBOURS):
        size = first + sign * k * step
        if 0 < size <= BIG_BATCH:
            yield attempts.remedy(f"--global-batch {size}", request, global_batch=size)


def _try_counts(request: Request, attempts: _Attempts) -> Iterator[Remedy | None]:
    """Tries the number of workers or machines of the cheapest plan without that limit."""
    if request.workers is not None and (result := attempts.cheapest(request, workers=None)):
        workers = result[0].workers
        yield attempts.remedy(f"--workers {workers}", request, workers=(workers,))
    if request.machines is not None and (result := attempts.cheapest(request, machines=None)):
        machines = result[0].machines
        yield attempts.remedy(f"--machines {machines}", request, machines=machines)


def _try_offloads(request: Request, attempts: _Attempts) -> Iterator[Remedy | None]:
    """Tries offloading to the host memory of the requested machines."""
    open_ = request.hardware is None and request.gpu is None
    if open_ or request.profile is not None or request.extra.get("offload"):
        return
    for parts in (PARTS[:1], PARTS):
        extra = {**request.extra, "offload": parts}
        remedy = attempts.remedy(f"--offload {','.join(parts)}", request, extra=extra)
        yield None if remedy is None else replace(remedy, note=", slow")


def _try_budget(request: Request, attempts: _Attempts) -> Remedy | None:
    """Tries four times the budget repeatedly, then the exact price of the cheapest plan."""
    budget = request.budget_usd_per_hour
    if budget is None:
        return None
    while (budget := budget * BUDGET_STEP) <= MOST_BUDGET and attempts.left:
        if result := attempts.cheapest(request, budget_usd_per_hour=budget):
            cents = ceil(round(result[1] * 100, 6)) / 100
            return attempts.remedy(f"--budget {cents:.2f}", request, budget_usd_per_hour=cents)
    return None


def _try_other_machine(request: Request, attempts: _Attempts) -> Remedy | None:
    """Tries the machine with the lowest cost per sample in the catalog."""
    if request.profile is not None or (request.hardware is None and request.gpu is None):
        return None
    result = attempts.cheapest(request, per_sample=True, hardware=None, gpu=None, sold=None)
    if result is None:
        return None
    name = result[0].machine
    asked = {kind.device.kind for kind in request.market.select_machines(request.hardware_words)}
    if request.market.find_machine(name).device.kind not in asked:
        return None  # CPUs with room for what GPUs cannot hold
    return attempts.remedy(f"--hardware {name}", request, hardware=(name,), gpu=None, sold=None)
