"""README: its example is what the command prints, its accuracy that of the document, its links lead on."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
MADE = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
AGAIN = "run `python benchmarks/readme.py`"
FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")
CLOSE = 0.01  # machines round differently, and races between plans stop a step earlier or later


def words_and_figures(text):
    """The words with a sign for each figure, rules of any length as one, and the figures."""
    words = re.sub(r"\s+", " ", re.sub("─+", "─", FIGURE.sub("#", text)))
    return words, [float(one.replace(",", "")) for one in FIGURE.findall(text)]


@pytest.mark.parametrize("example", MADE["EXAMPLE"].findall(README), ids=lambda found: found[1])
def test_the_answer_shown_is_the_answer_given(example):
    _, command, shown, _ = example
    words, figures = words_and_figures(MADE["answer"](command))
    told_words, told_figures = words_and_figures(shown)
    assert told_words == words, AGAIN
    assert told_figures == pytest.approx(figures, rel=CLOSE), AGAIN


def test_the_accuracy_shown_is_that_of_the_document():
    (_, table, _) = MADE["TABLE"].search(README).groups()
    assert table == MADE["accuracy"]((ROOT / "docs/validation.md").read_text()), AGAIN
    assert table.count("\n") > 20


def test_two_screens_say_what_it_is_before_the_contents():
    top = README.split("## Contents")[0]
    assert len(top.splitlines()) <= 80
    assert "\n## " not in top
    for part in (
        "pip install",
        "planner recommend",
        "**Modelled**",
        "**Not modelled**",
        "**Accuracy**",
        "**Speed**",
    ):
        assert part in top
    assert max(map(len, top.splitlines())) <= 125


def test_every_page_it_names_exists():
    for path in re.findall(r"\]\((?!http|#)([^)#]+)\)", README):
        assert (ROOT / path).exists(), path


def test_every_place_it_points_at_exists():
    heads = {
        re.sub(r"[^a-z -]", "", one.lower()).replace(" ", "-")
        for one in re.findall(r"^##+ (.*)$", README, re.M)
    }
    places = re.findall(r"\]\(#([^)]+)\)", README)
    assert len(places) >= 8
    assert set(places) <= heads
    contents = README.split("## Contents")[1].split("\n## ")[0]
    assert {one for one in heads if one != "contents"} == set(re.findall(r"\(#([^)]+)\)", contents))


def test_every_command_it_names_exists():
    from planner.cli._app import COMMANDS

    named = set(re.findall(r"(?:`|^    |bin/)planner ([a-z]+)", README, re.MULTILINE))
    assert {"recommend", "validate", "sweep", "profile"} <= named
    assert named <= set(COMMANDS)


def test_every_benchmark_it_names_exists():
    named = re.findall(r"benchmarks/[\w./]+\.\w+", README)
    assert len(named) > 5
    for path in named:
        assert (ROOT / path).exists(), path
