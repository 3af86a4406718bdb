"""Answers in a notebook: the words of the terminal; charts in the page that they write."""

import re
from html import unescape

import pytest
from report_answers import compared, ordered, recommended, saturated, simulated

from planner.report.page import page_of

ANSWERS = {
    "recommend": recommended,
    "compare": compared,
    "saturation": saturated,
    "simulate": simulated,
    "order": ordered,
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_answer_shows_the_words_of_the_terminal(kind):
    result = ANSWERS[kind]()
    text = result._repr_html_()
    assert "<script" not in text
    assert len(text) < 400_000
    plain = unescape(re.sub(r"<[^>]*>", " ", text))
    page = page_of(result)
    sentences = [page.answer, *(cell for cells in page.facts for cell in cells), *map(str, page.assumptions)]
    sentences += [text for remark in [*page.why, *page.then] for text in remark.sentences]
    assert all(sentence in plain for sentence in sentences)
    for table in page.tables:
        assert all(sentence in plain for sentence in [*table.title.splitlines(), *table.notes])
        cells = [column.cell(row) for row in table.rows for column in table.visible_columns()]
        assert all(cell in plain for cell in cells if set(cell) != {"█"})


def test_to_html_writes_the_page_with_its_charts(tmp_path):
    recommended().to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "Cost against speed" in text
    assert "<script" in text
