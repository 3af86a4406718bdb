"""Refusals: why a request has no plan, in a sentence, and what would give it one, in another.

Limits of the job are relaxed one at a time to what the best plan without them reaches, and asked about again,
so that a limit is named only if a plan is recommended with it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil, floor, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.answers.remedies import Ask, Remedy, price_clause, remedy_sentence
from planner.errors import BadInput, Infeasible, PlannerError
from planner.model import Floats
from planner.note import LeftOut, Topic
from planner.parallel.mesh import meshes
from planner.parallel.plan import Site
from planner.search.feasibility import OUT_OF_MEMORY, Exclusion
from planner.search.machines import uses_own_machines
from planner.search.request import MAX_WORKERS, Request, model_of
from planner.search.scored import training_of
from planner.search.sizes import allowed_strategies
from planner.search.space import Space
from planner.units import rate

if TYPE_CHECKING:
    from planner.search.flag_values import Objective
    from planner.search.scored import ScoredPlan

SHORT_MINUTES = 180  # below which a deadline is said in minutes
LEAST_WHOLE = 100  # samples/s, below which a throughput has three digits
FEW = 3  # names that a sentence has room for


def left_out_notes(space: Space) -> list[LeftOut]:
    """Notes that name the machines left out for each reason."""
    return [
        LeftOut(Topic.LEFT_OUT, f"{', '.join(names)} {reason.clause(len(names))}.", machines=tuple(names))
        for reason, names in space.left_out.items()
    ]


def no_plan_message(space: Space, request: Request, ask: Ask | None = None) -> str:
    """Message that explains why a space is empty and names the cheapest remedies."""
    if not space.dropped and not space.left_out:
        if request.is_mesh_named:
            raise _mesh_error(request)
        raise BadInput(  # not one to judge: the exchanges that are asked for do not go with such machines
            f"--exchange {','.join(allowed_strategies(request))} cannot fill "
            f"{','.join(request.hardware_words)}, and workers fill whole machines; name others, or ask "
            "`planner simulate` for a part of one"
        )
    return _failure_summary(space, request) + remedy_sentence(request, ask)


# What plans of the space fail at, of one and of several, by the words that answers count them with.
FAILURES: dict[str, tuple[str, str]] = {
    Exclusion.OVER_BUDGET: ("is over the budget", "are over the budget"),
    Exclusion.INDIVISIBLE: ("does not divide the global batch", "do not divide the global batch"),
    Exclusion.OVER_OWN: ("needs more machines than there are", "need more machines than there are"),
    Exclusion.OVER_MACHINES: ("exceeds --machines", "exceed --machines"),
    "for which servers lack memory": ("lacks memory on its servers", "lack memory on their servers"),
    "cannot reach --min-throughput": ("misses --min-throughput", "miss --min-throughput"),
    "cannot meet the deadline": ("misses the deadline", "miss the deadline"),
    "over --spend": ("is over --spend", "are over --spend"),
}


def _failure_summary(space: Space, request: Request) -> str:
    """Reasons why plans failed, such as `all 208 candidate plans exceed the memory of T4`."""
    lost = space.dropped + space.out_of_reach
    left_out = [
        f"{_abbreviate_names(group)} {why.clause(len(group))}" for why, group in space.left_out.items()
    ]
    if not lost:
        return f"no machine can be used: {', '.join(left_out)}"
    failed = Counter[tuple[str, str]]()
    devices = list[str]()
    for reason, number in lost.most_common():
        if reason in FAILURES:
            failed[FAILURES[reason]] += number
        else:
            devices.append(reason.removeprefix(OUT_OF_MEMORY))
    if devices:
        *others, last = devices[:FEW] + ([f"{len(devices) - FEW} more"] if devices[FEW:] else [])
        where = f"{', '.join(others)} and {last}" if others else last
        number = sum(number for reason, number in lost.items() if reason not in FAILURES)
        failed[f"exceeds the memory of {where}", f"exceed the memory of {where}"] = number
    if request.is_choice_open:
        left_out = []  # of hundreds of machines: the answer to another question
    if len(failed) == 1:
        ((one, several),) = failed
        number = lost.total()
        subject = (
            f"{'both' if number == 2 else f'all {number:,}'} candidate plans {several}"
            if number > 1
            else f"the only candidate plan {one}"
        )
        return "; ".join([subject, *left_out])
    parts = [f"{number:,} {words[number > 1]}" for words, number in failed.most_common()]
    return f"none of the {lost.total():,} candidate plans is feasible: {', '.join([*parts, *left_out])}"


def missed_limits_message(
    space: Space, bounds: Floats, request: Request, ask: Ask | None, reached: ScoredPlan | None = None
) -> str:
    """Message that no plan meets the job's limits, with limits that work; `reached` is the fastest."""
    if space.out_of_reach.total() >= len(space.plans):
        why = _failure_summary(space, request)
    else:
        why = f"no plan meets the limits with {request.confidence:.0%} probability"
    if reached is None:
        nearest = _nearest_plan_clause(space, bounds, request)
    else:
        speed = f"{rate(reached.samples_per_s)} samples/s{price_clause(reached.usd_per_hour, ' for')}"
        nearest = f"the fastest is {reached.plan.rental_text} with {speed}"
    return f"{why}; {nearest}{'' if ask is None else _working_limits_sentence(request, ask)}"


