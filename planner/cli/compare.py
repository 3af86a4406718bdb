"""`planner compare`: what a million samples cost on each kind of machine."""

from __future__ import annotations

from typing import Annotated

from planner.cli import _answers as flags
from planner.cli._asking import Given, asks


@asks
def command(
    asked: Given,
    *,
    objective: Annotated[
        str | None,
        flags.objective("Which plan of each machine: cheapest (a sample), fastest or value."),
    ] = None,
    jobs: flags.JobsOption = None,
    cluster: flags.ClusterOption = None,
) -> None:
    """What does a million samples cost on each machine? The best plan of each, on demand and spot.

    planner compare --model resnet50 --workers 1,2,4,8
    """
    from planner.answers.compare import compare_for
    from planner.answers.scenario import request_from
    from planner.report.recommendation import comparison_tables
    from planner.search.executors import executor_of

    request, _ = request_from(asked.scenario(objective=objective))
    with flags.progress(asked.quiet) as report, executor_of(None, jobs, cluster) as pool:
        result = compare_for(request, executor=pool, progress=report)
    asked.emit(comparison_tables, result)
    flags.draw(result, html=asked.html)
    flags.finish(result.partial)
