"""The page of `planner order`: what each order brings, and one step without and with the best."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from planner.note import Note, Topic
from planner.report.charts import row_axis
from planner.report.charts_curves import step_timeline
from planner.report.page import Chart, Column, Figure, Page, Picture, Spec, Table, label
from planner.servers.order_request import Tuned
from planner.servers.ordering import STRATEGIES
from planner.servers.orders import UNORDERED, OrderComparison
from planner.simulator.policy import Mode
from planner.units import format_bytes, format_seconds, rate

if TYPE_CHECKING:
    from planner.servers.order_request import OrderAnswer


COLUMNS = (
    Column("_choice", "", style="bold green"),
    Column("strategy", "order"),
    Column("step_s", "step", format_seconds, align="right"),
    Column("samples_per_s", "samples/s", rate, align="right"),
    Column("gain", "gain", lambda v: f"{v:+.1%}", align="right"),
    Column("efficiency", "efficiency", lambda v: f"{v:.2f}", align="right"),
    Column("overlap", "overlap", lambda v: f"{v:.2f}", align="right"),
    Column("straggler_share", "waits for others", lambda v: f"{v:.1%}", align="right"),
    Column("wait_s", "device idle", format_seconds, align="right"),
)


def rows(comparison: OrderComparison) -> list[dict[str, Any]]:
    """One row per strategy, and the ideal."""
    best = max(comparison.results, key=lambda result: result.samples_per_s)
    out = [
        asdict(result) | {"summary": _summary(result.strategy), "_choice": ">" if result is best else ""}
        for result in comparison.results
    ]
    ideal = {
        "strategy": "(ideal)",
        "step_s": comparison.ideal_step_s,
        "samples_per_s": comparison.ideal_samples_per_s,
        "gain": comparison.ideal_samples_per_s / comparison.results[0].samples_per_s - 1,
        "efficiency": 1.0,
        "overlap": 1.0,
        "summary": "the busiest resource: no order can beat it",
        "_choice": "",
    }
    return [*out, ideal]


def order_table(comparison: OrderComparison, barrier: bool, tuned: Tuned | None = None) -> Table:
    """Table of strategies and the ideal, with whether ordering can help."""
    busy = ", ".join(f"{r} {format_seconds(s)}" for r, s in comparison.bounds.resource_s.items())
    running = (
        "A barrier ends each step (TensorFlow)."
        if barrier
        else "A tensor is downloaded as soon as it is updated (MXNet, BytePS); --barrier for TensorFlow."
    )
    notes = [f"{running} A step keeps busy: {busy}.", UNORDERED["allreduce"]]
    if tuned is not None:
        sizes = f"{format_bytes(tuned.partition_bytes)} partitions, {format_bytes(tuned.credit_bytes)} credit"
        notes.append(f"ByteScheduler after {len(tuned.trials)} simulations: {sizes}.")
    return Table(rows(comparison), COLUMNS, notes=notes)


def _summary(name: str) -> str:
    return STRATEGIES[name].summary if name in STRATEGIES else "the order of your file"


def order_page(answer: OrderAnswer, *, energy: bool = False) -> Page:
    """The page of an answer about orders."""
    comparison = answer.comparison
    table = order_table(comparison, answer.request.barrier, answer.tuned)
    first = comparison.results[0]
    best = max(comparison.results, key=lambda result: result.samples_per_s)
    pictures = [
        Picture(lambda: throughput(comparison)),
        Picture(lambda: _measures(comparison), still=False),
        Picture(lambda: _waiting(comparison), still=False),
        _step(answer, first.strategy, "step", f"One step with {first.strategy}"),
    ]
    if best is not first:
        pictures.append(_step(answer, best.strategy, "best", f"One step with {best.strategy}, the fastest"))
    source = answer.profile.source or "synthesized from the catalogue"
    return Page(
        f"planner order: {answer.title}",
        headline=comparison.sentence(),
        facts=[[f"{answer.title}."]],
        tables=[table],
        assumptions=[Note(Topic.COMPUTE, f"{source} ({answer.profile.basis}).")],
        figures=[
            Figure("fastest order", best.strategy),
            Figure("samples/s", rate(best.samples_per_s)),
            Figure(f"against {first.strategy}", f"{best.gain:+.1%}"),
            Figure("step", format_seconds(best.step_s)),
            Figure("upper bound", f"{rate(comparison.ideal_samples_per_s)} samples/s"),
        ],
        pictures=lambda: pictures,
    )


def _step(answer: OrderAnswer, strategy: str, key: str, title: str) -> Picture:
    from planner.answers.timeline import traced
    from planner.simulator.simulate import Case

    schedule = answer.comparison.schedules[strategy]
    mode = cast(Mode, answer.request.mode)
    case = Case(profile=schedule.profile, cluster=answer.cluster, policy=schedule.policy, mode=mode)
    seed = answer.request.seed
    return Picture(lambda: step_timeline(traced(case, seed=seed, steps=1), key, title), still=False)


def _bars(name: str, values: list[float], colour: str, hover: str) -> Spec:
    """One horizontal bar per order, from the top."""
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
    """Layout of horizontal bars labelled with the orders."""
    names = [label(result.strategy) for result in comparison.results]
    return {"height": 100 + 34 * len(names), "bargap": 0.3, "yaxis": row_axis(names), **more}


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
        "name": "upper bound of any order",
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
    caption = "1 is ideal: every byte travels while something computes. Bars below -1 are cut."
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
