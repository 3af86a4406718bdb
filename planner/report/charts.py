"""The charts of plans as data for plotly: pure functions of what was scored.

Colours are names that the page resolves (`@c1` to `@c8`, `@faint`, `@mark` ...); every text that may come
from a file goes through `label`.

Axes of the charts of plans, and labels that do not cover each other on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.hardware.prices.cost import usd_per_million_samples
from planner.report.format import percent, rate, usd
from planner.report.page import Chart, Spec, label
from planner.report.phrases import busiest, is_full, price_words, resource_words, strategy_words
from planner.report.terminal import broken_cell
from planner.search.front import front

if TYPE_CHECKING:
    from planner.parallel.plan import Plan
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


COLOURS = 8
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
MOST_NAMED = 7  # machines with a colour of their own; a longer legend says less
MOST_BOUNDED = 2000  # drawn; more would make the page slow and show nothing else
LETTERS = "abcdefgh"  # by which a terminal shows the named machines
CROWD = "·"  # and plans that were considered only
NARROW = 20  # characters of a name beside a bar, where there is little room


def plan_words(plan: Plan) -> str:
    """A plan in two lines of a hover."""
    strategy = label(strategy_words(plan) or "one device")
    return f"<b>{label(plan.cluster_text)}</b><br>{strategy}, batch {plan.batch}"


def scored_words(scored: ScoredPlan) -> str:
    """A simulated plan in the lines of a hover."""
    prediction = scored.prediction
    marks = f"<br><b>{label(', '.join(scored.marks))}</b>" if scored.marks else ""
    half = (prediction.samples_per_s_high - prediction.samples_per_s_low) / 2
    price = "".join(f"{words}, " for words in price_words(scored)).removesuffix(", ")
    return (
        f"{plan_words(scored.plan)}<br>{rate(scored.samples_per_s)} ± {rate(half)} samples/s, "
        f"{percent(scored.bound_share)} of its bound<br>{price + '<br>' if price else ''}"
        f"{busiest(scored)}: {label(resource_words(prediction.bottleneck, scored.plan))}{marks}"
    )


def _bounded_words(plan: Plan, usd_per_hour: float, bound: float) -> str:
    return f"{plan_words(plan)}<br>at most {rate(bound)} samples/s, {usd(usd_per_hour)}/h; not simulated"


def pareto(
    simulated: Sequence[ScoredPlan],
    bounded: Sequence[tuple[Plan, float, float]] = (),
    screened: Sequence[ScoredPlan] = (),
    *,
    chosen: ScoredPlan | None = None,
    marked: Sequence[ScoredPlan] = (),
    further: Sequence[ScoredPlan] = (),
) -> Chart:
    """Cost per million samples against samples/s: every plan that was considered, and the front; `further`
    are plans beyond the search that the answer names, as the choice with more workers."""
    data: list[Spec] = []
    price = [usd_per_million_samples(usd, bound) for _, usd, bound in bounded]
    kept = sorted(np.argsort(price, kind="stable")[:MOST_BOUNDED].tolist())
    if kept:
        data.append(
            _points(
                "upper bound (not simulated)",
                [bounded[i][2] for i in kept],
                [price[i] for i in kept],
                [_bounded_words(*bounded[i]) for i in kept],
                {"symbol": "circle-open", "size": 5, "color": "@faint", "opacity": 0.35},
                meta=CROWD,
            )
        )
    if screened:
        data.append(
            _scored(
                "simulated roughly", screened, {"symbol": "circle", "size": 6, "color": "@faint"}, meta=CROWD
            )
        )
    if further:
        data.append(
            _scored(
                "the choice at other sizes",
                further,
                {"symbol": "diamond-open", "size": 7, "color": "@soft"},
                meta=CROWD,
            )
        )
    speed = np.array([scored.samples_per_s for scored in simulated])
    cost = np.array([scored.usd_per_million_samples for scored in simulated])
    on_front = front(speed, cost)
    named = _named([*([chosen] if chosen else []), *marked, *(simulated[i] for i in on_front), *simulated])
    others = [scored for scored in simulated if scored.plan.machine not in named]
    if others:
        count = len({scored.plan.machine for scored in others})
        words = f"{count} other machine{'s' if count > 1 else ''}"
        data.append(_scored(words, others, {"symbol": "diamond", "size": 7, "color": "@soft"}, meta="+"))
    for index, hardware in enumerate(named):
        mine = [scored for scored in simulated if scored.plan.machine == hardware]
        symbol, colour = SYMBOLS[index % len(SYMBOLS)], f"@c{index % COLOURS + 1}"
        look = {"symbol": symbol, "size": 9, "color": colour}
        data.append(_scored(label(hardware), mine, look, meta=LETTERS[index]))
    if len(on_front) > 1:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "Pareto front",
                "x": speed[on_front].tolist(),
                "y": cost[on_front].tolist(),
                "line": {"color": "@soft", "width": 1.5, "shape": "vh"},
                "hoverinfo": "skip",
                "meta": "skip",
            }
        )
    if chosen is not None:
        ring = {"symbol": "circle-open", "size": 18, "color": "@mark", "line": {"width": 3}}
        data.append(_scored("chosen", [chosen], ring, meta="X"))
    x, y = (PlotScale.over([value for trace in data for value in trace[axis]]) for axis in "xy")
    data.append(_what_if_ring())
    layout = {
        "height": 460,
        "xaxis": x.axis("samples/s", wide=True),
        "yaxis": y.axis("USD per million samples", wide=True),
        "annotations": placed_labels([*marked, *([chosen] if chosen else [])], x, y),
        "margin": {"l": 64, "r": 24, "t": 30, "b": 48},
    }
    narrow = {"xaxis": x.axis("samples/s"), "yaxis": y.axis("USD per million samples")}
    drawn = len(kept) + len(screened) + len(simulated) + len(further)
    left = len(bounded) - len(kept)
    caption = f"{drawn:,} plans; further right is faster, further down is cheaper." + (
        f" {left:,} more with worse bounds are not drawn." if left else ""
    )
    spec = {"data": data, "layout": layout, "narrow": narrow}
    hint = "Hover for details; click a name to hide it."
    return Chart("pareto", "Cost against speed", caption, spec, hint=hint)


def _named(plans: Iterable[ScoredPlan]) -> list[str]:
    """The machines that get a name and a colour, in the order of the catalogue's names."""
    return sorted(list(dict.fromkeys(scored.plan.machine for scored in plans))[:MOST_NAMED])


