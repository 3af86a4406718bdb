"""An answer in a notebook: its page as a fragment of HTML without scripts, assumptions folded.

Charts are in the page that `to_html` writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from html import escape
from typing import Any

from planner.report.html import table_html
from planner.report.page import Remark, Table, page_of

STYLE = """<style>
.planner-answer td, .planner-answer th { padding: 2px 8px; text-align: left; vertical-align: top; }
.planner-answer .number { text-align: right; white-space: nowrap; }
.planner-answer p { margin: 2px 0; }
.planner-answer .choice td { font-weight: bold; }
</style>"""
MOST_ROWS = 40  # of a sweep, say; the rest is in `as_dict()`


def notebook_html(result: Any) -> str:
    """A result as a fragment for a notebook: the sections of a page without charts, assumptions folded."""
    page = page_of(result)
    first, *others = page.tables
    parts = [f"<p><b>{escape(page.answer)}</b></p>"]
    parts += [f"<p>{escape(' · '.join(cells))}</p>" for cells in page.facts]
    parts += [_remarks(page.why), _table(first)]
    parts += [_remarks(page.then), *map(_table, others)]
    if page.assumptions:
        inner = "".join(f"<p>{escape(str(note))}</p>" for note in page.assumptions)
        parts.append(f"<details><summary>Assumptions</summary>{inner}</details>")
    return f'<div class="planner-answer">{STYLE}\n' + "\n".join(filter(None, parts)) + "</div>"


def _remarks(remarks: Iterable[Remark]) -> str:
    return "".join(
        f"<p><b>{escape(remark.label)}</b> {escape(sentence)}</p>"
        for remark in remarks
        for sentence in remark.sentences
        if sentence
    )


def _table(table: Table) -> str:
    lines = [f"<p><b>{escape(line)}</b></p>" for line in table.title.splitlines()]
    if table.rows:
        lines.append(table_html(replace(table, rows=table.rows[:MOST_ROWS])))
        if len(table.rows) > MOST_ROWS:
            lines.append(f"<p>The first {MOST_ROWS} of {len(table.rows):,} rows.</p>")
    return "".join([*lines, *(f"<p>{escape(note)}</p>" for note in table.notes)])
