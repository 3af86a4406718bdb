"""Charts as still pictures: where points, bars, ticks and names stand, in pixels."""

import pytest

from planner.report.notebook import (
    CHARACTER,
    LEFT,
    WIDTH,
    _axis,
    _bars,
    _colour,
    _legend,
    _scatter,
    _ticks,
    chart_svg,
)
from planner.report.page import Chart


def points(x, y, **more):
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, **more}


def bars(x, y, **more):
    return {"type": "bar", "x": x, "y": y, "marker": {"color": "@c1"}, **more}


@pytest.mark.parametrize(
    ("spec", "low", "high"),
    [
        ({}, 10 - 0.04 * 90, 100 + 0.04 * 90),  # a little air at both ends
        ({"rangemode": "tozero"}, 0.0, 104.0),  # and none below zero
        ({"range": [5, 50]}, 5, 50),
        ({"type": "log"}, 10 / 1.15, 115.0),
        ({"tickvals": [10, 100]}, 9.5, 100.5),  # names, half a place around each
        ({"autorange": "reversed"}, 103.6, 6.4),
    ],
)
def test_an_axis_holds_its_values_with_some_air(spec, low, high):
    axis = _axis(spec, [points([10, None, 100], [1, 2, 3])], "x", 0.0, 200.0)
    assert (axis.low, axis.high) == pytest.approx((low, high))
    assert axis.log == (spec.get("type") == "log")
    assert axis.at(axis.low) == pytest.approx(0.0)
    assert axis.at(axis.high) == pytest.approx(200.0)
    assert axis.at(
        (axis.low * axis.high) ** 0.5 if axis.log else (axis.low + axis.high) / 2
    ) == pytest.approx(100)


def test_equal_values_have_air_and_bars_begin_at_zero():
    flat = _axis({}, [points([7, 7], [1, 2])], "x", 0.0, 1.0)
    assert (flat.low, flat.high) == (6.5, 7.5)
    upright = [bars([1, 2], [30.0, 50.0])]
    assert _axis({}, upright, "y", 0.0, 1.0).low == 0.0
    assert _axis({}, upright, "x", 0.0, 1.0).low == pytest.approx(0.96)
    lying = [bars([30.0, 50.0], [1, 2], orientation="h")]
    assert _axis({}, lying, "x", 0.0, 1.0).low == 0.0
    assert _axis({}, lying, "y", 0.0, 1.0).low == pytest.approx(0.96)
    losses = [points([1, 2], [-5.0, 5.0])]
    assert _axis({"rangemode": "tozero"}, losses, "y", 0.0, 1.0).low == pytest.approx(-5.4)
    assert _axis({"type": "log"}, [points([0.0, 10.0], [1, 1])], "x", 0.0, 1.0).low == pytest.approx(
        10 / 1.15
    )


def test_ticks_are_numbers_shares_or_names():
    axis = _axis({"range": [0, 1]}, [], "x", 0.0, 1.0)
    assert [words for _, words in _ticks({}, axis, 4)] == ["0", "0.5", "1"]
    assert [words for _, words in _ticks({"tickformat": ".0%"}, axis, 4)] == ["0%", "50%", "100%"]
    assert list(_ticks({"ticktext": ["a & b"], "tickvals": [3]}, axis, 4)) == [(3, "a &amp; b")]


def unit(end):
    return _axis({"range": [0, 10]}, [], "x", 0.0, end)


def test_lines_go_through_their_points_or_in_steps():
    x, y = unit(100.0), unit(50.0)
    trace = points([0, 5, None, 10], [0, 10, 3, 5], mode="lines", line={"color": "@c2"})
    (path,) = _scatter(trace, x, y)
    assert 'd="M0.0 0.0L50.0 50.0L100.0 25.0"' in path
    assert "stroke-dasharray" not in path
    trace["line"] = {"shape": "vh", "dash": "dot"}
    (path,) = _scatter(trace, x, y)
    assert 'd="M0.0 0.0V50.0H50.0V25.0H100.0"' in path
    assert 'stroke-dasharray="2 4"' in path
    assert list(_scatter(points([], [], mode="lines"), x, y)) == []


def test_points_are_rings_or_discs_of_their_size_and_say_what_they_are():
    x, y = unit(100.0), unit(50.0)
    marker = {"color": "@c3", "size": 12, "symbol": "circle-open"}
    first, second = _scatter(points([1, 2], [1, 2], marker=marker, text=["<b>one</b>", ""]), x, y)
    assert 'cx="10.0" cy="5.0" r="6" fill="none"' in first
    assert "<title>one</title>" in first
    assert "<title>" not in second
    (disc,) = _scatter(points([1], [1], marker={"color": "@c3"}), x, y)
    assert f'r="4" fill="{_colour({"color": "@c3"})}"' in disc
    log = _axis({"type": "log"}, [points([1, 100], [1, 1])], "x", 0.0, 100.0)
    assert len(list(_scatter(points([0, 10], [5, 5]), log, y))) == 1  # nothing is at the place of zero
    assert len(list(_scatter(points([5, 5], [0, 10]), x, log))) == 1
    assert len(list(_scatter(points([0, 10], [0, 5]), x, y))) == 2


def test_upright_bars_stand_on_what_was_drawn_before():
    x, y, starts = unit(100.0), _axis({"range": [0, 10]}, [], "y", 50.0, 0.0), {}
    (first,) = _bars(bars([2], [4.0]), x, y, starts)
    assert 'x="16.8" y="30.0" width="6.4" height="20.0"' in first
    (two,) = _bars(bars([2], [5.0]), x, y, starts)
    assert 'x="16.8" y="5.0" width="6.4" height="25.0"' in two
    assert starts == {2: 9.0}


def test_a_legend_of_two_or_more_breaks_where_the_picture_ends():
    assert _legend([points([1], [1], name="alone")]) == []
    assert _legend([points([1], [1], name="a"), points([1], [1], name="b", showlegend=False)]) == []
    assert _legend([points([1], [1], name="a"), points([1], [1])]) == []
    (line,) = _legend([points([1], [1], name="ab"), points([1], [1], name="<b>c</b>")])
    assert f'<rect x="{LEFT}" y="4"' in line
    assert f'<text x="{LEFT + 15}" y="12">ab</text>' in line
    assert f'<rect x="{LEFT + 28 + 2 * CHARACTER:.0f}" y="4"' in line
    most = int((WIDTH - LEFT) / 2 / CHARACTER - 28 / CHARACTER)  # letters of which two names fill a line
    wide = [points([1], [1], name=letter * most) for letter in "abc"]
    first, second = _legend(wide)
    assert (first.count("<text"), second.count("<text")) == (2, 1)
    assert f'<rect x="{LEFT}" y="22"' in second
    assert len(_legend([points([1], [1], name=letter * (most + 1)) for letter in "ab"])) == 2


def test_long_names_of_rows_move_the_picture_to_the_right():
    def drawn(name):
        axis = {"tickvals": [0], "ticktext": [name]}
        data = [bars([3.0], [0], orientation="h")]
        return chart_svg(Chart("k", "t", "c", {"data": data, "layout": {"xaxis": {}, "yaxis": axis}}))

    assert f'x="{LEFT - 6}"' in drawn("short")
    assert f'x="{12 + CHARACTER * 20 - 6:.0f}"' in drawn("x" * 20)
    assert 'viewBox="0 0 720 360"' in drawn("x")
