"""`planner order` and `planner partition`, with the fields of their requests as options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from planner.cli._options import set_signature
from planner.cli._output import show_progress, write_html
from planner.errors import BadInput
from planner.report.output import Format, emit
from planner.servers.order_request import OrderRequest
from planner.servers.partition.search import PartitionRequest


def _add_request_options(
    request: type[Any], **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that adds a request's fields to a command as options, passed to it as one dict."""
    hints = get_type_hints(request)
    options = {}
    for entry in fields(request):
        usual = inspect.Parameter.empty if entry.default is MISSING else entry.default
        options[entry.name] = (hints[entry.name], defaults.get(entry.name, usual))

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        """Adds the options to a command's signature."""

        def with_options(**values: Any) -> None:
            """Calls the command with the added options collected in a dict."""
            own = {name: values.pop(name) for name in options if name in values}
            command(own, **values)

        return set_signature(with_options, command, options, {})

    return decorate


@_add_request_options(OrderRequest)
def order(
    values: dict[str, Any],
    *,
    export: Path | None = None,
    quiet: bool = False,
    no_color: bool = False,
    html: Path | None = None,
    format: Format = Format.table,
    output: Path | None = None,
) -> None:
    """Compare orders of transfers: step time, samples/s, efficiency, overlap and stragglers.

    planner order --model inception3 --batch 32 --hardware g3.8xlarge --workers 3 --bandwidth 3Gbit
    """
    from planner.files.regular_file import write_file
    from planner.report.page import page_of
    from planner.servers.order_request import best_priorities_json, compare_requested_orders

    with show_progress(quiet) as report:
        answer = compare_requested_orders(OrderRequest(**values), progress=report)
    if export is not None:
        write_file(export, best_priorities_json(answer))
    shown = page_of(answer)
    emit(shown, format, output)
    write_html(shown, html)


@_add_request_options(PartitionRequest, max_workers=4)
def partition(
    values: dict[str, Any],
    *,
    model: str,
    hardware: str,
    simulated: bool = False,
    runner_ups: int = 7,
    network: str = "baseline",
    html: Path | None = None,
    quiet: bool = False,
    no_color: bool = False,
    format: Format = Format.table,
    output: Path | None = None,
) -> None:
    """Search servers, replicas, workers per replica and the cut of every layer for the least epoch time."""
    from typing import cast

    from planner.hardware import Network
    from planner.hardware.catalog import load_hardware
    from planner.model.catalog import load_model
    from planner.servers.partition import page
    from planner.servers.partition import search as partitions

    if network not in ("baseline", "burst"):
        raise BadInput(f"--network is {network!r}; allowed: baseline, burst")
    request = PartitionRequest(**values | {"max_workers": values.get("max_workers") or None})
    dnn, machine = load_model(model), load_hardware(hardware)
    with show_progress(quiet) as report:
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