def _what_if_ring() -> Spec:
    """Where the page's what-if points at; empty until it does."""
    marker = {"symbol": "circle-open", "size": 26, "color": "@c7", "line": {"width": 3}}
    return {**_points("what-if", [], [], [], marker, meta="skip"), "showlegend": False, "hoverinfo": "skip"}


def _scored(name: str, plans: Sequence[ScoredPlan], marker: Spec, *, meta: str) -> Spec:
    return _points(
        name,
        [scored.samples_per_s for scored in plans],
        [scored.usd_per_million_samples for scored in plans],
        [scored_words(scored) for scored in plans],
        marker,
        meta=meta,
    )


def _points(name: str, x: list[float], y: list[float], text: list[str], marker: Spec, *, meta: str) -> Spec:
    """Points of a name; `meta` is how a terminal draws them."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": x,
        "y": y,
        "text": text,
        "hovertemplate": "%{text}<extra></extra>",
        "marker": marker,
        "meta": meta,
    }


def cost_split(plans: Sequence[ScoredPlan], names: Sequence[str], wide: bool = False) -> Chart:
    """Cost per million samples, split by the roles of machines, one bar a plan."""
    roles = dict.fromkeys(cost.role for scored in plans for cost in scored.costs)
    parts = [
        (role, f"@c{at % COLOURS + 1}", [scored.usd_of(role) or 0.0 for scored in plans])
        for at, role in enumerate(roles)
    ]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": list(range(len(plans))),
            "x": [
                usd_per_million_samples(usd, p.samples_per_s) for usd, p in zip(hourly, plans, strict=True)
            ],
            "customdata": hourly,
            "text": [plan_words(scored.plan) for scored in plans],
            "textposition": "none",
            "hovertemplate": "%{text}<br>" + name + ": $%{x:,.3~g} per million samples, $%{customdata:,.2f}/h"
            "<extra></extra>",
            "marker": {"color": colour},
        }
        for name, colour, hourly in parts
    ]
    spec = {
        "data": data,
        "layout": {
            "barmode": "stack",
            "bargap": 0.35,
            "height": max(180, 110 + 28 * len(plans)),
            "xaxis": {"title": {"text": "USD per million samples"}},
            "yaxis": row_axis([label(_short(name)) for name in names]),
        },
        "narrow": narrow_rows(names),
    }
    caption = "Each plan's price by the hour over its throughput; servers on worker machines cost nothing."
    title = "Cost by role" if len(roles) > 1 else "Cost per million samples"
    return Chart("cost", title, caption, spec, wide)


def row_axis(names: list[str]) -> Spec:
    """Rows from the top; names are labels and not categories, for two rows may have the same."""
    return {
        "autorange": "reversed",
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": names,
        "showgrid": False,
    }


def _short(text: str, most: int = 44) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def narrow_rows(names: Sequence[str]) -> Spec:
    """Names of bars in two lines at most, and room for them."""
    lines = [broken_cell(name, NARROW) for name in names]
    short = [
        label(first) + (f"<br>{label(_short(' '.join(rest), NARROW))}" if rest else "")
        for first, *rest in lines
    ]
    return {
        "height": max(180, 110 + 34 * len(names)),
        "yaxis": {"ticktext": short, "tickfont": {"color": "@soft", "size": 11}},
        "margin": {"l": 60, "r": 12, "t": 30, "b": 48},
    }


def utilisation(scored: ScoredPlan, wide: bool = False) -> Chart:
    """How much of its capacity each resource uses."""
    names = list(scored.prediction.utilisation)
    shares = [scored.prediction.utilisation[name] for name in names]
    top = scored.prediction.bottleneck
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": list(range(len(names))),
            "x": shares,
            "customdata": [label(str(name)) for name in names],
            "text": [f"{share:.0%}" for share in shares],
            "textposition": "auto",
            "hovertemplate": "%{customdata}: %{x:.1%} busy<extra></extra>",
            "marker": {"color": ["@mark" if name == top and is_full(scored) else "@c1" for name in names]},
        }
    ]
    words = [resource_words(name, scored.plan) for name in names]
    layout = {
        "height": max(180, 90 + 30 * len(names)),
        "bargap": 0.35,
        "xaxis": {"range": [0, 1], "tickformat": ".0%", "title": {"text": "busy"}},
        "yaxis": row_axis([label(word) for word in words]),
    }
    spec = {"data": data, "layout": layout, "narrow": narrow_rows(words)}
    what = resource_words(top, scored.plan)
    full = (
        f"The bottleneck, in red, is {what}."
        if is_full(scored)
        else f"No resource is full; the busiest is {what}."
    )
    caption = f"{full} Links: share of their capacity; others: share of the time."
    return Chart("utilisation", "Utilization of each resource", caption, spec, wide)
