"""`planner profile` imports traces and shows profiles; `planner record` records a training command.

`planner calibrate` fits constants of the models to recordings, or measures them on this machine.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path

import typer

from planner.cli._options import Answer, with_output_flags
from planner.cli._output import print_message
from planner.errors import BadInput, escape_unprintable
from planner.report.output import Format, check_writable, emit

app = typer.Typer()
calibrate_app = typer.Typer()


@app.command("import")
def import_traces(
    files: list[Path],
    *,
    output: Path,
    batch: int | None = None,
    model: str | None = None,
    hardware: str = "",
    bandwidth: str | None = None,
    overhead: str | None = None,
) -> None:
    """Import a profile from recorded training steps; docs/recording.md explains how to record them."""
    from planner.device.recorded.importers import import_profile
    from planner.servers.calibration import parse_overhead
    from planner.servers.placement import add_parsing
    from planner.simulator.step.files import save
    from planner.units import parse_bandwidth

    check_writable(output)
    rate = parse_bandwidth(bandwidth) if bandwidth else None
    constants = parse_overhead(overhead) if overhead else None
    profile = import_profile(files, batch=batch, model=model, hardware=hardware, bandwidth_bytes_per_s=rate)
    if constants:
        profile = add_parsing(profile, *constants)
    save(profile, output)
    tensors = len(profile.tensors)
    lines = [f"{output}: {profile.steps} step(s) of {profile.ops} ops, {tensors} tensors"]
    for line in (*lines, *(f"  {note}" for note in profile.notes)):
        typer.echo(escape_unprintable(line), err=True)


@app.command()
@with_output_flags
def show(file: Path, *, bandwidth: str | None = None, slowest: int = 10) -> Answer:
    """Show a profile: time by resource, critical path, slowest ops, and warnings."""
    from planner.device.recorded import open_profile
    from planner.device.recorded.summary import summarize_recording
    from planner.report.profile import profile_page, profile_tables, recording_tables
    from planner.simulator.step.summary import summarize
    from planner.units import parse_bandwidth

    rate = parse_bandwidth(bandwidth) if bandwidth else None
    profile = open_profile(file)
    summary = summarize(profile, rate, slowest)
    recording = summarize_recording(profile)
    tables = profile_tables(summary) if recording is None else recording_tables(recording, summary)
    data = {**asdict(summary), "recording": recording}
    return Answer(tables, data, page=lambda: profile_page(profile, summary))


@app.command()
@with_output_flags
def compare(first: Path, second: Path) -> Answer:
    """Compare two recordings: time by kind of op, and settings that differ."""
    from planner.device.recorded import open_profile
    from planner.device.recorded.summary import compare_recordings, summarize_recording
    from planner.report.profile import comparison_tables

    recordings = []
    for path in (first, second):
        recording = summarize_recording(open_profile(path))
        if recording is None:
            raise BadInput(
                f"{path}: is not a recording (`planner record`), so it has no kinds of ops to compare"
            )
        recordings.append(recording)
    names = (first.name.split(".")[0], second.name.split(".")[0])
    if names[0] == names[1]:
        names = (str(first), str(second))
    both = compare_recordings(recordings[0], recordings[1])
    return Answer(comparison_tables(both, names), both, f"planner profile: {names[0]} and {names[1]}")


def record(
    words: list[str],
    *,
    output: Path = Path("step.json.gz"),
    steps: int = 10,
    model: str = "",
    batch: int | None = None,
) -> None:
    """Record training steps of a PyTorch program, for --profile of other commands.

    Works with plain loops, DDP and FSDP under torchrun, accumulation, autocast and torch.compile; the program
    needs no change.
    """
    from planner.recorder import record_command

    check_writable(output)
    before = output.stat().st_mtime_ns if output.exists() else None
    status = record_command(words, output, steps=steps, model=model, batch=batch)
    if status:
        raise typer.Exit(status)
    if not output.exists() or output.stat().st_mtime_ns == before:
        raise BadInput(f"{output}: nothing was recorded; does the command train with PyTorch here?")
    typer.echo(escape_unprintable(f"{output}: recorded; see `planner profile show {output}`"), err=True)


@calibrate_app.command("overhead")
@with_output_flags
def fit_overhead(files: list[Path], bandwidth: str | None = None) -> Answer:
    """Fit the parse overhead of received tensors, alpha * bytes + beta, and report its error."""
    from planner.servers.calibration import calibrate_overhead, overhead_table
    from planner.units import parse_bandwidth

    fits = calibrate_overhead(files, parse_bandwidth(bandwidth) if bandwidth else None)
    return Answer(overhead_table(fits), title="planner calibrate overhead")


@calibrate_app.command("window")
@with_output_flags
def infer_window(files: list[Path], bandwidth: str | None = None, overhead: str | None = None) -> Answer:
    """Infer the HTTP/2 flow-control window from recorded end times; report the error with and without."""
    from planner.servers.calibration import calibrate_window, parse_overhead, window_table
    from planner.units import parse_bandwidth

    alpha, beta = parse_overhead(overhead) if overhead else (0.0, 0.0)
    rate = parse_bandwidth(bandwidth) if bandwidth else None
    fits = calibrate_window(files, rate, alpha_s_per_byte=alpha, beta_s=beta)
    return Answer(window_table(fits), title="planner calibrate window")


class UnitOption(StrEnum):
    """What `calibrate compute` measures."""

    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


@calibrate_app.command("compute")
def measure_compute(
    *,
    output: Path | None = None,
    into: Path | None = None,
    name: str = "mine",
    usd_per_hour: float | None = None,
    device: UnitOption = UnitOption.auto,
    format: Format = Format.table,
) -> None:
    """Measure how fast this machine computes: its GPU by precision, or its CPU by number of threads."""
    from planner.calibrate.accelerator import (
        accelerator_tables,
        calibrate_accelerator,
        check_toml_suffix,
        has_accelerator,
        merge_compute,
        read_hardware_tables,
        write_hardware_file,
    )
    from planner.calibrate.compute import calibrate_compute, hardware_tables
    from planner.report.profile import accelerator_table, compute_table

    if output is not None and into is not None:
        raise BadInput("give only one of -o (a new file) and --into (an existing file)")
    if output is not None:
        check_toml_suffix(output)
        if output.exists():
            raise BadInput(f"{output} exists; --into {output} adds the measured figures to it")
        check_writable(output)
    existing = read_hardware_tables(into) if into else None
    if device == UnitOption.gpu or (device == UnitOption.auto and has_accelerator()):
        gpu = calibrate_accelerator("cuda", _print_progress)
        tables, shown = accelerator_tables(gpu, name, usd_per_hour), accelerator_table(gpu)
    else:
        measured = calibrate_compute(_print_progress)
        tables, shown = hardware_tables(measured, name, usd_per_hour), compute_table(measured)
    if into is not None and existing is not None:
        merge_compute(existing, tables)
        tables = existing
    if file := output or into:
        write_hardware_file(file, tables)
        print_message(
            f"wrote {file}; measure the network into it: planner calibrate network HOST --into {file}"
        )
    emit(shown, format)


@calibrate_app.command("network")
def measure_network(
    *,
    host: str | None = None,
    into: Path | None = None,
    port: int = 5203,
    serve: bool = False,
    connections: int = 4,
    format: Format = Format.table,
) -> None:
    """Measure bandwidth and latency to another machine, by iperf3 or a TCP probe."""
    from planner.calibrate.accelerator import (
        measured_source,
        merge_network,
        read_hardware_tables,
        write_hardware_file,
    )
    from planner.calibrate.network import calibrate_network
    from planner.calibrate.network import serve as answer
    from planner.report.profile import network_table

    if serve:
        print_message(f"answering on port {port}; Ctrl-C ends it")
        answer(port)
    if host is None:
        raise BadInput("name the other machine (planner calibrate network HOST), or run --serve on it")
    tables = read_hardware_tables(into) if into else None
    measured = calibrate_network(
        host, port=port, connections=connections, progress=lambda words: _print_progress(0, 0, words)
    )
    if into is not None and tables is not None:
        source = measured_source(f"planner calibrate network {host} ({measured.method})")
        merge_network(tables, measured.hardware_keys(), source)
        write_hardware_file(into, tables)
        print_message(f"wrote {into}")
    emit(network_table(measured), format)


def _print_progress(done: int, total: int, words: str) -> None:
    """Prints progress on stderr as `done/total message`."""
    print_message((f"{done}/{total} " if total else "") + words)
