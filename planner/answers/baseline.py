"""The baseline of every answer: one device alone, on the machine that the answer is about."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace

from planner.cut import WHOLE
from planner.exchange import Alone
from planner.plan import Plan
from planner.search.cases import Cases
from planner.search.scored import ScoredPlan
from planner.search.simulations import Simulations


def alone_on(plan: Plan, cases: Cases) -> Plan | None:
    """One device of the plan's machine alone; None where it cannot hold the model and the batch."""
    alone = replace(plan, workers=1, exchange=Alone(), cut=WHOLE, accumulate=1)
    return alone if cases.fitting.possible(alone) else None


def baseline_of(scored: ScoredPlan, simulations: Simulations, pool: Executor) -> ScoredPlan | None:
    """What one device alone gives, beside a plan."""
    alone = alone_on(scored.plan, simulations.cases)
    if alone is None or alone == scored.plan:
        return None if alone is None else scored
    return simulations.scored([alone], pool, "medium")[0]
