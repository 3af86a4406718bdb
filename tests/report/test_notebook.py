"""Answers in a notebook: the words of the terminal, and charts that need no script."""

import re
from html import unescape
from xml.etree import ElementTree

import pytest
from report_answers import compared, ordered, recommended, saturated, simulated

from planner.report.notebook import COLOURS, chart_svg, charts_of
from planner.report.page import Chart, page_of
from planner.report.plots import CROWD

ANSWERS = {
    "recommend": recommended,
    "compare": compared,
    "saturation": saturated,
    "simulate": simulated,
    "order": ordered,
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_shows_the_words_of_the_terminal_and_a_chart(kind):
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
        cells = [column.cell(row) for row in table.rows for column in table.shown()]
        assert all(cell in plain for cell in cells if set(cell) != {"█"})
    assert text.count("<svg") == len(charts_of(result)) > 0


def picture(chart):
    return ElementTree.fromstring(re.search(r"<svg.*</svg>", chart_svg(chart), re.DOTALL)[0])


def found(picture, tag):
    return list(picture.iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def test_a_faster_plan_stands_further_right_and_a_cheaper_one_lower():
    result = recommended()
    chart = charts_of(result)[0]
    drawn = picture(chart)
    dots = [match for match in found(drawn, "circle") if match.get("fill") != "none"]
    traces = [
        t
        for t in chart.spec["data"]
        if t["mode"] == "markers" and not t["marker"]["symbol"].endswith("-open") and t["meta"] != CROWD
    ]
    points = [pair for trace in traces for pair in zip(trace["x"], trace["y"], strict=True)]
    assert len(dots) == len(points)
    by_speed = sorted(zip(points, dots, strict=True), key=lambda pair: pair[0][0])
    places = [float(dot.get("cx")) for _, dot in by_speed]
    assert places == sorted(places)
    by_cost = sorted(zip(points, dots, strict=True), key=lambda pair: -pair[0][1])
    heights = [float(dot.get("cy")) for _, dot in by_cost]
    assert heights == sorted(heights)
    rings = [match for match in found(drawn, "circle") if match.get("fill") == "none"]
    assert [ring.get("stroke") for ring in rings].count(COLOURS["mark"]) == 1


def test_bars_are_as_long_as_their_values_and_stack():
    data = [
        {"type": "bar", "orientation": "h", "name": n, "x": x, "y": [0, 1], "marker": {"color": c}}
        for n, x, c in (("one", [1.0, 2.0], "@c1"), ("two & more", [3.0, 0.0], ["@c2", "@c3"]))
    ]
    axis = {
        "tickmode": "array",
        "tickvals": [0, 1],
        "ticktext": ["a", "b &lt;i&gt;"],
        "autorange": "reversed",
    }
    layout = {"height": 200, "xaxis": {"title": {"text": "USD"}}, "yaxis": axis}
    drawn = picture(Chart("cost", "What <it> costs", "caption", {"data": data, "layout": layout}))
    bars = [match for match in found(drawn, "rect") if match.get("height") != "8"]  # that of the legend
    wide = [float(bar.get("width")) for bar in bars]
    assert wide[1] == pytest.approx(2 * wide[0], abs=0.2)
    assert wide[2] == pytest.approx(3 * wide[0], abs=0.2)
    assert float(bars[2].get("x")) == pytest.approx(float(bars[0].get("x")) + wide[0], abs=0.2)
    assert [bar.get("fill") for bar in bars] == [COLOURS[c] for c in ("c1", "c1", "c2", "c3")]
    assert float(bars[0].get("y")) < float(bars[1].get("y"))  # the first row is on top
    words = [match.text for match in found(drawn, "text")]
    assert {"a", "b <i>", "USD", "one", "two & more"} <= set(words)
