"""A report as one file: no network, light and dark, printable, everything from files escaped.

A page is a title, the answer, and sections of charts, tables and notes. Its scripts are known by their hashes
in the page's content security policy, so that the browser itself refuses to fetch anything or to run a script
that came in with a name or a note.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import planner
from planner.files.atomic import write_file
from planner.report.output import Table

Spec = dict[str, Any]  # data and layout as plotly takes them; colours are names of the page, as "@c1"


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture: `caption` says how to read it, `wide` gives it the page's whole width."""

    key: str
    title: str
    caption: str
    spec: Spec
    wide: bool = True


@dataclass(frozen=True)
class Page:
    """What a report says, in the order in which it is read."""

    title: str
    answer: str
    figures: Sequence[tuple[str, str]] = ()  # name, value
    next: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    assumptions: Sequence[tuple[str, str]] = ()  # what about, sentence
    command: str = ""
    about: Sequence[str] = field(default=())


def render_page(page: Page) -> str:
    """The page as HTML."""
    plotly, script, style = _asset("plotly-basic.min.js"), _asset("page.js"), _asset("page.css")
    body = [
        f"<h1>{escape(page.title)}</h1>",
        f'<p class="answer">{escape(page.answer)}</p>',
        _figures(page.figures),
        _notes(page.next, "next"),
        *_charts(page.charts),
        *(_table(table) for table in page.tables if table.rows),
        _assumptions(page.assumptions),
        _command(page.command),
        _notes([*page.about, f"Made by planner {planner.__version__}; figures drawn by plotly.js."], "about"),
    ]
    scripts = ""
    if page.charts:
        specs = {chart.key: chart.spec for chart in page.charts}
        scripts = (
            f'<script type="application/json" id="charts">{script_json(specs)}</script>\n'
            f"<script>{plotly}</script>\n<script>{script}</script>"
        )
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"img-src data: blob:; script-src '{_hash(plotly)}' '{_hash(script)}'"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)}</title>
<style>{style}</style>
</head>
<body>
<main>
{chr(10).join(part for part in body if part)}
</main>
{scripts}
</body>
</html>
"""


def write_page(page: Page, path: Path | str) -> None:
    """Write a page whole or not at all."""
    write_file(path, render_page(page))


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element: no character of it can end the element."""
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def label(text: str) -> str:
    """Text for plotly, which reads a few tags and entities in what it draws: as text, never as markup."""
    return escape(" ".join(text.split()), quote=False)


def _finite(value: Any) -> Any:
    """The value with numbers that JSON knows: what is not finite becomes null, which plotly leaves out."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value.item() if hasattr(value, "item") else value


@cache
def _asset(name: str) -> str:
    return files("planner.report").joinpath("assets", name).read_text("utf-8")


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _figures(figures: Sequence[tuple[str, str]]) -> str:
    if not figures:
        return ""
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in figures)
    return f'<dl class="figures">{items}</dl>'


def _notes(notes: Sequence[str], name: str) -> str:
    if not notes:
        return ""
    return f'<ul class="{name}">' + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"


def _charts(charts: Sequence[Chart]) -> list[str]:
    if not charts:
        return []
    out = [
        "<noscript><p>The charts need JavaScript; the tables do not.</p></noscript>",
        '<div class="charts">',
    ]
    for chart in charts:
        height = chart.spec["layout"].get("height", 360)
        out.append(
            f'<figure class="{"wide" if chart.wide else "half"}"><h2>{escape(chart.title)}</h2>'
            f'<div class="chart" id="chart-{escape(chart.key)}" data-chart="{escape(chart.key)}" '
            f'style="height:{height}px" role="img" aria-label="{escape(chart.title)}"></div>'
            f"<figcaption>{escape(chart.caption)}</figcaption></figure>"
        )
    return [*out, "</div>"]


def _table(table: Table) -> str:
    columns = table.shown()
    sides = [' class="number"' if column.side(table.rows) == "right" else "" for column in columns]
    head = "".join(
        f"<th{side}>{escape(column.heading)}</th>" for side, column in zip(sides, columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{side}>{escape(column.cell(row))}</td>" for side, column in zip(sides, columns, strict=True)
        )
        + "</tr>\n"
        for row in table.rows
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    return (
        f"<section><h2>{escape(table.title)}</h2>"
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
        f"{notes}</section>"
    )


def _assumptions(assumptions: Sequence[tuple[str, str]]) -> str:
    if not assumptions:
        return ""
    rows = "".join(f"<tr><th>{escape(about)}</th><td>{escape(text)}</td></tr>" for about, text in assumptions)
    return (
        "<section><h2>What this rests on</h2>"
        f'<div class="table"><table class="assumptions"><tbody>{rows}</tbody></table></div></section>'
    )


def _command(command: str) -> str:
    if not command:
        return ""
    return f"<section><h2>How to get this again</h2><pre><code>{escape(command)}</code></pre></section>"
