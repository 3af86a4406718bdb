"""`recommend`: which cluster to rent. Enumerate, bound, race, choose; then look one step further."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from planner.errors import Infeasible
from planner.search.advise import next_changes
from planner.search.assumptions import assumptions
from planner.search.executors import executor_of
from planner.search.front import Floats, cheapest_of_fastest, front, knee
from planner.search.race import Heat, Outcome, race
from planner.search.request import Request, model_of
from planner.search.results import Change, Recommendation, Saturation, ScoredPlan
from planner.search.saturation import saturation_of
from planner.search.score import Scorer
from planner.search.space import Space, enumerate_plans, left_out_words, no_plans

if TYPE_CHECKING:
    from planner.search.plan import Plan
    from planner.simulator.prediction import Prediction

Progress = Callable[[str, int, int], None]  # stage, done, of


def recommend_for(
    request: Request,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    progress: Progress = lambda stage, done, of: None,
    exhaustive: bool = False,
    advice: bool = True,
    trials: int | None = None,
    study: str | None = None,
) -> Recommendation:
    """The answer to a request. `exhaustive` simulates every plan that can be run, for comparison; `trials`
    samples the space with optuna instead of enumerating it, in a `study` that can be gone on with."""
    model = model_of(request)
    if trials is not None:
        return _sampled(
            Scorer(request, model),
            executor,
            jobs=jobs,
            progress=progress,
            trials=trials,
            study=study,
            advice=advice,
        )
    space = enumerate_plans(request, model)
    if not space.plans:
        raise Infeasible(no_plans(space, request))
    scorer = Scorer(request, model)
    bounds = scorer.bounds(space.plans)
    keep = _reachable(space, bounds, request)
    plans = [space.plans[i] for i in keep]
    with executor_of(executor, jobs) as pool:

        def evaluate(batch: Sequence[int], heat: Heat) -> list[Prediction]:
            return scorer.predict_all([plans[i] for i in batch], pool, heat)

        if exhaustive:
            scores = dict(enumerate(evaluate(range(len(plans)), "long")))
            outcome = Outcome(scores=dict(scores), long=set(scores))
        else:
            outcome = race(
                bounds[keep],
                space.usd_per_hour[keep],
                evaluate,
                progress=lambda done, left: progress("simulating", done, done + left),
            )
        every = {i: scorer.scored(plans[i], outcome.scores[i]) for i in outcome.scores}
        # interrupted before the long heat: what the short one says is better than nothing
        final = outcome.long if outcome.long or not outcome.partial else set(every)
        scored = _within([every[i] for i in sorted(final)], request)
        if not scored and outcome.partial:  # stopped before anything could be said
            raise KeyboardInterrupt
        if not scored:
            raise Infeasible(_short_of(scorer, plans, outcome, request))
        shown, chosen = choose(scored, request)
        if not outcome.partial:
            shown = _with_rivals(shown, scorer, plans, (space.usd_per_hour / bounds)[keep], pool)
        look = advice and not outcome.partial
        changes, curve = _further(chosen, scorer, pool, progress) if look else ([], None)
    simulated = set(outcome.scores)
    in_full = {one.plan.key for one in scored}
    return Recommendation(
        request=request,
        chosen=chosen,
        plans=shown,
        considered=space.considered,
        pruned={
            **space.dropped,
            **({"by the bound": outcome.pruned_by_bound} if outcome.pruned_by_bound else {}),
        },
        simulated=len(simulated),
        assumptions=[
            *assumptions([chosen.plan], [scorer.profile_of(chosen.plan)], request),
            *left_out_words(space),
        ],
        changes=changes,
        saturation=curve,
        everything=scored,
        screened=[every[i] for i in sorted(every) if plans[i].key not in in_full],
        bounded=[
            (plan, float(space.usd_per_hour[keep][i]), float(bounds[keep][i]))
            for i, plan in enumerate(plans)
            if i not in simulated
        ],
        partial=outcome.partial,
    )


def _reachable(space: Space, bounds: Floats, request: Request) -> npt.NDArray[np.intp]:
    """Plans whose bound can meet the constraints; the others are counted as dropped."""
    keep = np.ones(len(space.plans), bool)
    usd_per_sample = space.usd_per_hour / 3600 / bounds
    needs: list[tuple[str, npt.NDArray[np.bool_]]] = []
    if request.min_samples_per_s is not None:
        needs.append(("cannot reach --min-throughput", bounds >= request.min_samples_per_s))
    if request.samples is not None and request.deadline_s is not None:
        needs.append(("cannot meet the deadline", request.samples / bounds <= request.deadline_s))
    if request.samples is not None and request.spend_usd is not None:
        needs.append(("over --spend", usd_per_sample * request.samples <= request.spend_usd))
    for reason, met in needs:
        lost = int(np.count_nonzero(keep & ~met))
        if lost:
            space.dropped[reason] += lost
        keep &= met
    if not keep.any():
        best = int(np.argmax(bounds))
        raise Infeasible(
            f"{no_plans(space, request)}; the fastest that the budget allows is "
            f"{space.plans[best].cluster_text}, at most {bounds[best]:.0f} samples/s for "
            f"${space.usd_per_hour[best]:.2f}/h"
        )
    return np.flatnonzero(keep)


def _further(
    chosen: ScoredPlan, scorer: Scorer, pool: Executor, progress: Progress
) -> tuple[list[Change], Saturation]:
    """The next best changes of the chosen plan, and where its hardware saturates."""
    progress("looking further", 0, 2)
    changes = next_changes(chosen, scorer, pool)
    progress("looking further", 1, 2)
    curve = saturation_of(chosen.plan, scorer, pool, extra=2, max_workers=max(32, chosen.plan.workers))
    progress("looking further", 2, 2)
    return changes, curve


def _sampled(
    scorer: Scorer,
    executor: Executor | None,
    *,
    jobs: int | None,
    progress: Progress,
    trials: int,
    study: str | None,
    advice: bool,
) -> Recommendation:
    """The answer from a study of optuna's instead of an enumeration."""
    from planner.search.sampled import sample

    request = scorer.request
    with executor_of(executor, jobs) as pool:
        found = sample(request, scorer, pool, trials=trials, storage=study, progress=progress)
        scored = _within(found.scored, request)
        if not scored:
            raise Infeasible(f"none of {found.trials} trials gave a plan that meets the constraints")
        shown, chosen = choose(scored, request)
        look = advice and not found.partial
        changes, curve = _further(chosen, scorer, pool, progress) if look else ([], None)
    return Recommendation(
        request=request,
        chosen=chosen,
        plans=shown,
        considered=found.trials,
        pruned={**found.dropped, "by the bound": found.pruned_by_bound},
        simulated=len(found.scored),
        assumptions=assumptions([chosen.plan], [scorer.profile_of(chosen.plan)], request),
        changes=changes,
        saturation=curve,
        everything=scored,
        partial=found.partial,
    )


