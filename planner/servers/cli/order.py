"""`planner order`: orders of transfers side by side, and whether any can help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli._options import FormatOption, HtmlOption, NoColorOption, OutputOption, QuietOption, checked
from planner.cli._output import progress, write_pictures
from planner.report.output import Format


def command(
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A network of the catalogue or a .toml file.")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option("--hardware", help="The workers' machine; one worker on each.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option("--profile", help="A profile of your own instead of --model.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", "-b", min=1, help="Samples a worker takes in a step.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, max=256, help="How many workers.")] = 2,
    exchange: Annotated[
        str, typer.Option("--exchange", help="servers; what an order would mean for others is said.")
    ] = "servers",
    servers: Annotated[int, typer.Option("--servers", min=1, max=256, help="Parameter servers.")] = 1,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", help="Every NIC's bandwidth: 3Gbit. Else the machine's.")
    ] = None,
    strategies: Annotated[str, typer.Option("--strategies", help="Which, as tic,tac,p3; or all.")] = "all",
    mode: Annotated[str, typer.Option("--mode", help="sync or async.")] = "sync",
    barrier: Annotated[
        bool, typer.Option("--barrier", help="Steps do not overlap, as in TensorFlow.")
    ] = False,
    placement: Annotated[str, typer.Option("--placement", help="How tensors go to servers.")] = "greedy",
    overhead: Annotated[
        float,
        typer.Option("--overhead", min=0, max=60_000, help="Milliseconds per message beside its bytes."),
    ] = 0.0,
    download_overhead: Annotated[
        float | None,
        typer.Option("--download-overhead", min=0, max=60_000, help="The same for downloads, if it differs."),
    ] = None,
    slice_size: Annotated[str | None, typer.Option("--slice", help="P3's slices: 160000 or 4MiB.")] = None,
    partition_size: Annotated[
        str | None, typer.Option("--partition", help="ByteScheduler's and Prophet's partitions.")
    ] = None,
    credit_size: Annotated[str | None, typer.Option("--credit", help="ByteScheduler's credit.")] = None,
    slow_worker: Annotated[
        float | None, typer.Option("--slow-worker", help="Speed of the last worker, up to 1: 0.5 is half.")
    ] = None,
    slow_link: Annotated[
        str | None, typer.Option("--slow-link", help="Bandwidth of the last worker: 500Mbit.")
    ] = None,
    tune: Annotated[
        int, typer.Option("--tune", min=0, help="Tune ByteScheduler with this many simulations.")
    ] = 0,
    study: Annotated[
        Path | None,
        typer.Option("--study", callback=checked, help="File in which tuning is kept and resumed."),
    ] = None,
    priorities: Annotated[
        Path | None, typer.Option("--priorities", help="A file of --export (or your own) to compare.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", callback=checked, help="Write name and priority of the best order to FILE."),
    ] = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
    html: HtmlOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the simulations, as 1.")] = 0,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Compare orders of transfers: step time, samples/s, efficiency, overlap, stragglers; and the ideal.

    planner order --model inception3 --batch 32 --hardware g3.8xlarge --workers 3 --bandwidth 3Gbit
    """
    from planner.files.regular_file import write_file
    from planner.report.output import emit
    from planner.report.page import page_of
    from planner.servers.order_request import OrderRequest, exported, order_for

    request = OrderRequest(
        model=model,
        hardware=hardware,
        profile=profile,
        batch=batch,
        workers=workers,
        servers=servers,
        exchange=exchange,
        bandwidth=bandwidth,
        strategies=strategies,
        mode=mode,
        barrier=barrier,
        placement=placement,
        overhead_ms=overhead,
        download_overhead_ms=download_overhead,
        slice_size=slice_size,
        partition_size=partition_size,
        credit_size=credit_size,
        slow_worker=slow_worker,
        slow_link=slow_link,
        tune=tune,
        study=study,
        priorities=priorities,
        seed=seed,
    )
    with progress(quiet) as report:
        answer = order_for(request, progress=report)
    if export is not None:
        write_file(export, exported(answer))
    emit(page_of(answer), format, output)
    write_pictures(answer, html=html)
