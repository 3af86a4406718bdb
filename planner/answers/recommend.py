"""`recommend`: which cluster to rent. Enumerate, bound, race, choose; then look one step further."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from planner.answers.assumptions import assumptions
from planner.answers.choice import (
    changes_and_saturation,
    choose,
    count_unfinished,
    fp32_variant,
    interruption_error,
    settle_ties,
)
from planner.answers.parts import baseline_of
from planner.answers.refine import refine_decision
from planner.answers.refusals import left_out_notes, missed_limits_message, no_plan_message
from planner.answers.remedies import Ask, required_samples_per_s
from planner.answers.results import Recommendation, extend_answer
from planner.errors import Infeasible
from planner.note import Progress, ignore_progress
from planner.search.cases import Cases
from planner.search.field import candidate_machines
from planner.search.measured import load_runs
from planner.search.objectives import BETWEEN, CHOICE, OTHER_END, Contest, discounts, simulate_contenders
from planner.search.race import Floats, Outcome
from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan, plans_within_limits
from planner.search.screening import screened_space
from planner.search.simulations import Rung, Simulations, executor_of
from planner.search.space import Space, enumerate_plans

if TYPE_CHECKING:
    from planner.parallel.plan import Plan
    from planner.simulator.statistics import Prediction

MOST_RIVALS = 8  # a screen holds no more
FIELD, GLANCE, FURTHER = "choosing machines", "screening plans", "exploring changes"
# the stages of the work, and about which share of it is done at the end of each
STAGES = {FIELD: 0.1, GLANCE: 0.3, CHOICE: 0.65, OTHER_END: 0.75, BETWEEN: 0.9, FURTHER: 1.0}


def ignore_improvement(best: ScoredPlan) -> None:
    """No-op callback for improved plans."""


def recommend_for(
    request: Request,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    progress: Progress = ignore_progress,
    exhaustive: bool = False,
    advice: bool = True,
    trials: int | None = None,
    study: str | None = None,
    on_improvement: Callable[[ScoredPlan], None] = ignore_improvement,
    suggest: bool = True,
    refine: bool = True,
) -> Recommendation:
    """Recommends a plan for a request.

    `exhaustive` simulates every feasible plan; `trials` samples the space with optuna, in a `study` that can
    be resumed. `on_improvement` receives the best plan so far. `suggest` adds limits that work to a refusal;
    `refine` tries other settings on the recommended machines.
    """
    cases = Cases(request, model_of(request), load_runs())
    with executor_of(executor, jobs) as pool:
        simulations = Simulations(cases, pool)
        if trials is not None:
            from planner.answers.sampled import recommend_sampled

            return recommend_sampled(
                simulations, trials=trials, study=study, progress=progress, advice=advice
            )

        def report_best(scored: Sequence[ScoredPlan]) -> None:
            """Passes the best feasible plan of these to `on_improvement`."""
            if on_improvement is ignore_improvement:
                return
            if feasible := plans_within_limits(list(scored), request):
                on_improvement(choose(feasible, request).recommended)

        progress(FIELD, 0, 1)
        field = candidate_machines(cases)
        progress(GLANCE, 0, 1)
        space = (
            enumerate_plans(request, cases.model, machines=field.machines)
            if exhaustive
            else screened_space(simulations, field.machines, report_best)
        )
        space.left_out |= field.left_out
        if not space.plans:
            raise Infeasible(no_plan_message(space, request, _recommended_plan))
        all_bounds = cases.bounds(space.plans)
        progress(GLANCE, 1, 1)
        ask = _recommended_plan if suggest else None
        keep = _find_reachable(space, all_bounds, cases, ask)
        plans, bounds = [space.plans[i] for i in keep], all_bounds[keep]
        contest = contest_of(cases, plans, bounds, space.usd_per_useful_hour[keep])
        latest: dict[int, Prediction] = {}

        def evaluate(batch: Sequence[int], rung: Rung) -> list[Prediction]:
            """Predictions of the plans with these indices, also stored in `latest`."""
            result = simulations.predict_all([plans[i] for i in batch], rung)
            latest.update(zip(batch, result, strict=True))
            return result

        def report(stage: str, done: int, total: int) -> None:
            """Reports progress, and the best plan after every 100 simulations."""
            progress(stage, done, total)
            if not done % 100:
                report_best([cases.score_plan(plans[i], prediction) for i, prediction in latest.items()])

        if exhaustive:
            scores = dict(enumerate(evaluate(range(len(plans)), "long")))
            outcome = Outcome(scores=dict(scores), long=set(scores))
        else:
            outcome = simulate_contenders(
                contest,
                request.goal,
                evaluate,
                min_marginal_efficiency=request.min_marginal_efficiency,
                report=report,
            )
        if outcome.partial:
            count_unfinished(outcome, plans, simulations)
        elif not exhaustive:
            settle_ties(outcome, contest, cases, evaluate)
        if not outcome.scores and not outcome.partial:  # no bound is high enough to be simulated
            raise Infeasible(missed_limits_message(space, all_bounds, request, ask))
        if not outcome.scores:
            raise interruption_error(plans, bounds, space.usd_per_hour[keep])
        every = {i: cases.score_plan(plans[i], outcome.scores[i]) for i in outcome.scores}
        # interrupted before the long rung: what the short one says is better than nothing
        final = outcome.long if outcome.long or not outcome.partial else set(every)
        scored = plans_within_limits([every[i] for i in sorted(final)], request)
        if not scored:
            fastest = max(every.values(), key=lambda plan: plan.samples_per_s)
            raise Infeasible(missed_limits_message(space, all_bounds, request, ask, fastest))
        decision = choose(scored, request)
        if refine and not outcome.partial and not exhaustive:
            scored, decision = refine_decision(scored, decision, simulations, contest)
        chosen, in_full = decision.recommended, {plan.plan.key for plan in scored}
        by_bound = outcome.pruned_by_bound + space.pruned
        prices = space.usd_per_hour[keep]
        answer = Recommendation(
            request=request,
            chosen=chosen,
            plans=decision.shown,
            considered=space.considered,
            pruned={
                **space.dropped,
                **space.out_of_reach,
                **({"by the bound": by_bound} if by_bound else {}),
            },
            simulated=len(outcome.scores),
            assumptions=[*assumptions([chosen.plan], cases, searched=True), *left_out_notes(space)],
            everything=scored,
            screened=[every[i] for i in sorted(every) if plans[i].key not in in_full],
            bounded=[
                (plan, float(prices[i]), float(bounds[i]))
                for i, plan in enumerate(plans)
                if i not in outcome.scores
            ],
            partial=outcome.partial,
            cheapest=decision.cheapest,
            fastest=decision.fastest,
            tied=decision.tied,
        )
        usd_per_sample = contest.usd_per_hour / bounds
        answer = extend_answer(
            answer,
            lambda: {"plans": _add_rivals(decision.shown, simulations, plans, usd_per_sample)},
            lambda: {"baseline": baseline_of(chosen, simulations, searched=True)},
            lambda: {"single_precision": fp32_variant(chosen, simulations)},
            lambda: changes_and_saturation(chosen, simulations, progress) if advice else {},
        )
    return _with_longest_simulations(answer, decision.cheapest, simulations)


def _with_longest_simulations(
    answer: Recommendation, cheapest: ScoredPlan, simulations: Simulations
) -> Recommendation:
    """Returns the answer with each plan's longest simulation and one plan per cluster."""

    def as_known(scored: ScoredPlan) -> ScoredPlan:
        """Returns the plan with the prediction of its longest simulation."""
        return replace(scored, prediction=simulations.longest_prediction(scored.plan) or scored.prediction)

    now = answer.chosen.samples_per_s
    changes = [replace(change, scored=as_known(change.scored)) for change in answer.changes]
    shown, cheapest = with_cheaper_baseline(
        list(map(as_known, answer.plans)), as_known(cheapest), answer.baseline, answer.request
    )
    return replace(
        answer,
        plans=one_per_cluster(shown, answer.baseline),
        changes=[replace(change, gain=change.scored.samples_per_s / now - 1) for change in changes],
        everything=list(map(as_known, answer.everything)),
        cheapest=cheapest,
        fastest=None if answer.fastest is None else as_known(answer.fastest),
        tied=list(map(as_known, answer.tied)),
    )


