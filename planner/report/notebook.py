"""An answer in a notebook: its page as a fragment of HTML, charts as still pictures, assumptions folded.

A chart as a still picture in SVG, for notebooks: it also shows where scripts are not trusted.

It draws what the charts of a page use of plotly's language: points, lines and bars on linear and logarithmic
axes. Words take the colour of the text around them and series are of a middle tone, so that the picture can
be read on a light and on a dark notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape, unescape
from itertools import pairwise
from typing import Any

from planner.report.html import table_html
from planner.report.page import Chart, Remark, Spec, Table, page_of
from planner.report.plots import CROWD, PlotScale, title_of

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 720, 64, 16, 10, 44
CHARACTER = 7.2  # pixels of a letter at the size of the ticks
COLOURS = {
    "c1": "#2f7fd8", "c2": "#d9622b", "c3": "#189a6c", "c4": "#b67a00", "c5": "#c94f92", "c6": "#2b8a2b",
    "c7": "#7a6be0", "c8": "#c04a4a", "mark": "#d64545", "faint": "#8c8c84", "soft": "#808080",
}  # fmt: skip
DASHES = {"dash": "6 4", "dot": "2 4"}


@dataclass(frozen=True, slots=True)
class _Axis:
    """A scale between two pixels."""

    low: float
    high: float
    log: bool
    start: float
    end: float

    @property
    def scale(self) -> PlotScale:
        return PlotScale(self.low, self.high, self.log)

    def at(self, value: float) -> float:
        return self.start + self.scale.at(value) * (self.end - self.start)


def chart_svg(chart: Chart) -> str:
    """The chart with its title, a legend of two or more series, and its caption below."""
    layout = chart.spec["layout"]
    data = [trace for trace in chart.spec["data"] if len(trace["x"]) and trace.get("meta") != CROWD]
    legend = _legend(data)
    height = layout.get("height", 360)
    top = TOP + 18 * len(legend)
    names = layout["yaxis"].get("ticktext")
    left = max(LEFT, 12 + CHARACTER * max(map(len, map(_plain, names)), default=0)) if names else LEFT
    x = _axis(layout["xaxis"], data, "x", left, WIDTH - RIGHT)
    y = _axis(layout["yaxis"], data, "y", height - BOTTOM, top)
    parts = [*legend, *_frame(x, y, layout, height)]
    starts: dict[Any, float] = {}  # where the next part of a stacked bar begins
    for trace in data:
        parts += _bars(trace, x, y, starts) if trace["type"] == "bar" else _scatter(trace, x, y)
    return (
        f"<figure><figcaption><b>{_text(chart.title)}</b></figcaption>"
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{_text(chart.title)}" style="max-width:{WIDTH}px;width:100%;font:12px sans-serif" '
        f'fill="currentColor">{"".join(parts)}</svg>'
        f"<p>{_text(chart.caption)}</p></figure>"
    )


def _axis(spec: Spec, data: Sequence[Spec], key: str, start: float, end: float) -> _Axis:
    values = [float(value) for trace in data for value in _values(trace, key)]
    log = spec.get("type") == "log"
    if "range" in spec:
        low, high = spec["range"]
        return _Axis(low, high, False, start, end)
    if log:
        positive = [value for value in values if value > 0]
        return _Axis(min(positive) / 1.15, max(positive) * 1.15, True, start, end)
    low, high = min(values), max(values)
    if spec.get("rangemode") == "tozero" or any(_lies_along(trace, key) for trace in data):
        low = min(0.0, low)
    pad = 0.5 if "tickvals" in spec else 0.04 * (high - low) or 0.5
    below = 0.0 if low == 0 else pad
    axis = _Axis(low - below if "tickvals" not in spec else low - pad, high + pad, False, start, end)
    return _Axis(axis.high, axis.low, False, start, end) if spec.get("autorange") == "reversed" else axis


def _lies_along(trace: Spec, key: str) -> bool:
    """Whether bars have their lengths along an axis."""
    return trace["type"] == "bar" and (trace.get("orientation") == "h") == (key == "x")


def _values(trace: Spec, key: str) -> Iterable[float]:
    return (value for value in trace[key] if value is not None)


def _frame(x: _Axis, y: _Axis, layout: Spec, height: float) -> Iterable[str]:
    shade = 'stroke="currentColor" stroke-opacity="0.15"'
    for value, words in _ticks(layout["xaxis"], x, 8):
        at = x.at(value)
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y.end:.0f}" y2="{y.start:.0f}" {shade}/>'
        yield f'<text x="{at:.1f}" y="{y.start + 16:.0f}" text-anchor="middle">{words}</text>'
    for value, words in _ticks(layout["yaxis"], y, 6):
        at = y.at(value)
        yield f'<line x1="{x.start:.0f}" x2="{x.end:.0f}" y1="{at:.1f}" y2="{at:.1f}" {shade}/>'
        yield f'<text x="{x.start - 6:.0f}" y="{at + 4:.1f}" text-anchor="end">{words}</text>'
    across, up = (_text(title_of(layout[f"{axis}axis"])) for axis in "xy")
    middle = (x.start + x.end) / 2
    yield f'<text x="{middle:.0f}" y="{height - 8:.0f}" text-anchor="middle" opacity="0.75">{across}</text>'
    if up:
        yield (
            f'<text transform="rotate(-90)" x="{-(y.start + y.end) / 2:.0f}" y="12" text-anchor="middle" '
            f'opacity="0.75">{up}</text>'
        )


def _ticks(spec: Spec, axis: _Axis, most: int) -> Iterable[tuple[float, str]]:
    if "ticktext" in spec:
        marks = zip(spec["tickvals"], map(_clean, spec["ticktext"]), strict=True)
        return [mark for mark in marks if not axis.log or axis.low <= mark[0] <= axis.high]
    share = spec.get("tickformat") == ".0%"
    return [(value, f"{value:.0%}" if share else f"{value:,.6g}") for value in axis.scale.ticks(most)]


def _scatter(trace: Spec, x: _Axis, y: _Axis) -> Iterable[str]:
    pairs = [(a, b) for a, b in zip(trace["x"], trace["y"], strict=True) if a is not None and b is not None]
    places = [(x.at(a), y.at(b)) for a, b in pairs if not (x.log and a <= 0) and not (y.log and b <= 0)]
    if "lines" in trace["mode"] and places:
        line, path = trace.get("line", {}), f"M{places[0][0]:.1f} {places[0][1]:.1f}"
        for (_, _), (ax, ay) in pairwise(places):
            path += f"V{ay:.1f}H{ax:.1f}" if line.get("shape") == "vh" else f"L{ax:.1f} {ay:.1f}"
        dash = f' stroke-dasharray="{DASHES[line["dash"]]}"' if line.get("dash") in DASHES else ""
        yield f'<path d="{path}" fill="none" stroke="{_colour(line)}" stroke-width="2"{dash}/>'
    if "markers" not in trace["mode"]:
        return
    marker = trace.get("marker") or trace.get("line", {})
    ring = str(marker.get("symbol", "")).endswith("-open")
    look = (
        f'fill="none" stroke="{_colour(marker)}" stroke-width="2.5"' if ring else f'fill="{_colour(marker)}"'
    )
    for (ax, ay), words in zip(places, trace.get("text") or [""] * len(places), strict=False):
        title = f"<title>{_clean(words)}</title>" if words else ""
        yield f'<circle cx="{ax:.1f}" cy="{ay:.1f}" r="{marker.get("size", 8) / 2:g}" {look}>{title}</circle>'


def _bars(trace: Spec, x: _Axis, y: _Axis, starts: dict[Any, float]) -> Iterable[str]:
    """Bars along x, or along y, stacked upon those drawn before at the same place."""
    across = trace.get("orientation") == "h"
    along, over = (x, y) if across else (y, x)
    lengths, places = (trace["x"], trace["y"]) if across else (trace["y"], trace["x"])
    half = 0.32 * abs(over.at(1) - over.at(0))
    colours = trace["marker"]["color"]
    for at, (place, length) in enumerate(zip(places, lengths, strict=True)):
        base = starts.get(place, 0.0)
        starts[place] = base + length
        left, right = sorted((along.at(base), along.at(base + length)))
        middle = over.at(place)
        box = (
            (left, middle - half, right - left, 2 * half)
            if across
            else (middle - half, left, 2 * half, right - left)
        )
        colour = COLOURS.get(str(colours if isinstance(colours, str) else colours[at])[1:], "currentColor")
        yield (
            '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"'.format(*box) + f' fill="{colour}"/>'
        )


def _legend(data: Sequence[Spec]) -> list[str]:
    """The series' names in lines of the picture's width."""
    named = {trace["name"]: trace for trace in data if trace.get("name") and trace.get("showlegend", True)}
    if len(named) < 2:
        return []
    lines, at = [""], float(LEFT)
    for name, trace in named.items():
        wide = 28 + CHARACTER * len(_plain(name))
        if at + wide > WIDTH and lines[-1]:
            lines.append("")
            at = float(LEFT)
        y = 12 + 18 * (len(lines) - 1)
        look = trace.get("marker") or trace.get("line", {})
        lines[-1] += (
            f'<rect x="{at:.0f}" y="{y - 8}" width="10" height="8" fill="{_colour(look)}"/>'
            f'<text x="{at + 15:.0f}" y="{y}">{_clean(name)}</text>'
        )
        at += wide
    return lines


def _colour(look: Spec) -> str:
    named = look.get("color", "@c1")
    return COLOURS.get(str(named if isinstance(named, str) else named[0])[1:], "currentColor")


def _plain(words: str) -> str:
    """The text of a label made for plotly."""
    for tag in ("<b>", "</b>"):
        words = words.replace(tag, "")
    return unescape(words.replace("<br>", "\n"))


def _clean(words: str) -> str:
    return _text(_plain(words))


def _text(words: str) -> str:
    return escape(words)


STYLE = """<style>
.planner-answer td, .planner-answer th { padding: 2px 8px; text-align: left; vertical-align: top; }
.planner-answer .number { text-align: right; white-space: nowrap; }
.planner-answer p { margin: 2px 0; }
.planner-answer .choice td { font-weight: bold; }
.planner-answer figure { margin: 12px 0; }
</style>"""
MOST_ROWS = 40  # of a sweep, say; the rest is in `as_dict()`


def notebook_html(result: Any) -> str:
    """A result as HTML for a notebook: the answer, its charts, what follows; assumptions folded."""
    page = page_of(result)
    first, *others = page.tables
    parts = [f"<p><b>{escape(page.answer)}</b></p>"]
    parts += [f"<p>{escape(' · '.join(cells))}</p>" for cells in page.facts]
    parts += [_remarks(page.why), _table(first), *map(chart_svg, charts_of(result))]
    parts += [_remarks(page.then), *map(_table, others)]
    if page.assumptions:
        inner = "".join(f"<p>{escape(str(note))}</p>" for note in page.assumptions)
        parts.append(f"<details><summary>Assumptions</summary>{inner}</details>")
    return f'<div class="planner-answer">{STYLE}\n' + "\n".join(filter(None, parts)) + "</div>"


def charts_of(result: Any) -> list[Chart]:
    """The charts of an answer that need nothing simulated anew and say something without a pointer."""
    drawn = (picture.draw() for picture in page_of(result).pictures() if picture.still)
    return list(filter(None, drawn))


def _remarks(remarks: Iterable[Remark]) -> str:
    return "".join(
        f"<p><b>{escape(remark.label)}</b> {escape(sentence)}</p>"
        for remark in remarks
        for sentence in remark.sentences
        if sentence
    )


def _table(table: Table) -> str:
    lines = [f"<p><b>{escape(line)}</b></p>" for line in table.title.splitlines()]
    if table.rows:
        lines.append(table_html(replace(table, rows=table.rows[:MOST_ROWS])))
        if len(table.rows) > MOST_ROWS:
            lines.append(f"<p>The first {MOST_ROWS} of {len(table.rows):,} rows.</p>")
    return "".join([*lines, *_notes(table.notes)])


def _notes(notes: Sequence[str]) -> list[str]:
    return [f"<p>{escape(note)}</p>" for note in notes]
