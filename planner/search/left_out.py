"""Why machines and plans were left out, in words."""

from __future__ import annotations

from planner.errors import BadInput
from planner.search.request import Request
from planner.search.space import Space, kinds


def left_out_words(space: Space) -> list[str]:
    return [
        f"Left out: {', '.join(names)} {reason if len(names) > 1 else _of_one(reason)}."
        for reason, names in space.left_out.items()
    ]


_SINGULAR = {"have": "has", "do": "does"}


def _of_one(reason: str) -> str:
    """`has no price`, of a reason that is told of several: its first word is a verb."""
    first, _, rest = reason.partition(" ")
    return f"{_SINGULAR.get(first, first + 's')} {rest}"


def no_plans(space: Space, request: Request) -> str:
    """Why a space is empty, in a sentence, and what would make it less so."""
    lost = space.dropped + space.out_of_reach
    if not lost and not space.left_out:
        raise BadInput(  # not one to judge: the exchanges that are asked for do not go with such machines
            f"--exchange {','.join(kinds(request))} cannot fill {','.join(request.hardware_words)}, "
            "and workers fill whole machines; name others, or ask `planner simulate` for a part of one"
        )
    reasons = ", ".join(
        [
            *(f"{reason} ({count})" for reason, count in lost.most_common(3)),
            *(f"{', '.join(names)} {reason}" for reason, names in space.left_out.items()),
        ]
    )
    nearest = ""
    if space.cheapest_dropped is not None:
        price, plan = space.cheapest_dropped
        nearest = f"; the nearest plan is {plan.cluster_text} at ${price:.2f}/h"
    return f"no plan is left of {space.considered}: {reasons}{nearest}"
