"""`planner compare`: what a million samples cost on each kind of machine."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import _answers as flags
from planner.cli._options import FormatOption, OutputOption
from planner.report.output import Format


def command(
    *,
    model: flags.ModelOption = None,
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
            help="Which plan of each machine: cheapest (a sample), fastest or value.",
        ),
    ] = None,
    budget: flags.BudgetOption = None,
    epochs: flags.EpochsOption = None,
    samples: flags.SamplesOption = None,
    tokens: flags.TokensOption = None,
    deadline: flags.DeadlineOption = None,
    spend: flags.SpendOption = None,
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
    explain: flags.ExplainOption = False,
    energy: flags.EnergyOption = False,
    quiet: flags.QuietOption = False,
    no_color: flags.NoColorOption = False,
    html: flags.HtmlOption = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """What does a million samples cost on each machine? The best plan of each, on demand and spot.

    planner compare --model resnet50 --workers 1,2,4,8
    """
    given = {k: v for k, v in locals().items() if k not in flags.NOT_IN_SCENARIO}
    from planner.answers.compare import compare_for
    from planner.answers.scenario import merged, request_from
    from planner.report.folding import folded
    from planner.report.output import emit
    from planner.report.recommendation import comparison_tables
    from planner.search.executors import executor_of

    request, _ = request_from(merged(given, config))
    with flags.progress(quiet) as report, executor_of(None, jobs, cluster) as pool:
        result = compare_for(request, executor=pool, progress=report)
    emit(
        folded(comparison_tables(result, energy=energy), explain=explain, energy=energy),
        format,
        output,
        data=result.as_dict(),
    )
    flags.draw(result, html=html)
    flags.finish(result.partial)
