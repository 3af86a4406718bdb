"""The table of `planner order`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from planner.parallel.data import AllReduce
from planner.report.output import Column, Table
from planner.servers.ordering import STRATEGIES
from planner.servers.orders import OrderComparison
from planner.servers.tune import Tuned
from planner.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from planner.servers.order_request import OrderAnswer

COLUMNS = (
    Column("_choice", "", style="bold green"),
    Column("strategy", "order"),
    Column("step_s", "step", format_seconds, align="right"),
    Column("samples_per_s", "samples/s", lambda v: f"{v:.1f}", align="right"),
    Column("gain", "gain", lambda v: f"{v:+.1%}", align="right"),
    Column("efficiency", "efficiency", lambda v: f"{v:.2f}", align="right"),
    Column("overlap", "overlap", lambda v: f"{v:.2f}", align="right"),
    Column("straggler_share", "waits for others", lambda v: f"{v:.1%}", align="right"),
    Column("wait_s", "device idle", format_seconds, align="right"),
)


def rows(comparison: OrderComparison) -> list[dict[str, Any]]:
    """One row a strategy, and the ideal."""
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


def order_table(comparison: OrderComparison, title: str, barrier: bool, tuned: Tuned | None = None) -> Table:
    """For people: strategies, the ideal, and whether ordering can help."""
    busy = ", ".join(f"{r} {format_seconds(s)}" for r, s in comparison.bounds.resource_s.items())
    running = (
        "A barrier ends each step (TensorFlow)."
        if barrier
        else "A tensor is downloaded as soon as it is updated (MXNet, BytePS); --barrier for TensorFlow."
    )
    notes = [f"{running} A step keeps busy: {busy}.", AllReduce.unordered]
    if tuned is not None:
        sizes = f"{format_bytes(tuned.partition_bytes)} partitions, {format_bytes(tuned.credit_bytes)} credit"
        notes.append(f"ByteScheduler after {len(tuned.trials)} simulations: {sizes}.")
    return Table(rows(comparison), COLUMNS, f"{comparison.sentence()}\n{title}.", notes)


def answer_tables(answer: OrderAnswer) -> list[Table]:
    """The tables of an answer about orders."""
    return [order_table(answer.comparison, answer.title, answer.request.barrier, answer.tuned)]


def _summary(name: str) -> str:
    return STRATEGIES[name].summary if name in STRATEGIES else "the order of your file"
