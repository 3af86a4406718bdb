"""Commands that answer questions: `planner recommend`, `compare`, `saturation`, `simulate`, `sweep`.

`planner check` compares a real run with its prediction and keeps it; `planner diff` compares two answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli import _output as out
from planner.cli._options import Answer, CommonOptions, with_output_flags, with_request_flags
from planner.errors import BadInput, escape_unprintable
from planner.report.output import emit

if TYPE_CHECKING:
    from planner.search.scored import ScoredPlan


@with_request_flags
def recommend(
    given: CommonOptions,
    *,
    search: str | None = None,
    trials: int | None = None,
    study: str | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    export: Path | None = None,
    fail_over: float | None = None,
    timeline: Path | None = None,
    timeline_steps: int = 3,
) -> None:
    """Which machines to rent? Ranks plans by cost per million samples.

    planner recommend --budget 20 --model vgg11
    """
    from planner.answers.recommend import STAGES, ignore_improvement, recommend_for
    from planner.report.phrases import best_so_far
    from planner.search.simulations import executor_of

    if search not in (None, "enumerate", "optuna"):
        raise BadInput(f"--search is {search!r}; it is one of enumerate, optuna")
    if search != "optuna" and (trials is not None or study is not None):
        raise BadInput("--trials and --study need --search optuna")
    request = given.request()
    sampled = (trials or 500) if search == "optuna" else None
    stages = None if sampled else STAGES
    with out.show_progress(given.quiet, stages) as on_progress, executor_of(None, jobs, cluster) as pool:

        def on_improvement(best: ScoredPlan) -> None:
            """Shows a better plan in the progress line."""
            on_progress.on_improvement(best_so_far(best, request))

        result = recommend_for(
            request,
            executor=pool,
            progress=on_progress,
            trials=sampled,
            study=study,
            on_improvement=ignore_improvement if given.quiet else on_improvement,
        )
    try:
        given.emit(result)
    finally:  # files are written even where the reader of the output, such as `head`, has gone
        out.write_timeline(result.request, result.chosen, timeline, timeline_steps)
        out.export_plan(result.chosen, request, export)
    out.exit_if_interrupted(result.partial)
    out.exit_if_over_cost(result.chosen.usd_per_million_samples, fail_over)


@with_request_flags
def compare(given: CommonOptions, *, jobs: int | None = None, cluster: str | None = None) -> None:
    """Cost per million samples on each machine: the best plan of each, on demand and spot.

    planner compare --model resnet50 --workers 1,2,4,8
    """
    from planner.answers.compare import compare_for
    from planner.search.simulations import executor_of

    request = given.request()
    with out.show_progress(given.quiet) as on_progress, executor_of(None, jobs, cluster) as pool:
        result = compare_for(request, executor=pool, progress=on_progress)
    given.emit(result)
    out.exit_if_interrupted(result.partial)


@with_request_flags
def saturation(given: CommonOptions, *, jobs: int | None = None) -> None:
    """How many workers before throughput saturates, and how many servers for them?

    planner saturation --model inception3 --batch 32 --hardware g5.xlarge
    """
    from planner.answers.saturation import saturation_for

    request = given.request()
    with out.show_progress(given.quiet) as on_progress:
        result = saturation_for(request, jobs=jobs, progress=on_progress)
    given.emit(result)
    out.exit_if_interrupted(result.partial)


@with_request_flags
def simulate(
    given: CommonOptions, *, export: Path | None = None, timeline: Path | None = None, timeline_steps: int = 3
) -> None:
    """Predict one plan: throughput with its interval, step breakdown and cost.

    planner simulate --model resnet50 --hardware p3.2xlarge --workers 4 --servers 1
    """
    from planner.answers.questions import simulation_for

    request = given.request()
    with out.show_progress(given.quiet) as on_progress:
        result = simulation_for(request, progress=on_progress)
    try:
        given.emit(result)
    finally:
        out.write_timeline(result.request, result.scored, timeline, timeline_steps)
        out.export_plan(result.scored, request, export)


@with_output_flags
def sweep(
    config: Path,
    *,
    store: Path = Path("sweep.db"),
    jobs: int | None = None,
    cluster: str | None = None,
    quiet: bool = False,
) -> Answer:
    """Score every plan of a grid over models, machines, batches, workers, servers and policies.

    planner sweep configs/sweep.toml --store sweep.db
    """
    from planner.answers.sweep import sweep as score_grid
    from planner.report.page import page_of

    with out.show_progress(quiet) as on_progress:
        result = score_grid(config, store, jobs=jobs, cluster=cluster, progress=on_progress)
    return Answer(page_of(result), then=lambda: out.exit_if_interrupted(result.partial))


def check_run(
    answer: Path | None = None,
    *,
    measured: float | None = None,
    log: Path | None = None,
    note: str = "",
    keep: bool = True,
    force: bool = False,
    html: Path | None = None,
    listed: bool = False,
    forget: str | None = None,
) -> None:
    """Compare a real run with its prediction, and keep it as a correction for its device.

    Later answers for that device are scaled by the measured factor and say so; `--forget` removes it.
    """
    from planner.report.simulate import check_page, saved_run_lines

    if forget is not None:
        from planner.search.measured import remove_runs

        if forget.isdecimal() and len(forget) < 10:
            gone = remove_runs(position=int(forget))
        else:
            gone = remove_runs(device=None if forget == "all" else forget)
        if not gone:
            raise BadInput(f"nothing is kept of {forget}; see `planner check --list`")
        typer.echo(f"{gone} run{'s' if gone > 1 else ''} forgotten")
        return
    if listed:
        for line in saved_run_lines():
            typer.echo(escape_unprintable(line))
        return
    if answer is None or (measured is None) == (log is None):
        raise BadInput("give an answer (JSON) and one of --measured RATE and --log PATH")
    from planner.answers.answer_files import read_chosen_plan
    from planner.answers.checking import check_speed, measured_speed

    plan = read_chosen_plan(answer)
    source = ""
    if log is not None:
        speed = measured_speed(log, plan.samples_per_step)
        measured, source = speed.samples_per_s, speed.source
    assert measured is not None
    checked_run = check_speed(plan, measured)
    kept = None
    if keep and (force or not checked_run.is_absurd):
        from datetime import date

        from planner.search.measured import Measured, add_run, reach_of

        kept = Measured(
            device=answer_device(plan.device, plan.worker_hardware),
            reach=reach_of(plan.workers, plan.machines),
            model=plan.model,
            precision=plan.number_format,
            predicted_samples_per_s=plan.samples_per_s / plan.measured_factor,
            measured_samples_per_s=measured,
            as_of=date.today().isoformat(),
            note=note,
        )
        add_run(kept)
    title = f"planner check: {answer.name}"
    page = check_page(checked_run, plan, kept, title=title, asked=keep, source=source)
    emit(page)
    out.write_html(page, html)


def answer_device(device: str | None, machine: str) -> str:
    """Name of the device in an answer; by default that of its machine."""
    if device is not None:
        return device
    from planner.hardware.catalog import load_hardware

    return load_hardware(machine).device.name


@with_output_flags
def diff(old: Path, new: Path, *, fail_over: float | None = None) -> Answer:
    """Show the settings in which two answers differ, and the changes in speed, cost and memory."""
    from planner.answers.answer_files import compare_plans, read_chosen_plan
    from planner.report.simulate import diff_page

    before, after = read_chosen_plan(old), read_chosen_plan(new)
    page = diff_page(compare_plans(before, after), f"planner diff: {old.name} and {new.name}")
    return Answer(page, then=lambda: out.exit_if_over_cost(after.usd_per_million_samples, fail_over, new))
