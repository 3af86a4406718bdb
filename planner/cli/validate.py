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
            help="Papers or checks, as li, saturation or li/saturation; all if none is given.",
        ),
    ] = None,
    *,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", callback=checked, help="Also write a page to FILE."),
    ] = None,
    document: Annotated[
        Path | None,
        typer.Option(
            "--document", metavar="FILE", callback=checked, help="Also write FILE as docs/validation.md."
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
    """Re-run published results and real measurements; exit with 1 if a row that is claimed fails.

    planner validate saturation testbed
    """
    from planner.report.output import emit
    from planner.report.validation import rows_data, validation_tables, write_validation_html
    from planner.report.validation_document import drift, write_document
    from planner.validate import validate

    written = check.read_text("utf-8") if check is not None else None
    with flags.progress(quiet) as report:
        rows = validate(names or (), jobs=jobs, progress=report)
    emit(validation_tables(rows, format), format, output, data=rows_data(rows))
    if html is not None:
        write_validation_html(rows, html)
    if document is not None:
        write_document(rows, document)
    moved = drift(rows, written) if written is not None else []
    for line in moved:
        typer.echo(f"{check}: {line}", err=True)
    if moved or not all(row.as_claimed for row in rows):
        raise typer.Exit(1)
