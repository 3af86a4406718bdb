"""`saturation`: throughput against workers, and where more of them stop being worth their cost.

Three numbers of workers answer the question, by the rule of `planner.search.rank`: the last one worth its
cost (the highest net value: further samples cost at most 1 / `min_marginal_efficiency` times the cheapest
ones), the first at which a sample costs twice the least, and the one of the highest throughput
(`planner.answers.curve`). Machines without a price count alike. The last worker worth its cost is none whose
step takes more samples than usual recipes train with (`planner.search.sizes.max_step_samples`), unless the
request fixes the global batch.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from itertools import pairwise, product
from math import inf
from typing import Any

from planner.answers.assumptions import assumptions
from planner.answers.curve import (
    WorkersCurve,
    find_turning_points,
    fitting_notes,
    fitting_plan,
    minimum_feasible_plan,
    plan_with_minimum_workers,
    refine_turning_points,
    score_doublings,
    score_points,
    step_samples,
    worker_counts,
)
from planner.answers.parts import baseline_of, step_breakdown
from planner.answers.questions import default_machine_facts, single_plan
from planner.answers.results import Saturation, SaturationPoint, extend_answer
from planner.errors import BadInput, Infeasible, Interrupted
from planner.hardware.prices.cost import usd_per_million_samples
from planner.model import Model
from planner.note import Progress, ignore_progress
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.flag_values import MOST_WORKERS, check_size
from planner.search.machines import owned_machine_count
from planner.search.measured import load_runs
from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan
from planner.search.simulations import Rung, Simulations, executor_of, half_width, relative_gain
from planner.search.sizes import can_span_machines, max_step_samples, with_workers

CLOSER: tuple[Rung, ...] = ("half", "long")  # where a short look at servers does not tell
ENOUGH_SERVERS = 0.1  # by which one more server must raise throughput


def most_step_samples(request: Request, model: Model) -> float:
    """Most samples per step that an answer may recommend; infinite with a fixed global batch or a profile."""
    fixed = request.global_batch is not None or request.profile is not None
    return inf if fixed else max_step_samples(model)


def saturation_for(
    request: Request,
    *,
    max_workers: int | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    progress: Progress = ignore_progress,
) -> Saturation:
    """Predicts throughput by number of workers for a request's plan, and the servers it needs."""
    asked = single_plan(request, joined=True)
    max_workers = max_workers or request.max_workers
    cases = Cases(request, model_of(request), load_runs())
    plan = minimum_feasible_plan(asked, cases, lambda other: single_plan(other, joined=True))
    cases.check(plan_with_minimum_workers(plan, cases.market))
    with executor_of(executor, jobs) as pool:
        curve = saturation_of(
            plan,
            Simulations(cases, pool),
            max_workers=max_workers or MOST_WORKERS,
            sizes=True,
            progress=progress,
        )
    held = fitting_notes(asked, [point.scored.plan for point in curve.points])
    return replace(curve, assumptions=[*default_machine_facts(request, plan), *held, *curve.assumptions])


