"""`planner profile`: import traces, show profiles.

`planner record`: a training command, run with the recorder inside it.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from planner.cli._options import Answer, shows
from planner.printable import printable
from planner.report.output import check_writable

app = typer.Typer()

TRACES = "Traces of one worker: TensorFlow RunMetadata (a step each) or PyTorch profiler JSON; gzip or not."
BandwidthOption = Annotated[
    str | None, typer.Option("--bandwidth", metavar="RATE", help="Of a link, as 10Gbit or 100Mbit.")
]


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=TRACES)],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Profile to write, as vgg11.json.gz.")
    ],
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Samples in a step of this worker, if not noted.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Name to record.")] = None,
    hardware: Annotated[str, typer.Option("--hardware", help="Machine it ran on, to record.")] = "",
    bandwidth: BandwidthOption = None,
    overhead: Annotated[
        str | None,
        typer.Option(
            "--overhead",
            metavar="ALPHA,BETA",
            help="Parse overhead (seconds a byte, seconds): adds a parse op after each transfer.",
        ),
    ] = None,
) -> None:
    """Make a profile from recorded training steps; docs/recording.md tells how to record them."""
    from planner.device.recorded.importers import import_profile
    from planner.servers.network.calibration import parsed_overhead
    from planner.servers.rewrite import with_parsing
    from planner.simulator.step.files import save
    from planner.units import bandwidth_bytes_per_s

    check_writable(output)
    rate = bandwidth_bytes_per_s(bandwidth) if bandwidth else None
    constants = parsed_overhead(overhead) if overhead else None
    profile = import_profile(files, batch=batch, model=model, hardware=hardware, bandwidth_bytes_per_s=rate)
    if constants:
        profile = with_parsing(profile, *constants)
    save(profile, output)
    tensors = len(profile.tensors)
    typer.echo(
        printable(f"{output}: {profile.steps} step(s) of {profile.ops} ops, {tensors} tensors"), err=True
    )
    for note in profile.notes:
        typer.echo(printable(f"  {note}"), err=True)


@app.command()
@shows
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording, or a profile.")],
    *,
    bandwidth: BandwidthOption = None,
    slowest: Annotated[int, typer.Option("--slowest", min=0, help="How many of the slowest ops.")] = 10,
) -> Answer:
    """Show a profile: time by resource, critical path, slowest ops, and what looks wrong in it."""
    from planner.device.recorded import open_profile
    from planner.device.recorded.summary import summarize_recording
    from planner.report.layer_pages import profile_page
    from planner.report.profile import profile_tables, recording_tables
    from planner.simulator.step.summary import summarize
    from planner.units import bandwidth_bytes_per_s

    rate = bandwidth_bytes_per_s(bandwidth) if bandwidth else None
    profile = open_profile(file)
    summary = summarize(profile, rate, slowest)
    recording = summarize_recording(profile)
    tables = profile_tables(summary) if recording is None else recording_tables(recording, summary)
    data = {**asdict(summary), "recording": recording}
    return Answer(tables, data, page=lambda command: profile_page(profile, summary, command))


@app.command()
@shows
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A recording (`planner record`).")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
) -> Answer:
    """Set two recordings side by side: what each kind of op took, and what was set otherwise."""
    from planner.device.recorded import open_profile
    from planner.device.recorded.summary import compare_recordings, summarize_recording
    from planner.errors import BadInput
    from planner.report.profile import beside_tables

    recordings = []
    for path in (first, second):
        recording = summarize_recording(open_profile(path))
        if recording is None:
            raise BadInput(f"{path}: holds no kinds of ops; compare recordings (`planner record`)")
        recordings.append(recording)
    names = (first.name.split(".")[0], second.name.split(".")[0])
    if names[0] == names[1]:
        names = (str(first), str(second))
    both = compare_recordings(recordings[0], recordings[1])
    return Answer(beside_tables(both, names), both, f"planner profile: {names[0]} and {names[1]}")


def record(
    words: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="As `-- python train.py --lr 0.1`.")
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Recording to write, as step.json.gz.")
    ] = Path("step.json.gz"),
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps to record, after 6 to warm up.")] = 10,
    model: Annotated[str, typer.Option("--model", help="Name to note, else the class.")] = "",
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Samples of a micro-step, where no tensor tells.")
    ] = None,
) -> None:
    """Record some training steps of a PyTorch program, for the other commands' --profile.

    Works with plain loops, DDP and FSDP under torchrun, accumulation, autocast and torch.compile; the program
    needs no change.
    """
    from planner.recorder.launch import record_command

    check_writable(output)
    before = output.stat().st_mtime_ns if output.exists() else None
    status = record_command(words, output, steps=steps, model=model, batch=batch)
    if status:
        raise typer.Exit(status)
    if not output.exists() or output.stat().st_mtime_ns == before:
        from planner.errors import BadInput

        raise BadInput(f"{output}: nothing was recorded; does the command train with PyTorch here?")
    typer.echo(printable(f"{output}: recorded; see `planner profile show {output}`"), err=True)
