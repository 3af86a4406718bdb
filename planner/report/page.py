"""A report as one file: no network, light and dark, printable, everything from files escaped.

A page is a title, the answer, and sections of tables, charts and notes. Its scripts are known by their hashes
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
from planner.report.html_table import table_html
from planner.report.output import Table

# Data and layout as plotly takes them; colours are names of the page, as "@c1". `narrow` changes the layout
# where there is little room.
Spec = dict[str, Any]
FEW_ALIKE = 3  # sentences about one thing that are shown; more are folded


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture: `caption` says how to read it, `hint` what a reader can do with it on a page; `wide` gives
    it the page's whole width."""

    key: str
    title: str
    caption: str
    spec: Spec
    wide: bool = True
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number in a box: its name, itself, and what belongs to it, as a range."""

    name: str
    value: str
    more: str = ""


@dataclass(frozen=True)
class Page:
    """What a report says, in the order in which it is read: the first table is the answer's own."""

    title: str
    answer: str  # a sentence a line; the first is the largest
    figures: Sequence[Figure] = ()
    next: Sequence[str] = ()
    what_if: Spec = field(default_factory=dict)
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    assumptions: Sequence[tuple[str, str]] = ()  # what about, sentence
    command: str = ""
    about: Sequence[str] = field(default=())


def render_page(page: Page) -> str:
    """The page as HTML."""
    first, *others = [_table(table) for table in page.tables if table.rows] or [""]
    made = f"Made by planner {planner.__version__}" + ("; charts drawn by plotly.js." if page.charts else ".")
    body = [
        f"<h1>{escape(page.title)}</h1>",
        *_answer(page.answer),
        _figures(page.figures),
        _notes(page.next, "next"),
        first,
        _WHAT_IF if page.what_if else "",
        *_charts(page.charts),
        *others,
        _assumptions(page.assumptions),
        _command(page.command),
        _notes([*page.about, made], "about"),
    ]
    data = {"charts": {chart.key: chart.spec for chart in page.charts}, "what-if": page.what_if}
    scripts = [_asset("plotly-basic.min.js"), _asset("page.js")] if page.charts else []
    scripts += [_asset("tables.js")]
    scripts += [_asset("what_if.js")] if page.what_if else []
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"img-src data: blob:; script-src {' '.join(repr(_hash(script)) for script in scripts)}"
    )
    held = [
        f'<script type="application/json" id="{key}">{script_json(value)}</script>'
        for key, value in data.items()
        if value
    ]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)}</title>
<style>{_asset("page.css")}</style>
</head>
<body>
<main>
{chr(10).join(part for part in body if part)}
</main>
{chr(10).join([*held, *(f"<script>{script}</script>" for script in scripts)])}
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


def _answer(answer: str) -> list[str]:
    first, *others = answer.splitlines() or [""]
    rest = f'<p class="also">{"<br>".join(escape(line) for line in others)}</p>' if others else ""
    return [f'<p class="answer">{escape(first)}</p>', rest]


def _figures(figures: Sequence[Figure]) -> str:
    if not figures:
        return ""
    items = "".join(
        f"<div><dt>{escape(one.name)}</dt><dd>{escape(one.value)}"
        + (f"<small>{escape(one.more)}</small>" if one.more else "")
        + "</dd></div>"
        for one in figures
    )
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
        said = escape(f"{chart.title}. {chart.caption}")
        out.append(
            f'<figure class="{"wide" if chart.wide else "half"}"><h2>{escape(chart.title)}</h2>'
            f'<div class="chart" id="chart-{escape(chart.key)}" data-chart="{escape(chart.key)}" '
            f'style="height:{height}px" role="img" aria-label="{said}"></div>'
            f"<figcaption>{escape(' '.join(filter(None, [chart.caption, chart.hint])))}</figcaption></figure>"
        )
    return [*out, "</div>"]


def _table(table: Table) -> str:
    title = f"<h2>{escape(table.title)}</h2>" if table.title else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.sentences)
    return f'<section>{title}<div class="table">{table_html(table)}</div>{notes}</section>'


def _assumptions(assumptions: Sequence[tuple[str, str]]) -> str:
    """One row a subject; a subject with many sentences shows the first, the others on demand."""
    if not assumptions:
        return ""
    about: dict[str, list[str]] = {}
    for name, text in assumptions:
        about.setdefault(name, []).append(text)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{_sentences(texts)}</td></tr>'
        for name, texts in about.items()
    )
    return (
        "<section><h2>What this rests on</h2>"
        f'<div class="table"><table class="assumptions"><tbody>{rows}</tbody></table></div></section>'
    )


def _sentences(texts: Sequence[str]) -> str:
    shown = [f"<p>{escape(text)}</p>" for text in texts]
    if len(texts) <= FEW_ALIKE:
        return "".join(shown)
    return f"{shown[0]}<details><summary>and {len(texts) - 1} more</summary>{''.join(shown[1:])}</details>"


def _command(command: str) -> str:
    if not command:
        return ""
    return f"<section><h2>How to get this again</h2><pre><code>{escape(command)}</code></pre></section>"


_WHAT_IF = """<section id="what-if-section" hidden><h2>What if</h2>
<form id="what-if-form"></form><p id="what-if-answer" role="status" aria-live="polite"></p>
<div class="table" id="what-if-table"></div></section>"""