def saturation_of(
    plan: Plan,
    simulations: Simulations,
    *,
    max_workers: int = MOST_WORKERS,
    sizes: bool = False,
    progress: Progress = ignore_progress,
) -> Saturation:
    """Throughput by number of workers, from the fewest that hold the model; `sizes` adds server counts."""
    check_size(max_workers)
    request, cases = simulations.request, simulations.cases
    owned = owned_workers(plan, request)
    if owned is not None and request.max_workers is None:
        max_workers = min(max_workers, owned)
    curve = curve_of(plan, simulations, max_workers)
    most = most_step_samples(request, cases.model)
    partial = False
    try:
        score_doublings(curve, progress)
        usual = [count for count, sized in curve.asked.items() if step_samples(sized) <= most]
        curve.score_counts([count for count in usual[-1:] if count < max(curve.known)])
        refine_turning_points(curve, request.min_marginal_efficiency, most, progress)
    except KeyboardInterrupt:
        partial = True
    scored = curve.points
    if not scored:
        raise Interrupted("interrupted before a simulation ended; give fewer --max-workers")
    turns = find_turning_points(scored, request.min_marginal_efficiency, most)
    grew = turns.peak == len(scored) - 1
    ended = grew and turns.worth == turns.peak
    last = scored[turns.worth]
    one_more = max(last.plan.workers_per_machine, last.plan.mesh.size)  # machine or replica
    capped = step_samples(replace(last.plan, workers=last.plan.workers + one_more)) > most
    beyond = scored[min(turns.worth + 1, len(scored) - 1)]  # meets what is full
    wanted = with_workers(last.plan, plan.workers, request.global_batch) if plan.workers > 1 else None
    answer = Saturation(
        request=request,
        points=_saturation_points(scored, cases),
        saturation_workers=None if ended and not capped else last.plan.workers,
        cost_doubles_workers=None if turns.doubled is None else scored[turns.doubled].plan.workers,
        peak_workers=None if grew else scored[turns.peak].plan.workers,
        ceiling_samples_per_s=max(point.bound_samples_per_s for point in scored),
        bottleneck=beyond.prediction.bottleneck,
        breakdown=step_breakdown(cases.case(beyond.plan).profile, beyond.prediction),
        assumptions=assumptions([last.plan], cases),
        partial=partial,
        most_step_samples=int(most) if capped else None,
    )
    return extend_answer(
        answer,
        lambda: _server_counts(wanted or last.plan, simulations) if sizes else {},
        lambda: {"baseline": _single_device(last, scored[0], simulations)},
        lambda: {"beyond_owned": _with_twice_the_machines(scored[-1], owned, simulations)},
    )


def _single_device(chosen: ScoredPlan, first: ScoredPlan, simulations: Simulations) -> ScoredPlan | None:
    """One device alone; its prediction is that of the curve's first point if both are the same plan."""
    baseline = baseline_of(chosen, simulations)
    if baseline is None or replace(first.plan, exchange=baseline.plan.exchange) != baseline.plan:
        return baseline
    return replace(baseline, prediction=first.prediction)


def _with_twice_the_machines(
    scored: ScoredPlan, owned: int | None, simulations: Simulations
) -> ScoredPlan | None:
    """Scores a plan of all owned workers on twice as many; None if it uses fewer or does not fit."""
    plan, cases = scored.plan, simulations.cases
    more = with_workers(plan, 2 * plan.workers, cases.request.global_batch) if plan.workers == owned else None
    held = None if more is None else fitting_plan(more, cases)
    return None if held is None else score_points([held], simulations)[0]


def owned_workers(plan: Plan, request: Request) -> int | None:
    """Number of workers on the user's own machines; None if unknown."""
    hardware = request.market.find_machine(plan.machine)
    count = owned_machine_count(request, hardware) if hardware.machines or request.machines else None
    return None if count is None else count * plan.workers_per_machine


