"""Pages of answers that are tables: sweeps, partitions, differences, checks, machines and prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.report import charts
from planner.report.output import Table
from planner.report.page import Chart, Figure, Page, Spec, label, write_page
from planner.report.what_if import what_if
from planner.units import format_seconds

if TYPE_CHECKING:
    from planner.answers.sweep import SweepResult

MOST_ROWS = 2000  # of a table; JSON and CSV have all
MOST_CHARTS = 4


def write_tables(tables: Table | Sequence[Table], path: Path | str, title: str, command: str = "") -> None:
    """Write tables as a page."""
    write_page(tables_page([tables] if isinstance(tables, Table) else tables, title, command), path)


def tables_page(tables: Sequence[Table], title: str, command: str = "") -> Page:
    """A page of tables: what the first one is called is the answer, and tables of words alone are notes."""
    first, *others = [_cut(table) for table in tables]
    words = [table for table in others if not table.rows]
    return Page(
        title,
        first.title or title,
        next=[
            *(() if first.rows else first.sentences),
            *(note for one in words for note in (one.title, *one.sentences)),
        ],
        tables=[replace(first, title=""), *(table for table in others if table.rows)],
        command=command,
    )


def sweep_page(result: SweepResult, command: str = "") -> Page:
    """Every plan of a sweep: cost against speed for each model, sliders, and a table that sorts."""
    from planner.report.sweep import sweep_tables

    table = sweep_tables(result)[0]
    models = list(dict.fromkeys(one.plan.model for one in result.rows))
    pictures = []
    for place, model in enumerate(models[:MOST_CHARTS]):
        priced = [one for one in result.rows if one.priced and one.plan.model == model]
        if len(priced) > 1:
            chart = charts.pareto(priced)
            alone = len(models) == 1
            title = chart.title if alone else f"{chart.title}: {model}"
            pictures.append(replace(chart, key="pareto" if alone else f"pareto-{place}", title=title))
    page = tables_page([table], "planner sweep", command)
    sliders = {}
    if len(models) == 1 and result.request is not None:
        sliders = what_if(result.rows, result.request, goal="cheapest")
    best = min(result.rows, key=lambda one: one.usd_per_million_samples)
    return replace(
        page,
        figures=[
            Figure("plans scored", f"{len(result.rows):,}", f"of {result.total:,}"),
            Figure("models", f"{len(models):,}"),
            Figure("machines", f"{len({one.plan.machine for one in result.rows}):,}"),
            Figure("the cheapest a sample", best.plan.machine, best.plan.cluster_text),
        ],
        what_if=sliders,
        charts=pictures,
    )


def partition_page(tables: Sequence[Table], model: str, command: str = "") -> Page:
    """A partition: where the time of an epoch goes, and of each layer."""
    split, layers, plans = tables
    parts = [row for row in split.rows if row["part"] != "epoch"]
    page = tables_page([replace(plans, notes=()), split, layers], f"planner partition: {model}", command)
    return replace(
        page,
        answer=split.title + ".",
        next=[*split.sentences, *plans.sentences],
        charts=[
            _stacked(
                "split", "Where the time of an epoch goes", "s", parts, ("part", "compute_s", "network_s")
            ),
            _stacked(
                "layers",
                "Where the time of a sample goes, layer by layer",
                "ms",
                layers.rows,
                ("layer", "compute_ms_per_sample", "network_ms_per_sample"),
            ),
        ],
        tables=[
            replace(plans, notes=()),
            replace(split, title="Time of an epoch", notes=()),
            layers,
        ],
    )


def _stacked(key: str, title: str, unit: str, rows: Sequence[Any], keys: tuple[str, str, str]) -> Chart:
    """A bar for each row: computation, and communication after it."""
    name, *values = keys
    data: list[Spec] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": words,
            "y": list(range(len(rows))),
            "x": [row[value] for row in rows],
            "text": [_took(row[value], unit) for row in rows],
            "textposition": "none",
            "hovertemplate": f"{words}: %{{text}}<extra></extra>",
            "marker": {"color": colour},
        }
        for value, words, colour in zip(values, ("computation", "communication"), ("@c3", "@c2"), strict=True)
    ]
    names = [str(row[name]) for row in rows]
    layout = {
        "barmode": "stack",
        "bargap": 0.3,
        "height": max(180, 110 + 26 * len(rows)),
        "xaxis": {"title": {"text": unit}},
        "yaxis": charts.row_axis([label(one) for one in names]),
    }
    total = sum(row[value] for row in rows for value in values)
    caption = f"{_took(total, unit)} in all."
    return Chart(key, title, caption, {"data": data, "layout": layout, "narrow": charts.narrow_rows(names)})


def _took(value: float, unit: str) -> str:
    return format_seconds(value if unit == "s" else value / 1e3)


def _cut(table: Table) -> Table:
    if len(table.rows) <= MOST_ROWS:
        return table
    left = f"The first {MOST_ROWS:,} of {len(table.rows):,} rows; JSON and CSV have all."
    return replace(table, rows=table.rows[:MOST_ROWS], notes=[*table.notes, left])