def _nearest_plan_clause(space: Space, bounds: Floats, request: Request) -> str:
    """Clause on the plan nearest to the limits: the cheapest if money is short, else the fastest."""
    usd_per_sample = space.usd_per_useful_hour / 3600 / bounds
    cheapest, fastest = int(np.argmin(usd_per_sample)), int(np.argmax(bounds))
    if request.spend_usd is not None and request.samples is not None:
        least = float(usd_per_sample[cheapest]) * request.samples
        if least > request.spend_usd:
            return f"the cheapest is {space.plans[cheapest].rental_text}, which needs at least ${least:,.2f}"
    within = "" if request.budget_usd_per_hour is None else " that the budget allows"
    limits = (request.budget_usd_per_hour, request.machines, request.workers)
    open_ = limits == (None, None, None) and not uses_own_machines(request)
    more = f"; up to {MAX_WORKERS} workers were tried" if open_ else ""
    price = price_clause(float(space.usd_per_hour[fastest]), " for")
    name = space.plans[fastest].rental_text
    return f"the fastest{within} is {name}, at most {rate(float(bounds[fastest]))} samples/s{price}{more}"


JOB_LIMITS = ("deadline_s", "spend_usd", "min_samples_per_s", "budget_usd_per_hour")
HALVINGS = 3  # of a budget
LIMIT_MARGIN = 0.98  # of a speed, which another simulation may not quite reach


def _working_limits_sentence(request: Request, ask: Ask) -> str:
    """Sentence with limits that work, relaxed one at a time; empty string if none does."""
    working = [words for words in (_relaxed_limit_flag(request, limit, ask) for limit in JOB_LIMITS) if words]
    return f". It works with {', or '.join(working)}" if working else ""


def _relaxed_limit_flag(request: Request, limit: str, ask: Ask) -> str:
    """Flag with the value that the best plan without this limit reaches; empty string without a plan."""
    if getattr(request, limit) is None:
        return ""
    objective: Objective = "cheapest" if "usd" in limit else "fastest"
    changes: dict[str, Any] = {limit: None, "objective": objective}
    try:
        best = ask(replace(request, **changes))
        best = _cheaper_per_hour(best, request, ask) if limit == "budget_usd_per_hour" else best
        value, words = _reached_limit(limit, best, request)
        changes = {limit: value}
        chosen = ask(replace(request, **changes))
    except PlannerError:
        return ""
    return Remedy(words, chosen.plan, chosen.usd_per_hour).words


def _cheaper_per_hour(plan: ScoredPlan, request: Request, ask: Ask) -> ScoredPlan:
    """Plan that meets the other limits at a lower hourly price, found by halving the price repeatedly."""
    for _ in range(HALVINGS):
        try:
            plan = ask(replace(request, budget_usd_per_hour=plan.usd_per_hour / 2))
        except PlannerError:
            break
    return plan


def _reached_limit(limit: str, best: ScoredPlan, request: Request) -> tuple[float, str]:
    """Value of a limit that a plan meets with the request's confidence, and the flag that sets it."""
    if limit == "budget_usd_per_hour":
        budget = ceil(round(best.usd_per_hour * 100, 6)) / 100
        return budget, f"--budget {budget:.2f}"
    if limit == "min_samples_per_s":
        speed = best.samples_per_s * LIMIT_MARGIN
        words = f"{floor(speed)}" if speed >= LEAST_WHOLE else f"{speed:.3g}"
        return float(words), f"--min-throughput {words}"
    training = training_of(request)
    confident_s = 0.0 if training is None else training.confident_s(best, request.confidence)
    if limit == "spend_usd":
        usd = ceil(confident_s / 3600 * best.usd_per_hour)
        return usd, f"--spend {usd}"
    minutes, hours = ceil(confident_s / 60), ceil(confident_s / 360) / 10
    if minutes < SHORT_MINUTES:
        return 60 * minutes, f"--deadline {minutes}min"
    return hours * 3600, f"--deadline {hours:.1f}h".replace(".0h", "h")


def _abbreviate_names(names: list[str]) -> str:
    """Names as text; for many names, their number and the first three."""
    return ", ".join(names) if len(names) <= FEW else f"{len(names)} machines ({', '.join(names[:FEW])}, ...)"


def _mesh_error(request: Request) -> PlannerError:
    """Error that explains why no number of machines holds whole replicas of the named mesh."""
    model, machines = model_of(request), request.market.select_machines(request.hardware_words)
    errors = [
        mesh.infeasibility(Site(kind, mesh.size), model)
        for kind in machines
        for mesh in meshes(model, Site(kind, kind.device_count), request.axis_settings)
    ]
    if errors and errors[0] is not None and all(errors):
        return errors[0]
    named = meshes(model, Site(machines[0], machines[0].device_count), request.axis_settings)
    counts = {
        kind.name: min(lcm(mesh.size, kind.device_count) // kind.device_count for mesh in named)
        for kind in machines
    }
    name = min(counts, key=counts.__getitem__)
    labels = " or ".join(mesh.label for mesh in named)
    return Infeasible(
        f"no number of machines that is allowed makes whole replicas of {labels}; the nearest that works is "
        f"{counts[name]} x {name}"
    )
