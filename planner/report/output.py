"""Writes every result: pages and tables as `table`, `json`, `csv` or `markdown`, to stdout or a file.

JSON has `data` if given, else the rows of the first table; CSV has the rows of the first table. A file is
replaced atomically.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Mapping, Sequence
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

from planner.errors import BadInput, escape_unprintable, escape_unprintable_json, is_unicode
from planner.files.regular_file import write_file
from planner.report.page import Page, Remark, Table
from planner.report.terminal import assumption_sentences, screen_lines

FILE_WIDTH = 120  # of a table that no terminal shows
Result = Page | Table | Sequence[Table]


class Format(StrEnum):
    """Output format of a result."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


def emit(
    result: Result,
    format: Format | str = Format.table,
    output: Path | str | None = None,
    *,
    data: Any = None,
    explain: bool = True,
) -> None:
    """Writes a result to stdout (`-`), or atomically to the file `output`. `explain`: list all assumptions
    instead of the most relevant."""
    to_stdout = output is None or str(output) == "-"
    if to_stdout and Format(format) is Format.table:
        _print_screen(result, sys.stdout, explain=explain)
    elif to_stdout:
        text = render(result, format, data=data, explain=explain)
        plain = Format(format) is Format.json and not is_unicode(sys.stdout)
        sys.stdout.write(escape_unprintable_json(text, ascii_only=True) if plain else text)
    else:
        assert output is not None
        write_file(output, render(result, format, data=data, explain=explain))


def render(result: Result, format: Format | str, *, data: Any = None, explain: bool = True) -> str:
    """Text of a result in an output format, ending with a newline."""
    tables = _result_tables(result)
    match Format(format):
        case Format.json:
            if data is None and isinstance(result, Page) and result.data is not None:
                data = result.data()
            return to_json(data if data is not None else tables[0].plain_rows())
        case Format.csv:
            return _to_csv(tables[0])
        case Format.markdown:
            return _to_markdown(result, explain=explain)
        case Format.table:
            text = io.StringIO()
            _print_screen(result, text, explain=explain)
            return text.getvalue()


def _result_tables(result: Result) -> Sequence[Table]:
    """All tables of a result."""
    if isinstance(result, Page):
        return result.tables
    return [result] if isinstance(result, Table) else list(result)


def to_json(data: Any) -> str:
    """JSON text of plain values, dataclasses, msgspec structs and numpy values; NaN becomes null."""
    import msgspec

    def to_plain_value(value: Any) -> Any:
        """Plain value of a numpy array or scalar, else text."""
        if hasattr(value, "tolist"):  # numpy, which need not be imported to be recognised
            return value.tolist()
        return str(value)

    try:
        text = (
            msgspec.json.format(msgspec.json.encode(data, enc_hook=to_plain_value), indent=2).decode() + "\n"
        )
    except UnicodeEncodeError as error:  # bytes of a file's name that are no text
        raise BadInput(
            f"{error.object}: no text in UTF-8, so JSON cannot hold it; rename the file"
        ) from error
    return escape_unprintable_json(text)


def check_writable(path: Path | str) -> None:
    """Raises BadInput if an output file cannot be written, before the work starts."""
    folder = Path(os.path.realpath(path)).parent
    if Path(path).is_dir():
        raise BadInput(f"cannot write {path}: it is a folder; name a file in it")
    if not folder.is_dir():
        raise BadInput(f"cannot write {path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise BadInput(f"cannot write {path}: no permission to write in {folder}")


def _to_csv(table: Table) -> str:
    """CSV text of a table."""
    text = io.StringIO()
    rows = [_flatten(row) for row in table.plain_rows()]
    keys = dict.fromkeys(key for row in rows for key in row)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_csv_text(key) for key in list(keys) or table.keys()])
    for row in rows:
        writer.writerow([_csv_value(row.get(key)) for key in keys])
    return text.getvalue()


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens nested dictionaries to keys such as `utilisation.worker`."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        nested = _flatten(value) if isinstance(value, dict) else None
        out |= {key: value} if nested is None else {f"{key}.{name}": one for name, one in nested.items()}
    return out


def _csv_value(value: Any) -> Any:
    """Plain value of a CSV cell: enums by value, lists as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, list | tuple):
        import json

        value = json.dumps(value, default=str)
    return _csv_text(value) if isinstance(value, str) else value


def _csv_text(text: str) -> str:
    """Prefixes a quote to text that a spreadsheet would run as a formula."""
    return ("'" if text[:1] in ("=", "+", "-", "@") else "") + escape_unprintable(text)


def _to_markdown(result: Result, *, explain: bool) -> str:
    """Markdown of a page, or of tables one after another."""
    if not isinstance(result, Page):
        return "\n".join(map(_markdown_table, _result_tables(result)))
    lines = [f"**{_one_line(result.answer)}**", ""] if result.answer else []
    lines += [line for cells in result.facts for line in (_one_line("; ".join(cells)), "")]
    lines += _markdown_remarks(result.why)
    lines += [_markdown_table(table.for_screen()) for table in result.tables]
    lines += _markdown_remarks(result.then)
    lines += [f"- {_one_line(note)}" for note in assumption_sentences(result, explain=explain)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _markdown_remarks(remarks: Sequence[Remark]) -> list[str]:
    """Markdown lines of labelled paragraphs."""
    return [
        line
        for remark in remarks
        if any(remark.sentences)
        for line in (
            f"**{_one_line(remark.label)}** {_one_line(' '.join(filter(None, remark.sentences)))}",
            "",
        )
    ]


def _markdown_table(table: Table) -> str:
    """Markdown of a table with its title and notes."""
    lines = [f"**{_one_line(table.title)}**", ""] if table.title else []
    if table.rows:
        columns = table.visible_columns()
        lines.append("| " + " | ".join(_escape(column.heading) for column in columns) + " |")
        sides = ["---:" if column.alignment(table.rows) == "right" else "---" for column in columns]
        lines.append("|" + "|".join(sides) + "|")
        for row in table.rows:
            lines.append("| " + " | ".join(_escape(column.cell(row)) for column in columns) + " |")
        lines.append("")
    for note in table.notes:
        lines += [_one_line(note), ""]
    return "\n".join(lines)


_BLOCK_STARTS = ("#", ">", "-", "+", "=", "~~~", "```")


def _one_line(text: str) -> str:
    """Joins text to one Markdown line, escaped so that names cannot add markup, HTML or lines."""
    words = _escape(escape_unprintable(" ".join(text.split())))
    return f"\\{words}" if words.startswith(_BLOCK_STARTS) else words


def _escape(text: str) -> str:
    """Escapes HTML, links and column separators; keeps backticks, which mark commands."""
    for sign in "\\|[]":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("<", "&lt;")


def _print_screen(result: Result, file: Any, *, explain: bool) -> None:
    """Prints a result as aligned text, in the width of the terminal."""
    from rich.console import Console

    # A terminal has its width; a pipe or a file has none, and cutting a figure there would lose it.
    terminal = file.isatty() or "COLUMNS" in os.environ
    console = Console(file=file, width=None if terminal else FILE_WIDTH, highlight=False, markup=False)
    for line in screen_lines(result, console.width, explain=explain):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
