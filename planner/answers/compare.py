"""`compare`: the best plan of each hardware side by side, on demand and spot, with the cost of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from planner.answers.assumptions import assumptions
from planner.answers.choice import choose, count_unfinished, interruption_error
from planner.answers.parts import baseline_of
from planner.answers.refusals import left_out_notes, no_plan_message
from planner.answers.results import Comparison
from planner.errors import Infeasible
from planner.hardware import Hardware
from planner.hardware.prices.cost import rental_cost, usd_per_million_samples
from planner.hardware.prices.offers import machines_with_devices
from planner.model import Model
from planner.note import Progress, Reason, ignore_progress
from planner.search.cases import Cases
from planner.search.field import candidate_machines
from planner.search.measured import load_runs
from planner.search.objectives import discounts, merge_outcomes
from planner.search.race import Floats, Goal, Outcome, Race
from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan, best_of, missed_limit, plans_within_limits, training_of
from planner.search.simulations import Rung, Simulations, executor_of
from planner.search.sizes import LARGE_PARAMETERS, MAX_LARGE_WORKERS
from planner.search.space import Space, enumerate_plans

if TYPE_CHECKING:
    from planner.parallel.plan import Plan
    from planner.simulator.statistics import Prediction

DEFAULT_WORKERS = (1, 2, 4, 8)
LARGE_WORKERS = tuple(2**k for k in range(MAX_LARGE_WORKERS.bit_length()))
Subjects = dict[str, tuple[str, ...]]  # what is compared: names of its machines
ROUND = 2  # plans of one hardware scored at once: few are needed to know the best


def compare_for(
    request: Request,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    progress: Progress = ignore_progress,
) -> Comparison:
    """Best plan of each compared device, machine or provider by the objective, sorted by cost per sample."""
    model = model_of(request)
    request = _narrow_request(request, model)
    cases = Cases(request, model, load_runs())
    field = candidate_machines(cases)
    space = enumerate_plans(request, model, machines=field.machines)
    space.left_out |= field.left_out
    if not space.plans:
        raise Infeasible(no_plan_message(space, request))
    bounds = cases.bounds(space.plans)
    by_hardware: dict[str, list[int]] = {}
    subjects = machines_by_subject(request)
    named = {machine: subject for subject, machines in subjects.items() for machine in machines}
    for index, plan in enumerate(space.plans):
        row = plan.machine if request.all_offers else named.get(plan.machine, plan.machine)
        by_hardware.setdefault(row, []).append(index)
    explained = {name for names in space.left_out.values() for name in names}
    planned = {plan.machine for plan in space.plans}
    for kind in field.machines:
        if kind.name not in planned and kind.name not in explained:
            space.left_out.setdefault(_no_plan_reason(kind, request), []).append(kind.name)
    rows: list[ScoredPlan] = []
    everything: list[ScoredPlan] = []
    screened: list[ScoredPlan] = []
    bounded: list[tuple[Plan, float, float]] = []
    simulated, partial = 0, False
    with executor_of(executor, jobs) as pool:
        simulations = Simulations(cases, pool)
        for done, indices in enumerate(by_hardware.values()):
            plans = [space.plans[i] for i in indices]
            outcome = _score_row(plans, bounds[indices], space.usd_per_useful_hour[indices], simulations)
            if outcome.partial:
                count_unfinished(outcome, plans, simulations)
                outcome.long.update(outcome.scores)
            simulated += len(outcome.scores)
            scored: list[ScoredPlan] = []
            for i, (plan, at) in enumerate(zip(plans, indices, strict=True)):
                if i in outcome.scores:
                    result = cases.score_plan(plan, outcome.scores[i])
                    (scored if i in outcome.long else screened).append(result)
                else:
                    bounded.append((plan, float(space.usd_per_hour[at]), float(bounds[at])))
            everything += scored
            if scored:
                rows.append(choose(plans_within_limits(scored, request) or scored, request).recommended)
            progress("comparing", done + 1, len(by_hardware))
            if outcome.partial:
                partial = True
                break
        training = training_of(request)
        rows.sort(
            key=lambda row: (
                missed_limit(row, request, training) is not None,
                row.usd_per_million_samples,
                row.plan.key,
            )
        )
        best = best_of(rows, request) if rows and not partial else None
        baseline = None if best is None else baseline_of(best, simulations, searched=True)
    if not rows:
        raise interruption_error(space.plans, bounds, space.usd_per_hour)
    return Comparison(
        request=request,
        rows=rows,
        spot=_spot_prices(rows, cases),
        samples_per_epoch=model.samples_per_epoch,
        considered=space.considered,
        simulated=simulated,
        assumptions=[*assumptions([row.plan for row in rows], cases, searched=True), *left_out_notes(space)],
        left_out=dict(space.dropped),
        partial=partial,
        baseline=baseline,
        everything=everything,
        screened=screened,
        bounded=bounded,
        subjects={row.plan.key: compared_subject(row, subjects) for row in rows},
        missing=_missing_subjects(request, rows, space, subjects),
    )


def _score_row(plans: list[Plan], bounds: Floats, usd_per_hour: Floats, simulations: Simulations) -> Outcome:
    """Simulates the plans of one row that may be best for the objective; returns their scores."""
    request = simulations.request

    def evaluate(batch: Sequence[int], rung: Rung) -> list[Prediction]:
        """Predictions of the plans with these indices."""
        return simulations.predict_all([plans[i] for i in batch], rung)

    worth = discounts(plans, request)

    def run(goal: Goal, value: float = 0.0) -> Outcome:
        """Simulates the row's plans until the best for one goal is known; returns the outcome."""
        return Race(
            bounds,
            usd_per_hour,
            evaluate,
            goal=goal,
            # bounds are raised by the precision: what could gain less than it in the long run is left
            tolerance=2 * request.interval_width,
            worth=worth,
            worth_usd_per_sample=value,
        ).run(rungs=False, round_size=ROUND)

    if request.goal == "fastest" or not usd_per_hour.any():
        return run("fastest")
    outcome = run("cheapest")
    if request.goal == "cheapest" or outcome.partial or not outcome.scores:
        return outcome
    least = min(
        usd_per_hour[i] / 3600 / (score.samples_per_s * worth[i]) for i, score in outcome.scores.items()
    )
    return merge_outcomes(outcome, run("balanced", float(least) / request.min_marginal_efficiency))


