"""`planner calibrate`: constants of the models, fitted to recordings."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from planner.cli._options import Answer, FormatOption, shows
from planner.cli._output import say
from planner.report.output import Format, emit

app = typer.Typer()

TABLES = "Tables of isolated transfers (bytes, overhead_s), profiles, or TensorFlow RunMetadata."
PROFILES = "One-worker profiles, or TensorFlow RunMetadata (a step each)."
BandwidthOption = Annotated[
    str | None,
    typer.Option("--bandwidth", metavar="RATE", help="Of the link while recorded, as 10Gbit or 100Mbit."),
]


@app.command()
@shows
def overhead(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=TABLES)],
    bandwidth: BandwidthOption = None,
) -> Answer:
    """Fit the parse overhead of received tensors, alpha * bytes + beta, and report its error."""
    from planner.servers.network.calibration import calibrate_overhead, overhead_table
    from planner.units import bandwidth_bytes_per_s

    fits = calibrate_overhead(files, bandwidth_bytes_per_s(bandwidth) if bandwidth else None)
    return Answer(overhead_table(fits), title="planner calibrate overhead")


@app.command()
@shows
def window(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=PROFILES)],
    bandwidth: BandwidthOption = None,
    overhead: Annotated[
        str | None,
        typer.Option("--overhead", metavar="ALPHA,BETA", help="Parse overhead: seconds a byte, seconds."),
    ] = None,
) -> Answer:
    """Infer the HTTP/2 flow-control window from recorded end times; report the error with and without."""
    from planner.servers.network.calibration import calibrate_window, parsed_overhead, window_table
    from planner.units import bandwidth_bytes_per_s

    alpha, beta = parsed_overhead(overhead) if overhead else (0.0, 0.0)
    rate = bandwidth_bytes_per_s(bandwidth) if bandwidth else None
    fits = calibrate_window(files, rate, alpha_s_per_byte=alpha, beta_s=beta)
    return Answer(window_table(fits), title="planner calibrate window")


FileOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="The hardware file to write: mine.toml.")
]


class UnitOption(StrEnum):
    """What `calibrate compute` measures."""

    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


@app.command()
def compute(
    output: FileOption = None,
    name: Annotated[str, typer.Option("--name", help="Of the machine in the file.")] = "mine",
    usd_per_hour: Annotated[float | None, typer.Option("--usd-per-hour", help="Its price, if any.")] = None,
    device: Annotated[
        UnitOption, typer.Option("--device", help="auto: a GPU, where torch sees one.")
    ] = UnitOption.auto,
    format: FormatOption = Format.table,
) -> None:
    """Measure how fast this machine computes: its GPU by precision, or its CPU by number of threads."""
    from planner.calibrate.accelerator import (
        accelerator_available,
        accelerator_tables,
        calibrate_accelerator,
        check_name,
        write_hardware_file,
    )
    from planner.calibrate.compute import calibrate_compute, hardware_tables
    from planner.report.output import check_writable
    from planner.report.profile import accelerator_table, compute_table

    if output is not None:
        check_name(output)
        check_writable(output)
    if device == UnitOption.gpu or (device == UnitOption.auto and accelerator_available()):
        gpu = calibrate_accelerator("cuda", _progress)
        tables, shown = accelerator_tables(gpu, name, usd_per_hour), accelerator_table(gpu)
    else:
        measured = calibrate_compute(_progress)
        tables, shown = hardware_tables(measured, name, usd_per_hour), compute_table(measured)
    if output is not None:
        write_hardware_file(output, tables)
        say(f"wrote {output}; measure the network into it: planner calibrate network HOST --into {output}")
    emit(shown, format)


@app.command()
def network(
    *,
    host: Annotated[str | None, typer.Argument(metavar="HOST", help="The other machine.")] = None,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="FILE", help="A hardware file to put the figures into.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="TCP port of the probe.")] = 5203,
    serve: Annotated[bool, typer.Option("--serve", help="Be the other machine, until Ctrl-C.")] = False,
    connections: Annotated[
        int, typer.Option("--connections", min=1, max=64, help="Parallel TCP connections, as 4.")
    ] = 4,
    format: FormatOption = Format.table,
) -> None:
    """Measure bandwidth and latency to another machine, by iperf3 or a TCP probe."""
    import copy
    from datetime import date

    from planner.calibrate.accelerator import merge_network, write_hardware_file
    from planner.calibrate.network import calibrate_network
    from planner.calibrate.network import serve as answer
    from planner.errors import BadInput
    from planner.files.tomlfile import read
    from planner.report.profile import network_table

    if serve:
        say(f"answering on port {port}; Ctrl-C ends it")
        answer(port)
    if host is None:
        raise BadInput("name the other machine: planner calibrate network HOST; or be it: --serve")
    tables = copy.deepcopy(read(into).data) if into else None
    measured = calibrate_network(
        host, port=port, connections=connections, progress=lambda words: _progress(0, 0, words)
    )
    if into is not None and tables is not None:
        source = {
            "basis": "measured",
            "source": f"planner calibrate network {host} ({measured.method})",
            "as_of": date.today().isoformat(),
        }
        merge_network(tables, measured.figures(), source)
        write_hardware_file(into, tables)
        say(f"wrote {into}")
    emit(network_table(measured), format)


def _progress(done: int, total: int, words: str) -> None:
    say((f"{done}/{total} " if total else "") + words)
