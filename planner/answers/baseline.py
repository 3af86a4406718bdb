"""The baseline of every answer: one device alone, of the kind that the answer is about."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from math import inf

from planner.hardware import Hardware
from planner.parallel.data import Alone
from planner.parallel.mesh import WHOLE
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.scored import ScoredPlan
from planner.search.simulations import Simulations


def alone_on(plan: Plan, cases: Cases) -> Plan | None:
    """One device of the plan's kind alone, on the cheapest machine that has it; None where it cannot hold
    the model and the batch."""
    machine = _cheapest(cases.market.machine(plan.machine), cases)
    alone = replace(
        plan,
        machine=machine.name,
        workers=1,
        workers_per_machine=machine.device_count,
        exchange=Alone(),
        mesh=WHOLE,
        accumulate=1,
    )
    return alone if cases.feasibility.is_possible(alone) else None


def _cheapest(machine: Hardware, cases: Cases) -> Hardware:
    """Of the machines that the request is about the cheapest with the same device: nobody rents eight of them
    to use one."""
    request, market = cases.request, cases.market
    if request.profile is not None or machine.device_count == 1:
        return machine
    alike = [
        kind
        for kind in market.matching(request.hardware_words)
        if kind.device == machine.device and kind.kernels == machine.kernels and market.usd_per_hour(kind)
    ]
    return min([machine, *alike], key=lambda kind: (market.usd_per_hour(kind) or inf, kind.name))


def baseline_of(scored: ScoredPlan, simulations: Simulations, pool: Executor) -> ScoredPlan | None:
    """What one device alone gives, beside a plan."""
    alone = alone_on(scored.plan, simulations.cases)
    if alone is None or alone == scored.plan:
        return None if alone is None else scored
    return simulations.scored([alone], pool, "medium")[0]
