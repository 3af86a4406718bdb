"""The next best change: what another choice of exchange, one more worker, a larger batch or fewer bits would
bring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.answers.results import Change
from planner.device.precision import PRECISIONS
from planner.model import Model
from planner.parallel.data import EXCHANGES, ChangeKind, Tier
from planner.parallel.data.fsdp import memory_saving_variants
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.feasibility import has_machines
from planner.search.objectives import least_gain, setup_effort
from planner.search.scored import ScoredPlan
from planner.search.simulations import Simulations, cautious_interval, is_within_error
from planner.search.sizes import with_workers
from planner.search.space import allowed_exchanges

WORTH = 0.02  # a smaller gain is not worth a sentence
SHOWN = 3
# what to try instead of a number format; of several in brackets the first that the device has
LOWER: dict[str, tuple[tuple[str, ...], ...]] = {
    "fp32": (("tf32",), ("bf16", "fp16")),
    "tf32": (("bf16", "fp16"),),
    "bf16": (("fp8",),),
    "fp16": (("fp8",),),
    "fp8": (),
}


@dataclass(frozen=True, slots=True)
class Option:
    """A change to try: its kind, its description and the changed plan."""

    kind: str
    words: str
    plan: Plan


def next_changes(chosen: ScoredPlan, simulations: Simulations) -> list[Change]:
    """Changes that make the chosen plan faster: at most one of each kind, lowest cost per sample first."""
    cases = simulations.cases
    options = [
        option
        for option in _change_options(chosen.plan, cases)
        if has_machines(option.plan.rented(cases.market), cases.request)
        and cases.feasibility.is_possible(option.plan)
    ]
    if not options:
        return []
    bounds = cases.bounds([option.plan for option in options])
    promising = [
        option
        for option, bound in zip(options, bounds, strict=True)
        if bound > chosen.samples_per_s * (1 + WORTH)
    ]
    # a rough look at all of them, a closer one at those that may be worth it
    rough = simulations.predict_all([option.plan for option in promising], "short")
    hopeful = [
        option
        for option, score in zip(promising, rough, strict=True)
        if cautious_interval(score, "short")[1] > chosen.samples_per_s * (1 + WORTH)
    ]
    return _best_of_each_kind(_clearly_faster_changes(chosen, hopeful, simulations))[:SHOWN]


def _clearly_faster_changes(
    chosen: ScoredPlan, options: list[Option], simulations: Simulations
) -> list[Change]:
    """Simulates changes; returns the clearly faster ones, sorted by cost per sample, then by effort."""
    trials = simulations.score_plans([option.plan for option in options], "trial")
    by_plan = {scored.plan: scored for scored in trials}
    now = chosen.samples_per_s
    unclear = [
        scored.plan
        for scored in trials
        if is_within_error(scored.samples_per_s - now * (1 + WORTH), scored.prediction, chosen.prediction)
    ]
    by_plan |= {scored.plan: scored for scored in simulations.score_plans(unclear)}
    budget = simulations.request.budget_usd_per_hour or np.inf
    ranked: list[tuple[float, str, Change]] = []
    for option in options:
        scored = by_plan[option.plan]
        gain = scored.samples_per_s / now - 1
        advantage = least_gain(setup_effort(chosen.plan), setup_effort(option.plan))
        clear = not is_within_error(gain * now, scored.prediction, chosen.prediction)
        if clear and gain >= max(WORTH, advantage - 1):
            more = scored.usd_per_hour - chosen.usd_per_hour
            within = scored.usd_per_hour <= budget
            change = Change(option.words, option.kind, scored, gain, more, within)
            ranked.append((scored.usd_per_million_samples * advantage, option.words, change))
    return [change for _, _, change in sorted(ranked, key=lambda entry: entry[:2])]


def _best_of_each_kind(changes: list[Change]) -> list[Change]:
    """First change of each kind, which is the cheapest since changes come sorted by cost."""
    best: dict[str, Change] = {}
    for change in changes:
        best.setdefault(change.kind, change)
    return list(best.values())


def _change_options(plan: Plan, cases: Cases) -> Iterator[Option]:
    """Yields changes to try: exchange variants, more workers, a larger batch, fewer bits."""
    for other in plan.exchange.variants(cases.site(plan)):
        if other.size is None:
            yield Option(other.change, other.label, replace(plan, exchange=other.exchange))
    if plan.replicas > 1 and not plan.mesh.is_sharded and EXCHANGES.tier(plan.exchange) is Tier.BASELINE:
        for other in memory_saving_variants(plan.exchange):
            names = (strategy.labels().name for strategy in (other.exchange, plan.exchange))
            words = " instead of ".join(names)
            yield Option(ChangeKind.EXCHANGE, words, replace(plan, exchange=other.exchange))
    yield from _more_workers_options(plan, cases)
    if cases.request.profile is None:
        yield from _larger_batch_option(plan, cases)
    yield from _lower_precision_options(plan, cases)


def _more_workers_options(plan: Plan, cases: Cases) -> Iterator[Option]:
    """Yields the plan on the next larger number of full machines that can share the global batch."""
    step = max(plan.workers_per_machine, plan.mesh.size)
    following = (plan.workers // step + 1) * step
    counts = range(following, max(2 * plan.workers, following) + 1, step)
    sized = (with_workers(plan, workers, cases.request.global_batch) for workers in counts)
    more = next((entry for entry in sized if entry is not None), None)
    if more is None:
        return
    added = more.workers - plan.workers
    words = f"{added} more worker{'s' if added > 1 else ''}"
    if plan.exchange.infeasibility(cases.site(more)) is None:
        yield Option(ChangeKind.WORKERS, words, more)
        return
    others = list(allowed_exchanges(cases.request, cases.site(more), cases.model))
    usual = [other for other in others if EXCHANGES.tier(other) is not Tier.CONTENDER]
    for other in usual or others:
        yield Option(
            ChangeKind.WORKERS,
            f"{words} ({other.labels().name or other.labels().cell})",
            replace(more, exchange=other),
        )


def _larger_batch_option(plan: Plan, cases: Cases) -> Iterator[Option]:
    """Yields the plan with twice the batch; with a fixed global batch, twice the micro-batch."""
    larger = replace(plan, batch=plan.batch * 2)
    if cases.request.global_batch is None:
        yield Option(ChangeKind.BATCH, f"twice the batch ({larger.batch}, may need more epochs)", larger)
    elif plan.accumulate % 2 == 0:
        words = f"micro-batches of {larger.batch}, half as many"
        yield Option(ChangeKind.BATCH, words, replace(larger, accumulate=plan.accumulate // 2))


def _lower_precision_options(plan: Plan, cases: Cases) -> Iterator[Option]:
    """Yields the plan in narrower number formats, unless the request names a format."""
    request = cases.request
    if request.profile is not None or request.formats is not None:
        return
    has = cases.market.find_machine(plan.machine).device.flops
    for names in LOWER[plan.precision.name]:
        first = next((name for name in names if name in has), None)
        if first is not None and (first != "fp8" or _may_train_in_fp8(cases.model)):
            words = f"{first} instead of {plan.precision.name} (check that it converges)"
            yield Option(ChangeKind.PRECISION, words, replace(plan, precision=PRECISIONS[first]))


def _may_train_in_fp8(model: Model) -> bool:
    """Whether fp8 is common practice for the network: a transformer whose weights are all trained."""
    return model.sequence_length is not None and model.training is None
