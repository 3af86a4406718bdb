"""Renders pages as one HTML file: no network, light and dark, printable, all text from files escaped.

The page's content security policy lists the hashes of its scripts, so that the browser refuses to fetch
anything or to run a script injected by a name or a note. `assets/tables.js` turns headings into sort buttons
and folds long tables; without it the whole table is shown. On a narrow screen a row becomes a card with field
names from `data-label`; ARIA roles keep it a table for screen readers.

In a notebook an answer is a fragment without scripts and charts, with folded assumptions (`notebook_html`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import planner
from planner.files.regular_file import write_file
from planner.memoize import memoize
from planner.note import Note
from planner.report.page import CHOICE, Chart, Column, Figure, Page, Remark, Table, page_of

FEW_ALIKE = 3  # sentences about one thing that are shown; more are folded
MOST_ROWS = 2000  # of a table; JSON and CSV have all
FEW_COLUMNS = 3  # fit on a telephone as they are
CROWDED = 8  # columns, beyond which words and figures may break into lines
SHORT, LONG = 22, 14  # characters: a cell that stays on one line of a screen; one that is long for a card
SPARE = 3  # of a column (`Column.spare`) that a crowded table does without where it would have to be scrolled
POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data: blob:;"
)
BAR = "#4a86d0"  # seen on black and on white
_LEADING = re.compile(r"[-+]?\$?\s*([\d,]*\.?\d+(?:e[-+]?\d+)?)", re.IGNORECASE)


def tables_page(tables: Table | Sequence[Table], title: str, command: str = "") -> Page:
    """Page made of tables: the title of the first is the headline; tables without rows become remarks."""
    first, *others = [tables] if isinstance(tables, Table) else tables
    lines = first.title.splitlines() or [title]
    remarks = [Remark("", first.notes)] if not first.rows else []
    remarks += [Remark(table.title, table.notes) for table in others if not table.rows]
    return Page(
        title,
        headline=lines[0],
        facts=[[line] for line in lines[1:]],
        tables=[replace(first, title=""), *(table for table in others if table.rows)],
        then=remarks,
        command=command,
    )


def render_page(page: Page) -> str:
    """HTML file of a page, as text."""
    first, *others = [_table_section(_truncate_table(table)) for table in page.tables if table.rows] or [""]
    facts = [" · ".join(cells) for cells in page.facts]
    charts = page.charts
    what_if = page.what_if() if page.what_if is not None else {}
    made = f"Made by planner {planner.__version__}" + ("; charts drawn by plotly.js." if charts else ".")
    body = [
        f"<h1>{escape(page.title)}</h1>",
        f'<p class="answer">{escape(page.answer)}</p>',
        f'<p class="also">{"<br>".join(map(escape, facts))}</p>' if facts else "",
        _figures_html(page.figures),
        _remarks_html(page.why),
        first,
        _remarks_html(page.then),
        _read_asset("what_if.html").rstrip() if what_if else "",
        *_charts_html(charts),
        *others,
        _assumptions_html(page.assumptions),
        f"<section><h2>Command</h2><pre><code>{escape(page.command)}</code></pre></section>"
        if page.command
        else "",
        f'<ul class="about"><li>{escape(made)}</li></ul>',
    ]
    data = {"charts": {chart.key: chart.spec for chart in charts}, "what-if": what_if}
    scripts = [_read_asset("plotly-basic.min.js"), _read_asset("page.js")] if charts else []
    scripts += [_read_asset("tables.js")]
    scripts += [_read_asset("what_if.js")] if what_if else []
    hashes = " ".join(repr(_csp_hash(script)) for script in scripts)
    held = [
        f'<script type="application/json" id="{key}">{script_json(value)}</script>'
        for key, value in data.items()
        if value
    ]
    return Template(_read_asset("page.html")).substitute(
        policy=f"{POLICY} script-src {hashes}",
        title=escape(page.title),
        style=_read_asset("page.css"),
        body="\n".join(filter(None, body)),
        scripts="\n".join([*held, *(f"<script>{script}</script>" for script in scripts)]),
    )


def write_page(page: Page, path: Path | str) -> None:
    """Writes a page to an HTML file atomically."""
    write_file(path, render_page(page))


def script_json(value: Any) -> str:
    """JSON text that is safe inside an HTML script element."""
    text = json.dumps(_replace_non_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _replace_non_finite(value: Any) -> Any:
    """Copy of a value with None in place of NaN and infinity, which JSON lacks."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(item) for item in value]
    return value.item() if hasattr(value, "item") else value


