"""Tables that fit into a terminal without a word or a number split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.report.output import render
from planner.report.page import Column, Table
from planner.report.terminal import page_text, table_text, wrap_cell

MACHINES = ["16 x private-32core-1gbe", "3 x private-opteron"]
COLUMNS = [
    Column("machines"),
    Column("servers"),
    Column("rate", "samples/s in total", align="right"),
    Column("busiest", spare=1),
    Column("extra", spare=2),
]
ROWS = [
    {
        "machines": machines,
        "servers": "4 on private-32core-1gbe",
        "rate": rate,
        "busiest": "the NICs, 93%",
        "extra": "x",
    }
    for machines, rate in zip(MACHINES, ["133 ± 3.5%", "8.16 ± 1.3%"], strict=True)
]


@pytest.mark.parametrize("width", range(24, 140))
def test_table_text_any_width_keeps_words_and_numbers_whole(width):
    lines = [line.plain for line in table_text(Table(ROWS, COLUMNS), width)]
    words = " ".join(lines)
    for row in ROWS:
        assert all(row["machines"] in words or part in words for part in row["machines"].split(" x "))
        assert row["rate"] in words  # a figure stays with its unit, on one line
        assert "private-32core-1gbe" in words
    assert max(map(len, lines)) <= width


def test_table_text_wide_shows_every_column_and_narrow_leaves_out_spare_ones():
    assert "the NICs, 93%" in render(Table(ROWS, COLUMNS), "table")
    narrow = [line.plain for line in table_text(Table(ROWS, COLUMNS), 70)]
    assert "busiest" not in narrow[0]
    assert "samples/s" in " ".join(narrow[:3])


def test_table_text_pane_narrower_than_any_grid_makes_blocks():
    lines = [line.plain for line in table_text(Table(ROWS, COLUMNS), 44)]
    assert lines[0] == "16 x private-32core-1gbe"  # its name
    assert lines[1] == "  servers 4 on private-32core-1gbe"  # then headings with values
    assert lines[2] == "  samples/s in total 133 ± 3.5%"
    assert "" in lines  # between rows
    assert not any("extra" in line for line in lines)


def test_terminal_of_80_columns_cuts_no_word(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    keys = ("one", "two", "three")
    rows = [dict.fromkeys(keys, "12 x private-2xe5-2450"), dict.fromkeys(keys, "1 x p3.8xlarge")]
    text = render(Table(rows), "table")
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("12 x private-2xe5-2450") == 3


@given(st.text("ab -/1", max_size=40), st.integers(1, 12))
def test_broken_cell_breaks_between_words_only(text, width):
    lines = wrap_cell(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        assert len(line) <= width or " " not in line.strip() or line.strip()[0] == "1"


def test_page_text_of_nothing_is_empty():
    from planner.report.page import Page

    assert page_text(Page("page"), 80) == []
