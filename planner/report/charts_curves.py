"""The charts of a saturation curve as data for plotly; what is said of colours in `charts` holds here too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.report.charts import COLOURS, scored_words
from planner.report.format import count, percent, rate, signed
from planner.report.page import Chart, Spec, label
from planner.report.phrases import resource_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.answers.results import Saturation, SaturationPoint


def workers_curve(curve: Saturation, recommended: int | None = None) -> Chart:
    """Throughput against workers: simulated with its interval, the bound, and W times one worker."""
    points = curve.points
    workers = [point.workers for point in points]
    speed = [point.scored.samples_per_s for point in points]
    one = speed[0] / workers[0]
    data: list[Spec] = [
        _line(
            "linear scaling",
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
                f"{scored_words(p.scored)}<br>efficiency {percent(p.efficiency)}, "
                f"the last worker adds {signed(p.marginal_samples_per_s)} samples/s"
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
    chosen, saturated = recommended or curve.chosen.workers, curve.saturation_workers
    marked = [point for point in points if point.workers == chosen]
    data.append(_marked(f"recommended: {chosen}", marked, "X", "@mark"))
    if saturated not in (None, chosen):
        at_saturation = [point for point in points if point.workers == saturated]
        data.append(_marked(f"saturates at {saturated}", at_saturation, "S", "@c1"))
    top = 1.08 * max([*speed, *(point.scored.bound_samples_per_s for point in points)])
    layout: Spec = {
        "height": 380,
        "xaxis": {"title": {"text": "workers"}, "dtick": 1 if workers[-1] <= 12 else None, "tickformat": "d"},
        "yaxis": {"title": {"text": "samples/s"}, "range": [0, top]},
        "shapes": [],
        "annotations": [],
    }
    if curve.ceiling_samples_per_s <= top:
        layout["shapes"].append(_rule("y", curve.ceiling_samples_per_s, "@c2"))
        layout["annotations"].append(
            _rule_label(
                f"ceiling: {rate(curve.ceiling_samples_per_s)}",
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
        f"Error bars: {percent(confidence)} intervals of the simulation. Saturated: further samples "
        f"cost over {1 / curve.request.min_marginal_efficiency:.2g} times the cheapest."
    )
    return Chart("workers", "Throughput against workers", caption, {"data": data, "layout": layout})


def utilisation_curve(curve: Saturation) -> Chart:
    """How busy each resource is against workers."""
    workers = [point.workers for point in curve.points]
    last = curve.points[-1].scored
    words = {name: label(resource_words(name, last.plan)) for name in last.prediction.utilisation}
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": words[name],
            "x": workers,
            "y": [point.scored.prediction.utilisation.get(name) for point in curve.points],
            "hovertemplate": f"%{{x}} workers: {words[name]} %{{y:.1%}} used<extra></extra>",
            "line": {"color": f"@c{index % COLOURS + 1}"},
        }
        for index, name in enumerate(words)
    ]
    layout = {
        "height": 320,
        "xaxis": {"title": {"text": "workers"}, "dtick": 1 if workers[-1] <= 12 else None},
        "yaxis": {"range": [0, 1.03], "tickformat": ".0%", "title": {"text": "busy"}},
    }
    caption = "The resource that reaches 100% first saturates."
    return Chart("busy", "Utilization against workers", caption, {"data": data, "layout": layout})


def sizes_curve(curve: Saturation) -> Chart:
    """Throughput against the number of what the exchange can have more of, as servers."""
    plans = [scored for _, scored in curve.sizes]
    words = plans[0].plan.exchange.labels()
    data = [
        {
            "type": "bar",
            "x": [count for count, _ in curve.sizes],
            "y": [scored.samples_per_s for scored in plans],
            "text": [scored_words(scored) for scored in plans],
            "textposition": "none",
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"color": ["@c1" if n == curve.size_advised else "@faint" for n, _ in curve.sizes]},
        }
    ]
    layout = {
        "height": 320,
        "bargap": 0.5,
        "xaxis": {"title": {"text": f"{words.size_noun}s"}, "dtick": 1},
        "yaxis": {"title": {"text": "samples/s"}, "rangemode": "tozero"},
    }
    workers = plans[0].plan.workers
    need = curve.size_advised
    pays = (
        "How many pay off is within the error." if need is None else f"Coloured: {need}, as many as pay off."
    )
    best = f" under its best {words.size_choice}" if words.size_choice else ""
    caption = f"With {count(workers, 'worker')}, each number of {words.size_noun}s{best}. {pays}"
    title = f"Throughput against {words.size_noun}s"
    return Chart("servers", title, caption, {"data": data, "layout": layout}, False)


def _marked(name: str, points: Sequence[SaturationPoint], meta: str, colour: str) -> Spec:
    """Points of the curve that stand out; `meta` is how a terminal draws them."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [point.workers for point in points],
        "y": [point.scored.samples_per_s for point in points],
        "hoverinfo": "skip",
        "marker": {"symbol": "circle-open", "size": 16, "color": colour, "line": {"width": 3}},
        "meta": meta,
    }


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
