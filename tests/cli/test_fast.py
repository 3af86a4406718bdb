"""The short way of converting values gives what typer gives, and leaves errors to typer."""

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
import typer

from planner.cli._app import is_tested_typer, load_command, use_plain_converters


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
        many: Annotated[list[int] | None, typer.Option()] = None,
        flag: bool = False,
    ) -> None:
        seen.append((text, number, ratio, colour, file, many, flag))

    return app


ARGUMENTS = [
    ["a"],
    ["a", "--number", "9", "--ratio", "1e-3", "--colour", "blue", "--file", "x/y", "--flag"],
    ["a", "--colour", "BLUE", "--many", "1", "--many", "2"],
    ["", "--ratio", "7", "--number", " 4"],
    ["a", "--number", "10"],
    ["a", "--number", "0"],
    ["a", "--number", "1.5"],
    ["a", "--number", "many"],
    ["a", "--ratio", "half"],
    ["a", "--colour", "green"],
    ["a", "--many", "x"],
    [],
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_same_as_typer(arguments):
    outcomes = []
    for short in (False, True):
        seen = []
        command = typer.main.get_command(build(seen))
        if short:
            use_plain_converters(command)
        with pytest.raises(SystemExit) as done:
            command(arguments, prog_name="run")
        outcomes.append((done.value.code, seen, [type(value) for row in seen for value in row]))
    assert outcomes[0] == outcomes[1]


@pytest.mark.skipif(
    not is_tested_typer(), reason=f"typer {typer.__version__} is left as it is: see planner/cli/_app.py"
)
@pytest.mark.parametrize(
    "words", ["models --format csv", "simulate --model alexnet --workers 2 --steps 5 --seed 3"]
)
def test_plain_values_need_no_pydantic(words):
    code = (
        "import sys; from planner.cli import main\n"
        "try: main()\n"
        "finally: print('PYDANTIC', 'pydantic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()], capture_output=True, text=True, check=False
    )
    assert "PYDANTIC False" in done.stdout, done.stderr


def test_typer_that_was_not_tried_is_left_alone(monkeypatch):
    monkeypatch.setattr(typer, "__version__", "99.1.0")
    for param in load_command("simulate").params:
        assert type(getattr(param, "_runtime_param", None)).__module__ != "planner.cli._app"
