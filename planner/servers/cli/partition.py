"""`planner partition`: split a model over workers, replicas and servers."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli._options import FormatOption, HtmlOption, NoColorOption, OutputOption, QuietOption
from planner.cli._output import command_line, progress, say
from planner.report.output import Format, emit


def command(
    *,
    model: Annotated[str, typer.Option("--model", "-m", help="A model's name or a path to its .toml file.")],
    hardware: Annotated[str, typer.Option("--hardware", help="The machines: a name or a path to a file.")],
    machines: Annotated[int, typer.Option("--machines", "-n", help="How many, servers included.")],
    max_workers: Annotated[
        int, typer.Option("--max-workers", help="Workers a replica at most; 0 for any number.")
    ] = 4,
    workers: Annotated[int | None, typer.Option("--workers", help="Exactly so many a replica.")] = None,
    replicas: Annotated[int | None, typer.Option("--replicas", help="Exactly so many.")] = None,
    servers: Annotated[int | None, typer.Option("--servers", help="Exactly so many.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="Exactly so many in every layer.")] = None,
    read_every: Annotated[
        int, typer.Option("--read-every", help="Samples a replica trains between two reads of the weights.")
    ] = 70,
    reading: Annotated[
        float, typer.Option("--reading", help="0: replicas read in turn; 1: all from one server at once.")
    ] = 0.0,
    samples: Annotated[int | None, typer.Option("--samples", help="Of an epoch.")] = None,
    simulated: Annotated[
        bool, typer.Option("--simulate", help="Also simulate the best plan, replicas meeting at servers.")
    ] = False,
    runner_ups: Annotated[int, typer.Option("--runner-ups", min=0, help="How many to show.")] = 7,
    network: Annotated[str, typer.Option("--network", help="baseline or burst.")] = "baseline",
    html: HtmlOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """The number of servers, replicas and workers a replica, and the cut of every layer, with the least
    epoch time."""
    from typing import cast

    from planner.errors import BadInput
    from planner.hardware import Network
    from planner.hardware.catalog import load_hardware
    from planner.model.catalog import load_model
    from planner.servers.partition.page import partition_data, partition_tables
    from planner.servers.partition.search import PartitionRequest, partition

    if network not in ("baseline", "burst"):
        raise BadInput(f"--network is {network!r}; allowed: baseline, burst")
    request = PartitionRequest(
        machines,
        read_every,
        reading,
        max_workers=max_workers or None,
        workers=workers,
        replicas=replicas,
        servers=servers,
        threads=threads,
        samples=samples,
    )
    dnn, machine = load_model(model), load_hardware(hardware)
    with progress(quiet) as report:
        result = partition(dnn, machine, request, network=cast(Network, network), progress=report)
    prediction = None
    if simulated:
        from planner.servers.partition.replica import replica_cluster, replica_profile
        from planner.simulator.simulate import simulate

        best = result.plans[0]
        if not best.servers:
            raise BadInput("--simulate needs servers that replicas meet at; give --machines 2 or more")
        profile = replica_profile(best, read_every, model=dnn.name)
        prediction = simulate(profile, replica_cluster(best, result.constants))
    tables = partition_tables(result, dnn, machine, request, runner_ups=runner_ups, prediction=prediction)
    # a million plans as plain values take as long as finding them
    wanted = format is Format.json
    data = partition_data(result, dnn, machine, request, prediction) if wanted else None
    emit(tables, format, output, data=data)
    if html is not None:
        from planner.report.html import write_page
        from planner.servers.partition.page import partition_page

        write_page(partition_page(tables, dnn.name, command_line()), html)
        say(f"report in {html}")
