"""A table as HTML, for pages and notebooks: figures to the right, the choice marked, values to sort by.

On a page `assets/tables.js` makes the headings into buttons that sort, and folds what is long; without it the
whole table stands there. On a narrow screen a row becomes a card, whose names come from `data-label`, and
roles keep it a table for those who hear it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from planner.report.output import CHOICE, Column, Table

FEW_COLUMNS = 3  # fit on a telephone as they are
CROWDED = 9  # columns, beyond which words and figures may break into lines
SHORT, LONG = 22, 14  # characters: a cell that stays on one line of a screen; one that is long for a card
SPARE = 3  # of a column (`Column.spare`) that a crowded table does without where it would have to be scrolled
BAR = "#4a86d0"  # seen on black and on white
_LEADING = re.compile(r"[-+]?\$?\s*([\d,]*\.?\d+(?:e[-+]?\d+)?)", re.IGNORECASE)


def table_html(table: Table) -> str:
    """The rows and columns of a table; its title and notes are the page's."""
    columns = table.shown()
    kinds = [kind_of(column, table.rows) for column in columns]
    head = "".join(
        f'<th role="columnheader" scope="col" class="{kind}">{escape(column.heading)}</th>'
        for column, kind in zip(columns, kinds, strict=True)
    )
    body = "\n".join(
        f'<tr role="row"{_chosen(row)}>'
        + "".join(_cell(column, row, kind) for column, kind in zip(columns, kinds, strict=True))
        + "</tr>"
        for row in table.rows
    )
    kind = f' class="{size_of(len(columns))}"' if len(columns) > FEW_COLUMNS else ""
    return (
        f'<table role="table"{kind}><thead role="rowgroup"><tr role="row">{head}</tr></thead>\n'
        f'<tbody role="rowgroup">{body}</tbody></table>'
    )


def size_of(columns: int) -> str:
    """How a table of more than a few columns is set: cards on a telephone; closer where it is crowded."""
    return "many crowded" if columns > CROWDED else "many"


def sort_value(column: Column, row: Mapping[str, Any], figure: bool) -> float | None:
    """The number that a cell is sorted by: its value, or what a figure begins with; None for words."""
    value = row.get(column.key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _LEADING.match(column.cell(row)) if figure else None
    if found is None:
        return None
    return float(found[1].replace(",", "")) * (-1 if found[0].startswith("-") else 1)


def kind_of(column: Column, rows: Sequence[Mapping[str, Any]]) -> str:
    """How a column is set: a figure, words that stay on one line, words that need room, names that break last
    of all, or a mere sign; and whether a narrower window does without it."""
    spare = column.spare >= SPARE
    if column.side(rows) == "right":
        return "number spare" if spare else "number"
    longest = max(len(column.cell(row)) for row in rows)
    if longest <= 1 and not column.heading:
        return "sign"
    kinds = (
        ("short", longest <= SHORT),
        ("long", longest > LONG),
        ("name", column.whole),
        ("spare", spare),
    )
    return " ".join(word for word, holds in kinds if holds)


def _cell(column: Column, row: Mapping[str, Any], kind: str) -> str:
    number = sort_value(column, row, kind.startswith("number"))
    value = "" if number is None else f' data-value="{number:.12g}"'
    name = f' data-label="{escape(column.heading)}"' if column.heading else ""
    return f'<td role="cell" class="{kind}"{name}{value}>{_inside(column.cell(row))}</td>'


def _inside(text: str) -> str:
    """What a cell shows: a bar of characters, as a terminal needs it, becomes one of the page."""
    if not text or set(text) != {"█"}:
        return escape(text)
    look = f"display:inline-block;height:0.75em;width:{0.6 * len(text):.1f}em;background:{BAR}"
    return f'<span aria-hidden="true" style="{look}"></span>'


def _chosen(row: Mapping[str, Any]) -> str:
    return ' class="choice"' if row.get("_choice") == CHOICE else ""
