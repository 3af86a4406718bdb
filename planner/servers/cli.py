"""`planner order` and `planner partition`. Their options are fields of the requests, in a table each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from planner.cli._app import opt, typed_opt
from planner.cli._options import (
    FormatOption,
    HtmlOption,
    NoColorOption,
    OutputOption,
    QuietOption,
    checked,
    with_signature,
)
from planner.cli._output import progress, write_html
from planner.errors import BadInput
from planner.report.output import Format, emit
from planner.servers.order_request import OrderRequest
from planner.servers.partition.search import PartitionRequest

_MILLISECONDS = {"min": 0, "max": 60_000}
_COUNT = {"min": 1, "max": 256}
ORDER: dict[str, tuple[str, str, dict[str, Any]]] = {
    "model": ("--model -m", "A network of the catalogue or a .toml file.", {}),
    "hardware": ("--hardware", "The workers' machine; one worker on each.", {}),
    "profile": ("--profile", "A profile of your own instead of --model.", {}),
    "batch": ("--batch -b", "Samples a worker takes in a step.", {"min": 1}),
    "workers": ("--workers -w", "How many workers.", _COUNT),
    "exchange": ("--exchange", "servers; what an order would mean for others is said.", {}),
    "servers": ("--servers", "Parameter servers.", _COUNT),
    "bandwidth": ("--bandwidth", "Every NIC's bandwidth: 3Gbit. Else the machine's.", {}),
    "strategies": ("--strategies", "Which, as tic,tac,p3; or all.", {}),
    "mode": ("--mode", "sync or async.", {}),
    "barrier": ("--barrier", "Steps do not overlap, as in TensorFlow.", {}),
    "placement": ("--placement", "How tensors go to servers.", {}),
    "overhead_ms": ("--overhead", "Milliseconds per message beside its bytes.", _MILLISECONDS),
    "download_overhead_ms": (
        "--download-overhead",
        "The same for downloads, if it differs.",
        _MILLISECONDS,
    ),
    "slice_size": ("--slice", "P3's slices: 160000 or 4MiB.", {}),
    "partition_size": ("--partition", "ByteScheduler's and Prophet's partitions.", {}),
    "credit_size": ("--credit", "ByteScheduler's credit.", {}),
    "slow_worker": ("--slow-worker", "Speed of the last worker, up to 1: 0.5 is half.", {}),
    "slow_link": ("--slow-link", "Bandwidth of the last worker: 500Mbit.", {}),
    "tune": ("--tune", "Tune ByteScheduler with this many simulations.", {"min": 0}),
    "study": ("--study", "File in which tuning is kept and resumed.", {"callback": checked}),
    "priorities": ("--priorities", "A file of --export (or your own) to compare.", {}),
    "seed": ("--seed", "Seed of the simulations, as 1.", {"min": 0}),
}
PARTITION: dict[str, tuple[str, str, dict[str, Any]]] = {
    "machines": ("--machines -n", "How many, servers included.", {}),
    "max_workers": ("--max-workers", "Workers a replica at most; 0 for any number.", {}),
    "workers": ("--workers", "Exactly so many a replica.", {}),
    "replicas": ("--replicas", "Exactly so many.", {}),
    "servers": ("--servers", "Exactly so many.", {}),
    "threads": ("--threads", "Exactly so many in every layer.", {}),
    "read_every": ("--read-every", "Samples a replica trains between two reads of the weights.", {}),
    "reading": ("--reading", "0: replicas read in turn; 1: all from one server at once.", {}),
    "samples": ("--samples", "Of an epoch.", {}),
}


def _asks(
    request: type[Any], options: Mapping[str, tuple[str, str, dict[str, Any]]], **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the fields of a request as options of a command, which gets them as `values`."""
    hints = get_type_hints(request)
    given = {entry.name: entry.default for entry in fields(request)} | defaults
    before = {
        name: (
            typed_opt(hints[name], *spelling.split(), help, **more),
            ... if given[name] is MISSING else given[name],
        )
        for name, (spelling, help, more) in options.items()
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def with_options(**values: Any) -> None:
            own = {name: values.pop(name, default) for name, (_, default) in before.items()}
            command(own, **values)

        return with_signature(with_options, command, before, {})

    return decorate


@_asks(OrderRequest, ORDER)
def order(
    values: dict[str, Any],
    *,
    export: Path | None = opt(
        "--export", "Write name and priority of the best order to FILE.", callback=checked
    ),
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
    html: HtmlOption = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Compare orders of transfers: step time, samples/s, efficiency, overlap, stragglers; and the ideal.

    planner order --model inception3 --batch 32 --hardware g3.8xlarge --workers 3 --bandwidth 3Gbit
    """
    from planner.files.regular_file import write_file
    from planner.report.page import page_of
    from planner.servers.order_request import exported, order_for

    with progress(quiet) as report:
        answer = order_for(OrderRequest(**values), progress=report)
    if export is not None:
        write_file(export, exported(answer))
    shown = page_of(answer)
    emit(shown, format, output)
    write_html(shown, html)


@_asks(PartitionRequest, PARTITION, max_workers=4)
def partition(
    values: dict[str, Any],
    *,
    model: str = opt("--model", "-m", "A model's name or a path to its .toml file.", default=...),
    hardware: str = opt("--hardware", "The machines: a name or a path to a file.", default=...),
    simulated: bool = opt(
        "--simulate", "Also simulate the best plan, replicas meeting at servers.", default=False
    ),
    runner_ups: int = opt("--runner-ups", "How many to show.", default=7, min=0),
    network: str = opt("--network", "baseline or burst.", default="baseline"),
    html: HtmlOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """The number of servers, replicas and workers a replica, and the cut of every layer, with the least
    epoch time."""
    from typing import cast

    from planner.hardware import Network
    from planner.hardware.catalog import load_hardware
    from planner.model.catalog import load_model
    from planner.servers.partition import page
    from planner.servers.partition import search as partitions

    if network not in ("baseline", "burst"):
        raise BadInput(f"--network is {network!r}; allowed: baseline, burst")
    request = PartitionRequest(**values | {"max_workers": values["max_workers"] or None})
    dnn, machine = load_model(model), load_hardware(hardware)
    with progress(quiet) as report:
        result = partitions.partition(dnn, machine, request, network=cast(Network, network), progress=report)
    prediction = None
    if simulated:
        from planner.servers.partition.replica import replica_cluster, replica_profile
        from planner.simulator.simulate import simulate

        best = result.plans[0]
        if not best.servers:
            raise BadInput("--simulate needs servers that replicas meet at; give --machines 2 or more")
        profile = replica_profile(best, request.read_every, model=dnn.name)
        prediction = simulate(profile, replica_cluster(best, result.constants))
    tables = page.partition_tables(result, runner_ups=runner_ups, prediction=prediction)
    # a million plans as plain values take as long as finding them
    data = page.partition_data(result, prediction) if format is Format.json else None
    emit(tables, format, output, data=data)
    write_html(page.partition_page(tables, dnn.name), html)
