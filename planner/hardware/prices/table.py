"""A price list as rows by column name, with errors that say line and column."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from planner.errors import BadInput
from planner.files.identifiers import check_name
from planner.files.regular_file import opened

LARGEST_BYTES = 256 * 2**20  # the largest published list has a tenth of it


class PriceRow:
    """One line of a list; a column that the list lacks is empty."""

    __slots__ = ("_columns", "_fields", "line", "path")

    def __init__(self, path: Path, line: int, columns: dict[str, int], fields: list[str]) -> None:
        self.path, self.line, self._columns, self._fields = path, line, columns, fields

    def __getitem__(self, column: str) -> str:
        at = self._columns.get(column)
        return "" if at is None else self._fields[at].strip()

    def error(self, column: str, message: str) -> BadInput:
        return BadInput(f"{self.path}:{self.line}: column {column}: {message}; nothing was imported")


def header_of(path: Path) -> tuple[str, ...]:
    """The names in the first line; empty for an empty file."""
    with _text(path) as text:
        return tuple(name.strip() for name in next(_reader(path, text), []))


def rows_of(path: Path, needed: Sequence[str]) -> Iterator[PriceRow]:
    """The rows of a list in which the columns `needed` must be there."""
    with _text(path) as text:
        reader = _reader(path, text)
        columns: dict[str, int] = {}
        for at, name in enumerate(next(reader, [])):
            if name.strip() in columns:
                raise BadInput(f"{path}:1: column {name.strip()} is there twice; nothing was imported")
            columns[name.strip()] = at
        for name in needed:
            if name not in columns:
                raise BadInput(f"{path}:1: no column {name}; it needs {', '.join(needed)}")
        for line, fields in enumerate(reader, 2):
            if not fields:
                continue
            if len(fields) != len(columns):
                message = f"{len(fields)} fields, the header has {len(columns)}; nothing was imported"
                raise BadInput(f"{path}:{line}: {message}")
            for field in fields:
                if not field.isprintable():
                    check_name(field.strip(), f"{path}:{line}")
            yield PriceRow(path, line, columns, fields)


def _text(path: Path) -> io.TextIOWrapper:
    file = opened(path)
    file.seek(0, io.SEEK_END)
    if file.tell() > LARGEST_BYTES:
        raise BadInput(f"{path}: larger than {LARGEST_BYTES // 2**20} MiB; no price list is")
    file.seek(0)
    return io.TextIOWrapper(file, encoding="utf-8-sig", newline="")


def _reader(path: Path, text: io.TextIOWrapper) -> Iterator[list[str]]:
    reader = csv.reader(text, strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise BadInput(f"{path}:{reader.line_num}: not CSV: {error}; nothing was imported") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not text in UTF-8; a price list is a CSV file") from error
