"""The what-if of a page: sliders over the plans that were simulated, and the words of each of them.

Nothing is computed for it: a limit leaves out plans, and the best of those left is shown with the figures
that the answer has. Plans that were only bounded are no points of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from planner.report.format import usd
from planner.report.html import kind_of, size_of
from planner.report.page import Column, Spec
from planner.report.phrases import plan_columns, plan_row, price_words, run_words, speed_words
from planner.units import format_bandwidth

if TYPE_CHECKING:
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan

GOALS = (("fastest", "the fastest"), ("cheapest", "the cheapest per sample"))
BEST = {"fastest": "fastest", "cheapest": "cheapest per sample"}
MOST = 400  # plans; the page would grow and nobody slides through more


def what_if(plans: Sequence[ScoredPlan], request: Request, *, goal: str = "fastest") -> Spec:
    """What `assets/what_if.js` shows; empty where the plans leave nothing to choose."""
    from planner.answers.jobs import training_of

    training = training_of(request)
    kept = list({scored.plan.key: scored for scored in plans}.values())
    kept = sorted(kept, key=lambda scored: scored.usd_per_million_samples)[:MOST]
    at = [_at(scored, request) for scored in kept]
    limits = {"usd": request.budget_usd_per_hour}
    sliders = [slider for slider in (_slider(key, at, limits.get(key)) for key in _NAMES) if slider]
    if len(kept) < 2 or not sliders:
        return {}
    rows = [plan_row(scored, kept[0], request, training) for scored in kept]
    columns = plan_columns(rows, training, request)
    priced = all(scored.priced for scored in kept)
    goals = GOALS if priced else GOALS[:1]
    return {
        "sliders": sliders,
        "goals": [list(scored) for scored in goals],
        "goal": goal if goal in dict(goals) else goals[0][0],
        "best": BEST,
        "size": size_of(len(columns)),
        "columns": [{"title": c.heading, "kind": kind_of(c, rows)} for c in columns],
        "points": [
            _point(scored, here, row, columns, request)
            for scored, here, row in zip(kept, at, rows, strict=True)
        ],
    }


def _at(scored: ScoredPlan, request: Request) -> dict[str, float | None]:
    """Where a plan stands on each slider."""
    machine = request.market.machine(scored.plan.machine)
    return {
        "workers": scored.plan.workers,
        "batch": scored.plan.batch,
        "usd": scored.usd_per_hour if scored.priced else None,
        "network": request.bandwidth_bytes_per_s or machine.nic_bytes_per_s(request.network_used),
    }


_NAMES = {"workers": "workers", "batch": "batch per worker", "usd": "price", "network": "network"}


def _words(key: str, value: float) -> str:
    if key == "usd":
        return f"at most {usd(value)}/h"
    if key == "network":
        return f"at most {format_bandwidth(value)}"
    return f"{value:,.0f}" if key == "batch" else f"at most {value:,.0f}"


def _slider(key: str, at: Sequence[dict[str, float | None]], asked: float | None) -> Spec:
    """A place for each value that some plan has, and the last for any, which it begins with unless the answer
    has a limit; empty where all plans have the same value."""
    values = sorted({value for scored in at if (value := scored[key]) is not None})
    if len(values) < 2:
        return {}
    limits = values if key == "batch" else values[:-1]
    below = [place for place, value in enumerate(limits) if asked is not None and value <= asked]
    within = asked is None or asked >= values[-1] or not below
    return {
        "start": len(limits) if within else below[-1],
        "key": key,
        "name": _NAMES[key],
        "exact": key == "batch",
        "values": [*limits, None],
        "words": [*(_words(key, value) for value in limits), "any"],
    }


def _point(
    scored: ScoredPlan,
    at: dict[str, float | None],
    row: dict[str, Any],
    columns: Sequence[Column],
    request: Request,
) -> Spec:
    how = f", {scored.plan.computed}" if scored.plan.computed else ""
    return {
        "at": at,
        "x": scored.samples_per_s,
        "y": scored.usd_per_million_samples,
        "rank": {"fastest": -scored.samples_per_s, "cheapest": scored.usd_per_million_samples},
        "cells": [column.cell(row) for column in columns],
        "text": f"{scored.plan.cluster_text}: {run_words(scored.plan, request)}{how}, "
        f"batch {scored.plan.batch}, {', '.join([speed_words(scored), *price_words(scored)])}.",
    }
