"""Axes of the charts of plans, and labels that do not cover each other on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.report.page import Spec, label

if TYPE_CHECKING:
    from planner.search.scored import ScoredPlan

WIDE_RATIO = 8  # beyond which only a logarithmic axis shows all values
PLOT = 270.0, 380.0  # width and height in pixels of the narrowest plot that labels must be apart on
CHARACTER = 8.0, 26.0  # of a label, with room for the margins of axes
HEIGHTS = (34, -34, 64, -64, 94, -94)  # pixels that a label may stand below (or above) its point
MOST_LABELS = 4


@dataclass(frozen=True, slots=True)
class PlotScale:
    """The values of an axis: from zero, or logarithmic where they span much."""

    low: float
    high: float
    log: bool

    @staticmethod
    def over(values: Iterable[float]) -> PlotScale:
        numbers = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
        low, high = min(numbers), max(numbers)
        log = high > WIDE_RATIO * low
        return PlotScale(low if log else 0.0, high, log)

    def at(self, value: float) -> float:
        """Where a value stands, from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return value / self.high

    def place(self, value: float) -> float:
        """A value as plotly wants it in an annotation: its logarithm on a logarithmic axis."""
        return math.log10(value) if self.log else value

    def axis(self, title: str, *, wide: bool = False) -> Spec:
        """The axis for plotly; ticks at 1, 2 and 5 where there is room for them, else at powers of ten, each
        with its whole number."""
        if not self.log:
            return {"title": {"text": title}, "rangemode": "tozero"}
        digits = (1, 2, 5) if math.log10(self.high / self.low) < (2.5 if wide else 1.2) else (1,)
        tens = range(math.floor(math.log10(self.low)) - 1, math.ceil(math.log10(self.high)) + 2)
        values = [digit * 10.0**ten for ten in tens for digit in digits]
        return {
            "title": {"text": title},
            "type": "log",
            "tickmode": "array",
            "tickvals": values,
            "ticktext": [f"{value:,.12g}" for value in values],
        }


Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels


def placed_labels(plans: Sequence[ScoredPlan], x: PlotScale, y: PlotScale) -> list[Spec]:
    """The words beside marked plans: one label a plan, inside of the plot, none upon another."""
    out: list[Spec] = []
    taken: list[Box] = []
    for scored in {scored.plan.key: scored for scored in plans if scored.marks}.values():
        words = ", ".join(scored.marks)
        share = x.at(scored.samples_per_s)
        anchor = "left" if share < 0.3 else "right" if share > 0.7 else "center"
        for height in HEIGHTS:
            box = _box(words, share, y.at(scored.usd_per_million_samples), anchor, height)
            if box[1] > 0 and box[3] < PLOT[1] and not any(_meet(box, other) for other in taken):
                break
        else:
            continue  # its hover says it
        taken.append(box)
        out.append(
            {
                "x": x.place(scored.samples_per_s),
                "y": y.place(scored.usd_per_million_samples),
                "text": label(words),
                "showarrow": True,
                "arrowhead": 0,
                "arrowcolor": "@soft",
                "ax": 0,
                "ay": height,
                "xanchor": anchor,
                "standoff": 10,
                "font": {"color": "@ink", "size": 12},
            }
        )
    return out[:MOST_LABELS]


def _box(words: str, share: float, up: float, anchor: str, height: float) -> Box:
    """What a label covers on the narrowest plot."""
    long = CHARACTER[0] * len(words)
    left = share * PLOT[0] - {"left": 0.0, "center": 0.5, "right": 1.0}[anchor] * long
    middle = (1 - up) * PLOT[1] + height
    return left, middle - CHARACTER[1] / 2, left + long, middle + CHARACTER[1] / 2


def _meet(scored: Box, other: Box) -> bool:
    return scored[0] < other[2] and other[0] < scored[2] and scored[1] < other[3] and other[1] < scored[3]
