"""`planner validate`: every published figure and every measurement at hand, beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import _answers as flags
from planner.cli._options import FormatOption, OutputOption, checked
from planner.report.output import Format


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Papers or checks row by row, as li or li/saturation; all suites if none is given.",
        ),
    ] = None,
    *,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite",
            metavar="NAME",
            help="Only this suite: papers, servers, allreduce, sharded, devices, memory or layouts.",
        ),
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Also list every run.")] = False,
    runs: Annotated[
        Path | None,
        typer.Option("--runs", metavar="FILE", help="Compare the measured runs of a CSV file instead."),
    ] = None,
    layouts: Annotated[
        Path | None,
        typer.Option("--layouts", metavar="FILE", help="Compare the measured layouts of a CSV file instead."),
    ] = None,
    readme: Annotated[
        bool, typer.Option("--readme", help="Print README's table of accuracy in Markdown.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", callback=checked, help="Also write a page to FILE."),
    ] = None,
    document: Annotated[
        Path | None,
        typer.Option(
            "--document",
            metavar="FILE",
            callback=checked,
            help="Also write FILE as docs/validation.md, and beside it a page a suite.",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Exit with 1 if FILE, a document, gives other figures."),
    ] = None,
    jobs: flags.JobsOption = None,
    quiet: flags.QuietOption = False,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Hold predictions against published and measured runs; exit with 1 if a row that is claimed fails.

    planner validate --suite sharded --rows
    """
    from planner.cli import _validate

    asked = _validate.SuitesAsked(
        tuple(names or ()), tuple(suite or ()), rows, runs, layouts, readme, jobs, quiet
    )
    broken = _validate.answer(asked, _validate.To(format, output, html, document, check))
    if broken:
        raise typer.Exit(1)
