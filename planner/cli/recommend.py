"""`planner recommend`: which cluster to rent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import _answers as flags
from planner.cli._options import FormatOption, OutputOption, checked
from planner.errors import BadInput
from planner.report.output import Format

if TYPE_CHECKING:
    from planner.search.scored import ScoredPlan


def _study(ctx: typer.Context, param: typer.CallbackParam, study: str | None) -> str | None:
    if study is not None and "://" not in study:
        checked(ctx, param, Path(study))
    return study


def command(
    *,
    model: flags.ModelOption = None,
    budget: flags.BudgetOption = None,
    hardware: flags.HardwareOption = None,
    gpu: flags.GpuOption = None,
    provider: flags.ProviderOption = None,
    sold: flags.SoldOption = None,
    server_hardware: flags.ServerHardwareOption = None,
    workers: flags.WorkersOption = None,
    servers: flags.ServersOption = None,
    workers_per_replica: flags.PerReplicaOption = None,
    batch: flags.BatchOption = None,
    precision: flags.PrecisionOption = None,
    seq_length: flags.SeqLengthOption = None,
    accumulate: flags.AccumulateOption = None,
    global_batch: flags.GlobalBatchOption = None,
    checkpointing: flags.CheckpointingOption = None,
    tensor: flags.TensorOption = None,
    pipeline: flags.PipelineOption = None,
    interleave: flags.InterleaveOption = None,
    placement: flags.PlacementOption = None,
    policy: flags.PolicyOption = None,
    mode: flags.ModeOption = None,
    exchange: flags.ExchangeOption = None,
    profile: flags.ProfileOption = None,
    objective: Annotated[
        str | None,
        typer.Option(
            envvar="PLANNER_OBJECTIVE",
            show_envvar=False,
            help="fastest (of plans within 2% the cheapest), cheapest (a sample), or value (the knee).",
        ),
    ] = None,
    epochs: flags.EpochsOption = None,
    samples: flags.SamplesOption = None,
    tokens: flags.TokensOption = None,
    deadline: flags.DeadlineOption = None,
    spend: flags.SpendOption = None,
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
    network: flags.NetworkOption = None,
    bandwidth: flags.BandwidthOption = None,
    region: flags.RegionOption = None,
    spot: flags.SpotOption = None,
    interruptions: flags.InterruptionsOption = None,
    checkpoint_every: flags.CheckpointEveryOption = None,
    restart: flags.RestartOption = None,
    config: flags.ConfigOption = None,
    seed: flags.SeedOption = None,
    interval_width: flags.IntervalWidthOption = None,
    jobs: flags.JobsOption = None,
    cluster: flags.ClusterOption = None,
    export: flags.ExportOption = None,
    fail_over: flags.FailOverOption = None,
    explain: flags.ExplainOption = False,
    energy: flags.EnergyOption = False,
    quiet: flags.QuietOption = False,
    no_color: flags.NoColorOption = False,
    html: flags.HtmlOption = None,
    timeline: flags.TimelineOption = None,
    timeline_steps: flags.TimelineStepsOption = 3,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Which cluster should I rent? Ranks plans by cost per million samples.

    planner recommend --budget 20 --model vgg11
    """
    given = {k: v for k, v in locals().items() if k not in flags.NOT_IN_SCENARIO}
    from planner.answers.recommend import STAGES, recommend_for
    from planner.answers.scenario import merged, request_from
    from planner.report.decision import best_words
    from planner.report.folding import folded
    from planner.report.output import emit
    from planner.report.plots import pareto_plot
    from planner.report.recommendation import recommendation_tables
    from planner.search.executors import executor_of

    if search not in (None, "enumerate", "optuna"):
        raise BadInput(f"--search is {search!r}; it is one of enumerate, optuna")
    if search != "optuna" and (trials is not None or study is not None):
        raise BadInput("--trials and --study need --search optuna")
    request, _ = request_from(merged(given, config))
    sampled = (trials or 500) if search == "optuna" else None
    stages = None if sampled else STAGES
    with flags.progress(quiet, stages) as watch, executor_of(None, jobs, cluster) as pool:

        def seen(best: ScoredPlan) -> None:
            watch.found(best_words(best, request))

        result = recommend_for(request, executor=pool, progress=watch, trials=sampled, study=study, seen=seen)
    emit(
        folded(recommendation_tables(result, energy=energy), explain=explain, energy=energy),
        format,
        output,
        data=result.as_dict(),
    )
    flags.plot(lambda width: pareto_plot(result, width), format, output)
    flags.draw(result, html=html, chosen=result.chosen, timeline=timeline, timeline_steps=timeline_steps)
    flags.export_plan(result.chosen, request, export)
    flags.finish(result.partial)
    flags.fail(result.chosen, fail_over)
