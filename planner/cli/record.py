"""`planner record`: a training command, run with the recorder inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.printable import printable
from planner.report.output import check_writable


def command(
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
