"""The page of `planner order`: what each order brings, and one step without and with the best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from planner.policy import Mode
from planner.report.charts import LEGEND
from planner.report.charts_step import step_timeline
from planner.report.orders import order_table
from planner.report.page import Chart, Page, Spec, label
from planner.units import format_seconds

if TYPE_CHECKING:
    from planner.answers.order_request import OrderAnswer
    from planner.answers.orders import OrderComparison


def order_page(answer: OrderAnswer, command: str = "") -> Page:
    """The page of an answer about orders."""
    comparison = answer.comparison
    table = order_table(comparison, answer.title, answer.request.barrier, answer.tuned)
    first = comparison.results[0]
    best = max(comparison.results, key=lambda result: result.samples_per_s)
    steps = [_step(answer, first.strategy, "step", f"One step with {first.strategy}")]
    if best is not first:
        steps.append(_step(answer, best.strategy, "best", f"One step with {best.strategy}, the fastest"))
    return Page(
        f"planner order: {answer.title}",
        table.notes[0],
        [
            ("fastest order", best.strategy),
            ("samples/s", f"{best.samples_per_s:,.4g}"),
            (f"against {first.strategy}", f"{best.gain:+.1%}"),
            ("step", format_seconds(best.step_s)),
            ("no order beats", f"{comparison.ideal_samples_per_s:,.4g} samples/s"),
        ],
        charts=[_throughput(comparison), _measures(comparison), _waiting(comparison), *steps],
        tables=[replace(table, notes=())],
        assumptions=[
            (
                "Compute",
                f"{answer.profile.source or 'synthesized from the catalogue'} ({answer.profile.basis}).",
            ),
            *(("", note) for note in table.notes[1:]),
        ],
        command=command,
    )


def _step(answer: OrderAnswer, strategy: str, key: str, title: str) -> Chart:
    from planner.answers.timeline import traced
    from planner.simulator.simulate import Case

    schedule = answer.comparison.schedules[strategy]
    mode = cast(Mode, answer.request.mode)
    case = Case(profile=schedule.profile, cluster=answer.cluster, policy=schedule.policy, mode=mode)
    return step_timeline(traced(case, seed=answer.request.seed, steps=1), key, title)


def _bars(name: str, values: list[float], colour: str, hover: str) -> Spec:
    return {
        "type": "bar",
        "name": name,
        "y": values,
        "hovertemplate": f"%{{x}}: {hover}<extra></extra>",
        "marker": {"color": colour},
    }


def _throughput(comparison: OrderComparison) -> Chart:
    results = comparison.results
    names = [label(result.strategy) for result in results]
    ideal = comparison.ideal_samples_per_s
    bars = {
        **_bars("simulated", [r.samples_per_s for r in results], "@c1", "%{y:,.4~g} samples/s, %{text}"),
        "x": names,
        "text": [f"{r.gain:+.1%}" for r in results],
        "textposition": "inside",
        "insidetextanchor": "start",
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [r.samples_per_s_high - r.samples_per_s for r in results],
            "arrayminus": [r.samples_per_s - r.samples_per_s_low for r in results],
            "color": "@ink",
            "thickness": 1.5,
        },
    }
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "no order can beat this",
        "x": names,
        "y": [ideal] * len(names),
        "line": {"color": "@c2", "dash": "dash", "width": 2},
        "hovertemplate": "at most %{y:,.4~g} samples/s<extra></extra>",
    }
    layout = {
        "height": 360,
        "bargap": 0.4,
        "xaxis": {"title": {"text": ""}},
        "yaxis": {"title": {"text": "samples/s"}, "rangemode": "tozero"},
        "legend": LEGEND,
    }
    caption = f"In each bar: its gain over {results[0].strategy}. Intervals as simulated."
    return Chart("orders", "Throughput of each order", caption, {"data": [bars, line], "layout": layout})


def _measures(comparison: OrderComparison) -> Chart:
    results = comparison.results
    names = [label(result.strategy) for result in results]
    data = [
        {**_bars("efficiency E", [r.efficiency for r in results], "@c1", "E = %{y:.2f}"), "x": names},
        {**_bars("overlap alpha", [r.overlap for r in results], "@c3", "alpha = %{y:.2f}"), "x": names},
    ]
    low = min(0.0, *(r.overlap for r in results))
    layout = {"height": 320, "xaxis": {}, "yaxis": {"range": [max(low, -1.0), 1.05]}, "legend": LEGEND}
    caption = "1 is the best that can be: every byte travels while something computes. Bars below -1 are cut."
    return Chart("measures", "Efficiency and overlap", caption, {"data": data, "layout": layout}, wide=False)


def _waiting(comparison: OrderComparison) -> Chart:
    results = comparison.results
    names = [label(result.strategy) for result in results]
    share = [r.wait_s / r.step_s for r in results]
    data = [
        {**_bars("device idle", share, "@c4", "idle %{y:.1%} of a step"), "x": names},
        {
            **_bars("waiting for the slowest", [r.straggler_share for r in results], "@c5", "waits %{y:.1%}"),
            "x": names,
        },
    ]
    axis = {"rangemode": "tozero", "tickformat": ".0%", "title": {"text": "of a step"}}
    layout = {"height": 320, "xaxis": {}, "yaxis": axis, "legend": LEGEND}
    caption = "How long a worker's device has nothing to do, and how long it waits for the slowest worker."
    return Chart("waiting", "Waiting", caption, {"data": data, "layout": layout}, wide=False)