def with_cheaper_baseline(
    shown: list[ScoredPlan], cheapest: ScoredPlan, baseline: ScoredPlan | None, request: Request
) -> tuple[list[ScoredPlan], ScoredPlan]:
    """Adds the baseline to the shown plans if it is cheaper; returns them and the cheapest.

    The search discounts large batches, so that one device may be cheaper.
    """
    asked = {kind.name for kind in request.market.select_machines(request.hardware_words)}
    if (
        baseline is None
        or baseline.charged_share < 1
        or not baseline.priced
        or baseline.plan.machine not in asked
        or 1 not in (request.workers or (1,))
        or baseline.usd_per_million_samples >= cheapest.usd_per_million_samples
        or not plans_within_limits([baseline], request)
    ):
        return shown, cheapest
    named = replace(baseline, marks=("cheapest",))
    others = [
        replace(plan, marks=tuple(mark for mark in plan.marks if mark != "cheapest"))
        for plan in shown
        if plan.plan.key != baseline.plan.key
    ]
    return [named, *others], named


def one_per_cluster(shown: Sequence[ScoredPlan], baseline: ScoredPlan | None) -> list[ScoredPlan]:
    """Marked plans, and one unmarked plan for each cluster that no marked plan or baseline uses."""
    named = {plan.plan.machines_text for plan in shown if plan.marks}
    if baseline is not None:
        named.add(baseline.plan.machines_text)
    kept: dict[str, ScoredPlan] = {}
    for plan in shown:
        if not plan.marks and plan.plan.machines_text not in named:
            kept.setdefault(plan.plan.machines_text, plan)
    return [plan for plan in shown if plan.marks or kept.get(plan.plan.machines_text) is plan]


