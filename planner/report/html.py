"""`--html`: each answer as a page that says it in a sentence and shows it in charts.

`page_of(result)` makes the page, `write_html(result, path)` writes it whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.note import Note
from planner.report import charts, charts_curves
from planner.report.answer_words import busiest, rate, resource_words, usd
from planner.report.answers import tables_of
from planner.report.charts_step import step_timeline
from planner.report.decision import cost_words
from planner.report.output import Section, Table
from planner.report.page import Chart, Figure, Page, write_page
from planner.report.what_if import what_if
from planner.units import format_seconds

if TYPE_CHECKING:
    from planner.answers.questions import Simulation
    from planner.answers.results import Comparison, Recommendation, Saturation
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan

MOST_BARS = 12


def write_html(result: Any, path: Path | str, command: str = "") -> None:
    """Write the report of a result; `command` is shown as the way to get it again."""
    write_page(page_of(result, command), path)


def page_of(result: Any, command: str = "") -> Page:
    """The page of any of the answers."""
    from planner.answers.questions import Simulation
    from planner.answers.results import Comparison, Recommendation, Saturation
    from planner.answers.sweep import SweepResult
    from planner.servers.order_request import OrderAnswer

    if isinstance(result, SweepResult):
        from planner.report.html_tables import sweep_page

        return sweep_page(result, command)
    if isinstance(result, OrderAnswer):
        from planner.servers.report.html_order import order_page

        return order_page(result, command)
    kinds: dict[type, Callable[[Any], Page]] = {
        Recommendation: _recommendation,
        Comparison: _comparison,
        Saturation: _saturation,
        Simulation: _simulation,
    }
    page = kinds[type(result)](result)
    tables = tables_of(result)
    return replace(
        page,
        answer=tables[0].title,
        tables=[_whole(tables[0], page.tables[0].title), *(t for t in tables[1:] if t.rows)],
        assumptions=[
            *((Section.LOOKED_AT.value, str(note)) for note in _notes(tables, Section.LOOKED_AT)),
            *(_headed(note) for note in _notes(tables, Section.ASSUMED)),
        ],
        next=list(map(str, _notes(tables, Section.NEXT))),
        command=command,
    )


def _notes(tables: Sequence[Table], section: Section) -> list[str | Note]:
    return [note for table in tables if table.section is section for note in table.notes]


def _headed(note: str | Note) -> tuple[str, str]:
    """What a sentence is about and what it says."""
    return (note.heading, note.text) if isinstance(note, Note) else ("", note)


def _whole(table: Table, title: str) -> Table:
    """The table with every row: a page can sort and fold what a screen has no room for."""
    shown = {row.get("cluster") for row in table.rows}
    more = [row for row in table.records if "_run" in row and row["cluster"] not in shown]
    return replace(table, rows=[*table.rows, *more], title=title, rest=None if more else table.rest)


def _figures(one: ScoredPlan, request: Request) -> list[Figure]:
    """The plan in boxes: how fast, what the job takes and costs, what limits."""
    from planner.answers.jobs import training_of

    training, top = training_of(request), one.prediction.bottleneck
    low, high = one.range or (one.samples_per_s, one.samples_per_s)
    sure = one.range is not None
    out = [
        Figure(
            "samples/s",
            rate(one.samples_per_s),
            f"{rate(low)} to {rate(high)} in nine of ten runs" if sure else "",
        )
    ]
    if training is not None:
        took, cost = training.seconds(one), training.usd(one)
        times = [one.samples_per_s / high, one.samples_per_s / low]
        between = "{} to {}".format(*(format_seconds(took * by) for by in times)) if sure else ""
        out.append(Figure(training.words, format_seconds(took), between))
        if cost is not None:
            between = "${} to ${}".format(*(usd(cost * by) for by in times)) if sure else ""
            out.append(Figure("it costs", f"${usd(cost)}", between))
    if one.priced:
        price, _, unit = cost_words(one).partition(" ")
        out.append(Figure(unit, price))
        out.append(Figure("an hour", f"${one.usd_per_hour:,.2f}"))
    used = one.prediction.utilisation.get(top, 0.0)
    return [*out, Figure(busiest(one), f"{used:.0%}", resource_words(top, one.plan))]


def _step(request: Any, one: ScoredPlan) -> Chart:
    from planner.answers.timeline import timeline_of

    return step_timeline(timeline_of(request, one.plan, steps=1))


def _bars(plans: Sequence[ScoredPlan], wanted: Sequence[ScoredPlan] = ()) -> list[ScoredPlan]:
    """A few plans for bars: those wanted, then the cheapest, in the order of cost."""
    kept = list({one.plan.key: one for one in [*wanted, *plans]}.values())[:MOST_BARS]
    return sorted(kept, key=lambda one: (one.usd_per_million_samples, one.plan.key))


def every_plan(
    result: Recommendation | Comparison,
    chosen: ScoredPlan,
    marked: Sequence[ScoredPlan],
    beside: Sequence[ScoredPlan] = (),
) -> Chart:
    """The front with every plan that was looked at, each once."""
    drawn = {one.plan.key: one for one in [*result.everything, *marked, chosen]}
    others = {one.plan.key: one for one in beside if one.plan.key not in drawn}
    known = drawn.keys() | others.keys()
    return charts.pareto(
        list(drawn.values()),
        [one for one in result.bounded if one[0].key not in known],
        [one for one in result.screened if one.plan.key not in known],
        chosen=chosen,
        marked=marked,
        beside=list(others.values()),
    )


def beside(result: Recommendation) -> list[ScoredPlan]:
    """What was simulated to say how the choice scales and what to change next."""
    curve = [] if result.saturation is None else [point.scored for point in result.saturation.points]
    return [*curve, *(change.scored for change in result.changes)]


def _recommendation(result: Recommendation) -> Page:
    one = result.chosen
    bars = _bars(result.plans, [one, *(plan for plan in result.plans if plan.marks)])
    pictures = [every_plan(result, one, result.plans, beside(result))]
    if result.saturation is not None:
        pictures.append(charts_curves.workers_curve(result.saturation))
    pictures += [
        charts.cost_split(bars, [b.plan.cluster_text for b in bars], wide=True),
        charts.utilisation(one, wide=True),
        _step(result.request, one),
    ]
    return Page(
        f"planner recommend: {one.plan.model}",
        "",
        _figures(one, result.request),
        what_if=what_if(
            [one, *result.plans, *result.everything, *beside(result)],
            result.request,
            goal=result.request.goal,
        ),
        charts=pictures,
        tables=[Table([], title="Plans")],
    )


def _unmarked(result: Comparison) -> Comparison:
    """A comparison marks the best plans of every machine, which among all plans they are not."""
    plans = [replace(one, marks=()) for one in [*result.everything, *result.rows]]
    return replace(result, everything=plans)


def _comparison(result: Comparison) -> Page:
    best, goal = result.chosen, result.request.goal
    return Page(
        f"planner compare: {best.plan.model}",
        "",
        _figures(best, result.request),
        what_if=what_if([*result.rows, *result.everything], result.request, goal=goal),
        charts=[
            every_plan(_unmarked(result), replace(best, marks=("choice",)), ()),
            charts.cost_split(result.rows, [row.plan.cluster_text for row in result.rows], wide=True),
            charts.utilisation(best, wide=True),
            _step(result.request, best),
        ],
        tables=[Table([], title="The best plan of each machine")],
    )


def _saturation(result: Saturation) -> Page:
    points = result.points
    at = result.chosen
    bars = [p.scored for p in points]
    pictures = [charts_curves.workers_curve(result)]
    if result.sizes:
        pictures.append(charts_curves.sizes_curve(result))
    pictures += [
        replace(charts.utilisation(at.scored), title=f"How busy each resource is at {_count(at.workers)}"),
        charts_curves.utilisation_curve(result),
    ]
    if at.scored.priced:
        pictures.append(charts.pareto(bars, chosen=at.scored))
        pictures.append(charts.cost_split(bars, [_count(p.workers) for p in points], wide=True))
    pictures.append(_step(result.request, at.scored))
    return Page(
        f"planner saturation: {points[0].scored.plan.model}",
        "",
        [Figure("saturates at", _count(result.saturation_workers)), *_figures(at.scored, result.request)],
        what_if=what_if([*bars, *(one for _, one in result.sizes)], result.request),
        charts=pictures,
        tables=[Table([], title="Throughput against workers")],
    )


def _count(workers: int | None) -> str:
    return "not reached" if workers is None else f"{workers} worker{'s' if workers != 1 else ''}"


def _simulation(result: Simulation) -> Page:
    one = result.scored
    return Page(
        f"planner simulate: {one.plan.model}",
        "",
        _figures(one, result.request),
        charts=[
            *([charts.cost_split([one], [one.plan.cluster_text])] if one.priced else []),
            charts.utilisation(one),
            _step(result.request, one),
        ],
        tables=[Table([], title="Figures")],
    )