@memoize
def _read_asset(name: str) -> str:
    """Text of a file in `assets/`."""
    return files("planner.report").joinpath("assets", name).read_text("utf-8")


def _csp_hash(script: str) -> str:
    """Hash of an inline script, for the Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _remarks_html(remarks: Sequence[Remark]) -> str:
    """HTML of labelled paragraphs; empty string if there are none."""
    rows = "".join(
        f"<div><dt>{escape(remark.label)}</dt><dd>"
        + "".join(f"<p>{escape(sentence)}</p>" for sentence in remark.sentences if sentence)
        + "</dd></div>"
        for remark in remarks
        if any(remark.sentences)
    )
    return f'<dl class="remarks">{rows}</dl>' if rows else ""


def _truncate_table(table: Table) -> Table:
    """Limits a table to `MOST_ROWS` rows; a note states how many there are."""
    if len(table.rows) <= MOST_ROWS:
        return table
    left = f"The first {MOST_ROWS:,} of {len(table.rows):,} rows; JSON and CSV have all."
    return replace(table, rows=table.rows[:MOST_ROWS], notes=[*table.notes, left])


def _figures_html(figures: Sequence[Figure]) -> str:
    """HTML of the boxed figures; empty string if there are none."""
    if not figures:
        return ""
    items = "".join(
        f"<div><dt>{escape(figure.name)}</dt><dd>{escape(figure.value)}"
        + (f"<small>{escape(figure.more)}</small>" if figure.more else "")
        + "</dd></div>"
        for figure in figures
    )
    return f'<dl class="figures">{items}</dl>'


def _charts_html(charts: Sequence[Chart]) -> list[str]:
    """HTML of the charts, in parts; empty list if there are none."""
    if not charts:
        return []
    out = [
        "<noscript><p>The charts need JavaScript; the tables do not.</p></noscript>",
        '<div class="charts">',
    ]
    for chart in charts:
        height = chart.spec["layout"].get("height", 360)
        words = escape(f"{chart.title}. {chart.caption}")
        out.append(
            f'<figure class="{"wide" if chart.wide else "half"}"><h2>{escape(chart.title)}</h2>'
            f'<div class="chart" id="chart-{escape(chart.key)}" data-chart="{escape(chart.key)}" '
            f'style="height:{height}px" role="group" aria-label="{words}"></div>'
            f"<figcaption>{escape(' '.join(filter(None, [chart.caption, chart.hint])))}</figcaption></figure>"
        )
    return [*out, "</div>"]


def _table_section(table: Table) -> str:
    """HTML section of a table with its title and notes."""
    title = f"<h2>{escape(table.title)}</h2>" if table.title else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    return f'<section>{title}<div class="table">{table_html(table)}</div>{notes}</section>'


def _assumptions_html(assumptions: Sequence[Note]) -> str:
    """HTML of the assumptions, by topic; long lists are folded."""
    if not assumptions:
        return ""
    about: dict[str, list[str]] = {}
    for note in assumptions:
        about.setdefault(note.heading, []).append(note.text)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{_sentences_html(texts)}</td></tr>'
        for name, texts in about.items()
    )
    return (
        "<section><h2>Assumptions</h2>"
        f'<div class="table"><table class="assumptions"><tbody>{rows}</tbody></table></div></section>'
    )


def _sentences_html(texts: Sequence[str]) -> str:
    """HTML of sentences as paragraphs; long lists are folded after the first."""
    shown = [f"<p>{escape(text)}</p>" for text in texts]
    if len(texts) <= FEW_ALIKE:
        return "".join(shown)
    return f"{shown[0]}<details><summary>and {len(texts) - 1} more</summary>{''.join(shown[1:])}</details>"


def table_html(table: Table) -> str:
    """HTML of a table without its title and notes."""
    columns = table.visible_columns()
    kinds = [column_classes(column, table.rows) for column in columns]
    head = "".join(
        f'<th role="columnheader" scope="col" class="{kind}">{escape(column.heading)}</th>'
        for column, kind in zip(columns, kinds, strict=True)
    )
    body = "\n".join(
        ('<tr role="row" class="choice">' if row.get("_choice") == CHOICE else '<tr role="row">')
        + "".join(_cell_html(column, row, kind) for column, kind in zip(columns, kinds, strict=True))
        + "</tr>"
        for row in table.rows
    )
    kind = f' class="{table_classes(len(columns))}"' if len(columns) > FEW_COLUMNS else ""
    return (
        f'<table role="table"{kind}><thead role="rowgroup"><tr role="row">{head}</tr></thead>\n'
        f'<tbody role="rowgroup">{body}</tbody></table>'
    )


def table_classes(columns: int) -> str:
    """CSS classes of a table with this many columns."""
    return "many crowded" if columns > CROWDED else "many"


def sort_value(column: Column, row: Mapping[str, Any], figure: bool) -> float | None:
    """Number by which a cell sorts: its value, or the number at the start of its text; None for words."""
    value = row.get(column.key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    leading = _LEADING.match(column.cell(row)) if figure else None
    if leading is None:
        return None
    return float(leading[1].replace(",", "")) * (-1 if leading[0].startswith("-") else 1)


def column_classes(column: Column, rows: Sequence[Mapping[str, Any]]) -> str:
    """CSS classes of a column by its content: numbers, short or long words, names, or single signs. `spare`
    marks a column that a narrow window hides."""
    spare = column.spare >= SPARE
    if column.alignment(rows) == "right":
        return "number spare" if spare else "number"
    longest = max(len(column.cell(row)) for row in rows)
    if longest <= 1 and not column.heading:
        return "sign"
    kinds = (("short", longest <= SHORT), ("long", longest > LONG), ("name", column.whole), ("spare", spare))
    return " ".join(word for word, holds in kinds if holds)


def _cell_html(column: Column, row: Mapping[str, Any], kind: str) -> str:
    """HTML of a table cell."""
    number = sort_value(column, row, kind.startswith("number"))
    value = "" if number is None else f' data-value="{number:.12g}"'
    name = f' data-label="{escape(column.heading)}"' if column.heading else ""
    return f'<td role="cell" class="{kind}"{name}{value}>{_cell_content_html(column.cell(row))}</td>'


def _cell_content_html(text: str) -> str:
    """HTML of a cell's text; a bar of block characters becomes a drawn bar."""
    if not text or set(text) != {"█"}:
        return escape(text)
    look = f"display:inline-block;height:0.75em;width:{0.6 * len(text):.1f}em;background:{BAR}"
    return f'<span aria-hidden="true" style="{look}"></span>'