def contest_of(cases: Cases, plans: Sequence[Plan], bounds: Floats, usd_per_hour: Floats) -> Contest:
    """Input of a search for the best plan: bounds, prices, ranking factors and minimum feasible speeds."""
    sigma = np.array([cases.sigma(plan) for plan in plans])
    worth = discounts(plans, cases.request) * np.exp(-(sigma**2) / 2)
    needed = required_samples_per_s(cases, plans, usd_per_hour, confident=True)
    least = np.max([np.zeros(len(plans)), *needed.values()], axis=0)
    return Contest(plans, bounds, usd_per_hour, worth, least * worth, sigma)


def _recommended_plan(request: Request) -> ScoredPlan:
    """The plan recommended for a changed request, without advice."""
    return recommend_for(request, jobs=1, advice=False, suggest=False, refine=False).chosen


def _find_reachable(space: Space, bounds: Floats, cases: Cases, ask: Ask | None) -> npt.NDArray[np.intp]:
    """Indices of plans whose bounds meet the limits; the others are counted in `space.out_of_reach`."""
    keep = np.ones(len(space.plans), bool)
    needed = required_samples_per_s(cases, space.plans, space.usd_per_useful_hour, confident=False)
    for reason, least in needed.items():
        space.out_of_reach[reason] += int(np.count_nonzero(keep & (bounds < least)))
        keep &= bounds >= least
    space.out_of_reach = +space.out_of_reach  # without zeros
    if not keep.any():
        raise Infeasible(missed_limits_message(space, bounds, cases.request, ask))
    return np.flatnonzero(keep)


def _add_rivals(
    shown: list[ScoredPlan], simulations: Simulations, plans: Sequence[Plan], usd_per_sample: Floats
) -> list[ScoredPlan]:
    """Adds the most promising plan of each machine that is missing among the shown plans."""
    seen = {plan.plan.machine for plan in shown}
    rivals: dict[str, int] = {}
    for i in np.lexsort((np.arange(len(plans)), usd_per_sample)).tolist():
        if plans[i].machine not in seen:
            rivals.setdefault(plans[i].machine, i)
    picked = [plans[i] for i in list(rivals.values())[:MOST_RIVALS]]
    extra = simulations.score_plans(picked, "medium")
    return sorted([*shown, *extra], key=lambda plan: (plan.usd_per_million_samples, plan.plan.key))
