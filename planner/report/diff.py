"""Tables of what two answers have different."""

from __future__ import annotations

from dataclasses import asdict

from planner.answers.differing import Difference
from planner.report.output import Column, Table


def diff_tables(found: Difference) -> list[Table]:
    """What comes of the change first, then what is run otherwise."""
    columns = [Column("name", ""), Column("old", align="right"), Column("new", align="right")]
    ratio = Column("ratio", "change", lambda value: f"{value - 1:+.1%}", "right")
    sure = "" if found.apart else "The ranges do not tell the speeds apart: a run may show the other order."
    figures = Table([asdict(one) for one in found.figures], [*columns, ratio], notes=[sure] if sure else [])
    if not found.settings:
        return [figures, Table([], title="Both run the same.")]
    return [figures, Table([asdict(one) for one in found.settings], columns, "Run otherwise")]
