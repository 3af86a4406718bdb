"""The result of a sweep: the cheapest and the fastest plan of each model, then every plan in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.report.answer_words import plan_row, rate, usd
from planner.report.decision import beside_words, busy_words, run_words
from planner.report.output import Column, Table

if TYPE_CHECKING:
    from planner.answers.sweep import SweepResult
    from planner.search.scored import ScoredPlan

VARYING = {"model": "model", "batch": "batch", "_how": "computed in", "mode": "mode", "policy": "policy"}
VARYING |= {"placement": "placement"}
FEW = 4  # models that are spoken of one by one


def sweep_tables(result: SweepResult) -> list[Table]:
    """CSV and JSON hold every plan; columns that people need only where they differ are shown only there."""
    rows = [_row(scored, result) for scored in result.rows]
    rows.sort(key=lambda row: (row["usd_per_million_samples"], row["model"], row["cluster"]))
    varying = [Column(key, title) for key, title in VARYING.items() if len({row[key] for row in rows}) > 1]
    ranged = any(row["_range"] is not None for row in rows)
    columns = [
        *(column for column in varying if column.key == "model"),
        Column("_workers", "machines"),
        Column("_run", "run as"),
        *(column for column in varying if column.key != "model"),
        Column("samples_per_s", "samples/s", show=rate),
        *([Column("_range", "range", align="right", spare=True)] if ranged else []),
        Column("usd_per_hour", "USD/h", show=usd),
        Column("usd_per_million_samples", "USD/M", show=usd),
        Column("_limit", "limited by", spare=True),
    ]
    notes = [f"{len(rows):,} of {result.total:,} plans scored, {len(result.refused):,} refused."]
    notes += [f"Left out: {count:,} {reason}." for reason, count in result.dropped.items()]
    if result.partial:
        notes.append("Interrupted: run the same command again to go on.")
    return [Table(rows, columns, title=_answer(result), notes=notes)]


def _row(one: ScoredPlan, result: SweepResult) -> dict[str, Any]:
    words = one.plan.exchange.words()
    return plan_row(one) | {
        "_run": words.cell if result.request is None else run_words(one.plan, result.request),
        "_how": one.plan.how or "fp32",
        "_range": None if one.range is None else "{} to {}".format(*map(rate, one.range)),
        "_limit": busy_words(one),
    }


def _answer(result: SweepResult) -> str:
    """A line a model: what is cheapest and what is fastest of all that was scored."""
    models = dict.fromkeys(one.plan.model for one in result.rows)
    lines = [f"Every plan of {', '.join(models)}, cheapest a sample first."]
    for model in list(models)[:FEW]:
        mine = [one for one in result.rows if one.plan.model == model]
        of = f" for {model}" if len(models) > 1 else ""
        cheapest = min(mine, key=lambda one: one.usd_per_million_samples)
        fastest = max(mine, key=lambda one: one.samples_per_s)
        if cheapest is fastest:
            lines.append(beside_words(f"The cheapest a sample and the fastest{of}", None, cheapest))
            continue
        lines.append(beside_words(f"The cheapest a sample{of}", None, cheapest))
        lines.append(beside_words(f"The fastest{of}", None, fastest))
    return "\n".join(lines)
