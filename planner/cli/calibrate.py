"""`planner calibrate`: constants of the models, fitted to recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import _calibrate_machine
from planner.cli._options import FormatOption, OutputOption
from planner.report.output import Format, emit

app = typer.Typer()
app.registered_commands += _calibrate_machine.app.registered_commands  # compute, network

TABLES = "Tables of isolated transfers (bytes, overhead_s), profiles, or TensorFlow RunMetadata."
PROFILES = "One-worker profiles, or TensorFlow RunMetadata (a step each)."
BandwidthOption = Annotated[
    str | None,
    typer.Option("--bandwidth", metavar="RATE", help="Of the link while recorded, as 10Gbit or 100Mbit."),
]


@app.command()
def overhead(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=TABLES)],
    bandwidth: BandwidthOption = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Fit the parse overhead of received tensors, alpha * bytes + beta, and report its error."""
    from planner.calibrate.traces import calibrate_overhead
    from planner.report.profile import overhead_table
    from planner.units import bandwidth_bytes_per_s

    fits = calibrate_overhead(files, bandwidth_bytes_per_s(bandwidth) if bandwidth else None)
    emit(overhead_table(fits), format, output)


@app.command()
def window(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=PROFILES)],
    bandwidth: BandwidthOption = None,
    overhead: Annotated[
        str | None,
        typer.Option("--overhead", metavar="ALPHA,BETA", help="Parse overhead: seconds a byte, seconds."),
    ] = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Infer the HTTP/2 flow-control window from recorded end times; report the error with and without."""
    from planner.calibrate.traces import calibrate_window
    from planner.report.profile import window_table
    from planner.servers.network.overhead import parsed_overhead
    from planner.units import bandwidth_bytes_per_s

    alpha, beta = parsed_overhead(overhead) if overhead else (0.0, 0.0)
    rate = bandwidth_bytes_per_s(bandwidth) if bandwidth else None
    fits = calibrate_window(files, rate, alpha_s_per_byte=alpha, beta_s=beta)
    emit(window_table(fits), format, output)
