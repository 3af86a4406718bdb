"""The page model: the content of an answer as values. Renderers know pages and tables, but no questions.

A `Page` has a verdict, the reason for it, a table of alternatives, what to do next and the assumptions, with
charts for media that draw. `terminal`, `html` and `output` (JSON, CSV, Markdown) render it. An answer names
the function that makes its page in `page_maker`, so that plug-ins bring their own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from importlib import import_module
from importlib.resources import files
from typing import Any

from planner import units
from planner.errors import escape_unprintable
from planner.memoize import memoize
from planner.note import Note
from planner.units import GBIT_BYTES_PER_S

CHOICE = ">"  # in the key `_choice` of a row: the plan that was chosen

# Data and layout as plotly takes them; colours are names of the page, as "@c1". `narrow` changes the layout
# on a narrow screen.
Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table. `key` names the value in JSON and CSV (with its unit), `title` is the heading for
    people (the key by default), `show` formats a value for people. Numbers are right-aligned unless `align`
    is given."""

    key: str
    title: str | None = None
    show: Callable[[Any], str] | None = None
    align: str = ""
    style: str | Callable[[Mapping[str, Any]], str] = ""  # of rich, of the column or of each row
    spare: int = 0  # left out where there is no room, the highest first; 0: never
    whole: bool = False  # breaks into lines only after all others
    enough: int | None = None  # a width that its words can do with, broken into lines
    get: Callable[[Any], Any] | None = None  # the value of what a row is about; by default its attribute
    hidden: bool = False  # of programs only

    def value(self, item: Any) -> Any:
        """This column's value of an object or mapping."""
        if self.get is not None:
            return self.get(item)
        return item.get(self.key) if isinstance(item, Mapping) else getattr(item, self.key)

    @property
    def heading(self) -> str:
        """Heading of the column: its title, or else its key."""
        return escape_unprintable(self.key if self.title is None else self.title)

    def cell(self, row: Mapping[str, Any]) -> str:
        """Text of this column's cell in a row; `-` if it is empty."""
        value = row.get(self.key)
        if value is None:
            return "-"
        return escape_unprintable(self.show(value) if self.show else plain_text(value))

    def alignment(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """Alignment of the column: right for numbers, else left."""
        values = [row[self.key] for row in rows if row.get(self.key) is not None]
        numbers = values and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        return self.align or ("right" if numbers else "left")


@dataclass(frozen=True)
class Table:
    """Rows of values, the columns that people see, and the sentences around them. CSV and JSON have every
    key, except those that begin with an underscore. `records` replace the rows in CSV and JSON. `brief` are
    the rows shown on a screen, which says how many more there are."""

    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[Column] = ()
    title: str = ""
    notes: Sequence[str] = ()
    records: Sequence[Mapping[str, Any]] = ()
    brief: Sequence[Mapping[str, Any]] | None = None

    @staticmethod
    def of(
        items: Iterable[Any], columns: Sequence[Column], title: str = "", notes: Sequence[str] = ()
    ) -> Table:
        """Builds a table with one row per item."""
        return Table([row_of(item, columns) for item in items], columns, title, notes)

    def visible_columns(self) -> Sequence[Column]:
        """Columns that people see; by default one per key."""
        return [c for c in self.columns if not c.hidden] or [Column(key) for key in self.keys()]

    def keys(self) -> list[str]:
        """Keys of all rows, in the order of their first appearance."""
        keys = dict.fromkeys(key for row in self.plain_rows() for key in row)
        return list(keys) or [column.key for column in self.columns if not column.key.startswith("_")]

    def plain_rows(self) -> list[dict[str, Any]]:
        """Rows for JSON and CSV, without the keys that begin with an underscore."""
        rows = self.records or self.rows
        return [{key: value for key, value in row.items() if key[:1] != "_"} for row in rows]

    def for_screen(self) -> Table:
        """Table reduced to its brief rows, with a note on how many others there are."""
        if self.brief is None:
            return self
        more = len(self.rows) - len(self.brief)
        rest = [f"{more:,} more rows with --format json or csv, and in the --html page."] if more > 0 else []
        return Table(self.brief, self.columns, self.title, [*self.notes, *rest])


@dataclass(frozen=True, slots=True)
class Remark:
    """A labelled paragraph such as `Why`, `Bottleneck` or `Next`; one string per sentence."""

    label: str
    sentences: Sequence[str]


@dataclass(frozen=True, slots=True)
class Chart:
    """Plotly chart; `caption` explains how to read it, `hint` how to use it, `wide` gives it a whole row."""

    key: str
    title: str
    caption: str
    spec: Spec
    wide: bool = True
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """Chart that is drawn on demand: HTML pages draw all, terminals those that are `plotted`."""

    draw: Callable[[], Chart | None]  # None: there is nothing to draw
    plotted: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A number in a box: its name, its value, and a detail such as its range."""

    name: str
    value: str
    more: str = ""


@dataclass(frozen=True)
class Page:
    """Content of an answer in reading order; the first table has the alternatives."""

    title: str
    verdict: str = ""  # a word or two: Recommended, Cheapest, Saturated
    headline: str = ""
    facts: Sequence[Sequence[str]] = ()  # lines of figures below the headline
    why: Sequence[Remark] = ()
    tables: Sequence[Table] = ()
    then: Sequence[Remark] = ()  # below the alternatives: Bottleneck, Next
    assumptions: Sequence[Note] = ()
    energy: bool = False  # shown, so that how it was counted is worth a sentence
    figures: Sequence[Figure] = ()
    what_if: Callable[[], Spec] | None = None
    pictures: Callable[[], Sequence[Picture]] = tuple  # asked for by renderers that draw
    command: str = ""
    data: Callable[[], Any] | None = field(default=None)  # for JSON; without it the rows of the first table

    @property
    def answer(self) -> str:
        """Verdict and headline in one line."""
        return f"{self.verdict}: {self.headline}" if self.verdict and self.headline else self.headline

    @property
    def charts(self) -> list[Chart]:
        """All charts of the page, drawn by this call."""
        return list(filter(None, (picture.draw() for picture in self.pictures())))


UNITS = {"GiB": 2.0**30, "GB": 1e9, "T": 1e12, "Gbit": GBIT_BYTES_PER_S, "USD": 1.0}


def columns_of(
    table: str,
    get: Mapping[str, Callable[[Any], Any]] | None = None,
    show: Mapping[str, Callable[[Any], str]] | None = None,
    leave_out: Collection[str] = (),
) -> list[Column]:
    """Columns that `columns.toml` declares for a table. `get` and `show` are the functions, by key, of
    columns whose value or text the file does not describe."""
    columns = []
    for key, declared in _declared_columns()[table].items():
        if key in leave_out:
            continue
        path, unit, words = (declared.get(name) for name in ("path", "unit", "show"))
        fields = {name: value for name, value in declared.items() if name not in ("path", "unit", "show")}
        value = (get or {}).get(key) or partial(_value_at, path or key, UNITS.get(unit or ""))
        text = (show or {}).get(key) or (words and _find_formatter(words))
        columns.append(Column(key, show=text, get=value, **fields))
    return columns


@memoize
def _declared_columns() -> dict[str, dict[str, dict[str, Any]]]:
    """Columns declared in `columns.toml`, by table and key; cached."""
    return tomllib.loads(files("planner.report").joinpath("columns.toml").read_text("utf-8"))


def _find_formatter(name: str) -> Callable[[Any], str]:
    """Formatting function: of a format string such as `{:.1%}`, or of this name in `planner.units`."""
    return name.format if "{" in name else getattr(units, name)


def _value_at(path: str, unit: float | None, item: Any) -> Any:
    """Value at a dotted path of attributes, converted to a unit; None if a part of the path is unknown."""
    for name in path.split("."):
        item = item.get(name) if isinstance(item, Mapping) else getattr(item, name)
        if item is None or item == "":
            return None
    return item if unit is None else round(item / unit, 9)


def row_of(item: Any, columns: Sequence[Column]) -> dict[str, Any]:
    """Values of all columns for one item."""
    return {column.key: column.value(item) for column in columns}


def drawn_picture(chart: Chart) -> Picture:
    """Picture of a chart that is already drawn."""
    return Picture(lambda: chart)


def safe_text(text: str) -> str:
    """Text with its markup escaped for plotly."""
    return escape(" ".join(text.split()), quote=False)


def plain_text(value: Any) -> str:
    """Formats a value without a unit for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain_text, value))
    return str(value)


def page_of(result: Any, command: str = "", *, energy: bool = False) -> Page:
    """Builds the page of an answer; `command` is the command line that reproduces it."""
    module, _, name = result.page_maker.rpartition(".")
    page: Page = getattr(import_module(module), name)(result, energy=energy)
    return replace(page, command=command)
