"""`planner simulate`: everything a prediction says of one plan."""

from __future__ import annotations

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
    workers: flags.WorkersOption = None,
    servers: flags.ServersOption = None,
    workers_per_replica: flags.PerReplicaOption = None,
    server_hardware: flags.ServerHardwareOption = None,
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
    max_steps: flags.MaxStepsOption = None,
    export: flags.ExportOption = None,
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
    """Predict one plan: throughput with its interval, where the time goes, what it costs.

    planner simulate --model resnet50 --hardware p3.2xlarge --workers 4 --servers 1
    """
    given = {k: v for k, v in locals().items() if k not in flags.NOT_IN_SCENARIO}
    from planner.answers.questions import simulation_for
    from planner.answers.scenario import merged, request_from
    from planner.report.answers import simulation_tables
    from planner.report.folding import folded
    from planner.report.output import emit

    request, _ = request_from(merged(given, config))
    with flags.progress(quiet) as report:
        result = simulation_for(request, progress=report)
    emit(
        folded(simulation_tables(result, energy=energy), explain=explain, energy=energy),
        format,
        output,
        data=result.as_dict(),
    )
    flags.draw(result, html=html, chosen=result.scored, timeline=timeline, timeline_steps=timeline_steps)
    flags.export_plan(result.scored, request, export)
