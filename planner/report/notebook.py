"""An answer in a notebook: the sentences and tables of the terminal, and its charts as still pictures."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

from planner.report.answers import tables_of
from planner.report.html_table import table_html
from planner.report.output import Section, Table
from planner.report.page import Chart
from planner.report.svg import chart_svg

STYLE = """<style>
.planner-answer td, .planner-answer th { padding: 2px 8px; text-align: left; vertical-align: top; }
.planner-answer .number { text-align: right; white-space: nowrap; }
.planner-answer p { margin: 2px 0; }
.planner-answer .choice td { font-weight: bold; }
.planner-answer figure { margin: 12px 0; }
</style>"""
MOST_ROWS = 40  # of a sweep, say; the rest is in `as_dict()`


def notebook_html(result: Any) -> str:
    """A result as HTML for a notebook: the answer, its charts, what follows; what it rests on folded."""
    first, *others = tables_of(result)
    parts = [_table(first), *map(chart_svg, charts_of(result))]
    for table in others:
        if table.section is Section.ASSUMED:
            inner = _table(replace(table, title=""))
            parts.append(f"<details><summary>What this rests on</summary>{inner}</details>")
        else:
            parts.append(_table(table))
    return f'<div class="planner-answer">{STYLE}\n' + "\n".join(parts) + "</div>"


def charts_of(result: Any) -> list[Chart]:
    """The charts of an answer that need nothing simulated anew."""
    from planner.answers.questions import Simulation
    from planner.answers.results import Comparison, Recommendation, Saturation
    from planner.answers.sweep import SweepResult
    from planner.report import charts, charts_curves
    from planner.report.html import beside, every_plan
    from planner.servers.order_request import OrderAnswer
    from planner.servers.report.html_order import throughput

    match result:
        case Recommendation():
            plain = replace(result, bounded=())  # thousands of points that a still picture cannot name
            front = every_plan(plain, result.chosen, result.plans, beside(result))
            curve = result.saturation
            return [front] if curve is None else [front, charts_curves.workers_curve(curve)]
        case Comparison():
            return [every_plan(replace(result, bounded=()), result.chosen, ())]
        case Saturation():
            return [charts_curves.workers_curve(result)]
        case Simulation():
            return [charts.utilisation(result.scored)]
        case OrderAnswer():
            return [throughput(result.comparison)]
        case SweepResult():
            priced = [one for one in result.rows if one.priced]
            return [charts.pareto(priced)] if len(priced) > 1 else []
        case _:
            return []


def _table(table: Table) -> str:
    said = [f"<p><b>{escape(line)}</b></p>" for line in table.title.splitlines()]
    if table.rows:
        said.append(table_html(replace(table, rows=table.rows[:MOST_ROWS])))
        if len(table.rows) > MOST_ROWS:
            said.append(f"<p>The first {MOST_ROWS} of {len(table.rows):,} rows.</p>")
    return "".join([*said, *(f"<p>{escape(note)}</p>" for note in table.sentences)])
