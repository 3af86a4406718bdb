"""The one door for results: tables of rows as `table`, `json`, `csv` or `markdown`, to stdout or to a file.

A result is one or more `Table`s. People read all of them with their notes; CSV holds the rows of the first;
JSON holds `data` if given, else the rows of the first. A file is replaced whole or not at all.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.files.atomic import write_file
from planner.files.printable import is_unicode, printable, printable_json, printable_lines
from planner.note import Note
from planner.report.wrapping import wrapped_columns

CHOICE = ">"  # in the key `_choice` of a row: what was chosen
FILE_WIDTH = 160  # of a table that no terminal shows
SPARE_WIDTH = 24  # below which a spare column is left out


class Format(StrEnum):
    """How a result is written."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `key` names the value in JSON and CSV (with its unit), `title` heads it for people (the key
    does if there is none; an empty one leaves the place empty), `show` writes one value for people. Numbers
    are set to the right unless `align` says otherwise."""

    key: str
    title: str | None = None
    show: Callable[[Any], str] | None = None
    align: str = ""
    style: str | Callable[[Mapping[str, Any]], str] = ""  # of rich, of the column or of each row
    spare: int = 0  # a narrow terminal does without it; the highest goes first
    whole: bool = False  # names that break last of all
    enough: int | None = None  # a width that its words can do with, broken into lines

    @property
    def heading(self) -> str:
        return printable(self.key if self.title is None else self.title)

    def cell(self, row: Mapping[str, Any]) -> str:
        value = row.get(self.key)
        if value is None:
            return "-"
        return printable(self.show(value) if self.show else _plain(value))

    def side(self, rows: Sequence[Mapping[str, Any]]) -> str:
        values = [row[self.key] for row in rows if row.get(self.key) is not None]
        numbers = values and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        return self.align or ("right" if numbers else "left")


class Section(Enum):
    """What a table of an answer is for, where that matters to who shows it."""

    NEXT = "Next"
    LOOKED_AT = "Looked at"
    ASSUMED = "Assumed"


@dataclass(frozen=True)
class Table:
    """Rows, which columns of them people see (CSV and JSON have every key), and the words around them.

    A key that begins with an underscore is for people only: CSV and JSON leave it out. Where people read
    sentences, `records` are what programs get instead of the rows. `rest` speaks of rows that a screen has no
    room for."""

    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[Column] = ()
    title: str = ""
    notes: Sequence[str | Note] = ()
    records: Sequence[Mapping[str, Any]] = ()
    section: Section | None = None
    rest: str | None = None

    @staticmethod
    def of_notes(section: Section, notes: Sequence[str | Note]) -> Table:
        """A section of sentences alone."""
        return Table([], title=section.value, notes=notes, section=section)

    @property
    def sentences(self) -> list[str]:
        """What is said below the rows."""
        return [*map(str, self.notes), *([] if self.rest is None else [self.rest])]

    def shown(self) -> Sequence[Column]:
        return self.columns or [Column(key) for key in self.keys()]

    def keys(self) -> list[str]:
        keys = dict.fromkeys(key for row in self.plain_rows() for key in row)
        return list(keys) or [column.key for column in self.columns if not column.key.startswith("_")]

    def plain_rows(self) -> list[dict[str, Any]]:
        """The rows for programs."""
        rows = self.records or self.rows
        return [{key: value for key, value in row.items() if key[:1] != "_"} for row in rows]


def emit(
    result: Table | Sequence[Table],
    format: Format | str = Format.table,
    output: Path | str | None = None,
    *,
    data: Any = None,
) -> None:
    """Write a result to stdout, or whole to the file `output` (`-` is stdout)."""
    tables = [result] if isinstance(result, Table) else list(result)
    to_stdout = output is None or str(output) == "-"
    if to_stdout and Format(format) is Format.table:
        _print_rich(tables, sys.stdout)
    elif to_stdout:
        text = render(tables, format, data=data)
        plain = Format(format) is Format.json and not is_unicode(sys.stdout)
        sys.stdout.write(printable_json(text, ascii_only=True) if plain else text)
    else:
        assert output is not None
        write_file(output, render(tables, format, data=data))


def render(result: Table | Sequence[Table], format: Format | str, *, data: Any = None) -> str:
    """A result as text that ends with a newline."""
    tables = [result] if isinstance(result, Table) else list(result)
    match Format(format):
        case Format.json:
            return to_json(data if data is not None else tables[0].plain_rows())
        case Format.csv:
            return _csv(tables[0])
        case Format.markdown:
            return "\n".join(_markdown(table) for table in tables)
        case Format.table:
            text = io.StringIO()
            _print_rich(tables, text)
            return text.getvalue()


def to_json(data: Any) -> str:
    """JSON of plain values, dataclasses, msgspec structs and numpy values; what is not finite is null."""
    import msgspec

    def known(value: Any) -> Any:
        if hasattr(value, "tolist"):  # numpy, which need not be imported to be recognised
            return value.tolist()
        return str(value)

    try:
        text = msgspec.json.format(msgspec.json.encode(data, enc_hook=known), indent=2).decode() + "\n"
    except UnicodeEncodeError as error:  # bytes of a file's name that are no text
        raise BadInput(
            f"{error.object}: no text in UTF-8, so JSON cannot hold it; rename the file"
        ) from error
    return printable_json(text)


def check_writable(path: Path | str) -> None:
    """Refuse an output that cannot be written, before the work rather than after it."""
    folder = Path(os.path.realpath(path)).parent
    if Path(path).is_dir():
        raise BadInput(f"cannot write {path}: it is a folder; name a file in it")
    if not folder.is_dir():
        raise BadInput(f"cannot write {path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise BadInput(f"cannot write {path}: no permission to write in {folder}")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    return str(value)


def _print_rich(tables: Sequence[Table], file: Any) -> None:
    from rich.console import Console

    # A terminal has its width; a pipe or a file has none, and cutting a figure there would lose it.
    terminal = file.isatty() or "COLUMNS" in os.environ
    console = Console(file=file, width=None if terminal else FILE_WIDTH, highlight=False, markup=False)
    console.print(rich_of(tables, console.width))


def rich_of(tables: Sequence[Table], width: int = FILE_WIDTH) -> Any:
    """The tables as one thing that rich can print."""
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    parts: list[Any] = []
    for index, table in enumerate(tables):
        if index:
            parts.append(Text())
        if table.title:
            first, *more = printable_lines(table.title).split("\n")
            parts.append(Text(first, style="bold"))
            parts += map(Text, more)
            if more and table.rows:
                parts.append(Text())
        if table.rows:
            grid = RichTable(
                box=box.SIMPLE_HEAD,
                show_edge=False,
                pad_edge=False,
                collapse_padding=True,
                header_style="bold",
                show_header=any(column.heading for column in table.shown()),
            )
            columns = _fitting(table, width)
            sides = [column.side(table.rows) for column in columns]
            cells = wrapped_columns(
                [[column.heading, *(column.cell(row) for row in table.rows)] for column in columns],
                [side == "right" for side in sides],
                width,
                [column.whole for column in columns],
            )
            for column, side, (heading, *_) in zip(columns, sides, cells, strict=True):
                grid.add_column(
                    Text(heading),
                    justify=side,  # type: ignore[arg-type]
                    style=column.style if isinstance(column.style, str) else "",
                    overflow="fold",
                )
            for row, shown in zip(table.rows, zip(*(below for _, *below in cells), strict=True), strict=True):
                painted = [column.style(row) if callable(column.style) else "" for column in columns]
                grid.add_row(
                    *(Text(cell, style) for cell, style in zip(shown, painted, strict=True)),
                    style="bold" if row.get("_choice") == CHOICE else "",
                )
            parts.append(grid)
            if table.sentences:
                parts.append(Text())
        parts += [Text(printable_lines(note)) for note in table.sentences]
    return Group(*parts)


def _fitting(table: Table, width: int) -> list[Column]:
    """The columns to show: a spare one goes if it would be squeezed into a few characters a line."""
    columns = list(table.shown())

    def wants(column: Column) -> int:
        widest = max(len(column.heading), *(len(column.cell(row)) for row in table.rows))
        return 2 + (widest if column.enough is None else min(widest, column.enough))

    spares = [column for column in reversed(columns) if column.spare]
    for spare in sorted(spares, key=lambda column: -column.spare):
        others = [column for column in columns if column is not spare]
        if width - sum(map(wants, others)) < min(SPARE_WIDTH, wants(spare)):
            columns = others
    return columns


def _csv(table: Table) -> str:
    text = io.StringIO()
    rows = [_flat(row) for row in table.plain_rows()]
    keys = dict.fromkeys(key for row in rows for key in row)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_csv_text(key) for key in list(keys) or table.keys()])
    for row in rows:
        writer.writerow([_csv_value(row.get(key)) for key in keys])
    return text.getvalue()


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with a column for each value of a dictionary: `utilisation.worker`."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        nested = _flat(value) if isinstance(value, dict) else None
        out |= {key: value} if nested is None else {f"{key}.{name}": one for name, one in nested.items()}
    return out


def _csv_value(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, list | tuple):
        import json

        value = json.dumps(value, default=str)
    return _csv_text(value) if isinstance(value, str) else value


def _csv_text(text: str) -> str:
    """A text that a spreadsheet shows, and does not compute: what begins like a formula gets a mark."""
    return ("'" if text[:1] in ("=", "+", "-", "@") else "") + printable(text)


def _markdown(table: Table) -> str:
    lines = [f"**{printable_lines(table.title)}**", ""] if table.title else []
    if table.rows:
        columns = table.shown()
        lines.append("| " + " | ".join(_escaped(column.heading) for column in columns) + " |")
        sides = ["---:" if column.side(table.rows) == "right" else "---" for column in columns]
        lines.append("|" + "|".join(sides) + "|")
        for row in table.rows:
            lines.append("| " + " | ".join(_escaped(column.cell(row)) for column in columns) + " |")
        lines.append("")
    for note in table.sentences:
        lines += [printable_lines(note), ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
