"""How an answer ends: whether a plot follows, what the command leaves with, and how to ask again."""

import sys
from pathlib import Path

import pytest
import typer

from planner.cli import _options, _output
from planner.report import page as pages
from planner.report import terminal
from planner.report.output import Format
from planner.report.page import Page, Table


@pytest.mark.parametrize(
    ("format", "output", "shown"),
    [
        (Format.table, None, True),
        (Format.json, None, False),
        (Format.markdown, None, False),
        (Format.table, Path("x"), False),
        (Format.csv, Path("x"), False),
    ],
)
def test_plot_follows_where_a_person_reads_the_table(monkeypatch, tmp_path, format, output, shown):
    seen = []
    page = Page("page", headline="answer", tables=[Table([{"a": 1}])])
    monkeypatch.setattr(pages, "page_of", lambda result, energy: page)
    monkeypatch.setattr(terminal, "show_plots", seen.append)
    given = _options.CommonOptions(
        {}, None, False, False, True, False, None, format, output and tmp_path / output
    )
    given.emit("answer")
    assert seen == ([page] if shown else [])


def test_exit_if_interrupted_exits_130_for_partial_answers():
    _output.exit_if_interrupted(False)
    with pytest.raises(typer.Exit) as left:
        _output.exit_if_interrupted(True)
    assert left.value.exit_code == 130


def test_exit_if_over_exits_3_above_the_limit(capsys):
    _output.exit_if_over_cost(2.5, None)
    _output.exit_if_over_cost(2.5, 2.5)
    assert capsys.readouterr().err == ""
    with pytest.raises(typer.Exit) as left:
        _output.exit_if_over_cost(2.5, 2.0)
    assert left.value.exit_code == 3
    assert capsys.readouterr().err == "planner: $2.50 per million samples is over the limit of $2.00\n"


def test_command_that_asks_again_has_its_variables_and_quotes(monkeypatch):
    for name in [name for name in _output.os.environ if name.startswith("PLANNER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PLANNER_MODEL", "a b")
    monkeypatch.setenv("PLANNER_BATCH", "3")
    monkeypatch.setattr(sys, "argv", ["/bin/planner", "recommend", "--model", "c d"])
    assert (
        _output.reproducing_command() == "PLANNER_BATCH=3 PLANNER_MODEL='a b' planner recommend --model 'c d'"
    )
