"""The short way of converting values gives what typer gives, and leaves errors to typer."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
import typer

from planner.cli._fast import speed_up


class Colour(StrEnum):
    red = "red"
    blue = "blue"


def build(seen):
    app = typer.Typer(add_completion=False)

    @app.command()
    def run(
        text: str,
        *,
        number: Annotated[int, typer.Option(min=1, max=9)] = 3,
        ratio: float = 0.5,
        colour: Annotated[Colour, typer.Option(case_sensitive=False)] = Colour.red,
        file: Path | None = None,
        there: Annotated[Path | None, typer.Option(exists=True)] = None,
        many: Annotated[list[int] | None, typer.Option()] = None,
        flag: bool = False,
    ) -> None:
        seen.append((text, number, ratio, colour, file, there, many, flag))

    return app


ARGUMENTS = [
    ["a"],
    ["a", "--number", "9", "--ratio", "1e-3", "--colour", "blue", "--file", "x/y", "--flag"],
    ["a", "--colour", "BLUE", "--many", "1", "--many", "2", "--there", "/"],
    ["", "--ratio", "7", "--number", " 4"],
    ["a", "--number", "10"],
    ["a", "--number", "0"],
    ["a", "--number", "1.5"],
    ["a", "--number", "many"],
    ["a", "--ratio", "half"],
    ["a", "--colour", "green"],
    ["a", "--there", "/no/such/thing"],
    ["a", "--many", "x"],
    [],
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_the_same_as_typer(arguments):
    outcomes = []
    for short in (False, True):
        seen = []
        command = typer.main.get_command(build(seen))
        if short:
            speed_up(command)
        with pytest.raises(SystemExit) as done:
            command(arguments, prog_name="run")
        outcomes.append((done.value.code, seen, [type(value) for row in seen for value in row]))
    assert outcomes[0] == outcomes[1]
