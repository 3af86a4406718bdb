"""Axes and rows of charts, and charts in a terminal: readable at 80 columns and without colour.

Lines are drawn in braille, two by four dots per character; points are distinct characters, so that series
differ even without colour. `meta` of a trace gives the character for its points, or `skip`. Colours are among
the 256 fixed in terminals, each with a contrast of at least 3 to black and white.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import unescape
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from planner.errors import escape_unprintable
from planner.memoize import memoize
from planner.report.page import Chart, Spec, safe_text
from planner.report.terminal import wrap_cell
from planner.units import rate

if TYPE_CHECKING:
    from rich.text import Text

WIDTH, HEIGHT = 80, 16
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # dots of a character by row and column
PATTERNS = {"solid": 1, "dashed": 3, "dotted": 6}  # every how many dots
WIDE_RATIO = 8  # beyond which only a logarithmic axis shows all values
CROWD = "·"  # of points that matter only between the others: they stretch no axis
COLOURS = tuple(f"color({number})" for number in (32, 166, 29, 133, 136, 62, 30, 162))
GREY, OTHERS = "color(244)", "color(243)"
CHOICE = "bold color(231) on color(160)"  # white on red, wherever it stands
DASHES = {"dash": "dashed", "dot": "dotted"}


@dataclass(frozen=True, slots=True)
class Series:
    """Points drawn as the character `glyph`, or a line through them."""

    name: str
    points: Sequence[tuple[float, float]]
    glyph: str = ""
    style: str = ""
    line: str = ""  # a name of PATTERNS


@dataclass(frozen=True, slots=True)
class PlotScale:
    """Linear or logarithmic axis that maps values to positions from 0 to 1."""

    low: float
    high: float
    log: bool = False

    @staticmethod
    def covering(values: Iterable[float], log: bool = False) -> PlotScale:
        """Scale that covers all values with a margin; a linear one starts at zero."""
        numbers = list(values)
        if not log:
            return PlotScale(0.0, max(numbers) * 1.02 or 1.0)
        return PlotScale(min(numbers) / 1.1, max(numbers) * 1.1, log=True)

    @staticmethod
    def spanning(values: Iterable[float]) -> PlotScale:
        """Scale up to the largest value: from zero, or logarithmic if values differ widely."""
        numbers = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
        low, high = min(numbers), max(numbers)
        log = high > WIDE_RATIO * low
        return PlotScale(low if log else 0.0, high, log)

    def position(self, value: float) -> float:
        """Position of a value on the axis, from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def plotly_coordinate(self, value: float) -> float:
        """Coordinate of a value in plotly annotations: its logarithm on a logarithmic axis."""
        return math.log10(value) if self.log else value

    def axis(self, title: str, *, wide: bool = False) -> Spec:
        """Plotly axis with a title; a logarithmic one has ticks at 1, 2 and 5 times powers of ten."""
        if not self.log:
            return {**plain_axis(title), "rangemode": "tozero"}
        digits = (1, 2, 5) if math.log10(self.high / self.low) < (2.5 if wide else 1.2) else (1,)
        tens = range(math.floor(math.log10(self.low)) - 1, math.ceil(math.log10(self.high)) + 2)
        values = [digit * 10.0**ten for ten in tens for digit in digits]
        ticks = {"tickmode": "array", "tickvals": values, "ticktext": [f"{value:,.12g}" for value in values]}
        return {**plain_axis(title), "type": "log", **ticks}

    def ticks(self, max_ticks: int) -> list[float]:
        """Round values on the axis, at most `max_ticks`: 1, 2 and 5 times powers of ten."""
        if self.log and self.high > 6 * self.low:  # over less the ticks of a linear axis are apart too
            tens = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for digits in ((1, 2, 5), (1, 3), (1,)):
                inside = [
                    d * 10.0**ten for ten in tens for d in digits if self.low <= d * 10.0**ten <= self.high
                ]
                if 2 <= len(inside) <= max_ticks:
                    return inside
            return inside
        rough = (self.high - self.low) / max_ticks
        ten = 10.0 ** math.floor(math.log10(rough))
        step = next(d * ten for d in (1, 2, 5, 10) if d * ten >= rough)
        return [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


@memoize
def _chart_styles() -> dict[str, Spec]:
    """Styles of `charts.toml`; cached."""
    return tomllib.loads(files("planner.report").joinpath("charts.toml").read_text("utf-8"))


def spec(*styles: str, **fields: Any) -> Spec:
    """Plotly object made of styles of `charts.toml` and of fields, merged in this order."""
    merged: Spec = {}
    for part in (*map(_chart_styles().__getitem__, styles), fields):
        merged = _merge_specs(merged, part)
    return merged


def _merge_specs(base: Spec, override: Spec) -> Spec:
    """Merges two plotly objects, nested ones too; values of `override` win."""
    both = {
        key: _merge_specs(base[key], override[key])
        for key in base.keys() & override.keys()
        if isinstance(base[key], dict) and isinstance(override[key], dict)
    }
    return {**base, **override, **both}


def plain_axis(title: str) -> Spec:
    """Linear plotly axis with a title."""
    return {"title": {"text": title}, "tickformat": ",~r"}


def axis_title(axis: Spec) -> str:
    """Title of a plotly axis."""
    return unescape((axis.get("title") or {}).get("text", ""))


NARROW = 20  # characters of a name beside a bar, where there is little room


def bars(name: str, values: Sequence[float], color: Any, hover: str, **more: Any) -> Spec:
    """Plotly trace of horizontal bars, one per row."""
    return spec(
        "rows",
        name=name,
        y=list(range(len(values))),
        x=list(values),
        hovertemplate=f"{hover}<extra></extra>",
        marker={"color": color},
        **more,
    )


def rows_chart(
    key: str,
    title: str,
    caption: str,
    *,
    names: Sequence[str],
    data: list[Spec],
    x: Spec,
    wide: bool = True,
    barmode: str = "stack",
) -> Chart:
    """Bar chart with one named row per bar, stacked or grouped."""
    layout = spec(
        "rows_layout",
        barmode=barmode,
        height=max(180, 110 + 28 * len(names)),
        xaxis=x,
        yaxis=row_axis([safe_text(_truncate(name)) for name in names]),
    )
    lines = [wrap_cell(name, NARROW) for name in names]
    short = [
        safe_text(first) + (f"<br>{safe_text(_truncate(' '.join(rest), NARROW))}" if rest else "")
        for first, *rest in lines
    ]
    height = max(180, 110 + 34 * len(names))
    narrow = spec("narrow_rows_layout", height=height, yaxis={"ticktext": short})
    return Chart(key, title, caption, {"data": data, "layout": layout, "narrow": narrow}, wide)


def row_axis(names: list[str]) -> Spec:
    """Plotly axis for named rows from top to bottom; names may repeat."""
    return spec("row_axis", tickvals=list(range(len(names))), ticktext=names)


def _truncate(text: str, limit: int = 44) -> str:
    """Shortens text to at most `limit` characters, with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def chart_plot(chart: Chart, width: int = WIDTH) -> Text:
    """Terminal text of a chart of points and lines, `width` columns wide."""
    layout = chart.spec["layout"]
    traces = [trace for trace in chart.spec["data"] if trace.get("meta") != "skip" and len(trace["x"])]
    series = [part for trace in traces for part in _trace_series(trace)]
    solid = [part for part in series if part.glyph != CROWD] or series
    x, y = (_axis_scale(layout[f"{key}axis"], solid, place) for place, key in enumerate("xy"))
    inside = [
        Series(
            part.name, [at for at in part.points if _is_inside(at, x, y)], part.glyph, part.style, part.line
        )
        for part in series
    ]
    whole = all(float(value) == int(value) for part in solid for value, _ in part.points)
    titles = axis_title(layout["xaxis"]), axis_title(layout["yaxis"])
    return _plot_text(inside, x, y, width, titles, whole=whole and not x.log)


def _trace_series(trace: Spec) -> Iterable[Series]:
    """Line and points of a plotly trace."""
    points = [(float(x), float(y)) for x, y in zip(trace["x"], trace["y"], strict=True)]
    name, look = unescape(trace.get("name", "")), trace.get("line") or trace.get("marker") or {}
    marks = "markers" in trace["mode"]
    colour = look.get("color", "@c1")
    style = {"@mark": CHOICE, "@faint": GREY, "@soft": OTHERS}.get(colour)
    style = style or COLOURS[(int(colour[2:]) - 1) % len(COLOURS)]
    if "lines" in trace["mode"]:
        line = DASHES.get(look.get("dash", ""), "solid")
        yield Series("" if marks else name, points, "", style, line)
    if marks:
        yield Series(name, points, trace.get("meta", "o"), style)


def _axis_scale(spec: Spec, series: Sequence[Series], place: int) -> PlotScale:
    """Scale of an axis that shows all points of the series."""
    values = [point[place] for part in series for point in part.points]
    if spec.get("type") == "log":
        return PlotScale.covering([value for value in values if value > 0], log=True)
    if spec.get("tickformat") == "d":
        return PlotScale(min(values) - 0.5, max(values) + 0.5)
    return PlotScale.covering([spec["range"][1] if "range" in spec else max(values)])


def _is_inside(point: tuple[float, float], x: PlotScale, y: PlotScale) -> bool:
    """Whether a point lies within both axes."""
    return x.low <= point[0] <= x.high and y.low <= point[1] <= y.high


def _plot_text(
    series: Sequence[Series],
    x: PlotScale,
    y: PlotScale,
    width: int,
    titles: tuple[str, str] = ("", ""),
    *,
    whole: bool = False,
) -> Text:
    """Plot as text of at most `width` columns; `whole`: integer ticks on the x axis."""
    from rich.text import Text

    y_ticks = y.ticks(HEIGHT // 3)
    margin = max(len(_format_tick(tick)) for tick in y_ticks)
    columns = max(20, width - margin - 2)
    cells = _plot_cells(series, x, y, columns)
    names = {_plot_row(y.position(tick)): _format_tick(tick) for tick in y_ticks}
    out = Text(f"{'':>{margin}} {titles[1]}\n", style="")
    for row in range(HEIGHT):
        tick = names.get(row, "")
        out.append(f"{tick:>{margin}} {'┤' if tick else '│'}")
        for column in range(columns):
            glyph, style = cells.get((row, column), (" ", ""))
            out.append(glyph, style)
        out.append("\n")
    x_ticks = [tick for tick in x.ticks(columns // 8) if not whole or tick == int(tick)]
    places = {
        min(columns - 1, round(x.position(tick) * (columns - 1))): _format_tick(tick) for tick in x_ticks
    }
    out.append(f"{'':>{margin}} └" + "".join("┬" if c in places else "─" for c in range(columns)) + "\n")
    line = [" "] * columns
    for place, text in places.items():
        start = max(0, min(place - len(text) // 2, columns - len(text)))
        if all(char == " " for char in line[max(0, start - 1) : start + len(text) + 1]):
            line[start : start + len(text)] = text
    out.append(f"{'':>{margin}}  " + "".join(line).rstrip() + f"\n{'':>{margin}}  {titles[0]}\n")
    return _append_legend(out, [part for part in series if part.points and part.name], margin, width)


def _plot_cells(
    series: Sequence[Series], x: PlotScale, y: PlotScale, columns: int
) -> dict[tuple[int, int], tuple[str, str]]:
    """Character and style of each (row, column) of a plot. Later series cover earlier ones, and points cover
    lines."""
    cells: dict[tuple[int, int], tuple[str, str]] = {}
    for part in series:
        if not part.line:
            continue
        dots: dict[tuple[int, int], int] = {}
        for across, down in _line_dots(part, x, y, columns):
            cell = down // 4, across // 2
            dots[cell] = dots.get(cell, 0) | BRAILLE[down % 4][across % 2]
        cells |= {cell: (chr(0x2800 + bits), part.style) for cell, bits in dots.items()}
    for part in series:
        for px, py in part.points if part.glyph else ():
            cells[_plot_row(y.position(py)), round(x.position(px) * (columns - 1))] = part.glyph, part.style
    return cells


def _line_dots(part: Series, x: PlotScale, y: PlotScale, columns: int) -> Iterable[tuple[int, int]]:
    """(column, row) of each braille dot of a line; dashed patterns leave some out."""
    every = PATTERNS[part.line]
    wide, high = 2 * columns - 1, 4 * HEIGHT - 1
    dots = [(x.position(px) * wide, (1 - y.position(py)) * high) for px, py in part.points]
    drawn = 0
    for (x0, y0), (x1, y1) in pairwise(dots):
        steps = max(1, math.ceil(max(abs(x1 - x0), abs(y1 - y0))))
        for i in range(steps + 1):
            if drawn % (2 * every) < every or every == 1:
                share = i / steps
                yield round(x0 + (x1 - x0) * share), min(high, max(0, round(y0 + (y1 - y0) * share)))
            drawn += 1


def _plot_row(share: float) -> int:
    """Index of the plot's text row at a position of the y axis (0: bottom, 1: top)."""
    return min(HEIGHT - 1, max(0, round((1 - share) * (HEIGHT - 1))))


def _format_tick(value: float) -> str:
    """Formats the value at a tick."""
    return rate(value) if value >= 100 else f"{value:g}"


def _append_legend(out: Text, series: Sequence[Series], margin: int, width: int) -> Text:
    """Appends the signs and names of the series, on as many lines as they need."""
    used = margin + 2
    out.append(" " * used)
    for part in series:
        sign = part.glyph or {"solid": "⠒⠒", "dashed": "⠒ ⠒", "dotted": "⠂ ⠂"}[part.line]
        name = escape_unprintable(part.name)[: max(8, width - margin - 8)]
        length = len(sign) + len(name) + 4
        if used + length > width:
            out.append("\n" + " " * (margin + 2))
            used = margin + 2
        out.append(sign, part.style)
        out.append(f" {name}   ")
        used += length
    return out
