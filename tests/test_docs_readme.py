"""README: its example is what the command prints, its accuracy that of the document, its links lead on."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
MADE = runpy.run_path(str(ROOT / "docs" / "readme.py"))
AGAIN = "run `python docs/readme.py`"
FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")
CLOSE = 0.01  # machines round differently, and races between plans stop a step earlier or later


def words_and_figures(text):
    """The words with a sign for each figure, rules of any length as one, and the figures."""
    words = re.sub(r"\s+", " ", re.sub("─+", "─", FIGURE.sub("#", text)))
    return words, [float(entry.replace(",", "")) for entry in FIGURE.findall(text)]


@pytest.mark.parametrize("example", MADE["EXAMPLE"].findall(README), ids=lambda found: found[1])
def test_answer_shown_is_the_answer_given(example):
    _, command, shown, _ = example
    words, figures = words_and_figures(MADE["answer"](command))
    told_words, told_figures = words_and_figures(shown)
    assert told_words == words, AGAIN
    assert told_figures == pytest.approx(figures, rel=CLOSE), AGAIN


def test_accuracy_shown_is_that_of_the_document():
    (_, table, _) = MADE["TABLE"].search(README).groups()
    assert table == MADE["accuracy"](), AGAIN
    assert table.count("\n") == 7


def test_readme_says_what_a_reader_needs_in_two_screens_of_its_own_words():
    own = re.sub(r"```text.*?```", "", README, flags=re.DOTALL)
    assert len(own.splitlines()) <= 110
    for part in (
        "pip install",
        "planner recommend",
        "## Accuracy",
        "## Speed",
        "## Not modelled",
        "## How it works",
    ):
        assert part in own
    assert max(map(len, own.splitlines())) <= 160


def test_every_page_it_names_exists():
    for path in re.findall(r"\]\((?!http|#)([^)#]+)\)", README):
        assert (ROOT / path).exists(), path


def test_every_command_it_names_exists():
    from planner.cli._app import COMMANDS

    named = set(re.findall(r"(?:`|^    |bin/|output: )planner ([a-z]+)", README, re.MULTILINE))
    assert {"recommend", "compare", "saturation", "simulate", "validate", "check"} <= named
    assert named <= set(COMMANDS)


def test_every_benchmark_it_names_exists():
    named = re.findall(r"benchmarks/[\w./]+\.\w+", README)
    assert len(named) >= 2
    for path in named:
        assert (ROOT / path).exists(), path
