"""Options that mean the same in every command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from planner.errors import BadInput
from planner.report.output import Format, check_writable


def checked(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    """A file to write, refused before the work if it cannot be or if another flag names it too."""
    if path is not None and str(path) != "-":
        check_writable(path)
        flag, file = param.opts[0], Path(os.path.realpath(path))
        flag_of: dict[Path, str] = ctx.meta.setdefault("planner.outputs", {})
        if flag_of.setdefault(file, flag) != flag and not file.is_char_device():
            raise BadInput(f"{flag_of[file]} and {flag} both name {path}; give each a file of its own")
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
