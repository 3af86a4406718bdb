"""Remedies of a request without a plan: changes of its flags, each tried before it is named.

Changes are tried in the order of what they cost: settings of the software, training adapters, another global
batch or number of workers, other machines, then a higher limit. The work is capped by the number of spaces
that are enumerated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from planner.search.space import enumerate_plans

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
    """Flags that make a request feasible, with the cheapest plan that they allow."""

    flags: str
    plan: Plan
    usd_per_hour: float
    note: str = ""

    @property
    def words(self) -> str:
        """The remedy as text: flags, machines and price."""
        return f"{self.flags} ({self.plan.rental_text}{price_clause(self.usd_per_hour, ' at')}{self.note})"


def price_clause(usd_per_hour: float, preposition: str) -> str:
    """A price such as ` at $5.50/h`; empty string for machines without a price."""
    return f"{preposition} ${usd_per_hour:,.2f}/h" if usd_per_hour else ""


def remedies(request: Request, ask: Ask | None = None) -> list[Remedy]:
    """Flag changes that make a request feasible, sorted by price.

    `ask` recommends under limits of the job.
    """
    attempts = _Attempts(request, MOST_TRIED, ask)
    firsts = (next(filter(None, group(attempts)), None) for group in GROUPS)
    return sorted(islice(filter(None, firsts), MOST_NAMED), key=lambda remedy: remedy.usd_per_hour)


def remedy_sentence(request: Request, ask: Ask | None = None) -> str:
    """Sentence that lists the remedies."""
    result = remedies(request, ask)
    if not result:
        return ". No change of a single flag that was tried gives a plan"
    return f". Cheapest that works: {', or '.join(remedy.words for remedy in result)}"


@dataclass
class _Attempts:
    """Tries changes of a request.

    `left` is the number of spaces that may still be enumerated.
    """

    request: Request
    left: int
    ask: Ask | None = None

    def remedy(self, flags: str, *, note: str = "", **changes: Any) -> Remedy | None:
        """Searches with a change to the request; returns it as a remedy, or None if it gives no plan."""
        result = self.cheapest(**changes)
        if result is None:
            return None
        if self.ask is not None and has_job_limits(self.request):
            try:
                chosen = self.ask(replace(self.request, **changes))
            except PlannerError:
                return None
            result = chosen.plan, chosen.usd_per_hour
        return Remedy(flags, *result, note)

    def cheapest(self, *, per_sample: bool = False, **changes: Any) -> tuple[Plan, float] | None:
        """The cheapest plan of the changed request, with its USD per hour; None if it has none."""
        if not self.left:
            return None
        self.left -= 1
        try:
            return cheapest_plan(replace(self.request, **changes), per_sample=per_sample)
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
        needed = required_samples_per_s(cases, space.plans, space.usd_per_useful_hour, confident=True)
        late = bounds * REACHED < np.max([np.zeros(len(bounds)), *needed.values()], axis=0)
        prices = np.where(late, np.inf, prices / bounds if per_sample else prices)
    index = int(prices.argmin())
    return (space.plans[index], float(space.usd_per_hour[index])) if np.isfinite(prices[index]) else None


def has_job_limits(request: Request) -> bool:
    """Whether the request sets a deadline, spend or minimum throughput."""
    return any(
        limit is not None for limit in (request.deadline_s, request.spend_usd, request.min_samples_per_s)
    )


def required_samples_per_s(
    cases: Cases, plans: Sequence[Plan], usd_per_useful_hour: Floats, *, confident: bool
) -> dict[str, Floats]:
    """Minimum throughput of each plan for each limit, keyed by the reason for refusing slower plans.

    `confident`: with the request's probability, in spite of interruptions.
    """
    request, needed = cases.request, dict[str, Floats]()
    share = stretch = np.ones(len(plans))
    if confident:
        share = np.array([confident_share(cases.sigma(plan), request.confidence) for plan in plans])
        stretch = np.maximum(usd_per_useful_hour / np.maximum(cases.usd_per_hour(plans), 1e-300), 1.0)
    if request.min_samples_per_s is not None:
        needed["cannot reach --min-throughput"] = np.full(len(plans), request.min_samples_per_s)
    if request.samples is not None and request.deadline_s is not None:
        needed["cannot meet the deadline"] = request.samples * stretch / request.deadline_s / share
    if request.samples is not None and request.spend_usd is not None:
        needed["over --spend"] = usd_per_useful_hour / 3600 * request.samples / request.spend_usd / share
    return needed


Tried = Iterator[Remedy | None]


def _try_settings(attempts: _Attempts) -> Tried:
    """Yields remedies that change software settings to need less memory or divide the global batch."""
    request = attempts.request
    if request.recompute not in (None, ("full",)):
        yield attempts.remedy("--recompute full", recompute=("full",))
    if isinstance(request.batches, tuple):
        batch = min(request.batches)
        keeps = request.accumulate is None and request.global_batch is None  # the samples of a step
        while (batch := batch // 2) >= 1:
            changes: dict[str, Any] = {"batches": (batch,)}
            if keeps and min(request.batches) % batch == 0:
                changes["accumulate"] = min(request.batches) // batch
            steps = f" --accumulate {changes['accumulate']}" if "accumulate" in changes else ""
            yield attempts.remedy(f"--batch {batch}{steps}", **changes)
    if request.exchanges is not None and "sharded" not in dict(request.exchanges):
        yield attempts.remedy("--exchange sharded", exchanges=(("sharded", {}),))
    if request.accumulate is not None and request.accumulate > 1:
        yield attempts.remedy("--accumulate 1", accumulate=1)


def _try_adapters(attempts: _Attempts) -> Tried:
    """Yields the cheaper of LoRA and QLoRA that fits, in place of full fine-tuning."""
    request, model = attempts.request, model_of(attempts.request)
    language = model.sequence_length is not None and model.parameters >= LEAST_ADAPTED
    if not language or request.profile is not None or request.extra.get("train"):
        return
    tried = (
        attempts.remedy(f"--train {method}", note=", adapters only", extra={**request.extra, "train": method})
        for method in ADAPTERS
    )
    yield min(filter(None, tried), key=lambda remedy: remedy.usd_per_hour, default=None)


def _try_global_batches(attempts: _Attempts, sign: int) -> Tried:
    """Yields remedies with the next global batches below (`sign` -1) or above (1) the requested one."""
    request, asked = attempts.request, attempts.request.global_batch
    if asked is None:
        return
    sizes = request.batches if isinstance(request.batches, tuple) else (1,)
    step = min(sizes) * min(request.workers or (1,))
    first = asked // step * step if sign < 0 else -(-asked // step) * step
    if first == asked:
        first += sign * step
    for size in range(first, first + sign * NEIGHBOURS * step, sign * step):
        if 0 < size <= BIG_BATCH:
            yield attempts.remedy(f"--global-batch {size}", global_batch=size)


def _try_counts(attempts: _Attempts) -> Tried:
    """Yields remedies with the worker or machine count of the cheapest plan without a limit on it."""
    request = attempts.request
    if request.workers is not None and (result := attempts.cheapest(workers=None)):
        workers = result[0].workers
        yield attempts.remedy(f"--workers {workers}", workers=(workers,))
    if request.machines is not None and (result := attempts.cheapest(machines=None)):
        machines = result[0].machines
        yield attempts.remedy(f"--machines {machines}", machines=machines)


def _try_budget(attempts: _Attempts) -> Tried:
    """Yields the lowest budget at which a plan exists, found by repeatedly raising it fourfold."""
    budget = attempts.request.budget_usd_per_hour
    if budget is None:
        return
    while (budget := budget * BUDGET_STEP) <= MOST_BUDGET and attempts.left:
        if result := attempts.cheapest(budget_usd_per_hour=budget):
            cents = ceil(round(result[1] * 100, 6)) / 100
            yield attempts.remedy(f"--budget {cents:.2f}", budget_usd_per_hour=cents)
            return


def _try_other_machine(attempts: _Attempts) -> Tried:
    """Yields the machine with the lowest cost per sample in the catalog, but no CPU in place of GPUs."""
    request = attempts.request
    if request.profile is not None or (request.hardware is None and request.gpu is None):
        return
    if result := attempts.cheapest(per_sample=True, hardware=None, gpu=None, sold=None):
        name = result[0].machine
        asked = {kind.device.kind for kind in request.market.select_machines(request.hardware_words)}
        if request.market.find_machine(name).device.kind in asked:
            yield attempts.remedy(f"--hardware {name}", hardware=(name,), gpu=None, sold=None)


def _try_offloads(attempts: _Attempts) -> Tried:
    """Yields remedies that offload to the host memory of the requested machines."""
    request = attempts.request
    open_ = request.hardware is None and request.gpu is None
    if open_ or request.profile is not None or request.extra.get("offload"):
        return
    for parts in (PARTS[:1], PARTS):
        extra = {**request.extra, "offload": parts}
        yield attempts.remedy(f"--offload {','.join(parts)}", note=", slow", extra=extra)


GROUPS: tuple[Callable[[_Attempts], Tried], ...] = (  # of changes, of which the first that works is named
    _try_settings,
    _try_adapters,
    partial(_try_global_batches, sign=-1),
    partial(_try_global_batches, sign=1),
    _try_counts,
    _try_budget,
    _try_other_machine,
    _try_offloads,
)
