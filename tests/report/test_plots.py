"""Plots for terminals: what they show, how wide they are, and where they are left out."""

import os
import pty
import subprocess
import sys
from dataclasses import replace

import pytest
from report_answers import recommended, saturated
from rich.text import Text

from planner.report.charts import LETTERS, pareto_chart
from planner.report.page import Page, Picture, page_of
from planner.report.plots import (
    CHOICE,
    COLOURS,
    PlotScale,
    Series,
    _append_legend,
    _format_tick,
    _line_dots,
    _plot_text,
    chart_plot,
)
from planner.report.terminal import show_plots


def plotted(result, width=80):
    (picture,) = [picture for picture in page_of(result).pictures() if picture.plotted]
    return chart_plot(picture.draw(), width)


def test_workers_curve_linear_scaling_goes_through_the_first_point():
    whole = saturated()  # a curve need not begin with one worker
    result = replace(whole, points=whole.points[1:], saturation_workers=None)
    (picture,) = [picture for picture in page_of(result).pictures() if picture.plotted]
    first = result.points[0]
    assert first.workers > 1
    linear = next(trace for trace in picture.draw().spec["data"] if trace["name"] == "linear scaling")
    per_worker = first.scored.samples_per_s / first.workers
    assert linear["y"] == pytest.approx([per_worker * workers for workers in linear["x"]])


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("result", [saturated, recommended])
def test_plot_is_never_wider_than_the_terminal(result, width):
    lines = plotted(result(), width).plain.splitlines()
    assert max(map(len, lines)) <= width
    assert 18 <= len(lines) <= 26


def test_curve_marks_every_point_and_where_it_saturates():
    result = saturated()
    text = plotted(result).plain
    body = text.split("└")[0].partition("\n")[2]
    assert body.count("o") + body.count("X") == len(result.points)
    assert body.count("X") == 1
    assert f"recommended: {result.chosen.workers}" in text
    ticks = text.split("└")[1].splitlines()[1].split()
    assert {str(point.workers) for point in result.points} <= set(ticks)


def test_choice_is_marked_where_nothing_saturates_and_where_a_deadline_chooses_less():
    result = saturated()
    open_end = replace(result, saturation_workers=None)
    text = plotted(open_end).plain
    assert f"X recommended: {open_end.chosen.workers}" in text
    assert "saturates" not in text
    assert text.split("└")[0].partition("\n")[2].count("X") == 1
    last = result.points[-1].workers
    late = replace(
        result,
        saturation_workers=last,
        request=replace(result.request, budget_usd_per_hour=result.points[-2].scored.usd_per_hour),
    )
    assert late.chosen.workers != late.saturation_workers
    text = plotted(late).plain
    assert f"S worth its cost up to {late.saturation_workers}" in text
    assert f"X recommended: {late.chosen.workers}" in text


def test_ticks_stand_below_the_points_that_they_name():
    body, _, axis = plotted(saturated()).plain.partition("└")
    lines = [line for line in body.splitlines()[1:] if line.strip()]
    left = max(line.index(mark) for line in lines for mark in "│┤" if mark in line)
    marks = sorted(column for line in lines for column, char in enumerate(line) if char in "oX")
    ticks = [left + 1 + place for place, char in enumerate(axis.splitlines()[0]) if char == "┬"]
    assert marks
    assert set(marks) <= set(ticks)


def test_higher_throughput_is_drawn_higher():
    result = saturated()
    rows = {}
    for number, line in enumerate(plotted(result).plain.split("└")[0].splitlines()[1:]):
        for column, char in enumerate(line):
            if char in "oX":
                rows[column] = number
    drawn = [rows[column] for column in sorted(rows)]
    speeds = [point.scored.samples_per_s for point in result.points]
    order = sorted(range(len(speeds)), key=lambda i: -speeds[i])
    assert [drawn[i] for i in order] == sorted(drawn)


def test_front_has_a_letter_for_each_hardware_and_the_chosen_plan():
    result = recommended()
    text = plotted(result).plain
    body, legend = text.split("└")
    assert body.count("X") == 1
    machines = sorted({scored.plan.machine for scored in result.everything})
    for letter, hardware in zip("ab", machines, strict=True):
        assert f"{letter} {hardware}" in legend
    assert "X chosen" in legend


def _luminance(number):
    """Of one of the 240 colours that terminals have fixed (WCAG 2, relative luminance)."""
    steps = (0, 95, 135, 175, 215, 255)
    number -= 16
    grey = 8 + 10 * (number - 216)
    parts = (
        [steps[number // 36 % 6], steps[number // 6 % 6], steps[number % 6]] if number < 216 else [grey] * 3
    )
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in (p / 255 for p in parts)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_can_be_seen_on_black_and_on_white():
    used = {span.style for text in (plotted(saturated()), plotted(recommended())) for span in text.spans}
    assert {CHOICE, *COLOURS[:2]} <= used
    assert len(set(COLOURS)) == len(COLOURS) == len(LETTERS)
    for style in {*COLOURS, *used} - {CHOICE}:
        bright = _luminance(int(style.removeprefix("color(").rstrip(")")))
        assert (bright + 0.05) / 0.05 >= 3, f"{style} on black"
        assert 1.05 / (bright + 0.05) >= 3, f"{style} on white"
    white, red = _luminance(231), _luminance(160)  # the choice brings its own background
    assert (white + 0.05) / (red + 0.05) >= 4.5


def test_with_many_machines_the_legend_stays_short():
    result = recommended()
    many = [
        replace(scored, plan=replace(scored.plan, machine=f"kind{index}.xlarge"))
        for index, scored in enumerate((list(result.everything) * 30)[:30])
    ]
    drawn = chart_plot(pareto_chart(many, chosen=result.chosen, marked=many[:12]), 80).plain
    assert len(drawn.splitlines()) <= 26
    legend = drawn.split("└")[1]
    assert " other machines" in legend
    assert legend.count("kind") <= len(LETTERS)
    assert "X chosen" in legend


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (PlotScale(0, 10), [0, 2, 4, 6, 8, 10]),
        (PlotScale(3, 40, log=True), [5, 10, 20]),
        (PlotScale(0.1, 1000, log=True), [0.1, 1, 10, 100, 1000]),
        (PlotScale(0.71, 1.1, log=True), [0.8, 0.9, 1, 1.1]),
    ],
)
def test_ticks_are_round(axis, ticks):
    assert axis.ticks(6) == pytest.approx(ticks)


