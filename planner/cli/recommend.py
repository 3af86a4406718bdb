"""`planner recommend`: which cluster to rent."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import _answers as flags
from planner.cli._options import FormatOption, OutputOption
from planner.report.output import Format


def command(
    *,
    model: flags.ModelOption = None,
    budget: flags.BudgetOption = None,
    hardware: flags.HardwareOption = None,
    server_hardware: flags.ServerHardwareOption = None,
    workers: flags.WorkersOption = None,
    servers: flags.ServersOption = None,
    batch: flags.BatchOption = None,
    placement: flags.PlacementOption = None,
    policy: flags.PolicyOption = None,
    mode: flags.ModeOption = None,
    profile: flags.ProfileOption = None,
    objective: Annotated[
        str | None,
        typer.Option(
            envvar="PLANNER_OBJECTIVE",
            show_envvar=False,
            help="fastest (of plans within 2% the cheapest), cheapest (a sample), or value (the knee).",
        ),
    ] = None,
    spend: Annotated[float | None, typer.Option(help="USD in all; needs --epochs or --samples.")] = None,
    deadline: Annotated[
        str | None, typer.Option(help="36h, 90min or 2d; needs --epochs or --samples.")
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="How many passes over the training set.")] = None,
    samples: Annotated[float | None, typer.Option(help="How many samples in all.")] = None,
    machines: Annotated[int | None, typer.Option(help="Machines at most, servers' included.")] = None,
    min_throughput: Annotated[float | None, typer.Option(help="Samples a second at least.")] = None,
    network: flags.NetworkOption = None,
    bandwidth: flags.BandwidthOption = None,
    region: flags.RegionOption = None,
    spot: flags.SpotOption = None,
    config: flags.ConfigOption = None,
    seed: flags.SeedOption = None,
    precision: flags.PrecisionOption = None,
    jobs: flags.JobsOption = None,
    quiet: flags.QuietOption = False,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Which cluster should I rent? Ranks plans by cost per million samples.

    planner recommend --budget 20 --model vgg11
    """
    given = {k: v for k, v in locals().items() if k not in flags.NOT_IN_SCENARIO}
    from planner.report.answers import recommendation_tables
    from planner.report.output import emit
    from planner.search.recommend import recommend_for
    from planner.search.scenario import merged, request_from

    request, _ = request_from(merged(given, config))
    with flags.progress(quiet) as report:
        result = recommend_for(request, jobs=jobs, progress=report)
    emit(recommendation_tables(result), format, output, data=result.as_dict())
    flags.finish(result.partial)