def machines_by_subject(request: Request) -> Subjects:
    """Machine names by compared GPU, machine or provider; by device if the request names none."""
    kinds = request.market.select_machines(request.hardware_words)
    if request.gpu is not None:
        words = [word.strip() for word in request.gpu.split(",")]
        return {word: tuple(kind.name for kind in machines_with_devices(kinds, word)) for word in words}
    by: Callable[[Hardware], str]
    if request.hardware is not None:
        by = attrgetter("name")
    elif request.providers is not None and len(request.providers) > 1:
        by = attrgetter("provider")
    else:
        by = attrgetter("device.name")
    subjects: Subjects = {}
    for kind in kinds:
        subjects[by(kind)] = (*subjects.get(by(kind), ()), kind.name)
    return subjects


def compared_subject(row: ScoredPlan, subjects: Subjects) -> str:
    """Compared GPU, machine or provider that a row belongs to."""
    machine = row.plan.machine
    return next((subject for subject, machines in subjects.items() if machine in machines), machine)


def _missing_subjects(
    request: Request, rows: Sequence[ScoredPlan], space: Space, subjects: Subjects
) -> dict[str, str]:
    """For each compared GPU, machine or provider without a row, by name, the reason."""
    if request.gpu is None and request.hardware is None and request.providers is None:
        return {}
    present = {row.plan.machine for row in rows}
    out = {}
    for subject, machines in subjects.items():
        if present.isdisjoint(machines):
            reasons = [reason for reason, names in space.left_out.items() if set(names) & set(machines)]
            its = f"{machines[0]}{', ...' if len(machines) > 1 else ''}"
            why = reasons[0].clause(len(machines)) if reasons else "no plan within the limits fits in memory"
            out[subject] = f"{its} {why}" if reasons else why
    return out


def _narrow_request(request: Request, model: Model) -> Request:
    """Limits a request to few worker counts: a comparison needs one good plan per machine."""
    workers = LARGE_WORKERS if model.parameters >= LARGE_PARAMETERS else DEFAULT_WORKERS
    if request.workers is None:
        request = replace(request, workers=workers, fills_machines=True)
    return replace(request, brief=True)


def _no_plan_reason(kind: Hardware, request: Request) -> Reason:
    """Reason why a rentable machine has no row: no plan on it is feasible."""
    assert request.workers is not None
    if request.budget_usd_per_hour is not None or request.machines is not None:
        return Reason("has", "no plan that holds it within the limits asked for")
    if request.market.nic_bytes_per_s(kind) is None and max(request.workers) > kind.device_count:
        return Reason(
            "does", "not hold it on one machine, and no network figure is published; --bandwidth counts more"
        )
    return Reason("does", f"not hold it with up to {max(request.workers):,} workers as asked for")


def _spot_prices(rows: Sequence[ScoredPlan], cases: Cases) -> dict[str, float]:
    """USD per million samples on spot machines, by plan key, for the rows that are cheaper on spot."""
    request = replace(cases.request, spot=True)
    out: dict[str, float] = {}
    for row in rows:
        rented = row.plan.rented(request.market)
        paid = rental_cost(rented, request.market, request.spot_terms, cases.feasibility.state_bytes)
        if paid.spot is not None:
            out[row.plan.key] = usd_per_million_samples(paid.usd_per_useful_hour, row.samples_per_s)
    return out
