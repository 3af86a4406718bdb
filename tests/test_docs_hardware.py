"""The worked example of docs/hardware.md is true: file, command and Python."""

import doctest
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli._app import app

PAGE = Path(__file__).parents[1] / "docs/hardware.md"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lab.toml").write_text(block("toml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def block(language: str) -> str:
    match = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match
    return match[1]


@pytest.mark.usefixtures("lab")
def test_command() -> None:
    command, _, shown = block("console").partition("\n")
    program, *arguments = command.removeprefix("$ ").split()
    assert program == "planner"
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}, catch_exceptions=False)
    assert result.exit_code == 0
    printed = "\n".join(line.rstrip() for line in result.stdout.splitlines())
    first, last = shown.strip().split("\n...\n")  # the compute model stands between
    assert printed.startswith(first)
    assert printed.endswith(last)


@pytest.mark.usefixtures("lab")
def test_python() -> None:
    test = doctest.DocTestParser().get_doctest(block("python"), {}, "hardware.md", str(PAGE), 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
