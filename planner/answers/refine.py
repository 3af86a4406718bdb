"""Running the recommended machines as an expert would: the simplest of the ways that are about as fast.

The search compares machines by the usual way to run each. Then the recommended ones are tried with other
micro-batches, recompute, strategies, meshes and settings at the same global batch and precision.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from planner.answers.choice import Decision, choose
from planner.device.activations import RECOMPUTE_MODES
from planner.parallel.data import EXCHANGES, Tier
from planner.parallel.plan import Plan
from planner.search.feasibility import Feasibility, exclusion
from planner.search.objectives import LEAST_GAIN_OVER, Contest, discounts, least_gain, setup_effort
from planner.search.rank import LEAST_GAIN, Contenders, worth_per_sample
from planner.search.scored import ScoredPlan, plans_within_limits
from planner.search.simulations import Simulations, cautious_interval, is_within_error
from planner.search.sizes import (
    DOUBLING,
    DOUBLINGS,
    allowed_strategies,
    dividing_batches,
    max_step_samples,
    may_accumulate_more,
)
from planner.search.space import plans_on

if TYPE_CHECKING:
    from planner.search.cases import Cases

MOST_REFINED = 3  # numbers of machines whose other ways to run are looked at
MOST_ELSEWHERE = 3  # other machines that sharding might speed up
REFINED_GAIN = 0.015  # in speed, for which settings are taken that the search had not tried


def refine_decision(
    scored: list[ScoredPlan], decision: Decision, simulations: Simulations, contest: Contest
) -> tuple[list[ScoredPlan], Decision]:
    """Tries other settings on the best machines; returns the scored plans and the new decision."""
    request, tried = simulations.request, set[tuple[str, int]]()
    while len(tried) < MOST_REFINED:
        chosen = decision.recommended
        fresh = next((plan for plan in [chosen.plan] if _machine_and_workers(plan) not in tried), None)
        fresh = fresh or next(_possible_winners(decision, contest, simulations.cases, tried), None)
        if fresh is None:
            break
        tried.add(_machine_and_workers(fresh))
        (now,) = simulations.score_plans([fresh])  # in full: plans between the ends were looked at briefly
        way = _double_accumulation(_simplest_fast_plan(now, simulations), simulations)
        if plans_within_limits([way], request):
            scored = [*(plan for plan in scored if plan.plan.key not in (now.plan.key, way.plan.key)), way]
            decision = choose(scored, request)
    return scored, decision


def _machine_and_workers(plan: Plan) -> tuple[str, int]:
    """Key of a plan's cluster: machine and number of workers."""
    return plan.machine, plan.workers


def _possible_winners(
    decision: Decision, contest: Contest, cases: Cases, tried: Container[tuple[str, int]]
) -> Iterator[Plan]:
    """Yields plans that may win once they are refined.

    They use other powers of two of sharded machines, or other machines that sharding would speed up.
    """
    request, chosen, best = cases.request, decision.recommended, dict[int, Plan]()
    if EXCHANGES.tier(chosen.plan.exchange) is Tier.CONTENDER:
        return
    for plan in sorted(contest.plans if setup_effort(chosen.plan) else (), key=lambda p: -cases.bound(p)):
        if plan.machine == chosen.plan.machine and plan.machines & (plan.machines - 1) == 0:
            best.setdefault(plan.workers, plan)
    others = [*best.values(), *_plans_gaining_elsewhere(decision, contest, cases)]
    others = [plan for plan in others if _machine_and_workers(plan) not in tried]
    ceilings = [float(cases.bounds([plan, *_other_settings(plan, cases)]).max()) for plan in others]
    share, *shares = discounts([chosen.plan, *others], request).tolist()
    hopeful = [
        cases.candidate(plan, ceiling * each)
        for plan, ceiling, each in zip(others, ceilings, shares, strict=True)
    ]
    rule = Contenders([chosen.candidate(share), *hopeful], request.goal, request.min_marginal_efficiency)
    for i in np.argsort(-rule.value[1:], kind="stable").tolist():
        if rule.value[i + 1] > rule.value[0]:
            yield others[i]


def _plans_gaining_elsewhere(decision: Decision, contest: Contest, cases: Cases) -> Iterator[Plan]:
    """Yields the best plan of each other machine on which sharding may gain enough to justify its setup."""
    speed, usd_per_s = contest.bound_samples_per_s * contest.worth, contest.usd_per_hour / 3600
    request, cheapest = cases.request, decision.cheapest.candidate().expected_usd_per_sample
    value = -usd_per_s / speed if request.goal == "cheapest" and usd_per_s.any() else speed
    if request.goal == "balanced" and usd_per_s.any():
        value = worth_per_sample("balanced", cheapest, request.min_marginal_efficiency) * speed - usd_per_s
    machines = {decision.recommended.plan.machine}
    for i in np.argsort(-value, kind="stable").tolist():
        plan, effort = contest.plans[i], setup_effort(contest.plans[i])
        if len(machines) > MOST_ELSEWHERE:
            return
        if plan.machine in machines:
            continue
        machines.add(plan.machine)
        ways = [way for way in _other_settings(plan, cases) if setup_effort(way) > effort]
        if ways and cases.bounds(ways).max() >= cases.bound(plan) * least_gain(effort, effort + 1):
            yield plan


def settings_complexity(plan: Plan) -> tuple[int, int]:
    """Sort key of a plan's effort to set up: its recompute mode and micro-batches per step."""
    return RECOMPUTE_MODES.index(plan.recompute), plan.accumulate


