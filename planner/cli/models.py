"""`planner models`: the networks of the catalogue, and those that are imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli._options import Answer, ShowsByDefault, checked, shows
from planner.errors import BadInput
from planner.printable import printable
from planner.report.output import Format
from planner.report.page import Table

app = typer.Typer(cls=ShowsByDefault)


def _complete(incomplete: str) -> list[str]:
    from planner.model.catalog import model_names

    return [name for name in ("import", *model_names()) if name.startswith(incomplete)]


@app.command()
@shows
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A model's name, or the path of a .toml file or a config.json.",
            autocompletion=_complete,
        ),
    ] = None,
    *,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show what training it holds in a device's memory.")
    ] = False,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="With --memory: samples at a time, the micro-batch.")
    ] = None,
    seq_length: Annotated[
        int | None, typer.Option("--seq-length", min=1, help="Tokens of one sample, for a network over text.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="With --memory: fp32, tf32, fp16, bf16 or fp8.")
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option("--devices", min=1, max=1_000_000, help="With --memory: that train together."),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option("--optimizer", help="With --memory: sgd, momentum or adam.")
    ] = None,
    recompute: Annotated[
        str | None,
        typer.Option("--recompute", help="With --memory: none, attention, per-op or full."),
    ] = None,
    autocast: Annotated[
        bool, typer.Option("--autocast", help="With --memory: mixed precision as torch.autocast does it.")
    ] = False,
) -> Answer:
    """List the networks of the catalogue, or show one: its layers, tensors, multiply-adds and where the bytes
    are. `planner models import` reads others' (Hugging Face, PyTorch, ONNX). Folders in PLANNER_PATH come
    before planner's own; docs/models.md describes the files."""
    from planner.model.catalog import load_model, model_names
    from planner.report import models as report

    asked = {
        "--batch": batch,
        "--precision": precision,
        "--devices": devices,
        "--optimizer": optimizer,
        "--recompute": recompute,
        "--autocast": autocast or None,
    }
    alone = next((flag for flag, value in asked.items() if value is not None), None)
    if alone and not memory:
        raise BadInput(f"{alone} says how a model is trained; ask with --memory what that holds")
    if name is None and (memory or seq_length):
        flag = "--memory" if memory else "--seq-length"
        raise BadInput(f"{flag} is about one model; name it, as `planner models vgg11 {flag}`")
    if name is None:
        models, unread = [], []
        for entry in model_names():
            try:
                models.append(load_model(entry))
            except BadInput as error:  # of the user's own folder: the others are there all the same
                unread.append(str(error))
        return Answer(report.list_table(models, unread), title="planner models")
    model = load_model(name)
    if seq_length:
        model = model.with_sequence_length(seq_length)
    if memory:
        from planner.report.layer_pages import TrainingSettings, memory_data, memory_table

        training = TrainingSettings.asked(model, batch, precision, devices, optimizer, recompute, autocast)
        title = f"planner models: training memory of {model.name}"
        return Answer(memory_table(model, training), memory_data(model, training), title)
    from planner.report.layer_pages import model_page

    def tables(format: Format) -> list[Table]:
        return report.model_tables(model, folded=format in (Format.table, Format.markdown))

    return Answer(tables, report.model_data(model), page=lambda command: model_page(model, command))


@app.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A config.json or its folder, a .onnx file, or MODULE:FUNCTION of PyTorch.",
        ),
    ],
    *,
    input: Annotated[
        str | None,
        typer.Option("--input", metavar="NxCxHxW", help="What a PyTorch module reads: a batch of images."),
    ] = None,
    input_ids: Annotated[
        str | None,
        typer.Option("--input-ids", metavar="NxT", help="What a PyTorch module reads: a batch of texts."),
    ] = None,
    seq_length: Annotated[
        int | None, typer.Option("--seq-length", min=1, help="Tokens of one sample of a config.json.")
    ] = None,
    axis: Annotated[
        list[str] | None,
        typer.Option("--axis", metavar="NAME=SIZE", help="Size of an open axis of an ONNX file."),
    ] = None,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Watch the modules run instead of exporting the graph.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", callback=checked, help="Model file to write, as mine.toml."
        ),
    ] = None,
) -> None:
    """Read a network that others wrote down and write it as a model file, which all commands accept. Says
    what it recognised, and what it did not."""
    from planner.files.regular_file import write_file
    from planner.model.importers import ImportOptions, import_named, toml_of
    from planner.report.models import imported_lines

    imported = import_named(source, ImportOptions(input, input_ids, seq_length, tuple(axis or ()), hooks))
    file = output or Path(f"{imported.model.name}.toml")
    if output is None and file.exists():
        raise BadInput(f"{file} is there already; name another with --output")
    write_file(file, toml_of(imported.values))
    for line in imported_lines(imported, file):
        typer.echo(printable(line))