def _with_rivals(
    shown: list[ScoredPlan],
    scorer: Scorer,
    plans: Sequence[Plan],
    usd_per_sample: Floats,
    pool: Executor,
) -> list[ScoredPlan]:
    """The shown plans and, for each hardware that is not on the front, the plan with the cheapest bound:
    whoever wonders why their machine was not chosen sees what it would give."""
    seen = {one.plan.worker_hardware for one in shown}
    rivals: dict[str, int] = {}
    for i in np.lexsort((np.arange(len(plans)), usd_per_sample)).tolist():
        if plans[i].worker_hardware not in seen:
            rivals.setdefault(plans[i].worker_hardware, i)
    picked = [plans[i] for i in rivals.values()]
    predictions = scorer.predict_all(picked, pool, "medium")
    extra = [scorer.scored(plan, prediction) for plan, prediction in zip(picked, predictions, strict=True)]
    return sorted([*shown, *extra], key=lambda one: (one.usd_per_million_samples, one.plan.key))


def _within(scored: list[ScoredPlan], request: Request) -> list[ScoredPlan]:
    """Plans that meet the constraints as simulated."""

    def meets(one: ScoredPlan) -> bool:
        if request.min_samples_per_s is not None and one.samples_per_s < request.min_samples_per_s:
            return False
        if request.samples is None:
            return True
        if request.deadline_s is not None and request.samples / one.samples_per_s > request.deadline_s:
            return False
        spend = one.usd_per_million_samples * request.samples / 1e6
        return request.spend_usd is None or spend <= request.spend_usd

    return [one for one in scored if meets(one)]


def _short_of(scorer: Scorer, plans: list[Plan], outcome: Outcome[Prediction], request: Request) -> str:
    best = max(outcome.scores, key=lambda i: outcome.scores[i].samples_per_s)
    found = scorer.scored(plans[best], outcome.scores[best])
    return (
        f"no plan meets the constraints; the fastest is {found.plan.cluster_text} with "
        f"{found.samples_per_s:.0f} samples/s for ${found.usd_per_hour:.2f}/h "
        f"(${found.usd_per_million_samples:.2f} a million samples); "
        "relax --deadline, --spend or --min-throughput"
    )


def choose(scored: Sequence[ScoredPlan], request: Request) -> tuple[list[ScoredPlan], ScoredPlan]:
    """The plans to show, by cost a sample with their marks, and the one that the objective picks."""
    scored = sorted(scored, key=lambda one: one.plan.key)
    speed = np.array([one.samples_per_s for one in scored])
    cost = np.array([one.usd_per_million_samples for one in scored])
    on_front = front(speed, cost)
    cheapest = min(on_front, key=lambda i: (cost[i], -speed[i]))
    fastest = cheapest_of_fastest(speed, cost)
    value = on_front[knee(speed[on_front], cost[on_front])]
    picked = {"fastest": fastest, "cheapest": cheapest, "value": value}[request.goal]
    best_of: dict[str, int] = {}
    for i in np.lexsort((np.arange(len(scored)), cost)).tolist():
        best_of.setdefault(scored[i].plan.worker_hardware, i)
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
