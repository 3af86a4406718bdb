"""`planner models` lists and imports networks; `planner fit` shows which methods fit on which GPUs."""

from __future__ import annotations

from pathlib import Path

import typer

from planner.cli._options import Answer, ShowsByDefault, with_output_flags
from planner.errors import BadInput, escape_unprintable
from planner.report.output import Format
from planner.report.page import Table

app = typer.Typer(cls=ShowsByDefault)
FIT_GPUS = "RTX-4090,L4,A100,H100"


def _complete_model_name(incomplete: str) -> list[str]:
    """Model names that start with the typed text, for shell completion."""
    from planner.model.catalog import model_names

    return [name for name in ("import", *model_names()) if name.startswith(incomplete)]


@app.command()
@with_output_flags
def show(
    name: str | None = None,
    *,
    memory: bool = False,
    batch: int | None = None,
    seq_length: int | None = None,
    precision: str | None = None,
    devices: int | None = None,
    optimizer: str | None = None,
    recompute: str | None = None,
    autocast: bool = False,
    train: str | None = None,
    rank: int | None = None,
    targets: str | None = None,
    base: str | None = None,
) -> Answer:
    """List the networks of the catalog, or show one: layers, tensors, multiply-adds and bytes.

    `planner models import` converts networks of Hugging Face, PyTorch and ONNX. Folders in PLANNER_PATH take
    precedence over the catalog; docs/models.md describes the files."""
    from planner.model.catalog import load_model, model_names
    from planner.report import models as report

    asked = {
        "--batch": batch,
        "--precision": precision,
        "--devices": devices,
        "--optimizer": optimizer,
        "--recompute": recompute,
        "--autocast": autocast or None,
        "--train": train,
        "--rank": rank,
        "--targets": targets,
        "--base": base,
    }
    alone = next((flag for flag, value in asked.items() if value is not None), None)
    if alone and not memory:
        raise BadInput(f"{alone} needs --memory, which shows the memory of training")
    if name is None and (memory or seq_length):
        flag = "--memory" if memory else "--seq-length"
        raise BadInput(f"{flag} needs a model, e.g. `planner models vgg11 {flag}`")
    if name is None:
        models, unread = [], []
        for entry in model_names():
            try:
                models.append(load_model(entry))
            except BadInput as error:  # of the user's own folder: the others are there all the same
                unread.append(str(error))
        return Answer(report.models_table(models, unread), title="planner models")
    model = load_model(name)
    if seq_length:
        model = model.with_sequence_length(seq_length)
    if not memory:

        def tables(format: Format) -> list[Table]:
            """Tables of the model, with repeated blocks folded for people."""
            return report.model_tables(model, folded=format in (Format.table, Format.markdown))

        return Answer(tables, report.model_data(model), page=lambda: report.model_page(model))
    from planner.device.activations import find_recompute_mode
    from planner.device.memory import default_optimizer
    from planner.device.precision import find_optimizer, find_precision
    from planner.model.methods import apply_training, method_settings
    from planner.report.memory import TrainingSettings, memory_data, memory_table
    from planner.search.training import fine_tuning_length

    method = method_settings(train, rank=rank, targets=targets, base=base)
    if seq_length is None and (length := fine_tuning_length(model, method)) is not None:
        model = model.with_sequence_length(length)
    model = apply_training(model, method)
    training = TrainingSettings(
        batch or model.default_batch,
        find_precision(precision or model.default_precision),
        devices or 1,
        find_optimizer(optimizer or (default_optimizer(model) if train else "adam")).name,
        find_recompute_mode(recompute or "none"),
        autocast,
    )
    title = f"planner models: training memory of {model.name}"
    return Answer(memory_table(model, training), memory_data(model, training), title)


@app.command("import")
def import_model(
    source: str,
    *,
    input: str | None = None,
    input_ids: str | None = None,
    seq_length: int | None = None,
    axis: list[str] | None = None,
    hooks: bool = False,
    output: Path | None = None,
) -> None:
    """Convert a network to a model file, which all commands accept; reports what was not recognized."""
    from planner.files.regular_file import write_file
    from planner.model.importers import ImportOptions, format_model_file, import_named
    from planner.report.models import import_summary_lines

    imported = import_named(source, ImportOptions(input, input_ids, seq_length, tuple(axis or ()), hooks))
    file = output or Path(f"{imported.model.name}.toml")
    if output is None and file.exists():
        raise BadInput(f"{file} is there already; name another with --output")
    write_file(file, format_model_file(imported.values))
    for line in import_summary_lines(imported, file):
        typer.echo(escape_unprintable(line))


@with_output_flags
def show_fit(
    *,
    model: str,
    gpu: str = FIT_GPUS,
    batch: int = 1,
    seq_length: int | None = None,
    mean_length: int | None = None,
    rank: int | None = None,
    targets: str | None = None,
    dataset_tokens: str | None = None,
    epochs: float | None = None,
) -> Answer:
    """What does it take to fit? Training methods by GPUs: memory, speed and the cost of the job.

    planner fit --model llama3-8b --gpu RTX-4090,L4,A100
    """
    from planner.answers.fit import fit_for
    from planner.flags import parse_tokens
    from planner.report.memory import fit_page

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
        dataset_tokens=None if dataset_tokens is None else parse_tokens(dataset_tokens, "--dataset-tokens"),
        epochs=epochs,
    )
    return Answer(fit_page(fit), fit.as_dict())
