"""Plans as table rows, and the what-if of a page: sliders over the simulated plans.

The what-if computes nothing: a limit hides plans, and the best of the others is shown with the answer's
figures. It only has plans in the number format of the choice, and none that were merely bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.report.html import column_classes, table_classes
from planner.report.page import CHOICE, Column, Spec
from planner.report.phrases import busiest_resource_words, price_words, run_words, speed_unit, speed_words
from planner.search.request import Request
from planner.search.scored import ScoredPlan, Training, missed_limit, training_of
from planner.units import format_bandwidth, format_seconds, money, rate, span, usd

ENERGY = (
    Column("kwh_per_million_samples", "kWh/M", show=lambda v: f"{v:.3g}"),
    Column("kg_co2e_per_million_samples", "kg CO2e/M", show=lambda v: f"{v:.3g}"),
)

GOALS = {  # of the what-if: in its menu, and of the plan that it shows
    "balanced": ("the recommended", ""),
    "cheapest": ("the cheapest per sample", "cheapest per sample"),
    "fastest": ("the fastest", "fastest"),
}
MISSED = {  # limits, as a row's label has room for
    "misses the deadline": "too late",
    "below --min-throughput": "too slow",
    "over --spend": "over --spend",
    "over the budget": "over budget",
}
MOST = 400  # plans; the page would grow and nobody slides through more


def plan_row(
    scored: ScoredPlan, chosen: ScoredPlan, request: Request, training: Training | None
) -> dict[str, Any]:
    """Table row of a plan: the PLAN object of JSON, plus keys for people that begin with an underscore."""
    scale = scored.sample_tokens or 1
    row = scored.as_dict() | {
        "_choice": CHOICE if scored.plan.key == chosen.plan.key else "",
        "_machines": f"{scored.plan.machines} x {scored.plan.machine}",
        "_run": run_words(scored.plan, request),
        "_how": scored.plan.compute_text or "fp32",
        "_paid": "on demand" if scored.spot is None else "spot",
        "_range": None if scored.range is None else span(*(scale * end for end in scored.range)),
        "_limit": busiest_resource_words(scored),
    }
    if training is not None:
        row |= training.figures(scored)
    return row | {"misses": missed_limit(scored, request, training)}


def plan_columns(
    rows: Sequence[Mapping[str, Any]],
    request: Request,
    *,
    energy: bool = False,
    first: Sequence[Column] = (),
    between: Sequence[Column] = (),
) -> list[Column]:
    """Columns of a table of plans; some appear only if their values differ or are asked for. Batch and number
    format appear if they differ, tokens for models with sequences, job time and cost if a job was given;
    costs always."""
    differ = [
        Column(key, title, spare=spare)
        for key, title, spare in (("batch", "batch", 4), ("_how", "precision", 4))
        if len({row[key] for row in rows}) > 1
    ]
    named = [Column("_machines", "machines", whole=True), Column("_run", "run as", whole=True, enough=12)]
    unit = "samples" if rows[0]["tokens_per_s"] is None else "tokens"
    ranged = any(row["_range"] is not None for row in rows)
    return [
        *first,
        *([] if between else [*named, *differ]),
        Column(f"{unit}_per_s", f"{unit}/s", rate),
        *([Column("_range", "range", align="right", spare=5)] if ranged else []),
        *between,
        *cost_columns(rows, request),
        *(ENERGY if energy else []),
        *([] if between else [Column("_limit", "busiest", spare=6)]),
    ]


def cost_columns(rows: Sequence[Mapping[str, Any]], request: Request | None) -> list[Column]:
    """Columns of price and cost, and of the job's cost if one was given; empty list without prices."""
    priced = any(row["usd_per_hour"] is not None for row in rows)
    asked = (request.samples, request.deadline_s, request.spend_usd) if request is not None else ()
    job = "job_s" in rows[0] and any(limit is not None for limit in asked)
    per = ("usd_per_billion_tokens", "$/B tokens")
    if rows[0]["tokens_per_s"] is None:
        per = ("usd_per_million_samples", "$/M samples")
    time = Column("job_s", "job time", show=format_seconds, align="right")
    return [
        *([time] if job else []),
        *([Column("job_usd", "job cost", show=usd)] if job and priced else []),
        *([Column("usd_per_hour", "$/h", show=money, spare=1 * job)] if priced else []),
        *([Column("_paid", "paid")] if request is not None and request.spot and "_paid" in rows[0] else []),
        *([Column(*per, show=money)] if priced else []),
    ]


def row_style(row: Mapping[str, Any]) -> str:
    """Terminal style of a plan's row: bold green for the choice, red for a missed limit."""
    if row.get("_choice") == CHOICE:
        return "bold green"
    return "red" if row.get("misses") else "dim"