def test_left_out_where_stdout_is_no_terminal(capsys):
    show_plots(Page("page", pictures=lambda: [Picture(lambda: pytest.fail("drawn"), plotted=True)]))
    assert capsys.readouterr().out == ""


SHOW = """
from planner.report.page import Chart, Page, Picture
from planner.report.terminal import show_plots
axes = {key: {"title": {"text": key}} for key in ("xaxis", "yaxis")}
data = [{"mode": "markers", "name": "points", "x": [1, 2], "y": [3, 4], "marker": {"color": "@c1"}}]
chart = Chart("key", "title", "", {"data": data, "layout": axes})
show_plots(Page("page", pictures=lambda: [Picture(lambda: chart, plotted=True)]))
"""


@pytest.mark.parametrize(("variables", "colour"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_terminal_gets_the_plot_with_colour_unless_told(variables, colour):
    parent, child = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")}
    settings = {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "COLUMNS": "70", **variables}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], stdout=child, stderr=subprocess.PIPE, env=clean | settings, check=True
    )
    os.close(child)
    text = os.read(parent, 4096).decode()
    os.close(parent)
    assert done.stderr == b""
    assert "points" in text
    assert "─" * 3 in text
    assert ("\x1b[" in text) is colour


def test_legend_breaks_where_the_terminal_ends_and_only_there():
    text = plotted(saturated(), 60).plain.split("└")[1]
    legend = [line for line in text.splitlines() if any(sign in line for sign in "⠒⠂X")]
    assert len(legend) > 1
    wide = plotted(saturated(), 400).plain.split("└")[1]
    assert sum(any(sign in line for sign in "⠒⠂X") for line in wide.splitlines()) == 1


def test_axes_begin_at_zero_unless_they_are_logarithmic():
    plain = PlotScale.covering([3, 10, 5])
    assert (plain.low, plain.high, plain.log) == (0.0, pytest.approx(10.2), False)
    assert plain.position(5.1) == pytest.approx(0.5)
    assert PlotScale.covering([0]).high == 1.0
    log = PlotScale.covering([3, 300], log=True)
    assert (log.low, log.high, log.log) == (pytest.approx(3 / 1.1), pytest.approx(330), True)
    assert log.position(30) == pytest.approx(0.5)


def test_dashed_lines_leave_dots_out_and_solid_ones_do_not():
    axis = PlotScale(0, 1)
    dots = {
        line: set(_line_dots(Series("one", [(0, 0), (1, 1)], line=line), axis, axis, 40))
        for line in ("solid", "dashed", "dotted")
    }
    assert {x for x, _ in dots["solid"]} == set(range(80))
    for line, least in (("dashed", 0.4), ("dotted", 0.4)):
        assert dots[line] < dots["solid"]
        assert least < len(dots[line]) / len(dots["solid"]) < 0.65
        assert min(dots[line])[0] == 0  # which begins with dots


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (25, ["       o one   o three", "       o six   o seven"]),  # 7 + 8 + 10, to the last column
        (24, ["       o one", "       o three", "       o six", "       o seven"]),
        (33, ["       o one   o three   o six", "       o seven"]),
        (43, ["       o one   o three   o six   o seven"]),
    ],
)
def test_legend_fills_the_width_to_the_last_column(width, lines):
    series = [Series(name, [(1, 1)], "o") for name in ("one", "three", "six", "seven")]
    assert [line.rstrip() for line in _append_legend(Text(), series, 5, width).plain.splitlines()] == lines


def test_legend_shows_lines_as_they_are_drawn_and_cuts_names_that_no_line_holds():
    series = [Series(line, [(1, 1)], line=line) for line in ("solid", "dashed", "dotted")]
    assert _append_legend(Text(), series, 0, 99).plain == "  ⠒⠒ solid   ⠒ ⠒ dashed   ⠂ ⠂ dotted   "
    long = [Series("abcdefghijklmnopqrstuvwxyz", [(1, 1)], "o")]
    for width, shown in ((30, 17), (24, 11), (12, 8)):  # 5 and 8 less, and never less than 8
        text = _append_legend(Text(), long, 5, width).plain
        assert text.split() == ["o", long[0].name[:shown]]


@pytest.mark.parametrize("high", [7, 3000, 99_000, 2_500_000, 9_000_000, 70_000_000])
def test_numbers_below_an_axis_do_not_touch(high):
    for width in range(40, 101):
        x = PlotScale(0, high)  # of large numbers some have no room
        plot = _plot_text([Series("one", [(1, 1)], "o")], x, PlotScale(0, 1), width).plain
        shown = plot.split("└")[1].splitlines()[1].split()
        assert shown
        assert set(shown) <= {_format_tick(tick) for tick in x.ticks(100)} | {
            _format_tick(tick) for most in range(1, 20) for tick in x.ticks(most)
        }
