"""Which plans the ranges of an answer do not tell apart from the choice, and which of them is surer.

Errors of one device are nearly the same for all plans on it and leave their order as it is; those of two
devices are independent. So plans on two devices are told apart where what the request asks for differs by
more than both ranges together, added as the squares of their logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.answers.jobs import merit, within

if TYPE_CHECKING:
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan

WORTH_SAYING = 0.02  # by which a surer plan is better at its slow end


def close_rivals(chosen: ScoredPlan, plans: Sequence[ScoredPlan], request: Request) -> list[ScoredPlan]:
    """The best plan of every other device that may as well be better than the choice, best first."""
    if chosen.range is None:
        return []
    best: dict[str, ScoredPlan] = {}
    for one in sorted(within(plans, request), key=lambda one: merit(one, request), reverse=True):
        comparable = one.range is not None and one.priced == chosen.priced
        if comparable and one.device != chosen.device:
            best.setdefault(one.device, one)
    aim = merit(chosen, request)
    return [
        one
        for one in best.values()
        if not told_apart(merit(one, request) / aim, one.slow_share, chosen.slow_share)
    ]


def surer(chosen: ScoredPlan, rivals: Sequence[ScoredPlan], request: Request) -> ScoredPlan | None:
    """The rival that is best at the slow end of its range, if it is better there than the choice is."""
    found = max(rivals, key=lambda one: _worst(one, request), default=None)
    if found is None or _worst(found, request) <= _worst(chosen, request) * (1 + WORTH_SAYING):
        return None
    return found


def told_apart(ratio: float, *slow_shares: float) -> bool:
    """Whether two figures of this ratio differ by more than their ranges, whose slow ends are at these shares
    of them and whose errors are independent."""
    return abs(math.log(ratio)) > math.hypot(*map(math.log, slow_shares))


def _worst(one: ScoredPlan, request: Request) -> float:
    return merit(one, request) * one.slow_share