LABEL = Column("_label", "", style=row_style, enough=13)


def what_if_spec(
    plans: Sequence[ScoredPlan], chosen: ScoredPlan, request: Request, goal: str = "balanced"
) -> Spec:
    """Data of the page's sliders, for `assets/what_if.js`; empty with fewer than two plans or no slider."""
    training = training_of(request)
    wanted = chosen.plan.precision
    has_it = {scored.plan.machine for scored in plans if scored.plan.precision == wanted}
    alike = {
        scored.plan.key: scored
        for scored in [chosen, *plans]
        if scored.plan.precision == wanted or scored.plan.machine not in has_it
    }
    kept = sorted(alike.values(), key=lambda scored: scored.usd_per_million_samples)[:MOST]
    at = [_slider_values(scored, request) for scored in kept]
    limits = {"usd": request.budget_usd_per_hour}
    sliders = [slider for slider in (_slider_spec(key, at, limits.get(key)) for key in _NAMES) if slider]
    if len(kept) < 2 or not sliders:
        return {}
    rows = [plan_row(scored, chosen, request, training) for scored in kept]
    columns = plan_columns(rows, request)
    goals = {key: words for key, words in GOALS.items() if chosen.priced or key != "cheapest"}
    return {
        "sliders": sliders,
        "goals": [[key, words] for key, (words, _) in goals.items()],
        "goal": goal if goal in goals else "balanced",
        "best": {
            **{key: f"the {words} of" for key, (_, words) in goals.items()},
            "balanced": f"not the recommended plan, but the {'cheapest' if chosen.priced else 'fastest'} of",
        },
        "chosen": "the recommended plan, one of",
        "size": table_classes(len(columns)),
        "columns": [{"title": c.heading, "kind": column_classes(c, rows)} for c in columns],
        "points": [
            _what_if_point(scored, here, row, columns, request)
            for scored, here, row in zip(kept, at, rows, strict=True)
        ],
    }


def _slider_values(scored: ScoredPlan, request: Request) -> dict[str, float | None]:
    """Position of a plan on each slider, by the slider's key."""
    machine = request.market.find_machine(scored.plan.machine)
    return {
        "workers": scored.plan.workers,
        "batch": scored.plan.batch,
        "usd": scored.usd_per_hour if scored.priced else None,
        "network": request.bandwidth_bytes_per_s or machine.nic_bytes_per_s(request.network_used),
    }


_NAMES = {"workers": "workers", "batch": "batch per worker", "usd": "price", "network": "network"}


def _limit_words(key: str, value: float) -> str:
    """Label of a slider at a value: `at most $20/h`."""
    if key == "usd":
        return f"at most {usd(value)}/h"
    if key == "network":
        return f"at most {format_bandwidth(value)}"
    return f"{'' if key == 'batch' else 'at most '}{value:,.0f}"


def _slider_spec(key: str, positions: Sequence[dict[str, float | None]], limit: float | None) -> Spec:
    """Slider over the values of all plans, set to the request's limit; empty if all are equal."""
    values = sorted({value for scored in positions if (value := scored[key]) is not None})
    if len(values) < 2:
        return {}
    limits = values if key == "batch" else values[:-1]
    below = [place for place, value in enumerate(limits) if limit is not None and value <= limit]
    within = limit is None or limit >= values[-1] or not below
    return {
        "start": len(limits) if within else below[-1],
        "key": key,
        "name": _NAMES[key],
        "exact": key == "batch",
        "values": [*limits, None],
        "words": [*(_limit_words(key, value) for value in limits), "any"],
    }


def _what_if_point(
    scored: ScoredPlan,
    position: dict[str, float | None],
    row: dict[str, Any],
    columns: Sequence[Column],
    request: Request,
) -> Spec:
    """Data of one plan for the sliders: its slider positions, ranks, table cells and sentence."""
    how = f", {scored.plan.compute_text}" if scored.plan.compute_text else ""
    speed, cost = -scored.samples_per_s, scored.usd_per_million_samples
    chosen, unit = row["_choice"] == CHOICE, speed_unit(scored)
    return {
        "at": position,
        "x": unit.speed(scored.samples_per_s),
        "y": unit.cost(cost),
        "chosen": chosen,
        "rank": {
            "fastest": speed,
            "cheapest": cost,
            "balanced": -1e300 if chosen else cost if scored.priced else speed,
        },
        "cells": [column.cell(row) for column in columns],
        "text": f"{scored.plan.cluster_text}: {run_words(scored.plan, request)}{how}, "
        f"batch {scored.plan.batch}, {', '.join([speed_words(scored), *price_words(scored)])}.",
    }
