"""The typer application and its door. Command modules import typer and the standard library only at the
top; everything heavy is imported inside the command, so that `planner --help` starts at once."""

from __future__ import annotations

import sys

import typer

from planner.errors import PlannerError

app = typer.Typer(
    name="planner",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="What to rent and how to run it before training a deep network.",
)


@app.callback()
def _root() -> None:
    """What to rent and how to run it before training a deep network."""


def main() -> None:
    """Run the command line; an error of ours is one line on stderr."""
    try:
        app()
    except PlannerError as error:
        print(f"planner: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
