"""`planner models`: the networks of the catalogue."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli._answers import HtmlOption, reproducing
from planner.cli._options import FormatOption, OutputOption
from planner.errors import BadInput
from planner.report.output import Format, emit


def _complete(incomplete: str) -> list[str]:
    from planner.model_files import model_names

    return [name for name in model_names() if name.startswith(incomplete)]


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A model's name, or the path of a .toml file.", autocompletion=_complete
        ),
    ] = None,
    html: HtmlOption = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """List the networks of the catalogue, or show one: its layers, tensors, multiply-adds and where the bytes
    are. Folders in PLANNER_PATH come before planner's own; docs/models.md describes the files."""
    from planner.model_files import load_model, model_names
    from planner.report import models as report

    if name is None and html is not None:
        raise BadInput("--html draws one model; name it, as `planner models vgg11 --html vgg11.html`")
    if name is None:
        models, unread = [], []
        for one in model_names():
            try:
                models.append(load_model(one))
            except BadInput as error:  # of the user's own folder: the others are there all the same
                unread.append(str(error))
        emit(report.list_table(models, unread), format, output)
    else:
        model = load_model(name)
        emit(report.model_tables(model), format, output, data=report.model_data(model))
        if html is not None:
            from planner.report.html_layers import model_page
            from planner.report.page import write_page

            write_page(model_page(model, reproducing()), html)