def curve_of(plan: Plan, simulations: Simulations, max_workers: int) -> WorkersCurve:
    """The curve over worker counts that divide the global batch."""
    cases, batch = simulations.cases, simulations.request.global_batch
    per_machine = plan.workers_per_machine
    if not can_span_machines(cases.request, cases.market.find_machine(plan.machine)):
        max_workers = min(max_workers, per_machine)
    first = 1 if per_machine == 1 or plan.workers < per_machine else per_machine
    first = max(first, plan.mesh.size)
    fewest = plan_with_minimum_workers(replace(plan, workers=first), cases.market).workers
    shared = {
        workers: sized
        for workers in worker_counts(fewest, max_workers, first, per_machine)
        if (sized := with_workers(plan, workers, batch)) is not None
    }
    if not shared:
        raise BadInput(
            f"--max-workers is {max_workers}, but {plan.cluster_text} has at least {fewest} workers"
            + (f" that share --global-batch {batch}" if batch else "")
        )
    # sharded over more workers a model may fit that does not over few
    begins = next((w for w, sized in shared.items() if fitting_plan(sized, cases) is not None), None)
    if begins is None:
        more = range(max_workers // first * first + first, max(plan.workers, max_workers * 8) + 1, first)
        larger = (with_workers(plan, workers, batch) for workers in more)
        enough = next(
            (entry.workers for entry in larger if entry is not None and fitting_plan(entry, cases)), None
        )
        raise Infeasible(
            f"{plan.model} does not fit on {max(shared)} workers or fewer of {plan.machine}; "
            + (f"{enough} hold it: raise --max-workers" if enough else "use larger devices")
        )
    if len(shared) > 1 and strategy_error(shared[max(shared)], cases):
        raise BadInput(f"{plan.exchange.labels().cell} does not grow with workers; take another --exchange")
    return WorkersCurve({count: sized for count, sized in shared.items() if count >= begins}, simulations)


def strategy_error(plan: Plan, cases: Cases) -> str:
    """Explains why a strategy cannot run with these workers; empty string if it can."""
    return str(plan.exchange.infeasibility(cases.site(plan)) or "")


def _saturation_points(scored: list[ScoredPlan], cases: Cases) -> list[SaturationPoint]:
    """Points of the curve with their efficiency and marginal gain and cost."""
    points = []
    first = scored[0].samples_per_s / scored[0].plan.workers
    for index, now in enumerate(scored):
        gain = now.samples_per_s - (scored[index - 1].samples_per_s if index else 0.0)
        price = now.usd_per_hour - (scored[index - 1].usd_per_hour if index else 0.0)
        breakdown = step_breakdown(cases.case(now.plan).profile, now.prediction)
        points.append(
            SaturationPoint(
                workers=now.plan.workers,
                scored=now,
                efficiency=now.samples_per_s / (first * now.plan.workers),
                exposed_communication=breakdown.communication_s / breakdown.step_s,
                marginal_samples_per_s=gain,
                marginal_usd_per_million_samples=(
                    usd_per_million_samples(price, gain) if gain > 0 else float("inf")
                ),
            )
        )
    return points


def _server_counts(plan: Plan, simulations: Simulations) -> dict[str, Any]:
    """The best plan for each number of servers, and the advised number of servers."""
    by_size = _plans_by_server_count(plan, simulations, ENOUGH_SERVERS)
    return {"sizes": by_size, "size_advised": _advised_server_count(by_size, ENOUGH_SERVERS)}


def _plans_by_server_count(
    plan: Plan, simulations: Simulations, threshold: float
) -> list[tuple[int, ScoredPlan]]:
    """The best plan for each number of servers, until one more adds less than `threshold`."""
    best: list[tuple[int, ScoredPlan]] = []
    by_size: dict[int, list[Plan]] = {}
    for other in plan.exchange.variants(simulations.cases.site(plan)):
        if other.size is not None:
            by_size.setdefault(other.size, []).append(replace(plan, exchange=other.exchange))
    for count, plans in by_size.items():
        plans = [plan for plan in plans if simulations.cases.feasibility.out_of_memory(plan) is None]
        if not plans:
            continue
        scored = score_points(plans, simulations)
        best.append((count, max(scored, key=lambda plan: plan.samples_per_s)))
        wider_first = sorted(range(len(best))[-2:], key=lambda at: -half_width(best[at][1].prediction))
        for at, rung in product(wider_first, CLOSER):
            if _is_gain_unclear(best, threshold):
                fewer, scored_fewer = best[at]
                best[at] = fewer, simulations.score_plans([scored_fewer.plan], rung)[0]
        if len(best) > 1 and relative_gain(best[-2][1].prediction, best[-1][1].prediction)[0] < threshold:
            break
    return best


def _advised_server_count(by_size: list[tuple[int, ScoredPlan]], threshold: float) -> int | None:
    """The fewest servers after which one more adds less than `threshold`; None if unclear."""
    if _is_gain_unclear(by_size, threshold):
        return None
    for (count, now), (_, more) in pairwise(by_size):
        if relative_gain(now.prediction, more.prediction)[0] < threshold:
            return count
    return by_size[-1][0] if by_size else None


def _is_gain_unclear(by_size: list[tuple[int, ScoredPlan]], threshold: float) -> bool:
    """Whether the last server's gain is nearer to `threshold` than its simulation error."""
    if len(by_size) < 2:
        return False
    (_, now), (_, more) = by_size[-2:]
    added, error = relative_gain(now.prediction, more.prediction)
    return abs(added - threshold) <= error
