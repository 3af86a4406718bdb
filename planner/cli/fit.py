"""`planner fit`: which training methods fit on which GPUs."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli._options import Answer, shows


@shows
def show_fit(
    *,
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="NAME", help="Network: a catalog name or a file.")
    ],
    gpu: Annotated[str, typer.Option("--gpu", metavar="DEVICES", help="Devices, as RTX-4090,L4,A100.")],
    batch: Annotated[int, typer.Option("--batch", "-b", min=1, help="Micro-batch, as 1.")] = 1,
    seq_length: Annotated[
        int | None, typer.Option("--seq-length", min=1, help="Tokens per sample, as 4096; 2,048 by default.")
    ] = None,
    mean_length: Annotated[
        int | None,
        typer.Option("--mean-length", help="Mean tokens of an example padded to --seq-length, as 300."),
    ] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="Rank of LoRA adapters, as 16.")] = None,
    targets: Annotated[
        str | None, typer.Option("--targets", help="Layers that get adapters: all-linear or attention.")
    ] = None,
    dataset_tokens: Annotated[
        str | None, typer.Option("--dataset-tokens", metavar="TOKENS", help="Training set, as 10M.")
    ] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", help="Passes over it, as 3.")] = None,
) -> Answer:
    """What does it take to fit? Training methods by GPUs: memory, speed and the cost of the job.

    planner fit --model llama3-8b --gpu RTX-4090,L4,A100
    """
    from planner.answers.fit import fit_for
    from planner.errors import BadInput
    from planner.flags import token_count
    from planner.report.fit import fit_table

    if epochs is not None and not epochs > 0:
        raise BadInput(f"--epochs is {epochs:g}; it must be a number above zero")
    fit = fit_for(
        model,
        gpu,
        batch=batch,
        seq_length=seq_length,
        mean_length=mean_length,
        rank=rank,
        targets=targets,
        dataset_tokens=None if dataset_tokens is None else token_count(dataset_tokens, "--dataset-tokens"),
        epochs=epochs,
    )
    return Answer(fit_table(fit), fit.as_dict(), title="planner fit")
