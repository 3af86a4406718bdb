"""Rows of `planner validate` as tables and data, and the pages of docs/validation.md with their drift."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import planner
from planner.files.regular_file import write_file
from planner.report.evidence import (
    LARGEST_ERRORS,
    source_table,
    suite_summary_table,
    suite_tables,
    worst_runs_table,
)
from planner.report.output import Format, render
from planner.report.page import Table, columns_of
from planner.validation.evidence import Evidence
from planner.validation.row import Row, Value

FEW_SOURCES = 2
WIDEST = 10_000  # above which a figure is shown without decimals


def outcome_sentence(rows: Sequence[Row]) -> str:
    """Sentence counting the rows that hold, fail as listed, or fail unexpectedly."""
    held = sum(row.holds for row in rows)
    broken = [row for row in rows if not row.is_as_claimed]
    better = [row for row in rows if row.holds and row.known]
    share = held / len(rows) if rows else 1.0
    text = f"{held} of {len(rows)} rows hold ({share:.0%})"
    if known := len(rows) - held - len(broken):
        text += f"; {known} known not to hold"
    text += f"; failing although claimed to hold: {len(broken)}" if broken else ""
    text += f"; holding although listed as failing: {len(better)}" if better else ""
    return text + "."


def validation_tables(rows: Sequence[Row], format: Format = Format.table) -> list[Table]:
    """One table per check for people; a single table of all rows for CSV."""
    if format is Format.csv:
        return [Table([row.record() for row in rows])]
    end = Table(
        [], notes=[*_unexpected_outcomes(rows), f"planner {planner.__version__}: {outcome_sentence(rows)}"]
    )
    checks = [
        _check_table(str(check), list(found))
        for check, found in groupby(rows, key=lambda row: row.name.check_name)
    ]
    return [*checks, end]


def _unexpected_outcomes(rows: Sequence[Row]) -> list[str]:
    """One line for each row that fails unexpectedly, or holds although listed as failing."""
    return [
        f"{row.name} {row.status}: {format_figure(row.published, row.unit)}, "
        f"ours {format_figure(row.ours, row.unit)}, claimed: {row.claim}."
        for row in rows
        if not row.is_as_claimed or (row.holds and row.known)
    ]


def rows_data(rows: Sequence[Row]) -> dict[str, Any]:
    """All rows as plain values, for JSON."""
    return {
        "version": planner.__version__,
        "rows": [row.record() | {"status": row.status} for row in rows],
        "held": sum(row.holds for row in rows),
        "as_claimed": all(row.is_as_claimed for row in rows),
    }


def _check_table(key: str, rows: Sequence[Row]) -> Table:
    """Table of the rows of one check, with how they were computed and why some fail."""
    notes = [f"How: {'; '.join(dict.fromkeys(row.how for row in rows))}."]
    notes += [f"Source: {_source_words(rows)}."]
    for row in rows:
        if row.status != "holds":
            why = f": {row.reason}" if row.reason else ""
            notes.append(f"{row.what} {row.status}{why}.")
    shown = [
        asdict(row)
        | {
            "_published": format_figure(row.published, row.unit),
            "_ours": format_figure(row.ours, row.unit),
            "_error": row.error,
            "_status": "yes" if row.holds else "NO",
        }
        for row in rows
    ]
    return Table(shown, columns_of("claims"), title=key, notes=notes)


def _source_words(rows: Sequence[Row]) -> str:
    """Sources of a check's rows; many files are summarized by folder."""
    each = list(dict.fromkeys(row.source for row in rows))
    if len(each) <= FEW_SOURCES:
        return "; ".join(each)
    places = dict.fromkeys(source.split()[0] for source in each)
    return f"{', '.join(places)} (each row's own stands in --format csv)"


def format_figure(value: Value, unit: str) -> str:
    """Formats a figure with its unit, to four significant digits."""
    if isinstance(value, str):
        return value
    digits = f"{value:,.0f}" if abs(value) >= WIDEST or value == int(value) else f"{value:.4g}"
    return f"{digits}{'' if unit in ('', '%') else ' '}{unit}"


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


def has_drifted(before: str, now: str) -> bool:
    """Whether two texts differ in words, or in a figure by over 2% (percentages: 1.5 points)."""
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


ROWS: dict[str, Callable[[Row], bool]] = {
    "papers": lambda row: row.name.paper != "testbed",
    "servers": lambda row: row.name.paper == "testbed",
}


def page_path(overview: Path, page: str) -> Path:
    """Path of a page of the validation: the overview for "", else a file in the same folder."""
    return overview.with_name(f"{overview.stem}-{page}.md") if page else overview


