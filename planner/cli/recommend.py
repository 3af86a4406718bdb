"""`planner recommend`: which cluster to rent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import _answers as flags
from planner.cli._asking import Given, asks
from planner.cli._options import checked
from planner.errors import BadInput

if TYPE_CHECKING:
    from planner.search.scored import ScoredPlan


def _study(ctx: typer.Context, param: typer.CallbackParam, study: str | None) -> str | None:
    if study is not None and "://" not in study:
        checked(ctx, param, Path(study))
    return study


@asks
def command(
    asked: Given,
    *,
    objective: Annotated[
        str | None,
        flags.objective(
            "fastest (of plans within 2% the cheapest), cheapest (a sample), or value (the knee)."
        ),
    ] = None,
    machines: Annotated[int | None, typer.Option(help="Machines at most, servers' included.")] = None,
    min_throughput: Annotated[float | None, typer.Option(help="Samples a second at least.")] = None,
    search: Annotated[
        str | None, typer.Option(help="enumerate (default) or optuna, for spaces too large to enumerate.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials of --search optuna (500).", min=1)] = None,
    study: Annotated[
        str | None,
        typer.Option(callback=_study, help="File or URL of the optuna study, to go on with later."),
    ] = None,
    jobs: flags.JobsOption = None,
    cluster: flags.ClusterOption = None,
    export: flags.ExportOption = None,
    fail_over: flags.FailOverOption = None,
    timeline: flags.TimelineOption = None,
    timeline_steps: flags.TimelineStepsOption = 3,
) -> None:
    """Which cluster should I rent? Ranks plans by cost per million samples.

    planner recommend --budget 20 --model vgg11
    """
    from planner.answers.recommend import STAGES, recommend_for
    from planner.answers.scenario import request_from
    from planner.report.decision import best_words
    from planner.report.plots import pareto_plot
    from planner.report.recommendation import recommendation_tables
    from planner.search.executors import executor_of

    if search not in (None, "enumerate", "optuna"):
        raise BadInput(f"--search is {search!r}; it is one of enumerate, optuna")
    if search != "optuna" and (trials is not None or study is not None):
        raise BadInput("--trials and --study need --search optuna")
    scenario = asked.scenario(objective=objective, machines=machines, min_throughput=min_throughput)
    request, _ = request_from(scenario)
    sampled = (trials or 500) if search == "optuna" else None
    stages = None if sampled else STAGES
    with flags.progress(asked.quiet, stages) as watch, executor_of(None, jobs, cluster) as pool:

        def seen(best: ScoredPlan) -> None:
            watch.found(best_words(best, request))

        result = recommend_for(request, executor=pool, progress=watch, trials=sampled, study=study, seen=seen)
    asked.emit(recommendation_tables, result)
    flags.plot(lambda width: pareto_plot(result, width), asked.format, asked.output)
    flags.draw(
        result, html=asked.html, chosen=result.chosen, timeline=timeline, timeline_steps=timeline_steps
    )
    flags.export_plan(result.chosen, request, export)
    flags.finish(result.partial)
    flags.fail(result.chosen, fail_over)
