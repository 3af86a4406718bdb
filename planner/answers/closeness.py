"""Which plans the ranges of an answer do not tell apart from the choice, and which of them is surer.

Errors of one device are nearly the same for all plans on it and leave their order as it is; those of two
devices are independent. So plans on two devices are told apart where what the request asks for differs by
more than both ranges together, added as the squares of their logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.answers.jobs import missed, training_of
from planner.search.request import Request
from planner.search.scored import ScoredPlan

WORTH_SAYING = 0.02  # by which a surer plan is better at its slow end


def close_rivals(chosen: ScoredPlan, plans: Sequence[ScoredPlan], request: Request) -> list[ScoredPlan]:
    """The best plan of every other device that may as well be better than the choice, best first."""
    if chosen.range is None:
        return []
    training = training_of(request)
    best: dict[str, ScoredPlan] = {}
    for one in sorted(plans, key=lambda one: merit(one, request), reverse=True):
        comparable = one.range is not None and one.priced == chosen.priced
        if comparable and one.device != chosen.device and not missed(one, request, training):
            best.setdefault(one.device, one)
    return [one for one in best.values() if not _apart(one, chosen, request)]


def surer(chosen: ScoredPlan, rivals: Sequence[ScoredPlan], request: Request) -> ScoredPlan | None:
    """The rival that is best at the slow end of its range, if it is better there than the choice is."""
    found = max(rivals, key=lambda one: _worst(one, request), default=None)
    if found is None or _worst(found, request) <= _worst(chosen, request) * (1 + WORTH_SAYING):
        return None
    return found


def merit(one: ScoredPlan, request: Request) -> float:
    """What the request asks for, the more the better: speed, or samples for a dollar where it has a price."""
    if request.goal == "fastest" or not one.priced:
        return one.samples_per_s
    return 1 / one.usd_per_million_samples


def _worst(one: ScoredPlan, request: Request) -> float:
    return merit(one, request) * one.slow_share


def _apart(one: ScoredPlan, other: ScoredPlan, request: Request) -> bool:
    reach = math.hypot(math.log(one.slow_share), math.log(other.slow_share))
    return abs(math.log(merit(one, request) / merit(other, request))) > reach
