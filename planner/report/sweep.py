"""The page of a sweep: the cheapest and the fastest plan of each model, and every plan in a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.report import charts
from planner.report.format import money, rate, span
from planner.report.page import Chart, Column, Figure, Page, Picture, Remark, Table
from planner.report.phrases import beside_words, busy_words, cost_words, run_words, strategy_words
from planner.report.what_if import what_if

if TYPE_CHECKING:
    from planner.answers.sweep import SweepResult
    from planner.search.scored import ScoredPlan

VARYING = {"model": "model", "batch": "batch", "_how": "precision", "mode": "mode", "policy": "policy"}
VARYING |= {"placement": "placement"}  # columns that people need only where they differ
FEW_MODELS = 4  # that are named one by one
MOST_ROWS = 40  # on a screen


def sweep_page(result: SweepResult, *, energy: bool = False) -> Page:
    """Every plan that was scored, cheapest first."""
    rows = [_row(scored, result) for scored in result.rows]
    rows.sort(key=lambda row: (row["usd_per_million_samples"], row["model"], row["cluster"]))
    differ = [Column(key, title) for key, title in VARYING.items() if len({row[key] for row in rows}) > 1]
    columns = [
        *(column for column in differ if column.key == "model"),
        Column("_machines", "machines", whole=True),
        Column("_run", "run as", whole=True, enough=16),
        *(column for column in differ if column.key != "model"),
        Column("samples_per_s", "samples/s", show=rate),
        *([Column("_range", "range", align="right", spare=2)] if any(row["_range"] for row in rows) else []),
        Column("usd_per_hour", "$/h", show=money, spare=1),
        Column("usd_per_million_samples", "$/M samples", show=money),
        Column("_limit", "busiest", spare=3),
    ]
    models = list(dict.fromkeys(plan.plan.model for plan in result.rows))
    notes = [f"{len(rows):,} of {result.total:,} plans scored, {len(result.refused):,} refused."]
    notes += [f"Left out: {number:,} {reason}." for reason, number in result.dropped.items()]
    if result.partial:
        notes.append("Interrupted: run the same command again to resume.")
    best = min(result.rows, key=lambda plan: plan.usd_per_million_samples)
    request = result.request
    brief = rows[:MOST_ROWS] if len(rows) > MOST_ROWS else None
    return Page(
        "planner sweep",
        "Cheapest",
        f"{best.plan.model} on {best.plan.cluster_text}, {strategy_words(best.plan) or '1 device'}",
        [[f"{rate(best.samples_per_s)} samples/s", cost_words(best)]],
        [Remark("Best", _best_words(result, models))],
        [Table(rows, columns, notes=notes, brief=brief)],
        figures=[
            Figure("plans scored", f"{len(result.rows):,}", f"of {result.total:,}"),
            Figure("models", f"{len(models):,}"),
            Figure("machines", f"{len({plan.plan.machine for plan in result.rows}):,}"),
            Figure("cheapest per sample", best.plan.machine, best.plan.cluster_text),
        ],
        what_if=(
            (lambda: what_if(result.rows, request, goal="cheapest"))
            if len(models) == 1 and request is not None
            else None
        ),
        pictures=_pictures(result, models),
        data=result.as_dict,
    )


def _pictures(result: SweepResult, models: list[str]) -> list[Picture]:
    """Cost against speed for each of a few models."""

    def drawn(place: int, model: str, priced: list[ScoredPlan]) -> Chart:
        chart = charts.pareto(priced)
        if len(models) == 1:
            return chart
        return replace(chart, key=f"pareto-{place}", title=f"{chart.title}: {model}")

    out = []
    for place, model in enumerate(models[:FEW_MODELS]):
        priced = [plan for plan in result.rows if plan.priced and plan.plan.model == model]
        if len(priced) > 1:
            out.append(Picture(lambda place=place, model=model, priced=priced: drawn(place, model, priced)))  # type: ignore[misc]
    return out


def _row(scored: ScoredPlan, result: SweepResult) -> dict[str, Any]:
    plan, request = scored.plan, result.request
    return scored.as_dict() | {
        "_machines": f"{plan.machines} x {plan.machine}",
        "_run": plan.exchange.labels().cell if request is None else run_words(plan, request),
        "_how": plan.how or "fp32",
        "_range": None if scored.range is None else span(*scored.range),
        "_limit": busy_words(scored),
    }


def _best_words(result: SweepResult, models: list[str]) -> list[str]:
    """A sentence each for the cheapest and the fastest plan of every model."""
    lines = []
    for model in models[:FEW_MODELS]:
        plans = [plan for plan in result.rows if plan.plan.model == model]
        of = f" for {model}" if len(models) > 1 else ""
        cheapest = min(plans, key=lambda plan: plan.usd_per_million_samples)
        fastest = max(plans, key=lambda plan: plan.samples_per_s)
        if cheapest is fastest:
            lines.append(beside_words(f"Cheapest per sample and fastest{of}", None, cheapest))
            continue
        lines.append(beside_words(f"Cheapest per sample{of}", None, cheapest))
        lines.append(beside_words(f"Fastest{of}", None, fastest))
    return lines
