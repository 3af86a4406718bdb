"""The next best change: what one more server, another placement, order, host or worker would bring."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np

from planner.cost.memory import memory_fit
from planner.partition.span import can_span
from planner.search.heats import Heat, cannot_tell, cautious
from planner.search.plan import Plan
from planner.search.prices import machine_price
from planner.search.results import Change, ScoredPlan
from planner.search.score import Scorer
from planner.search.space import cheap_servers, nic
from planner.simulator.prediction import Prediction

WORTH = 0.02  # a smaller gain is not worth a sentence
SHOWN = 3
ORDERS = ("tic",)
PLACEMENTS = ("greedy", "best_fit", "mxnet")


def next_changes(chosen: ScoredPlan, scorer: Scorer, pool: Executor) -> list[Change]:
    """Changes to the chosen plan that make it faster, the best value first: most throughput for its cost."""
    options = list(_neighbours(chosen.plan, scorer))
    if not options:
        return []
    bounds = scorer.bounds([plan for _, plan in options])
    promising = [
        option
        for option, bound in zip(options, bounds, strict=True)
        if bound > chosen.samples_per_s * (1 + WORTH)
    ]
    # a rough look at all of them, a closer one at those that may be worth it
    rough = scorer.predict_all([plan for _, plan in promising], pool, "short")
    hopeful = [
        option
        for option, score in zip(promising, rough, strict=True)
        if cautious(score, "short")[1] > chosen.samples_per_s * (1 + WORTH)
    ]
    return _one_of_each(_changes(chosen, hopeful, scorer, pool))[:SHOWN]


def _changes(
    chosen: ScoredPlan, options: list[tuple[str, Plan]], scorer: Scorer, pool: Executor
) -> list[Change]:
    """What the options bring, those that are worth a sentence, by cost a sample. None is within the error."""
    predictions = dict(_predicted([plan for _, plan in options], scorer, pool, "trial"))
    now = chosen.samples_per_s
    unclear = [
        plan
        for plan, found in predictions.items()
        if cannot_tell(found.samples_per_s - now * (1 + WORTH), found, chosen.prediction)
    ]
    predictions.update(_predicted(unclear, scorer, pool, "long"))
    budget = scorer.request.budget_usd_per_hour or np.inf
    changes = []
    for words, plan in options:
        scored = scorer.scored(plan, predictions[plan])
        gain = scored.samples_per_s / now - 1
        if gain >= WORTH and not cannot_tell(gain * now, scored.prediction, chosen.prediction):
            more = scored.usd_per_hour - chosen.usd_per_hour
            changes.append(Change(words, scored, gain, more, scored.usd_per_hour <= budget))
    return sorted(changes, key=lambda change: (change.scored.usd_per_million_samples, change.words))


def _predicted(
    plans: list[Plan], scorer: Scorer, pool: Executor, heat: Heat
) -> Iterator[tuple[Plan, Prediction]]:
    return zip(plans, scorer.predict_all(plans, pool, heat), strict=True)


def _one_of_each(changes: list[Change]) -> list[Change]:
    """The best change of each kind: the words before the colon or bracket tell the kind."""
    best: dict[str, Change] = {}
    for change in changes:
        best.setdefault(change.words.split(" (")[0], change)
    return list(best.values())


def _neighbours(plan: Plan, scorer: Scorer) -> Iterator[tuple[str, Plan]]:
    request = scorer.request
    worker = scorer.hardware(plan.worker_hardware)
    ordinal = {2: "a second", 3: "a third"}.get(plan.servers + 1, f"a {plan.servers + 1}th")
    if not plan.colocated or plan.servers < plan.machines:
        for rule in PLACEMENTS:
            yield (
                f"{ordinal} server ({rule} placement)",
                replace(plan, servers=plan.servers + 1, placement=rule),
            )
    if plan.servers > 1:
        for rule in PLACEMENTS:
            if rule != plan.placement:
                yield f"another placement ({rule})", replace(plan, placement=rule)
    for strategy in ORDERS:
        if plan.policy != strategy and plan.workers_per_replica == 1:
            yield f"ordered transfers ({strategy})", replace(plan, policy=strategy)
    if not plan.colocated:
        now = nic(scorer.hardware(plan.server_hardware), request) or 0.0
        for host in [*cheap_servers(worker, request), worker]:
            if (nic(host, request) or 0.0) > now and machine_price(host, request) is not None:
                yield f"servers with a faster NIC ({host.name})", replace(plan, server_hardware=host.name)
    added = max(worker.device_count, plan.workers_per_replica)
    yield (
        f"{added} more worker{'s' if added > 1 else ''}",
        replace(plan, workers=plan.workers + added),
    )
    many = plan.workers_per_replica
    fits = (
        can_span(scorer.model, plan.batch * 2, worker, many)
        if many > 1
        else request.profile is None and memory_fit(scorer.model, plan.batch * 2, worker).fits
    )
    if fits:
        yield (
            f"twice the batch ({plan.batch * 2}; it may need more epochs)",
            replace(plan, batch=plan.batch * 2),
        )
