"""The rows of `planner validate` as tables, as data and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import planner
from planner.report.output import Format
from planner.report.page import Column, Table
from planner.validation.row import Row, Value

FEW_SOURCES = 2
WIDEST = 10_000  # above which a figure is shown without decimals


def summary(rows: Sequence[Row]) -> str:
    """All rows in a sentence or two."""
    held = sum(row.holds for row in rows)
    broken = [row for row in rows if not row.as_claimed]
    better = [row for row in rows if row.holds and row.known]
    share = held / len(rows) if rows else 1.0
    text = f"{held} of {len(rows)} rows hold ({share:.0%})"
    if known := len(rows) - held - len(broken):
        text += f"; listed as not holding, with the reason: {known}"
    text += f"; failing although claimed to hold: {len(broken)}" if broken else ""
    text += f"; holding although listed as failing: {len(better)}" if better else ""
    return text + "."


def validation_tables(rows: Sequence[Row], format: Format = Format.table) -> list[Table]:
    """A table a check for people; one with every row for programs."""
    if format is Format.csv:
        return [Table([row.record() for row in rows])]
    end = Table([], notes=[*_unexpected(rows), f"planner {planner.__version__}: {summary(rows)}"])
    checks = [
        _check_table(str(check), list(found)) for check, found in groupby(rows, key=lambda row: row.name.of)
    ]
    return [*checks, end]


def _unexpected(rows: Sequence[Row]) -> list[str]:
    """The rows that do otherwise than is said of them, one a line."""
    return [
        f"{row.name} {row.status}: {figure(row.published, row.unit)}, ours {figure(row.ours, row.unit)}, "
        f"claimed: {row.claim}."
        for row in rows
        if not row.as_claimed or (row.holds and row.known)
    ]


def rows_data(rows: Sequence[Row]) -> dict[str, Any]:
    """For JSON."""
    return {
        "version": planner.__version__,
        "rows": [row.record() | {"status": row.status} for row in rows],
        "held": sum(row.holds for row in rows),
        "as_claimed": all(row.as_claimed for row in rows),
    }


def write_validation_html(rows: Sequence[Row], path: Path) -> None:
    """A page with every table."""
    from planner.files.atomic import write_file
    from planner.report.html import render_page
    from planner.report.page import Page

    page = Page(
        title="Validation: published and measured figures beside ours",
        headline=summary(rows),
        tables=validation_tables(rows)[:-1],
        command="planner validate",
    )
    write_file(path, render_page(page))


def _check_table(key: str, rows: Sequence[Row]) -> Table:
    notes = [f"How: {'; '.join(dict.fromkeys(row.how for row in rows))}."]
    notes += [f"Source: {_sources(rows)}."]
    for row in rows:
        if row.status != "holds":
            why = f": {row.reason}" if row.reason else ""
            notes.append(f"{row.what} {row.status}{why}.")
    shown = [
        asdict(row)
        | {
            "_published": figure(row.published, row.unit),
            "_ours": figure(row.ours, row.unit),
            "_error": row.error,
            "_status": "yes" if row.holds else "NO",
        }
        for row in rows
    ]
    return Table(
        shown,
        [
            Column("what", "What"),
            Column("_published", "Published or measured", align="right"),
            Column("_ours", "Ours", align="right"),
            Column("_error", "Error", lambda error: f"{error:+.1%}", align="right"),
            Column("claim", "Claim"),
            Column("_status", "Holds"),
        ],
        title=key,
        notes=notes,
    )


def _sources(rows: Sequence[Row]) -> str:
    """The sources of a check; many files of a few places are told by their places."""
    each = list(dict.fromkeys(row.source for row in rows))
    if len(each) <= FEW_SOURCES:
        return "; ".join(each)
    places = dict.fromkeys(source.split()[0] for source in each)
    return f"{', '.join(places)} (each row's own stands in --format csv)"


def figure(value: Value, unit: str) -> str:
    """A figure with its unit, in as many digits as tell something."""
    if isinstance(value, str):
        return value
    digits = f"{value:,.0f}" if abs(value) >= WIDEST or value == int(value) else f"{value:.4g}"
    return f"{digits}{'' if unit in ('', '%') else ' '}{unit}"
