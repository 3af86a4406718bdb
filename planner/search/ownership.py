"""Machines of the user's own: how many there are, and that they are used for speed, as they are paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.hardware import Hardware

if TYPE_CHECKING:
    from planner.search.request import Request


def uses_own_machines(request: Request) -> bool:
    """Whether workers run on the user's own machines, and it is known how many there are."""
    if request.open_choice or request.profile is not None:
        return False
    counted = request.workers is not None
    return all(
        kind.standing == "own" and (counted or owned_machines(request, kind) is not None)
        for kind in request.market.matching(request.hardware_words)
    )


def owned_machines(request: Request, hardware: Hardware) -> int | None:
    """How many machines of a kind the user owns; None where more can be rented or nobody knows.

    One is assumed where a machine has no price and neither its file nor the request says how many there are.
    """
    asked = request.machines if hardware.standing == "own" else None
    known = [count for count in (hardware.machines, asked) if count is not None]
    open_ = not known and request.workers is None and request.market.is_free(hardware)
    return 1 if open_ else min(known, default=None)
