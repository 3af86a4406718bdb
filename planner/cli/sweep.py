"""`planner sweep`: score a grid of plans; can be stopped and gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import _answers as flags
from planner.cli._options import FormatOption, OutputOption, checked
from planner.report.output import Format


def command(
    *,
    config: Annotated[Path, typer.Argument(metavar="FILE", help="The sweep, as configs/sweep.toml.")],
    store: Annotated[
        Path,
        typer.Option(callback=checked, help="Where results are kept (SQLite); run again with it to go on."),
    ] = Path("sweep.db"),
    jobs: flags.JobsOption = None,
    cluster: flags.ClusterOption = None,
    html: flags.HtmlOption = None,
    quiet: flags.QuietOption = False,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Score every plan of a grid over models, machines, batches, workers, servers and policies.

    planner sweep configs/sweep.toml --store sweep.db
    """
    from planner.answers.sweep import sweep
    from planner.report.output import emit
    from planner.report.sweep import sweep_tables

    with flags.progress(quiet) as report:
        result = sweep(config, store, jobs=jobs, cluster=cluster, progress=report)
    emit(sweep_tables(result), format, output, data=result.as_dict())
    flags.draw(result, html=html)
    flags.finish(result.partial)
