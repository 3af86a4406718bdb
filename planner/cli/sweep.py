"""`planner sweep`: score a grid of plans; can be stopped and gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli._options import (
    ClusterOption,
    FormatOption,
    HtmlOption,
    JobsOption,
    OutputOption,
    QuietOption,
    checked,
)
from planner.cli._output import exit_if_interrupted, progress, write_pictures
from planner.report.output import Format


def command(
    *,
    config: Annotated[Path, typer.Argument(metavar="FILE", help="The sweep, as configs/sweep.toml.")],
    store: Annotated[
        Path,
        typer.Option(callback=checked, help="Where results are kept (SQLite); run again with it to go on."),
    ] = Path("sweep.db"),
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    html: HtmlOption = None,
    quiet: QuietOption = False,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Score every plan of a grid over models, machines, batches, workers, servers and policies.

    planner sweep configs/sweep.toml --store sweep.db
    """
    from planner.answers.sweep import sweep
    from planner.report.output import emit
    from planner.report.page import page_of

    with progress(quiet) as on_progress:
        result = sweep(config, store, jobs=jobs, cluster=cluster, progress=on_progress)
    emit(page_of(result), format, output)
    write_pictures(result, html=html)
    exit_if_interrupted(result.partial)
