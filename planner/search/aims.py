"""Which plans are raced to the end: those that may be what the request asks for, or the front's other end.

Both ends, the cheapest and the fastest, are found as if every plan had been simulated. What lies between them
is shown, not chosen: there a plan that is within a tenth of another in speed and in cost is spared, of plans
whose workers take turns, which are long to simulate, only powers of two machines are looked at, and none runs
in the last heats. Where the choice itself may lie between the ends (the best value, or limits that only a
simulation can judge), the whole front is raced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from planner.parallel.plan import Plan
from planner.search.front import Floats
from planner.search.heats import Heat, Score
from planner.search.race import COURSE, Evaluate, Goal, Outcome, race
from planner.search.request import Request
from planner.search.worth import worths

S = TypeVar("S", bound=Score)

CLOSE = 0.10  # plans between the ends of the front, in speed and in cost
ROUGHLY: tuple[Heat, ...] = ("glance", "short")
CHOICE, OTHER_END, BETWEEN = "simulating the choice", "simulating the other end", "simulating what is between"
Told = Callable[[str, int, int], None]  # aim, hundredths done, of so many


def between_ends(request: Request) -> bool:
    """Whether the choice may be neither the cheapest nor the fastest of all plans."""
    limits = (request.deadline_s, request.spend_usd, request.min_samples_per_s)
    return request.goal == "value" or any(limit is not None for limit in limits)


def race_for(
    request: Request,
    plans: Sequence[Plan],
    bound_samples_per_s: Floats,
    usd_per_hour: Floats,
    evaluate: Evaluate[S],
    *,
    told: Told,
) -> Outcome[S]:
    """What a request needs to know of its plans, each with this bound and price."""
    worth = worths(plans, request)
    sparse = {i for i, plan in enumerate(plans) if not plan.exchange.takes_turns or _is_power(plan.machines)}

    def run(
        aim: str, goal: Goal, known: Outcome[S] | None = None, only: Collection[int] | None = None
    ) -> Outcome[S]:
        course = COURSE if known is None else ROUGHLY

        def progress(heat: int, scored: int, left: int) -> None:
            told(aim, 100 * (heat - 1) + 100 * scored // max(scored + left, 1), 100 * len(course))

        return race(
            bound_samples_per_s,
            usd_per_hour,
            evaluate,
            goal=goal,
            tolerance=0.0 if known is None else CLOSE,
            worth=worth,
            progress=progress,
            course=course,
            only=only,
            known={} if known is None else {i: known.scores[i] for i in known.long},
        )

    if between_ends(request):
        return run(CHOICE, "front")
    wanted: Goal = "cheapest" if request.goal == "cheapest" else "fastest"
    found = run(CHOICE, wanted)
    fresh = {i for i, one in enumerate(worth) if one == 1.0}
    if fresh and not found.partial and not found.long <= fresh:  # beside which an asynchronous choice is told
        found = _joined(found, run(CHOICE, wanted, only=fresh))
    if not found.partial:
        found = _joined(found, run(OTHER_END, "fastest" if wanted == "cheapest" else "cheapest"))
    if not found.partial:
        found = _joined(found, run(BETWEEN, "front", found, sparse))
    found.pruned_by_bound = len(bound_samples_per_s) - len(found.scores)
    return found


def _is_power(count: int) -> bool:
    return count & (count - 1) == 0


def _joined(one: Outcome[S], more: Outcome[S]) -> Outcome[S]:
    """The better score of each plan: that of the race in which it came further."""
    scores = {**more.scores, **one.scores}
    scores |= {i: score for i, score in more.scores.items() if i in more.long and i not in one.long}
    out = Outcome(scores=scores, long=one.long | more.long, partial=more.partial)
    return out
