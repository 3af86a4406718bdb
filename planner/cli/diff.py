"""`planner diff`: two JSON answers side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli._answers import HtmlOption, draw_tables
from planner.cli._options import FormatOption, OutputOption
from planner.report.output import Format


def command(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A JSON answer of recommend or simulate.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another one.")],
    *,
    fail_over: Annotated[
        float | None,
        typer.Option("--fail-over", metavar="USD", help="Leave with 3 where a million samples cost more."),
    ] = None,
    html: HtmlOption = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Say what two answers run differently, and what that changes in speed, cost and memory."""
    from planner.answers.answer_files import chosen_plan
    from planner.answers.differing import difference
    from planner.report.diff import diff_tables
    from planner.report.output import emit

    before, after = chosen_plan(old), chosen_plan(new)
    found = difference(before, after)
    emit(diff_tables(found), format, output, data=found)
    draw_tables(diff_tables(found), f"planner diff: {old.name} and {new.name}", html)
    cost = after.usd_per_million_samples
    if fail_over is not None and cost is not None and cost > fail_over:
        from planner.cli._say import say

        say(f"{new}: ${cost:.2f} a million samples, over the limit of ${fail_over:.2f}")
        raise typer.Exit(3)
