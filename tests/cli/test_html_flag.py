"""`--html` in every command that answers."""

import json

import pytest
from typer.testing import CliRunner

from planner.cli._app import COMMANDS, app, load_command
from planner.units import rate

ANSWERS = {"check", "compare", "diff", "hardware", "models", "order", "partition", "prices", "profile"}
ANSWERS |= {"fit", "recommend", "saturation", "simulate", "sweep", "validate"}
OTHERS = {"calibrate", "record"}  # write files of their own


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def flags_of(command):
    return {flag for param in command.params for flag in param.opts}


def test_every_command_that_answers_has_the_flag():
    assert set(COMMANDS) == ANSWERS | OTHERS
    for name in ANSWERS:
        command = load_command(name)
        subcommands = getattr(command, "commands", {name: command}).values()
        assert any("--html" in flags_of(leaf) for leaf in subcommands), name


@pytest.fixture
def answer(tmp_path):
    path = tmp_path / "answer.json"
    flags = ["--model", "alexnet", "--hardware", "g5.xlarge", "--workers", "1", "--max-steps", "20"]
    done = run("simulate", *flags, "--format", "json", "--output", path)
    assert done.exit_code == 0, done.output
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hardware", "g5.*"], "g5.xlarge"),
        (["hardware", "g5.xlarge"], "g5.xlarge"),
        (["hardware", "--gpu", "A10G"], "g5.xlarge"),
        (["prices", "show", "g5.*"], "g5.xlarge"),
        (["models"], "resnet50"),
        (["models", "alexnet", "--memory"], "alexnet"),
        (["partition", "--model", "alexnet", "--hardware", "c4.8xlarge", "-n", "2"], "c4.8xlarge"),
    ],
)
def test_page_holds_what_the_terminal_says(tmp_path, words, said):
    path = tmp_path / "page.html"
    done = run(*words, "--html", path)
    assert done.exit_code == 0, done.output
    text = path.read_text()
    assert said in text
    assert "<h1>planner " + words[0] in text
    assert "<h2>Command</h2>" in text


def test_checks_and_differences_have_pages(tmp_path, answer):
    page = tmp_path / "page.html"
    assert run("diff", answer, answer, "--html", page).exit_code == 0
    assert "planner diff: answer.json and answer.json" in page.read_text()
    predicted = json.loads(answer.read_text())["plan"]["samples_per_s"]
    done = run("check", answer, "--measured", predicted / 2, "--no-keep", "--html", page)
    assert done.exit_code == 0, done.output
    assert "-50.0% against the prediction" in page.read_text()
    assert f"{rate(predicted / 2)}</td>" in page.read_text()
