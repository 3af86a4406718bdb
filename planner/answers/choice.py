"""From scored plans to an answer: which meet the constraints, which one the objective picks, what comes next.

Shared by the enumerated search (`recommend`), the sampled one (`sampled`) and `compare`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np

from planner.answers.advise import next_changes
from planner.answers.results import Change, Saturation
from planner.answers.saturation import refused, saturation_of
from planner.errors import Interrupted
from planner.hardware.prices.cluster_cost import usd_per_million_samples
from planner.parallel.plan import Plan
from planner.progress import Progress
from planner.search.front import Floats, cheapest_of_fastest, front, knee
from planner.search.request import Request
from planner.search.scored import ScoredPlan
from planner.search.simulations import Simulations
from planner.search.worth import worths

NEAR_CHEAPEST = 0.02


def choose(scored: Sequence[ScoredPlan], request: Request) -> tuple[list[ScoredPlan], ScoredPlan]:
    """The plans to show, by cost a sample with their marks, and the one that the objective picks."""
    scored = sorted(scored, key=lambda one: one.plan.key)
    worth = worths([one.plan for one in scored], request)
    speed = np.array([one.samples_per_s for one in scored]) * worth
    cost = np.array([one.usd_per_million_samples for one in scored]) / worth
    on_front = front(speed, cost)
    cheapest = min(on_front, key=lambda i: (cost[i], -speed[i]))
    fastest = cheapest_of_fastest(speed, cost)
    value = on_front[knee(speed[on_front], cost[on_front])]
    picked = {"fastest": fastest, "cheapest": cheapest, "value": value}[request.goal]
    if request.goal == "cheapest" and request.deadline_s is not None:
        # hardly dearer and faster: nobody saves a hundredth to come late
        near = [i for i in on_front if cost[i] <= cost[cheapest] * (1 + NEAR_CHEAPEST)]
        picked = max(near, key=lambda i: speed[i])
    best_of: dict[str, int] = {}
    for i in np.lexsort((np.arange(len(scored)), cost)).tolist():
        best_of.setdefault(scored[i].plan.machine, i)
    chosen = {*on_front, *best_of.values(), cheapest, fastest, value}
    marks = {
        i: tuple(
            mark
            for mark, at in (("cheapest", cheapest), ("fastest", fastest), ("best value", value))
            if at == i
        )
        for i in chosen
    }
    shown = [replace(scored[i], marks=marks[i]) for i in sorted(chosen, key=lambda i: (cost[i], i))]
    return shown, replace(scored[picked], marks=marks[picked])


def further(
    chosen: ScoredPlan, simulations: Simulations, pool: Executor, progress: Progress
) -> tuple[list[Change], Saturation | None]:
    """The next best changes of the chosen plan, and where its hardware saturates, if it can have more."""
    progress("looking further", 0, 2)
    changes = next_changes(chosen, simulations, pool)
    progress("looking further", 1, 2)
    more = replace(chosen.plan, workers=2 * chosen.plan.workers)
    if refused(more, simulations.cases):
        return changes, None
    most = max(32, chosen.plan.workers)
    curve = saturation_of(chosen.plan, simulations, pool, extra=2, max_workers=most, brief=True)
    progress("looking further", 2, 2)
    return changes, curve


def interrupted(plans: Sequence[Plan], bounds: Floats, usd_per_hour: Floats) -> Interrupted:
    """What is known before any simulation has ended: the bounds."""
    fastest, cheapest = int(np.argmax(bounds)), int(np.argmin(usd_per_hour / bounds))
    least_usd = usd_per_million_samples(float(usd_per_hour[cheapest]), float(bounds[cheapest]))
    return Interrupted(
        f"interrupted before a simulation ended; of {len(plans):,} plans, by their bounds, the fastest is "
        f"{plans[fastest].cluster_text} (at most {bounds[fastest]:.4g} samples/s), the cheapest "
        f"{plans[cheapest].cluster_text} (at least ${least_usd:.2f} a million samples)"
    )
