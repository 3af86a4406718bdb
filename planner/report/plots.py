"""Plots for a terminal: the saturation curve and the Pareto front, readable at 80 columns and without colour.

Lines are drawn in braille, two by four dots a character; points are characters of their own, so that series
differ even where colour is off. Thirty lines of drawing need no library; rich decides about colour. Colours
are of the 256 that terminals have fixed, each with a contrast of at least 3 to black and to white.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from planner.files.printable import printable

if TYPE_CHECKING:
    from rich.text import Text

    from planner.answers.results import Recommendation, Saturation
    from planner.search.scored import ScoredPlan

WIDTH, HEIGHT = 80, 16
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # dots of a character by row and column
PATTERNS = {"solid": 1, "dashed": 3, "dotted": 6}  # every how many dots
LETTERS = "abcdefgh"  # of the machines that are named; others share a sign
COLOURS = tuple(f"color({number})" for number in (32, 166, 29, 133, 136, 62, 30, 162))
GREY, OTHERS = "color(244)", "color(243)"
CHOICE = "bold color(231) on color(160)"  # white on red, wherever it stands


@dataclass(frozen=True, slots=True)
class Series:
    """Points, drawn as `glyph`, or, without one, the line through them."""

    name: str
    points: Sequence[tuple[float, float]]
    glyph: str = ""
    style: str = ""
    line: str = ""  # a name of PATTERNS


@dataclass(frozen=True, slots=True)
class PlotAxis:
    """Maps values to [0, 1]."""

    title: str
    low: float
    high: float
    log: bool = False

    @staticmethod
    def over(title: str, values: Iterable[float], log: bool = False) -> PlotAxis:
        """An axis that holds the values, from zero unless it is logarithmic."""
        numbers = list(values)
        if not log:
            return PlotAxis(title, 0.0, max(numbers) * 1.02 or 1.0)
        low, high = min(numbers), max(numbers)
        return PlotAxis(title, low / 1.1, high * 1.1, log=True)

    def at(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """Round values within the axis: 1, 2 and 5 times powers of ten."""
        if self.log and self.high > 6 * self.low:  # over less the ticks of a linear axis are apart too
            tens = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for digits in ((1, 2, 5), (1, 3), (1,)):
                found = [
                    d * 10.0**ten for ten in tens for d in digits if self.low <= d * 10.0**ten <= self.high
                ]
                if 2 <= len(found) <= most:
                    return found
            return found
        rough = (self.high - self.low) / most
        ten = 10.0 ** math.floor(math.log10(rough))
        step = next(d * ten for d in (1, 2, 5, 10) if d * ten >= rough)
        return [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def saturation_plot(result: Saturation, width: int = WIDTH) -> Text:
    """Throughput against workers: simulated, bound and ideal."""
    points = [(point.workers, point.scored.samples_per_s) for point in result.points]
    bound = [(point.workers, point.scored.bound_samples_per_s) for point in result.points]
    one = points[0][1] / points[0][0]
    top = max(y for _, y in [*points, *bound]) * 1.05
    ideal = [(w, one * w) for w in (points[0][0], min(points[-1][0], top / one))]
    saturated, chosen = result.saturation_workers, result.chosen.workers
    words = f"saturates at {saturated}" if chosen == saturated else f"the choice: {chosen}"
    marked = [Series(words, [point for point in points if point[0] == chosen], "X", CHOICE)]
    if saturated not in (None, chosen):
        full = [point for point in points if point[0] == saturated]
        marked.insert(0, Series(f"saturates at {saturated}", full, "S", COLOURS[0]))
    return _plot(
        [
            Series("bound", bound, style=COLOURS[1], line="dashed"),
            Series("ideal", ideal, style=GREY, line="dotted"),
            Series("simulated", points, "o", COLOURS[0], "solid"),
            *marked,
        ],
        PlotAxis("workers", points[0][0] - 0.5, points[-1][0] + 0.5),
        PlotAxis.over("samples/s", [top]),
        width,
        whole=True,
    )


def pareto_plot(result: Recommendation, width: int = WIDTH) -> Text:
    """Cost against throughput: every plan that was simulated, a letter for each of the machines that matter
    most, the plans that were only looked at, as far as they fall between these, and the choice."""
    from planner.hardware.prices.cluster_cost import usd_per_million_samples

    chosen = result.chosen
    simulated = list({one.plan.key: one for one in [*result.plans, *result.everything]}.values())
    x = PlotAxis.over("samples/s", [one.samples_per_s for one in [*simulated, chosen]], log=True)
    y = PlotAxis.over(
        "USD per million samples", [one.usd_per_million_samples for one in [*simulated, chosen]], log=True
    )
    seen = [(bound, usd_per_million_samples(usd, bound)) for _, usd, bound in result.bounded]
    seen += [_point(one) for one in result.screened]
    inside = [(px, py) for px, py in seen if x.low <= px <= x.high and y.low <= py <= y.high]
    marked = [one for one in result.plans if one.marks]
    names = list(dict.fromkeys(one.plan.machine for one in [chosen, *marked, *simulated]))[: len(LETTERS)]
    others = [one for one in simulated if one.plan.machine not in names]
    series = [Series("looked at", inside, "·", GREY)]
    series.append(Series("other machines", [_point(one) for one in others], "+", OTHERS))
    for letter, colour, name in zip(LETTERS, COLOURS, sorted(names), strict=False):
        mine = [_point(one) for one in simulated if one.plan.machine == name]
        series.append(Series(name, mine, letter, colour))
    series.append(Series(f"the choice: {chosen.plan.cluster_text}", [_point(chosen)], "X", CHOICE))
    return _plot(series, x, y, width)


def _point(one: ScoredPlan) -> tuple[float, float]:
    return one.samples_per_s, one.usd_per_million_samples


def show_plot(plot: Callable[[int], Text]) -> None:
    """Print a plot, given its width, to a terminal that can show it; elsewhere nothing."""
    if not sys.stdout.isatty() or not (sys.stdout.encoding or "").lower().startswith("utf"):
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False)
    drawn = plot(min(console.width, WIDTH))
    console.print()
    console.print(Text(drawn.plain) if console.no_color else drawn, no_wrap=True, overflow="crop")


def _plot(series: Sequence[Series], x: PlotAxis, y: PlotAxis, width: int, *, whole: bool = False) -> Text:
    """The plot as text of at most `width` columns; `whole` numbers at the ticks of x."""
    from rich.text import Text

    y_ticks = y.ticks(HEIGHT // 3)
    margin = max(len(_number(tick)) for tick in y_ticks)
    columns = max(20, width - margin - 2)
    cells = _cells(series, x, y, columns)
    names = {_row(y.at(tick)): _number(tick) for tick in y_ticks}
    out = Text(f"{'':>{margin}} {y.title}\n", style="")
    for row in range(HEIGHT):
        tick = names.get(row, "")
        out.append(f"{tick:>{margin}} {'┤' if tick else '│'}")
        for column in range(columns):
            glyph, style = cells.get((row, column), (" ", ""))
            out.append(glyph, style)
        out.append("\n")
    x_ticks = [tick for tick in x.ticks(columns // 8) if not whole or tick == int(tick)]
    places = {min(columns - 1, round(x.at(tick) * (columns - 1))): _number(tick) for tick in x_ticks}
    out.append(f"{'':>{margin}} └" + "".join("┬" if c in places else "─" for c in range(columns)) + "\n")
    line = [" "] * columns
    for place, text in places.items():
        start = max(0, min(place - len(text) // 2, columns - len(text)))
        if all(char == " " for char in line[max(0, start - 1) : start + len(text) + 1]):
            line[start : start + len(text)] = text
    out.append(f"{'':>{margin}}  " + "".join(line).rstrip() + f"\n{'':>{margin}}  {x.title}\n")
    return _legend(out, [one for one in series if one.points], margin, width)


def _cells(
    series: Sequence[Series], x: PlotAxis, y: PlotAxis, columns: int
) -> dict[tuple[int, int], tuple[str, str]]:
    """Which character stands where; later series cover earlier ones, points cover lines."""
    cells: dict[tuple[int, int], tuple[str, str]] = {}
    for one in series:
        if not one.line:
            continue
        dots: dict[tuple[int, int], int] = {}
        for across, down in _line(one, x, y, columns):
            cell = down // 4, across // 2
            dots[cell] = dots.get(cell, 0) | BRAILLE[down % 4][across % 2]
        cells |= {cell: (chr(0x2800 + bits), one.style) for cell, bits in dots.items()}
    for one in series:
        for px, py in one.points if one.glyph else ():
            if (px > 0 and py > 0) or not (x.log or y.log):
                cells[_row(y.at(py)), round(x.at(px) * (columns - 1))] = one.glyph, one.style
    return cells


def _line(one: Series, x: PlotAxis, y: PlotAxis, columns: int) -> Iterable[tuple[int, int]]:
    """The dots of the line through the points, from the left, some left out by the pattern."""
    every = PATTERNS[one.line]
    wide, high = 2 * columns - 1, 4 * HEIGHT - 1
    dots = [(x.at(px) * wide, (1 - y.at(py)) * high) for px, py in one.points]
    drawn = 0
    for (x0, y0), (x1, y1) in pairwise(dots):
        steps = max(1, math.ceil(max(abs(x1 - x0), abs(y1 - y0))))
        for i in range(steps + 1):
            if drawn % (2 * every) < every or every == 1:
                share = i / steps
                yield round(x0 + (x1 - x0) * share), min(high, max(0, round(y0 + (y1 - y0) * share)))
            drawn += 1


def _row(share: float) -> int:
    return min(HEIGHT - 1, max(0, round((1 - share) * (HEIGHT - 1))))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def _legend(out: Text, series: Sequence[Series], margin: int, width: int) -> Text:
    used = margin + 2
    out.append(" " * used)
    for one in series:
        sign = one.glyph or {"solid": "⠒⠒", "dashed": "⠒ ⠒", "dotted": "⠂ ⠂"}[one.line]
        name = printable(one.name)[: max(8, width - margin - 8)]
        length = len(sign) + len(name) + 4
        if used + length > width:
            out.append("\n" + " " * (margin + 2))
            used = margin + 2
        out.append(sign, one.style)
        out.append(f" {name}   ")
        used += length
    return out
