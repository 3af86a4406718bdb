"""`planner saturation`: how many workers before more stop paying."""

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
    servers: flags.ServersOption = None,
    workers_per_replica: flags.PerReplicaOption = None,
    workers: flags.WorkersOption = None,
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
    threshold: Annotated[
        float | None,
        typer.Option(help="Saturated when one more worker adds less than this share of a single one (0.1)."),
    ] = None,
    max_workers: Annotated[int | None, typer.Option(help="Workers at most (32).", min=2)] = None,
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
    explain: flags.ExplainOption = False,
    energy: flags.EnergyOption = False,
    quiet: flags.QuietOption = False,
    no_color: flags.NoColorOption = False,
    html: flags.HtmlOption = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """How many workers before throughput saturates, and how many servers for my workers?

    planner saturation --model inception3 --batch 32 --hardware g5.xlarge
    """
    given = {k: v for k, v in locals().items() if k not in flags.NOT_IN_SCENARIO}
    from planner.answers.questions import saturation_for
    from planner.answers.scenario import merged, request_from
    from planner.report.answers import saturation_tables
    from planner.report.folding import folded
    from planner.report.output import emit
    from planner.report.plots import saturation_plot

    scenario = merged(given, config)
    request, _ = request_from(scenario)
    with flags.progress(quiet) as report:
        result = saturation_for(
            request,
            threshold=0.1 if scenario.threshold is None else scenario.threshold,
            max_workers=scenario.max_workers,
            jobs=jobs,
            progress=report,
        )
    emit(
        folded(saturation_tables(result, energy=energy), explain=explain, energy=energy),
        format,
        output,
        data=result.as_dict(),
    )
    flags.plot(lambda width: saturation_plot(result, width), format, output)
    flags.draw(result, html=html)
    flags.finish(result.partial)
