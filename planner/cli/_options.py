"""Options that mean the same in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.report.output import Format, check_writable


def checked(path: Path | None) -> Path | None:
    """A file to write, refused before the work if it cannot be."""
    if path is not None and str(path) != "-":
        check_writable(path)
    return path


FormatOption = Annotated[
    Format, typer.Option("--format", "-f", help="How to write the result.", case_sensitive=False)
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        callback=checked,
        help="Write the result to FILE (replaced whole or not at all) instead of stdout.",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
