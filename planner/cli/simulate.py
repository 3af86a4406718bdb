"""`planner simulate`: everything a prediction says of one plan."""

from __future__ import annotations

from planner.cli import _answers as flags
from planner.cli._asking import Given, asks


@asks
def command(
    asked: Given,
    *,
    max_steps: flags.MaxStepsOption = None,
    export: flags.ExportOption = None,
    timeline: flags.TimelineOption = None,
    timeline_steps: flags.TimelineStepsOption = 3,
) -> None:
    """Predict one plan: throughput with its interval, where the time goes, what it costs.

    planner simulate --model resnet50 --hardware p3.2xlarge --workers 4 --servers 1
    """
    from planner.answers.questions import simulation_for
    from planner.answers.scenario import request_from
    from planner.report.answers import simulation_tables

    request, _ = request_from(asked.scenario(max_steps=max_steps))
    with flags.progress(asked.quiet) as report:
        result = simulation_for(request, progress=report)
    asked.emit(simulation_tables, result)
    flags.draw(
        result, html=asked.html, chosen=result.scored, timeline=timeline, timeline_steps=timeline_steps
    )
    flags.export_plan(result.scored, request, export)
