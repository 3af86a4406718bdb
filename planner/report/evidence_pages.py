"""docs/validation.md and a page for each suite, and whether written pages still say what the code gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import planner
from planner.files.regular_file import write_file
from planner.report.evidence import by_source, readme_table, suite_lines, suite_tables, worst_rows
from planner.report.output import Format, render
from planner.report.page import Table
from planner.report.validation import TITLES, drift, moved, summary, validation_tables
from planner.validation.evidence import Evidence
from planner.validation.row import Row

ROWS: dict[str, Callable[[Row], bool]] = {
    "papers": lambda row: row.name.paper != "testbed",
    "servers": lambda row: row.name.paper == "testbed",
}
_TITLE = re.compile(r"\*\*(.+)\*\*")


def page_of(overview: Path, suite: str) -> Path:
    """Where the page of a suite stands beside the overview."""
    return overview.with_name(f"{overview.stem}-{suite}.md")


def pages(found: Sequence[Evidence], rows: Sequence[Row]) -> dict[str, str]:
    """The text of every page by suite; the overview under an empty name. Without rows those of `papers` and
    `servers` are left out of their pages."""
    made = {"": _overview(found)}
    for one in found:
        mine = [row for row in rows if one.suite in ROWS and ROWS[one.suite](row)]
        made[one.suite] = _page(one, mine)
    return made


def write_pages(found: Sequence[Evidence], rows: Sequence[Row], overview: Path) -> None:
    for suite, text in pages(found, rows).items():
        write_file(page_of(overview, suite) if suite else overview, text)


def write_html(found: Sequence[Evidence], path: Path) -> None:
    """A page with every suite's tables."""
    from planner.report.html import render_page
    from planner.report.page import Page

    tables = [suite_lines(found), *(table for one in found for table in suite_tables(one))]
    page = Page(
        title="Validation: published and measured runs beside predictions",
        headline=f"{sum(len(one.rows) for one in found)} runs in {len(found)} suites.",
        tables=tables,
        command="planner validate",
    )
    write_file(path, render_page(page))


def pages_drift(
    found: Sequence[Evidence], rows: Sequence[Row], overview: Path, *, whole: bool = True
) -> list[str]:
    """What written pages say otherwise than the code, by page; the overview only where it is `whole`."""
    lines = []
    for suite, text in pages(found, rows).items():
        if not suite and not whole:
            continue
        path = page_of(overview, suite) if suite else overview
        try:
            written = path.read_text("utf-8")
        except OSError:
            lines.append(f"{path.name} is missing; write it with `planner validate --document {overview}`")
            continue
        lines += [f"{path.name}: {line}" for line in _tables_drift(text, written)]
        if suite in ROWS:
            mine = [row for row in rows if ROWS[suite](row)]
            lines += [f"{path.name}: {line}" for line in drift(mine, written)]
    return lines


def _overview(found: Sequence[Evidence]) -> str:
    lines = [
        "# Validation",
        "",
        f"Made by `planner validate --document docs/validation.md`, planner {planner.__version__}. CI fails "
        "when a figure is no longer that of the code.",
        "",
        _markdown([suite_lines(found)]),
        "## Part by part, with targets",
        "",
        _markdown([readme_table(found)]),
        "## Pages",
        "",
        *(f"- [{one.suite}](validation-{one.suite}.md): {one.title}." for one in found),
        "",
        "What is modelled, what is not, and where ranges come from: [how sure](how-sure.md). A table of your "
        "own runs gives the same figures: `planner validate --runs FILE.csv`, `--layouts FILE.csv`.",
        "",
    ]
    return "\n".join(lines)


def _page(one: Evidence, rows: Sequence[Row]) -> str:
    lines = [f"# Validation: {one.suite}", "", f"{one.title}. [All suites](validation.md)", ""]
    lines.append(_markdown([*suite_tables(one), by_source(one)]))
    if not rows:
        lines.append(_markdown([worst_rows(one)]))
        return "\n".join(lines)
    lines += [
        "## Row by row",
        "",
        summary(rows) + " A row that does not hold is never left out; the reason stands below its table.",
        "",
    ]
    for source in dict.fromkeys(row.name.paper for row in rows):
        mine = [row for row in rows if row.name.paper == source]
        lines += [
            f"### {TITLES.get(source, source)}",
            "",
            render(validation_tables(mine)[:-1], Format.markdown),
        ]
    return "\n".join(lines)


def _markdown(tables: Sequence[Table]) -> str:
    return render(list(tables), Format.markdown)


def _tables_drift(now: str, written: str) -> list[str]:
    """Table by table and row by row: figures that moved, rows that came or went. The rows of papers are left
    out, which `drift` compares because it knows which of them depend on the machine, and so are the lists of
    the worst runs, whose order a small change turns round."""
    before, after = _cells(written), _cells(now)
    found = []
    for key in dict.fromkeys([*after, *before]):
        if key not in before or key not in after:
            found.append(f"{' / '.join(key)} is {'new' if key in after else 'gone'}")
            continue
        for old, new in zip(before[key], after[key], strict=False):
            if moved(old, new):
                found.append(f"{' / '.join(key)}: was {old}, is {new}")
    return found


def _cells(text: str) -> dict[tuple[str, str], list[str]]:
    """Cells by table and first cell."""
    title, found = "", {}
    for line in text.splitlines():
        if heading := _TITLE.fullmatch(line) or re.fullmatch(r"#+ (.+)", line):
            title = heading[1]
        if not line.startswith("| ") or re.fullmatch(r"\w+/\w+", title) or "furthest off" in title:
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        name = cells[0] if title != "Part by part, with targets" else f"{cells[0]} {cells[1]}"
        found[title, name] = cells[1:]
    return found