def page_texts(results: Sequence[Evidence], rows: Sequence[Row], *, whole: bool = True) -> dict[str, str]:
    """Markdown text by page: "" has all suites, "papers" those that are checked row by row. The overview
    table is included only if `whole`."""
    pages = {"": [_overview_markdown(results)] if whole else []}
    for match in results:
        mine = [row for row in rows if match.suite in ROWS and ROWS[match.suite](row)]
        page = "papers" if match.suite in ROWS else ""
        pages.setdefault(page, [PAPERS_HEAD]).append(_suite_section(match, mine))
    return {page: "\n".join(parts) for page, parts in pages.items() if parts}


def write_pages(results: Sequence[Evidence], rows: Sequence[Row], overview: Path) -> None:
    """Writes the overview and all other pages in its folder."""
    for page, text in page_texts(results, rows).items():
        write_file(page_path(overview, page), text)


def page_differences(
    results: Sequence[Evidence], rows: Sequence[Row], overview: Path, *, whole: bool = True
) -> list[str]:
    """Differences between the written pages and the code's; the overview table counts only if `whole`."""
    lines = []
    varying = {row.what for row in rows if row.varies}
    for page, text in page_texts(results, rows, whole=whole).items():
        path = page_path(overview, page)
        try:
            written = path.read_text("utf-8")
        except OSError:
            lines.append(f"{path.name} is missing; write it with `planner validate --document {overview}`")
            continue
        differences = table_differences(text, written, varying, whole=whole)
        lines += [f"{path.name}: {line}" for line in differences]
    return lines


def _overview_markdown(results: Sequence[Evidence]) -> str:
    """Markdown of the overview page: the table of all suites and links to them."""
    sections = ", ".join(
        f"[{match.suite}]({'validation-papers.md' if match.suite in ROWS else ''}#{match.suite})"
        for match in results
    )
    return "\n".join(
        [
            "# Validation",
            "",
            "Every prediction that can be compared with a published or measured run is compared here. "
            "[Accuracy](accuracy.md) explains ranges and how to compare runs of your own.",
            "",
            f"Written by `planner validate --document docs/validation.md`, planner {planner.__version__}; CI "
            "fails if the code gives other figures.",
            "",
            _tables_markdown([suite_summary_table(results)]),
            f"Details: {sections}.",
            "",
        ]
    )


PAPERS_HEAD = """# Validation: papers and parameter servers

Every published figure of the [five papers](parameter-servers.md#the-five-papers-and-where-we-differ), and
every measured run with parameter servers, beside the prediction. [All suites](validation.md)
"""


def _suite_section(evidence: Evidence, rows: Sequence[Row]) -> str:
    """Markdown section of one suite: its tables, and its rows or largest errors."""
    parts, *others = suite_tables(evidence)
    lines = [f"## {evidence.suite}", "", f"{evidence.title}.", ""]
    lines.append(_tables_markdown([replace(parts, title=""), *others, source_table(evidence)]))
    if not rows:
        lines.append(_tables_markdown([worst_runs_table(evidence)]))
        return "\n".join(lines)
    lines += [f"{outcome_sentence(rows)} The reason for each row that does not hold is below its table.", ""]
    for source in dict.fromkeys(row.name.paper for row in rows):
        mine = [row for row in rows if row.name.paper == source]
        lines += [
            f"### {TITLES.get(source, source)}",
            "",
            render(validation_tables(mine)[:-1], Format.markdown),
        ]
    return "\n".join(lines)


def _tables_markdown(tables: Sequence[Table]) -> str:
    """Markdown of several tables."""
    return render(list(tables), Format.markdown)


def table_differences(
    now: str, written: str, varying: Collection[str] = (), *, whole: bool = True
) -> list[str]:
    """Differences between the tables of two pages: figures that moved, rows added or removed.

    Unless `whole`, only the sections of `now` count. Left out are lists of the largest errors, whose order
    changes easily, and figures of `varying` rows, which depend on the machine.
    """
    before, after = _cells_by_row(written), _cells_by_row(now)
    sections = {section for section, _, _ in after}
    parts = []
    for key in dict.fromkeys([*after, *before]):
        if not whole and key[0] not in sections:
            continue
        if key not in before or key not in after:
            parts.append(f"{' / '.join(key)} is {'new' if key in after else 'gone'}")
        elif key[2] not in varying:
            cells = zip(before[key], after[key], strict=False)
            parts += [
                f"{' / '.join(key)}: was {old}, is {new}" for old, new in cells if has_drifted(old, new)
            ]
    return parts


def _cells_by_row(text: str) -> dict[tuple[str, str, str], list[str]]:
    """Cells of each table row, by section, table title and first cell."""
    section, title, result = "", "", {}
    for line in text.splitlines():
        if heading := re.fullmatch(r"## (.+)", line):
            section, title = heading[1], ""
        elif heading := re.fullmatch(r"\*\*(.+)\*\*", line):
            title = heading[1]
        if line.startswith("| ") and title != LARGEST_ERRORS:
            name, *cells = (cell.strip() for cell in line.strip().strip("|").split(" | "))
            result[section, title, name] = cells
    return result
