"""The charts of answers as data for plotly: pure functions of plans and points.

Colours are names that the page resolves (`@c1` to `@c8`, `@faint`, `@mark` ...); every text that may come
from a file goes through `label`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.cost.price import usd_per_million_samples
from planner.report.answers import resource_words
from planner.report.page import Chart, Spec, label
from planner.search.front import front

if TYPE_CHECKING:
    from planner.search.plan import Plan
    from planner.search.results import Saturation, ScoredPlan

COLOURS = 8
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star-triangle-down")
MOST_BOUNDED = 5000  # drawn; more would make the page slow and show nothing else
LEGEND = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}


def plan_words(plan: Plan) -> str:
    """A plan in two lines of a hover."""
    rule = f", placed {plan.placement}" if plan.servers > 1 else ""
    return (
        f"<b>{label(plan.cluster_text)}</b><br>"
        f"batch {plan.batch}, {label(plan.policy)}, {plan.mode}{label(rule)}"
    )


def _scored_words(one: ScoredPlan) -> str:
    prediction = one.prediction
    marks = f"<br><b>{label(', '.join(one.marks))}</b>" if one.marks else ""
    half = (prediction.samples_per_s_high - prediction.samples_per_s_low) / 2
    return (
        f"{plan_words(one.plan)}<br>{one.samples_per_s:,.4g} ± {half:,.2g} samples/s, "
        f"{one.bound_share:.0%} of its bound<br>${one.usd_per_hour:,.2f} an hour, "
        f"${one.usd_per_million_samples:,.4g} a million samples<br>"
        f"bottleneck: {label(resource_words(prediction.bottleneck))}{marks}"
    )


def _bounded_words(plan: Plan, usd_per_hour: float, bound: float) -> str:
    return (
        f"{plan_words(plan)}<br>at most {bound:,.4g} samples/s, ${usd_per_hour:,.2f} an hour; not simulated"
    )


def pareto(
    simulated: Sequence[ScoredPlan],
    bounded: Sequence[tuple[Plan, float, float]] = (),
    screened: Sequence[ScoredPlan] = (),
    chosen: ScoredPlan | None = None,
    marked: Sequence[ScoredPlan] = (),
) -> Chart:
    """Cost per million samples against samples/s: every plan that was looked at, and the front."""
    data: list[Spec] = []
    price = [usd_per_million_samples(usd, bound) for _, usd, bound in bounded]
    kept = sorted(np.argsort(price, kind="stable")[:MOST_BOUNDED].tolist())
    if kept:
        data.append(
            _points(
                "at best (by the bound; not simulated)",
                [bounded[i][2] for i in kept],
                [price[i] for i in kept],
                [_bounded_words(*bounded[i]) for i in kept],
                {"symbol": "circle-open", "size": 6, "color": "@faint", "opacity": 0.45},
            )
        )
    if screened:
        data.append(
            _points(
                "simulated roughly",
                [one.samples_per_s for one in screened],
                [one.usd_per_million_samples for one in screened],
                [_scored_words(one) for one in screened],
                {"symbol": "circle", "size": 6, "color": "@faint"},
            )
        )
    for index, hardware in enumerate(dict.fromkeys(one.plan.worker_hardware for one in simulated)):
        mine = [one for one in simulated if one.plan.worker_hardware == hardware]
        symbol = SYMBOLS[index // COLOURS % len(SYMBOLS)]
        data.append(
            _points(
                label(hardware),
                [one.samples_per_s for one in mine],
                [one.usd_per_million_samples for one in mine],
                [_scored_words(one) for one in mine],
                {"symbol": symbol, "size": 9, "color": f"@c{index % COLOURS + 1}"},
            )
        )
    speed = np.array([one.samples_per_s for one in simulated])
    cost = np.array([one.usd_per_million_samples for one in simulated])
    on_front = front(speed, cost)
    if len(on_front) > 1:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "front: nothing is faster and cheaper",
                "x": speed[on_front].tolist(),
                "y": cost[on_front].tolist(),
                "line": {"color": "@soft", "width": 1.5, "shape": "vh"},
                "hoverinfo": "skip",
            }
        )
    if chosen is not None:
        data.append(
            {
                **_points(
                    "chosen",
                    [chosen.samples_per_s],
                    [chosen.usd_per_million_samples],
                    [_scored_words(chosen)],
                    {"symbol": "circle-open", "size": 18, "color": "@mark", "line": {"width": 3}},
                ),
            }
        )
    x_log, y_log = (_wide(trace[axis] for trace in data) for axis in "xy")
    layout = {
        "height": 460,
        "xaxis": _axis("samples/s", x_log),
        "yaxis": _axis("USD per million samples", y_log),
        "legend": LEGEND,
        "annotations": _mark_labels([*marked, *([chosen] if chosen else [])], x_log, y_log),
        "margin": {"l": 64, "r": 24, "t": 12, "b": 48},
    }
    drawn = len(kept) + len(screened) + len(simulated)
    left = len(bounded) - len(kept)
    caption = (
        f"{drawn:,} plans; right is faster, down is cheaper. Point at one to see it; click a name to hide it."
        + (f" {left:,} more with a worse bound are not drawn." if left else "")
    )
    return Chart("pareto", "Cost against speed", caption, {"data": data, "layout": layout})


def _points(name: str, x: list[float], y: list[float], text: list[str], marker: Spec) -> Spec:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": x,
        "y": y,
        "text": text,
        "hovertemplate": "%{text}<extra></extra>",
        "marker": marker,
    }


def _wide(values: Iterable[Sequence[float]]) -> bool:
    """Do the values span so much that only a logarithmic axis shows them all?"""
    numbers = [value for some in values for value in some if value > 0]
    return bool(numbers) and max(numbers) > 8 * min(numbers)


def _axis(title: str, log: bool) -> Spec:
    """A logarithmic axis that names 1, 2 and 5, or one from zero."""
    if log:
        return {"title": {"text": title}, "type": "log", "minor": {"ticks": "outside"}, "dtick": "D2"}
    return {"title": {"text": title}, "rangemode": "tozero"}


def _mark_labels(plans: Sequence[ScoredPlan], x_log: bool, y_log: bool) -> list[Spec]:
    """The words beside marked plans; one label for each plan, whatever it is marked for."""
    out = {}
    for one in plans:
        if one.marks:
            out[one.plan.key] = {
                # plotly wants the logarithm on a logarithmic axis
                "x": float(np.log10(one.samples_per_s)) if x_log else one.samples_per_s,
                "y": float(np.log10(one.usd_per_million_samples)) if y_log else one.usd_per_million_samples,
                "text": label(", ".join(one.marks)),
                "showarrow": True,
                "arrowhead": 0,
                "arrowcolor": "@soft",
                "ax": 0,
                "ay": 34,
                "standoff": 10,
                "font": {"color": "@ink", "size": 12},
            }
    return list(out.values())


def workers_curve(curve: Saturation) -> Chart:
    """Throughput against workers: simulated with its interval, the bound, and W times one worker."""
    points = curve.points
    workers = [point.workers for point in points]
    speed = [point.scored.samples_per_s for point in points]
    one = speed[0] / workers[0]
    data: list[Spec] = [
        _line(
            "ideal: as many times the first",
            workers,
            [one * w for w in workers],
            {"color": "@faint", "dash": "dot"},
        ),
        _line(
            "bound",
            workers,
            [point.scored.bound_samples_per_s for point in points],
            {"color": "@c2", "dash": "dash"},
        ),
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "simulated",
            "x": workers,
            "y": speed,
            "text": [
                f"{_scored_words(p.scored)}<br>efficiency {p.efficiency:.0%}, "
                f"the last adds {p.marginal_samples_per_s:+,.3g} samples/s"
                for p in points
            ],
            "hovertemplate": "%{text}<extra></extra>",
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [p.scored.prediction.samples_per_s_high - p.scored.samples_per_s for p in points],
                "arrayminus": [
                    p.scored.samples_per_s - p.scored.prediction.samples_per_s_low for p in points
                ],
                "color": "@c1",
                "thickness": 1.5,
            },
            "line": {"color": "@c1", "width": 2.5},
            "marker": {"size": 8, "color": "@c1"},
        },
    ]
    top = 1.08 * max([*speed, *(point.scored.bound_samples_per_s for point in points)])
    layout: Spec = {
        "height": 380,
        "xaxis": {"title": {"text": "workers"}, "dtick": 1 if workers[-1] <= 20 else None},
        "yaxis": {"title": {"text": "samples/s"}, "range": [0, top]},
        "legend": LEGEND,
        "shapes": [],
        "annotations": [],
    }
    if curve.ceiling_samples_per_s <= top:
        layout["shapes"].append(_rule("y", curve.ceiling_samples_per_s, "@c2"))
        layout["annotations"].append(
            _rule_label(
                f"ceiling of these servers: {curve.ceiling_samples_per_s:,.4g}",
                x=0.01,
                xref="paper",
                y=curve.ceiling_samples_per_s,
                yanchor="bottom",
                xanchor="left",
            )
        )
    if curve.saturation_workers is not None:
        layout["shapes"].append(_rule("x", curve.saturation_workers, "@mark"))
        layout["annotations"].append(
            _rule_label(
                f"saturates at {curve.saturation_workers}",
                x=curve.saturation_workers,
                y=0.04,
                yref="paper",
                xanchor="left",
                yanchor="bottom",
            )
        )
    confidence = points[0].scored.prediction.confidence
    caption = (
        f"Bars are {confidence:.0%} intervals. Saturated: one more worker adds less than "
        f"{curve.threshold:.0%} of what a single one gives."
    )
    return Chart("workers", "Throughput against workers", caption, {"data": data, "layout": layout})


def _line(name: str, x: list[Any], y: list[float], line: Spec) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"width": 2, **line},
        "hovertemplate": "%{x} workers: %{y:,.4~g} samples/s<extra>" + name + "</extra>",
    }


def _rule(axis: str, at: float, colour: str) -> Spec:
    across = {"x": ("yref", "y0", "y1"), "y": ("xref", "x0", "x1")}[axis]
    return {
        "type": "line",
        f"{axis}0": at,
        f"{axis}1": at,
        across[0]: "paper",
        across[1]: 0,
        across[2]: 1,
        "line": {"color": colour, "width": 1.5, "dash": "dash"},
    }


def _rule_label(text: str, **where: Any) -> Spec:
    return {"text": f" {label(text)} ", "showarrow": False, "font": {"color": "@soft", "size": 12}, **where}


def cost_split(plans: Sequence[ScoredPlan], names: Sequence[str], wide: bool = False) -> Chart:
    """What a million samples cost, split into workers and servers, one bar a plan."""
    parts = [
        ("workers", "@c1", [one.worker_usd_per_hour for one in plans]),
        ("servers", "@c2", [one.usd_per_hour - one.worker_usd_per_hour for one in plans]),
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
            "text": [plan_words(one.plan) for one in plans],
            "textposition": "none",
            "hovertemplate": "%{text}<br>"
            + name
            + ": $%{x:,.2f} a million samples, $%{customdata:,.2f} an hour"
            "<extra></extra>",
            "marker": {"color": colour},
        }
        for name, colour, hourly in parts
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.35,
        "height": max(180, 110 + 28 * len(plans)),
        "xaxis": {"title": {"text": "USD per million samples"}},
        "yaxis": _row_axis([_short(label(name)) for name in names]),
        "legend": {**LEGEND, "traceorder": "normal"},
    }
    caption = (
        "Each plan's price by the hour over its throughput; servers that live on worker nodes cost nothing."
    )
    return Chart("cost", "Where the money goes", caption, {"data": data, "layout": layout}, wide)


def _row_axis(names: list[str]) -> Spec:
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


def utilisation(one: ScoredPlan, wide: bool = False) -> Chart:
    """How much of its capacity each resource uses."""
    names = list(one.prediction.utilisation)
    shares = [one.prediction.utilisation[name] for name in names]
    top = one.prediction.bottleneck
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": list(range(len(names))),
            "x": shares,
            "customdata": [label(resource_words(name)) for name in names],
            "text": [f"{share:.0%}" for share in shares],
            "textposition": "auto",
            "hovertemplate": "%{customdata}: %{x:.1%} used<extra></extra>",
            "marker": {"color": ["@mark" if name == top else "@c1" for name in names]},
        }
    ]
    layout = {
        "height": max(180, 90 + 30 * len(names)),
        "bargap": 0.35,
        "xaxis": {"range": [0, 1], "tickformat": ".0%", "title": {"text": "used"}},
        "yaxis": _row_axis([label(name) for name in names]),
    }
    caption = (
        f"The bottleneck, in red, is {resource_words(top)}. Links: of their capacity; others: of the time."
    )
    return Chart("utilisation", "How busy each resource is", caption, {"data": data, "layout": layout}, wide)


def utilisation_curve(curve: Saturation) -> Chart:
    """How busy each resource is against workers."""
    workers = [point.workers for point in curve.points]
    names = list(curve.points[-1].scored.prediction.utilisation)
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": label(name),
            "x": workers,
            "y": [point.scored.prediction.utilisation.get(name) for point in curve.points],
            "hovertemplate": f"%{{x}} workers: {label(resource_words(name))} %{{y:.1%}} used<extra></extra>",
            "line": {"color": f"@c{index % COLOURS + 1}"},
        }
        for index, name in enumerate(names)
    ]
    layout = {
        "height": 320,
        "xaxis": {"title": {"text": "workers"}, "dtick": 1 if workers[-1] <= 20 else None},
        "yaxis": {"range": [0, 1.03], "tickformat": ".0%", "title": {"text": "used"}},
        "legend": LEGEND,
    }
    caption = "What reaches 100% first is what saturates."
    return Chart(
        "busy", "How busy each resource is, against workers", caption, {"data": data, "layout": layout}
    )


def servers_curve(curve: Saturation) -> Chart:
    """Throughput against the number of servers."""
    plans = [scored for _, scored in curve.servers_needed]
    data = [
        {
            "type": "bar",
            "x": [count for count, _ in curve.servers_needed],
            "y": [one.samples_per_s for one in plans],
            "text": [_scored_words(one) for one in plans],
            "textposition": "none",
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {
                "color": ["@c1" if n == curve.servers_advised else "@faint" for n, _ in curve.servers_needed]
            },
        }
    ]
    layout = {
        "height": 320,
        "bargap": 0.5,
        "xaxis": {"title": {"text": "servers"}, "dtick": 1},
        "yaxis": {"title": {"text": "samples/s"}, "rangemode": "tozero"},
    }
    workers = plans[0].plan.workers
    caption = (
        f"With {workers} worker{'s' if workers > 1 else ''}, each number of servers under its best "
        f"placement. Coloured: as many as pay off, {curve.servers_advised}."
    )
    return Chart("servers", "Throughput against servers", caption, {"data": data, "layout": layout}, False)
