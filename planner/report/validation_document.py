"""`docs/validation.md`: the rows as a document, and whether a document still says what the code gives."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import planner
from planner.errors import BadInput
from planner.files.atomic import write_file
from planner.report.output import Format, render
from planner.report.validation import figure, summary, validation_tables
from planner.validation.row import Row

TITLES = {
    "li": "Li et al.: asynchronous SGD in TensorFlow",
    "tictac": "TicTac",
    "yan": "Yan et al. (KDD 2015)",
    "prophet": "Prophet (ICPP 2021)",
    "ordering_abstract": "Model-aware ordering (extended abstract)",
    "testbed": "Real runs of TensorFlow",
    "devices": "Published throughputs of single devices",
}
MOVED = 0.02  # of a figure
MOVED_POINTS = 1.5  # of a percentage
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*%?")


def write_document(rows: Sequence[Row], path: Path) -> None:
    """Write the document, with the version and the date."""
    write_file(path, document(rows, datetime.date.today().isoformat()))


def document(rows: Sequence[Row], date: str) -> str:
    """The text of the document."""
    lines = [
        "# Validation",
        "",
        f"Made by `planner validate --document docs/validation.md`, planner {planner.__version__}, {date}."
        " CI fails when the figures are no longer those of the code.",
        "",
        summary(rows) + " A row that does not hold is never left out; the reason stands below its table.",
        "",
    ]
    for source, found in groupby(rows, key=lambda row: row.name.paper):
        lines += [f"## {TITLES.get(source, source)}", ""]
        lines.append(render(validation_tables(list(found))[:-1], Format.markdown))
    return "\n".join(lines)


def drift(rows: Sequence[Row], text: str) -> list[str]:
    """What a document says otherwise than the rows: figures that moved by more than 2% (percentages: by 1.5
    points), rows that it lacks, rows that hold here and not there. Figures that depend on the machine are not
    compared, nor are rows of the document that were not asked for."""
    written = {(check, cells[0]): cells for check, cells in _table_rows(text)}
    if not written:
        raise BadInput("the document holds no table of rows; write it with `planner validate --document`")
    found = []
    for row in rows:
        check = str(row.name.of)
        cells = written.get((check, row.what))
        if cells is None:
            found.append(f"{check}: the document lacks {row.what!r}")
            continue
        _, published, ours, _, _, holds = cells
        if (holds == "yes") != row.holds:
            found.append(f"{check}: {row.what!r} {'holds' if row.holds else 'does not hold'} now")
        for before, now in ((published, row.published), (ours, row.ours)):
            shown = figure(now, row.unit)
            if not row.varies and moved(before, shown):
                found.append(f"{check}: {row.what!r} was {before}, is {shown}")
    return found


def _table_rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """The check and the cells of every row of the document's tables."""
    check = ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"\*\*(\w+/\w+)\*\*", line):
            check = heading[1]
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 6 and cells[0] != "What":
            yield check, cells


def moved(before: str, now: str) -> bool:
    words = [_NUMBER.sub("", text).split() for text in (before, now)]
    numbers = [_NUMBER.findall(text) for text in (before, now)]
    if words[0] != words[1] or len(numbers[0]) != len(numbers[1]):
        return True
    for a, b in zip(*numbers, strict=True):
        old, new = (float(number.rstrip("%").replace(",", "")) for number in (a, b))
        allowed = MOVED_POINTS if a.endswith("%") else MOVED * abs(old) + 1e-9
        if abs(new - old) > allowed:
            return True
    return False
