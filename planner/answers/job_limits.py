"""Limits of a job that no plan meets: deadlines, sums and throughputs that the best plan without them does.

Each limit is removed alone, and the figure that the best plan then reaches is asked about again, so that a
limit is named only if a plan is recommended with it.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor
from typing import TYPE_CHECKING, Any

from planner.answers.jobs import training_of
from planner.errors import PlannerError

if TYPE_CHECKING:
    from planner.search.limits import Objective
    from planner.search.remedies import Ask
    from planner.search.request import Request

JOB_LIMITS = ("deadline_s", "spend_usd", "min_samples_per_s")
LIMIT_MARGIN = 0.98  # of a speed, which another simulation may not quite reach


def limit_words(request: Request, ask: Ask) -> str:
    """Limits of the job that a plan meets, one changed at a time, each tried; empty where none helps."""
    kept_LIMITS = [words for words in (_relaxed_words(request, limit, ask) for limit in JOB_LIMITS) if words]
    return f"; it works with {', or '.join(kept_LIMITS)}" if kept_LIMITS else ""


def _changed(request: Request, changes: dict[str, Any]) -> Request:
    return replace(request, **changes)


def _relaxed_words(request: Request, limit: str, ask: Ask) -> str:
    """The flag with the value of a limit that the best plan without it meets; empty if there is none."""
    if getattr(request, limit) is None:
        return ""
    objective: Objective = "cheapest" if limit == "spend_usd" else "fastest"
    try:
        best = ask(_changed(request, {limit: None, "objective": objective}))
        training = training_of(request)
        confident_s = 0.0 if training is None else training.confident_s(best, request.confidence)
        hours = ceil(confident_s / 360) / 10
        usd = ceil(confident_s / 3600 * best.usd_per_hour)
        rate = floor(best.samples_per_s * LIMIT_MARGIN)
        value, words = {
            "deadline_s": (hours * 3600, f"--deadline {hours:g}h"),
            "spend_usd": (usd, f"--spend {usd}"),
            "min_samples_per_s": (rate, f"--min-throughput {rate}"),
        }[limit]
        chosen = ask(_changed(request, {limit: value}))
    except PlannerError:
        return ""
    return f"{words} ({chosen.plan.cluster_text} at ${chosen.usd_per_hour:,.2f}/h)"
