"""The commands that answer questions: `planner recommend`, `compare`, `saturation` and `simulate`.

`planner sweep`: score a grid of plans; can be stopped and gone on with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import _options as options
from planner.cli import _output as out
from planner.cli._options import (
    ClusterOption,
    FormatOption,
    Given,
    HtmlOption,
    JobsOption,
    OutputOption,
    QuietOption,
    asks,
    checked,
)
from planner.cli._output import exit_if_interrupted, progress, write_pictures
from planner.errors import BadInput
from planner.report.output import Format

if TYPE_CHECKING:
    from planner.search.scored import ScoredPlan


def _study(ctx: typer.Context, param: typer.CallbackParam, study: str | None) -> str | None:
    if study is not None and "://" not in study:
        options.checked(ctx, param, Path(study))
    return study


@asks
def recommend(
    given: Given,
    *,
    search: Annotated[
        str | None,
        options.output_option(
            "--search", help="enumerate (default), or optuna for spaces too large to enumerate."
        ),
    ] = None,
    trials: Annotated[
        int | None, options.output_option("--trials", help="Trials of --search optuna, as 500.", min=1)
    ] = None,
    study: Annotated[
        str | None,
        options.output_option(
            "--study", metavar="FILE|URL", help="Storage of the Optuna study, to resume it.", callback=_study
        ),
    ] = None,
    jobs: options.JobsOption = None,
    cluster: options.ClusterOption = None,
    export: options.ExportOption = None,
    fail_over: options.FailOverOption = None,
    timeline: options.TimelineOption = None,
    timeline_steps: options.TimelineStepsOption = 3,
) -> None:
    """Which machines to rent? Ranks plans by cost per million samples.

    planner recommend --budget 20 --model vgg11
    """
    from planner.answers.recommend import STAGES, recommend_for
    from planner.report.phrases import best_so_far
    from planner.search.executors import executor_of

    if search not in (None, "enumerate", "optuna"):
        raise BadInput(f"--search is {search!r}; it is one of enumerate, optuna")
    if search != "optuna" and (trials is not None or study is not None):
        raise BadInput("--trials and --study need --search optuna")
    request = given.request()
    sampled = (trials or 500) if search == "optuna" else None
    stages = None if sampled else STAGES
    with out.progress(given.quiet, stages) as on_progress, executor_of(None, jobs, cluster) as pool:

        def on_improvement(best: ScoredPlan) -> None:
            on_progress.on_improvement(best_so_far(best, request))

        result = recommend_for(
            request,
            executor=pool,
            progress=on_progress,
            trials=sampled,
            study=study,
            on_improvement=on_improvement,
        )
    given.emit(result)
    out.write_pictures(
        result, html=given.html, chosen=result.chosen, timeline=timeline, timeline_steps=timeline_steps
    )
    out.export_plan(result.chosen, request, export)
    out.exit_if_interrupted(result.partial)
    out.exit_if_over(result.chosen.usd_per_million_samples, fail_over)


@asks
def compare(given: Given, *, jobs: options.JobsOption = None, cluster: options.ClusterOption = None) -> None:
    """Cost per million samples on each machine: the best plan of each, on demand and spot.

    planner compare --model resnet50 --workers 1,2,4,8
    """
    from planner.answers.compare import compare_for
    from planner.search.executors import executor_of

    request = given.request()
    with out.progress(given.quiet) as on_progress, executor_of(None, jobs, cluster) as pool:
        result = compare_for(request, executor=pool, progress=on_progress)
    given.emit(result)
    out.write_pictures(result, html=given.html)
    out.exit_if_interrupted(result.partial)


@asks
def saturation(given: Given, *, jobs: options.JobsOption = None) -> None:
    """How many workers before throughput saturates, and how many servers for them?

    planner saturation --model inception3 --batch 32 --hardware g5.xlarge
    """
    from planner.answers.saturation import saturation_for

    request = given.request()
    with out.progress(given.quiet) as on_progress:
        result = saturation_for(request, jobs=jobs, progress=on_progress)
    given.emit(result)
    out.write_pictures(result, html=given.html)
    out.exit_if_interrupted(result.partial)


@asks
def simulate(
    given: Given,
    *,
    export: options.ExportOption = None,
    timeline: options.TimelineOption = None,
    timeline_steps: options.TimelineStepsOption = 3,
) -> None:
    """Predict one plan: throughput with its interval, step breakdown and cost.

    planner simulate --model resnet50 --hardware p3.2xlarge --workers 4 --servers 1
    """
    from planner.answers.questions import simulation_for

    request = given.request()
    with out.progress(given.quiet) as on_progress:
        result = simulation_for(request, progress=on_progress)
    given.emit(result)
    out.write_pictures(
        result, html=given.html, chosen=result.scored, timeline=timeline, timeline_steps=timeline_steps
    )
    out.export_plan(result.scored, request, export)


def sweep(
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
    from planner.answers.sweep import sweep as score_grid
    from planner.report.output import emit
    from planner.report.page import page_of

    with progress(quiet) as on_progress:
        result = score_grid(config, store, jobs=jobs, cluster=cluster, progress=on_progress)
    emit(page_of(result), format, output)
    write_pictures(result, html=html)
    exit_if_interrupted(result.partial)
