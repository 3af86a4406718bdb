"""Tables that fit into a terminal without a word cut in two."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.report.output import Table, render
from planner.report.wrapping import wrapped, wrapped_columns

WORKERS = ["workers", "16 x private-32core-1gbe (4 of 4)", "3 x private-opteron"]
SERVERS = ["servers", "4 on private-32core-1gbe", "3 beside"]
RATES = ["samples/s in all", "133 ± 3.5%", "8.16 ± 1.3%"]


@pytest.mark.parametrize(
    ("width", "workers", "servers", "rates"),
    [
        (77, [], [], []),
        (72, [], [], ["samples/s|in all"]),
        (71, ["16 x private-32core-1gbe (4 of|4)"], [], ["samples/s|in all"]),
        (53, ["16 x|private-32core-1gbe|(4 of 4)"], ["4 on|private-32core-1gbe"], ["samples/s|in all"]),
        (
            40,
            ["16 x|private-|32core-1gbe|(4 of 4)", "3 x private-|opteron"],
            ["4 on private-|32core-1gbe"],
            ["samples/s|in all"],
        ),
        (
            29,
            ["16 x|private-|32core-|1gbe (4|of 4)", "3 x|private-|opteron"],
            ["4 on|private-|32core-|1gbe"],
            ["samples/s|in all", "133 ±|3.5%", "8.16 ±|1.3%"],
        ),
        (28, [], [], []),  # no way: left to be folded anywhere
    ],
)
def test_headings_give_way_first_then_words_then_names_then_figures(width, workers, servers, rates):
    found = wrapped_columns([WORKERS, SERVERS, RATES], [False, False, True], width)
    broken = [[cell.replace("\n", "|") for cell in cells if "\n" in cell] for cells in found]
    assert broken == [workers, servers, rates]


def test_a_terminal_of_80_columns_cuts_no_word(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    keys = ("one", "two", "three", "four")
    rows = [dict.fromkeys(keys, "12 x private-2xe5-2450-10gbe"), dict.fromkeys(keys, "1 x p3.8xlarge (4)")]
    text = render(Table(rows), "table")
    assert max(map(len, text.splitlines())) <= 80
    assert {"2450-10gbe", "12", "x", "private-", "2xe5-"} >= set(text.splitlines()[3].split())


@given(st.text("ab -/1", max_size=40), st.integers(1, 12))
def test_lines_break_at_spaces_or_in_a_long_word_after_a_sign(text, width):
    found = wrapped(text, width)
    assert "".join(found.split()) == "".join(text.split())
    for line in found.splitlines():
        assert len(line) <= width or not re.search(r"\s|[/-][^/-]", line.strip())
    assert all(word in found for word in text.split() if len(word) <= width)
