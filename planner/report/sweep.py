"""Page of `sweep`: every scored plan of a grid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.answers.sweep import SweepResult
from planner.report import charts
from planner.report.page import Chart, Column, Figure, Page, Picture, Remark, Table
from planner.report.phrases import busiest_resource_words, cost_words, other_plan_sentence, run_words
from planner.report.plan_rows import cost_columns, what_if_spec
from planner.search.scored import ScoredPlan
from planner.units import rate, span

VARYING = {"model": 0, "batch": 5, "precision": 6, "policy": 3, "placement": 4}  # columns, if they differ
FEW_MODELS = 4  # that are named one by one
MOST_GRID_ROWS = 40  # on a screen


def sweep_page(result: SweepResult, *, energy: bool = False) -> Page:
    """Page of a sweep: every plan, cheapest first."""
    rows = [_grid_row(scored, result) for scored in result.rows]
    rows.sort(key=lambda row: (row["usd_per_million_samples"], row["model"], row["cluster"]))
    differ = [
        Column(key, spare=spare) for key, spare in VARYING.items() if len({row[key] for row in rows}) > 1
    ]
    columns = [
        *(column for column in differ if column.key == "model"),
        Column("_machines", "machines", whole=True),
        Column("_run", "run as", whole=True, enough=12),
        *(column for column in differ if column.key != "model"),
        Column("samples_per_s", "samples/s", show=rate),
        *([Column("_range", "range", align="right", spare=5)] if any(row["_range"] for row in rows) else []),
        *cost_columns([{**rows[0], "tokens_per_s": None}], None),
        Column("_limit", "busiest", spare=6),
    ]
    models = list(dict.fromkeys(plan.plan.model for plan in result.rows))
    notes = [f"{len(rows):,} of {result.total:,} plans scored, {len(result.refused):,} refused."]
    notes += [f"Left out: {number:,} {reason}." for reason, number in result.dropped.items()]
    notes += ["Interrupted: run the same command again to resume."] if result.partial else []
    best = min(result.rows, key=lambda plan: plan.usd_per_million_samples)
    request = result.request
    return Page(
        "planner sweep",
        "Cheapest",
        f"{best.plan.model} on {best.plan.rental_text}, {best.plan.settings_text or 'fp32'}, "
        f"batch {best.plan.batch:,}",
        [[f"{rate(best.samples_per_s)} samples/s", cost_words(best)]],
        [Remark("Best", _best_words(result, models))],
        [
            Table(
                rows,
                columns,
                notes=notes,
                brief=rows[:MOST_GRID_ROWS] if len(rows) > MOST_GRID_ROWS else None,
            )
        ],
        figures=[
            Figure("plans scored", f"{len(result.rows):,}", f"of {result.total:,}"),
            Figure("models", f"{len(models):,}"),
            Figure("machines", f"{len({plan.plan.machine for plan in result.rows}):,}"),
            Figure("cheapest per sample", best.plan.machine, best.plan.cluster_text),
        ],
        what_if=(
            (lambda: what_if_spec(result.rows, best, request, "cheapest"))
            if len(models) == 1 and request is not None
            else None
        ),
        pictures=lambda: [
            Picture(lambda place=place, priced=priced: _model_pareto_chart(place, priced, len(models)))  # type: ignore[misc]
            for place, model in enumerate(models[:FEW_MODELS])
            if len(priced := [plan for plan in result.rows if plan.priced and plan.plan.model == model]) > 1
        ],
        data=result.as_dict,
    )


def _model_pareto_chart(place: int, plans: list[ScoredPlan], models: int) -> Chart:
    """Chart of cost against speed for the plans of one model."""
    chart = charts.pareto_chart(plans)
    if models == 1:
        return chart
    return replace(chart, key=f"pareto-{place}", title=f"{chart.title}: {plans[0].plan.model}")


def _grid_row(scored: ScoredPlan, result: SweepResult) -> dict[str, Any]:
    """Table row of a plan in a grid."""
    plan, request = scored.plan, result.request
    return scored.as_dict() | {
        "_machines": f"{plan.machines} x {plan.machine}",
        "_run": plan.exchange.labels().cell if request is None else run_words(plan, request),
        "precision": plan.settings_text or "fp32",
        "_range": None if scored.range is None else span(*scored.range),
        "_limit": busiest_resource_words(scored),
    }


def _best_words(result: SweepResult, models: list[str]) -> list[str]:
    """Sentences on each model's cheapest and fastest plan."""
    lines = []
    for model in models[:FEW_MODELS]:
        plans = [plan for plan in result.rows if plan.plan.model == model]
        of = f" for {model}" if len(models) > 1 else ""
        cheapest = min(plans, key=lambda plan: plan.usd_per_million_samples)
        fastest = max(plans, key=lambda plan: plan.samples_per_s)
        if cheapest is fastest:
            lines.append(other_plan_sentence(f"Cheapest per sample and fastest{of}", None, cheapest))
            continue
        lines.append(other_plan_sentence(f"Cheapest per sample{of}", None, cheapest))
        lines.append(other_plan_sentence(f"Fastest{of}", None, fastest))
    return lines
