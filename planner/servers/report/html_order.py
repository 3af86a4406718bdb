"""The page of `planner order`: what each order brings, and one step without and with the best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from planner.report.answer_words import rate
from planner.report.charts_step import step_timeline
from planner.report.page import Chart, Figure, Page, Spec, label
from planner.servers.report.orders import order_table
from planner.simulator.policy import Mode
from planner.units import format_seconds

if TYPE_CHECKING:
    from planner.servers.order_request import OrderAnswer
    from planner.servers.orders import OrderComparison


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
        table.title,
        [
            Figure("fastest order", best.strategy),
            Figure("samples/s", rate(best.samples_per_s)),
            Figure(f"against {first.strategy}", f"{best.gain:+.1%}"),
            Figure("step", format_seconds(best.step_s)),
            Figure("no order beats", f"{rate(comparison.ideal_samples_per_s)} samples/s"),
        ],
        charts=[throughput(comparison), _measures(comparison), _waiting(comparison), *steps],
        tables=[replace(table, title="Orders", notes=())],
        assumptions=[
            (
                "Compute",
                f"{answer.profile.source or 'synthesized from the catalogue'} ({answer.profile.basis}).",
            ),
            *(("", note) for note in table.sentences),
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
    """A bar for each order, from the top; names stand beside them, which fits on any screen."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": values,
        "y": list(range(len(values))),
        "hovertemplate": f"{hover}<extra></extra>",
        "marker": {"color": colour},
    }


def _rows(comparison: OrderComparison, **more: Spec) -> Spec:
    """The layout of bars with the orders' names beside them."""
    names = [label(result.strategy) for result in comparison.results]
    axis = {
        "autorange": "reversed",
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": names,
        "showgrid": False,
    }
    return {"height": 100 + 34 * len(names), "bargap": 0.3, "yaxis": axis, **more}


def throughput(comparison: OrderComparison) -> Chart:
    results = comparison.results
    ideal = comparison.ideal_samples_per_s
    hover = "%{customdata}: %{x:,.4~g} samples/s, %{text}"
    bars = {
        **_bars("simulated", [r.samples_per_s for r in results], "@c1", hover),
        "customdata": [label(r.strategy) for r in results],
        "text": [f"{r.gain:+.1%}" for r in results],
        "textposition": "inside",
        "insidetextanchor": "start",
        "error_x": {
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
        "x": [ideal, ideal],
        "y": [-0.5, len(results) - 0.5],
        "line": {"color": "@c2", "dash": "dash", "width": 2},
        "hovertemplate": "at most %{x:,.4~g} samples/s<extra></extra>",
    }
    layout = _rows(comparison, xaxis={"title": {"text": "samples/s"}, "rangemode": "tozero"})
    caption = f"In each bar: its gain over {results[0].strategy}. Intervals as simulated."
    return Chart("orders", "Throughput of each order", caption, {"data": [bars, line], "layout": layout})


def _measures(comparison: OrderComparison) -> Chart:
    results = comparison.results
    data = [
        _bars("efficiency", [r.efficiency for r in results], "@c1", "efficiency %{x:.2f}"),
        _bars("overlap", [r.overlap for r in results], "@c3", "overlap %{x:.2f}"),
    ]
    low = min(0.0, *(r.overlap for r in results))
    layout = _rows(comparison, xaxis={"range": [max(low, -1.0), 1.05]})
    caption = "1 is the best that can be: every byte travels while something computes. Bars below -1 are cut."
    return Chart("measures", "Efficiency and overlap", caption, {"data": data, "layout": layout}, wide=False)


def _waiting(comparison: OrderComparison) -> Chart:
    results = comparison.results
    share = [r.wait_s / r.step_s for r in results]
    data = [
        _bars("device idle", share, "@c4", "idle %{x:.1%} of a step"),
        _bars("waiting for the slowest", [r.straggler_share for r in results], "@c5", "waits %{x:.1%}"),
    ]
    axis = {"rangemode": "tozero", "tickformat": ".0%", "title": {"text": "of a step"}}
    caption = "How long a worker's device has nothing to do, and how long it waits for the slowest worker."
    layout = _rows(comparison, xaxis=axis)
    return Chart("waiting", "Waiting", caption, {"data": data, "layout": layout}, wide=False)
