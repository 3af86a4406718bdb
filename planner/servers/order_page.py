"""The page of `planner order`: what each order brings, and one step without and with the best."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from planner.note import Note, Topic
from planner.report.charts import error_bars
from planner.report.charts_curves import step_timeline_chart
from planner.report.page import Chart, Figure, Page, Picture, Table, columns_of, safe_text
from planner.report.plots import bars, rows_chart, spec
from planner.servers.order_request import TuningResult
from planner.servers.ordering import STRATEGIES
from planner.servers.orders import UNORDERED, OrderComparison
from planner.simulator.policy import Mode
from planner.units import format_bytes, format_seconds, rate

if TYPE_CHECKING:
    from planner.servers.order_request import OrderAnswer


SIDE_BY_SIDE: dict[str, Any] = {"wide": False, "barmode": "group"}  # two bars of a row


def order_rows(comparison: OrderComparison) -> list[dict[str, Any]]:
    """Rows of the comparison table: one per ordering strategy, then the ideal."""
    best = max(comparison.results, key=lambda result: result.samples_per_s)
    out = [
        asdict(result)
        | {
            "summary": getattr(STRATEGIES.get(result.strategy), "summary", "the order of your file"),
            "_choice": ">" if result is best else "",
        }
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


def order_table(comparison: OrderComparison, barrier: bool, tuned: TuningResult | None = None) -> Table:
    """Table comparing ordering strategies with the ideal; its notes say which resources a step keeps busy."""
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
    return Table(order_rows(comparison), columns_of("orders"), notes=notes)


def order_page(answer: OrderAnswer, *, energy: bool = False) -> Page:
    """Report page of `planner order`: the comparison table, charts, and timelines of single steps."""
    comparison = answer.comparison
    table = order_table(comparison, answer.request.barrier, answer.tuned)
    first = comparison.results[0]
    best = max(comparison.results, key=lambda result: result.samples_per_s)
    pictures = [
        Picture(lambda: throughput_chart(comparison)),
        Picture(lambda: _efficiency_chart(comparison)),
        Picture(lambda: _idle_time_chart(comparison)),
        _step_plot(answer, first.strategy, "step", f"One step with {first.strategy}"),
    ]
    if best is not first:
        pictures.append(
            _step_plot(answer, best.strategy, "best", f"One step with {best.strategy}, the fastest")
        )
    source = answer.profile.source or "synthesized from the catalog"
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


def _step_plot(answer: OrderAnswer, strategy: str, key: str, title: str) -> Picture:
    """Timeline of one step under an ordering strategy, simulated when the page is rendered."""
    from planner.answers.timeline import simulate_window
    from planner.simulator.simulate import Case

    schedule = answer.comparison.schedules[strategy]
    mode = cast(Mode, answer.request.mode)
    case = Case(profile=schedule.profile, cluster=answer.cluster, policy=schedule.policy, mode=mode)
    seed = answer.request.seed
    return Picture(lambda: step_timeline_chart(simulate_window(case, seed=seed, steps=1), key, title))


def throughput_chart(comparison: OrderComparison) -> Chart:
    """Bar chart of each order's simulated samples per second, and of the upper bound for all orders."""
    results = comparison.results
    ideal, speed = comparison.ideal_samples_per_s, [r.samples_per_s for r in results]
    ends = [(r.samples_per_s_low, r.samples_per_s_high) for r in results]
    simulated = bars(
        "simulated",
        speed,
        "@c1",
        "%{customdata}: %{x:,.4~g} samples/s, %{text}",
        customdata=[safe_text(r.strategy) for r in results],
        text=[f"{r.gain:+.1%}" for r in results],
        textposition="inside",
        insidetextanchor="start",
        error_x=error_bars(speed, ends, "@ink"),
    )
    line = spec(
        "line",
        name="upper bound of any order",
        x=[ideal, ideal],
        y=[-0.5, len(results) - 0.5],
        line={"color": "@c2", "dash": "dash", "width": 2},
        hovertemplate="at most %{x:,.4~g} samples/s<extra></extra>",
    )
    x = {"title": {"text": "samples/s"}, "rangemode": "tozero"}
    caption = f"In each bar: its gain over {results[0].strategy}. Intervals as simulated."
    names = [result.strategy for result in results]
    return rows_chart("orders", "Throughput of each order", caption, names=names, data=[simulated, line], x=x)


def _efficiency_chart(comparison: OrderComparison) -> Chart:
    """Bar chart of each order's efficiency and overlap."""
    results = comparison.results
    data = [
        bars("efficiency", [r.efficiency for r in results], "@c1", "efficiency %{x:.2f}"),
        bars("overlap", [r.overlap for r in results], "@c3", "overlap %{x:.2f}"),
    ]
    low = min(0.0, *(r.overlap for r in results))
    caption = "1 is ideal: every byte travels while something computes. Bars below -1 are cut."
    x = {"range": [max(low, -1.0), 1.05]}
    names = [result.strategy for result in results]
    return rows_chart(
        "measures", "Efficiency and overlap", caption, names=names, data=data, x=x, **SIDE_BY_SIDE
    )


def _idle_time_chart(comparison: OrderComparison) -> Chart:
    """Bar chart of each order's idle device time and wait for the slowest worker."""
    results = comparison.results
    idle = [r.wait_s / r.step_s for r in results]
    data = [
        bars("device idle", idle, "@c4", "idle %{x:.1%} of a step"),
        bars("waiting for the slowest", [r.straggler_share for r in results], "@c5", "waits %{x:.1%}"),
    ]
    x = {"rangemode": "tozero", "tickformat": ".0%", "title": {"text": "of a step"}}
    caption = "How long a worker's device has nothing to do, and how long it waits for the slowest worker."
    names = [result.strategy for result in results]
    return rows_chart("waiting", "Waiting", caption, names=names, data=data, x=x, **SIDE_BY_SIDE)