MOST_NOTEBOOK_ROWS = 40  # of a sweep, say; the rest is in `as_dict()`


def notebook_html(result: Any) -> str:
    """HTML of an answer for notebooks, without charts and with folded assumptions."""
    page = page_of(result)
    first, *others = page.tables
    parts = [f"<p><b>{escape(page.answer)}</b></p>"]
    parts += [f"<p>{escape(' · '.join(cells))}</p>" for cells in page.facts]
    parts += [_notebook_remarks(page.why), _notebook_table(first)]
    parts += [_notebook_remarks(page.then), *map(_notebook_table, others)]
    if page.assumptions:
        inner = "".join(f"<p>{escape(str(note))}</p>" for note in page.assumptions)
        parts.append(f"<details><summary>Assumptions</summary>{inner}</details>")
    inner = "\n".join(filter(None, parts))
    return f'<div class="planner-answer"><style>\n{_read_asset("notebook.css")}</style>\n{inner}</div>'


def _notebook_remarks(remarks: Iterable[Remark]) -> str:
    """HTML of labelled sentences, for notebooks."""
    return "".join(
        f"<p><b>{escape(remark.label)}</b> {escape(sentence)}</p>"
        for remark in remarks
        for sentence in remark.sentences
        if sentence
    )


def _notebook_table(table: Table) -> str:
    """HTML of a table's first rows with its title and notes, for notebooks."""
    lines = [f"<p><b>{escape(line)}</b></p>" for line in table.title.splitlines()]
    if table.rows:
        lines.append(table_html(replace(table, rows=table.rows[:MOST_NOTEBOOK_ROWS])))
        if len(table.rows) > MOST_NOTEBOOK_ROWS:
            lines.append(f"<p>The first {MOST_NOTEBOOK_ROWS} of {len(table.rows):,} rows.</p>")
    return "".join([*lines, *(f"<p>{escape(note)}</p>" for note in table.notes)])
