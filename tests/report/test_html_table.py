"""Tables as HTML: what they are sorted by, how columns are set, how the choice is marked."""

import pytest

from planner.report.html import column_classes, sort_value, table_html
from planner.report.page import Column, Table

ROWS = [
    {"_choice": "", "name": "a", "words": "sending parameters", "rate": 1234.5, "_said": "1,234 ± 1%"},
    {"_choice": ">", "name": "<b>", "words": "x", "rate": 99.0, "_said": "-3.5 ms"},
    {"_choice": "", "name": "c", "words": "x" * 30, "rate": None, "_said": "unknown"},
]
COLUMNS = [
    Column("_choice", ""),
    Column("name"),
    Column("words"),
    Column("rate", show=lambda value: f"{value:,.0f}"),
    Column("_said", "said", align="right"),
]


@pytest.mark.parametrize(
    ("row", "key", "value"),
    [(0, "rate", 1234.5), (0, "_said", 1234.0), (1, "_said", -3.5), (2, "_said", None), (2, "rate", None)],
)
def test_figure_is_sorted_by_its_value_and_not_by_its_letters(row, key, value):
    column = next(column for column in COLUMNS if column.key == key)
    assert sort_value(column, ROWS[row], figure=True) == value


def test_words_have_no_number():
    assert sort_value(COLUMNS[1], {"name": "3 x p3"}, figure=False) is None


def test_columns_are_signs_figures_and_words():
    assert [column_classes(column, ROWS) for column in COLUMNS] == [
        "sign",
        "short",
        "long",
        "number",
        "number",
    ]


def test_names_break_last_and_the_least_columns_can_be_done_without():
    assert column_classes(Column("name", whole=True), ROWS) == "short name"
    assert column_classes(Column("words", spare=3), ROWS) == "long spare"
    assert column_classes(Column("words", spare=2), ROWS) == "long"
    rate = Column("rate", show=lambda value: f"{value:,.0f}", spare=3)
    assert column_classes(rate, ROWS) == "number spare"
    assert 'class="number spare" data-label="rate" data-value="99"' in table_html(Table(ROWS, [rate]))


def test_choice_is_marked_and_names_are_text():
    text = table_html(Table(ROWS, COLUMNS))
    assert text.count('class="choice"') == 1
    assert text.index('class="choice"') < text.index("&lt;b&gt;") < text.index("x" * 30)
    assert "<b>" not in text
    assert 'data-label="rate" data-value="1234.5">1,234</td>' in text
    assert '<table role="table" class="many">' in text  # five columns do not fit on a telephone
    assert 'class="many"' not in table_html(Table(ROWS, COLUMNS[:3]))


def test_only_the_sign_of_the_choice_marks_a_row():
    rows = [{"_choice": "greedy", "name": "a"}, {"_choice": ">", "name": "b"}]
    text = table_html(Table(rows, [Column("name")]))
    assert text.count('class="choice"') == 1
    assert text.index('class="choice"') > text.index(">a</td>")


def test_bar_of_characters_is_drawn_and_words_are_kept():
    rows = [{"bar": "█████"}, {"bar": "80% of 77 GiB"}]
    text = table_html(Table(rows, [Column("bar", "")]))
    assert "█" not in text
    assert "width:3.0em" in text
    assert "80% of 77 GiB" in text
