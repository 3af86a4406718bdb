"""`planner saturation`: how many workers before more stop paying."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import _answers as flags
from planner.cli._asking import Given, asks


@asks
def command(
    asked: Given,
    *,
    threshold: Annotated[
        float | None,
        typer.Option(help="Saturated when one more worker adds less than this share of a single one (0.1)."),
    ] = None,
    max_workers: Annotated[
        int | None,
        typer.Option(help="Workers at most (32, or 8 times those that hold the model, up to 1,024).", min=2),
    ] = None,
    jobs: flags.JobsOption = None,
) -> None:
    """How many workers before throughput saturates, and how many servers for my workers?

    planner saturation --model inception3 --batch 32 --hardware g5.xlarge
    """
    from planner.answers.questions import saturation_for
    from planner.answers.scenario import request_from
    from planner.report.answers import saturation_tables
    from planner.report.plots import saturation_plot

    scenario = asked.scenario(threshold=threshold, max_workers=max_workers)
    request, _ = request_from(scenario)
    with flags.progress(asked.quiet) as report:
        result = saturation_for(
            request,
            threshold=0.1 if scenario.threshold is None else scenario.threshold,
            max_workers=scenario.max_workers,
            jobs=jobs,
            progress=report,
        )
    asked.emit(saturation_tables, result)
    flags.plot(lambda width: saturation_plot(result, width), asked.format, asked.output)
    flags.draw(result, html=asked.html)
    flags.finish(result.partial)
