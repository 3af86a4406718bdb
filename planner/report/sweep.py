"""The result of a sweep as a table: every plan, cheapest a sample first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.report.answer_words import plan_row
from planner.report.answers import plan_columns
from planner.report.output import Column, Table

if TYPE_CHECKING:
    from planner.answers.sweep import SweepResult

VARYING = ("model", "mode", "policy", "placement")


def sweep_tables(result: SweepResult) -> list[Table]:
    """CSV and JSON hold every plan; columns that people need only where they differ are shown only there."""
    rows: list[dict[str, Any]] = [plan_row(scored) for scored in result.rows]
    rows.sort(key=lambda row: (row["usd_per_million_samples"], row["model"], row["cluster"]))
    varying = [Column(key) for key in VARYING if len({row[key] for row in rows}) > 1]
    notes = [f"{len(rows):,} of {result.total:,} plans scored, {len(result.refused):,} refused."]
    notes += [f"Left out: {count:,} {reason}." for reason, count in result.dropped.items()]
    if result.partial:
        notes.append("Interrupted: run the same command again to go on.")
    return [
        Table(rows, [*varying, *plan_columns()], title="Every plan, cheapest a sample first", notes=notes)
    ]
