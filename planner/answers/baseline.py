"""The baseline of every answer: one device alone, of the kind that the answer is about, at its own best
batch."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace
from math import inf

import numpy as np

from planner.hardware import Hardware
from planner.parallel.data.single import Alone
from planner.parallel.mesh import WHOLE
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.machines import single_device_machines
from planner.search.scored import ScoredPlan
from planner.search.simulations import Simulations
from planner.search.sizes import is_batch_open, micro_batches, recompute_options, smaller_batches


def single_device_plan(plan: Plan, cases: Cases) -> Plan | None:
    """One device of the plan's kind on the cheapest machine that has it; None if the model does not fit."""
    alone = _single_device_variant(plan, _find_cheapest(cases.market.find_machine(plan.machine), cases))
    return alone if cases.feasibility.is_possible(alone) else None


def best_single_device_plan(plan: Plan, cases: Cases) -> Plan | None:
    """The fastest single-device plan, over batches and recompute modes; None if the model does not fit."""
    same = single_device_plan(plan, cases)
    machine = _find_cheapest(cases.market.find_machine(plan.machine), cases)
    tried = _settings_to_try(_single_device_variant(plan, machine), machine, cases)
    options = {option.key: option for option in tried if cases.feasibility.is_possible(option)}
    if same is not None:
        options.setdefault(same.key, same)
    if not options:
        return None
    plans = [options[key] for key in sorted(options)]
    return plans[int(np.argmax(cases.bounds(plans)))]


def _single_device_variant(plan: Plan, machine: Hardware) -> Plan:
    return replace(
        plan,
        machine=machine.name,
        workers=1,
        workers_per_machine=machine.device_count,
        exchange=Alone(),
        mesh=WHOLE,
        accumulate=1,
    )


def _settings_to_try(one: Plan, machine: Hardware, cases: Cases) -> Iterator[Plan]:
    """Yields the single-device plan with each batch and recompute mode that a search would try."""
    request, model = cases.request, cases.model
    if not is_batch_open(request, model):
        return
    for batch in {*micro_batches(request, model, machine), *smaller_batches(request, model)}:
        for recompute in recompute_options(request, model):
            yield replace(one, batch=batch, recompute=recompute)


def _find_cheapest(machine: Hardware, cases: Cases) -> Hardware:
    """The cheapest machine with the same device, among the requested and single-device machines."""
    request, market = cases.request, cases.market
    if request.profile is not None or machine.device_count == 1 or machine.standing == "own":
        return machine
    known = [*market.select_machines(request.hardware_words), *single_device_machines(request, machine)]
    alike = [
        kind
        for kind in known
        if kind.device == machine.device and kind.kernels == machine.kernels and market.usd_per_hour(kind)
    ]
    return min([machine, *alike], key=lambda kind: (market.usd_per_hour(kind) or inf, kind.name))


def baseline_of(
    scored: ScoredPlan, simulations: Simulations, pool: Executor, *, searched: bool = False
) -> ScoredPlan | None:
    """Scores one device alone, to compare a plan with; at its best batch if the answer `searched`."""
    cases = simulations.cases
    alone = (
        best_single_device_plan(scored.plan, cases) if searched else single_device_plan(scored.plan, cases)
    )
    if alone is None or alone == scored.plan:
        return None if alone is None else scored
    return _charge_device_share(simulations.scored([alone], pool, "medium")[0], cases)


def _charge_device_share(baseline: ScoredPlan, cases: Cases) -> ScoredPlan:
    """Charges one device's share of an own machine's price; rented machines are charged in full."""
    machine = cases.market.find_machine(baseline.plan.machine)
    if machine.standing != "own" or machine.device_count == 1:
        return baseline
    share = 1 / machine.device_count
    costs = tuple(replace(cost, usd_per_hour=cost.usd_per_hour * share) for cost in baseline.costs)
    return replace(baseline, costs=costs, charged_share=share)