def _simplest_fast_plan(chosen: ScoredPlan, simulations: Simulations) -> ScoredPlan:
    """The plan on the same machines that takes the least effort to set up and is about as fast.

    Few micro-batches and little recompute are preferred.
    """
    cases, request, plan = simulations.cases, simulations.request, chosen.plan
    if request.profile is not None or EXCHANGES.tier(plan.exchange) is Tier.CONTENDER:
        return chosen
    plans, own = _other_settings(plan, cases), setup_effort(plan)
    by_effort, top = {own: chosen}, chosen.samples_per_s
    for effort in sorted({own, *map(setup_effort, plans)}):
        floor = chosen.samples_per_s * least_gain(own, effort) / least_gain(effort, own)
        alike = [way for way in plans if setup_effort(way) == effort]
        if (found := _fastest_plan(alike, floor, simulations)) is not None:
            by_effort[effort], top = found, max(top, found.samples_per_s)
    best = next(
        known
        for effort, known in sorted(by_effort.items())
        if known.samples_per_s * (1 + LEAST_GAIN_OVER[effort]) >= top
    )
    gain = 1 + max(LEAST_GAIN, LEAST_GAIN_OVER[setup_effort(best.plan)])
    if setup_effort(best.plan) == own and chosen.samples_per_s * gain >= top:
        best = best if is_clearly_faster(best, chosen) else chosen
    least = max(best.samples_per_s * (1 - REFINED_GAIN), top / gain)
    for way in sorted(plans, key=lambda way: (*settings_complexity(way), way.key)):
        if settings_complexity(way) >= settings_complexity(best.plan):
            break
        if setup_effort(way) <= setup_effort(best.plan):
            simpler = _fastest_plan([way], least, simulations)
            if simpler is not None:
                return simpler
    return best


def _double_accumulation(best: ScoredPlan, simulations: Simulations) -> ScoredPlan:
    """Doubles the micro-batches per step, at most two times, as long as that is faster."""
    request, model = simulations.request, simulations.cases.model
    for _ in range(DOUBLINGS if may_accumulate_more(request, model) else 0):
        plan = replace(best.plan, accumulate=2 * best.plan.accumulate)
        if plan.workers == 1 or plan.samples_per_step * plan.replicas > max_step_samples(model):
            break
        (doubled,) = simulations.score_plans([plan])
        way = _simplest_fast_plan(doubled, simulations)
        if way.samples_per_s < best.samples_per_s * (1 + DOUBLING):
            break
        best = way
    return best


def is_clearly_faster(plan: ScoredPlan, other: ScoredPlan) -> bool:
    """Whether a plan's gain exceeds the simulation error and justifies other settings."""
    gained = plan.samples_per_s - other.samples_per_s * (1 + REFINED_GAIN)
    return gained > 0 and not is_within_error(gained, plan.prediction, other.prediction)


def _other_settings(plan: Plan, cases: Cases) -> list[Plan]:
    """Other feasible settings of the same machines with the same samples per step."""
    ways = {way.key: way for way in same_step_plans(plan, cases)}
    if not any(choices for _, choices in cases.request.exchanges or ()):
        for other in plan.exchange.variants(cases.site(plan)):
            way = replace(plan, exchange=other.exchange)
            if other.size is None and cases.feasibility.is_possible(way):
                ways.setdefault(way.key, way)
    return [way for key, way in sorted(ways.items()) if key != plan.key]


def same_step_plans(plan: Plan, cases: Cases) -> Iterator[Plan]:
    """Yields the allowed plans on the same machines with the same samples per step and precision."""
    request, samples = cases.request, plan.batch * plan.accumulate * plan.replicas
    batches = request.batches if isinstance(request.batches, tuple) else None
    if batches is None:
        shared = plan.batch * plan.accumulate
        limits = (plan.batch // 4, plan.batch // 2, plan.batch, 2 * plan.batch, 4 * plan.batch)
        batches = tuple(dividing_batches(shared, limits))
    named = request.accumulate is not None
    site = cases.site(plan)
    usual = tuple(
        kind
        for kind in allowed_strategies(request)
        if EXCHANGES.entry(kind).tier is not Tier.CONTENDER
        and EXCHANGES.entry(kind).considered(cases.model.parameters, site)
    )
    same = replace(
        request,
        batches=batches,
        global_batch=None if named else samples,
        formats=(plan.precision.name,),
        exchanges=request.exchanges or tuple((kind, {}) for kind in usual),
        workers=(plan.workers,),
    )
    feasibility = Feasibility(same, cases.model)
    for other in plans_on(cases.market.find_machine(plan.machine), same, feasibility):
        if other.workers == plan.workers and exclusion(other, same, feasibility)[0] is None:
            yield other


def _fastest_plan(plans: Sequence[Plan], floor: float, simulations: Simulations) -> ScoredPlan | None:
    """The fastest plan within the limits; None if none exceeds `floor` samples per second."""
    best: ScoredPlan | None = None
    bounds = simulations.cases.bounds(plans) if plans else np.zeros(0)
    for i in np.argsort(-bounds, kind="stable").tolist():
        if bounds[i] <= floor:
            break
        if cautious_interval(simulations.predict_all([plans[i]], "glance")[0], "glance")[1] <= floor:
            continue
        (way,) = simulations.score_plans([plans[i]])
        if way.samples_per_s > floor and plans_within_limits([way], simulations.request):
            best, floor = way, way.samples_per_s
    return best
