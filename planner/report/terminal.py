"""Renders pages and tables as terminal text: labelled paragraphs, aligned columns, no word or number split.

A table that is too wide drops its spare columns first, then breaks headings, then cells between words; if it
still does not fit, each row becomes a few lines: its name, then `heading value` pairs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from planner.errors import escape_unprintable, escape_unprintable_lines
from planner.report.page import CHOICE, Column, Page, Remark, Table

if TYPE_CHECKING:
    from rich.text import Text

GAP = 2  # between columns
USEFUL = 2  # columns that are spared more go before cells break into lines
LABEL = 13  # columns of a label, with the gap after it
PROSE = 110  # columns of a sentence, however wide the terminal is
_UNIT = re.compile(r"^(?:<|~|\$)?[-+]?[\d.,]")  # how a cell begins that is one figure with its unit
_PARTS = re.compile(
    r"(?:\d[\d,.]* x |\d[\d,.]* (?=[A-Za-z])|> )?\S+(?: \+ \S+)*"
)  # `6 x g7e.2xlarge`, `1.5 h`, `FSDP + TP2`
_JOINTS = re.compile(r"(?<=\d) (?=[A-Za-z%])|(?<=\d x) (?=\S)|(?<=\d) (?=- [$\d])|(?<=\d -) (?=[$\d])")
_HARD = "\xa0"  # a space that no line breaks at

WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # of `wrap`


def page_text(page: Page, width: int, *, explain: bool = True) -> list[Text]:
    """Lines of a page, for a terminal of this width."""
    from rich.text import Text

    lines: list[Text] = []
    if page.headline:
        label = _pad_label(page.verdict) if page.verdict else ""
        for number, line in enumerate(_wrap_lines(page.headline, width - len(label))):
            lines.append(Text((label if not number else " " * len(label)) + line, style="bold"))
    for cells in page.facts:
        lines += _figure_lines(cells, width)
    blocks = [_remark_lines(page.why, width)]
    blocks += [table_text(table.for_screen(), width) for table in page.tables]
    said = assumption_sentences(page, explain=explain)
    blocks.append(_remark_lines([*page.then, *([Remark("Assumes", said)] if said else [])], width))
    for block in filter(None, blocks):
        lines += [*([Text()] if lines else []), *block]
    return lines


def assumption_sentences(page: Page, *, explain: bool) -> list[str]:
    """Assumptions to print: all of them, or the most relevant."""
    if explain:
        return list(map(str, page.assumptions))
    from planner.report.assumed import brief_notes

    return brief_notes(page.assumptions, energy=page.energy)


def _figure_lines(cells: Sequence[str], width: int) -> list[Text]:
    """Lines with as many figures side by side as fit."""
    from rich.text import Text

    lines = [""]
    for cell in map(escape_unprintable, cells):
        joined = f"{lines[-1]}     {cell}" if lines[-1] else f"  {cell}"
        if len(joined) <= width or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(f"  {cell}")
    return [Text(f"  {part}") for line in lines for part in _wrap_lines(line.strip(), width - 2)]


def _remark_lines(remarks: Iterable[Remark], width: int) -> list[Text]:
    """Lines of labelled paragraphs, labels on the left."""
    from rich.text import Text

    out: list[Text] = []
    for remark in remarks:
        label = _pad_label(remark.label)
        for sentence in filter(None, remark.sentences):
            for part in _wrap_lines(sentence, width - LABEL):
                line = Text(label, style="bold")
                line.append(part, style="not bold")
                out.append(line)
                label = " " * LABEL
    return out


def _pad_label(label: str) -> str:
    """Label padded to the width of the label column."""
    return f"{escape_unprintable(label):<{LABEL - 2}}  "


def _wrap_lines(text: str, width: int) -> list[str]:
    """Wraps a sentence at `width` without splitting words; figures stay with their units if they fit."""
    lines: list[str] = []
    for line in escape_unprintable_lines(text).split("\n"):
        if len(line) <= width:
            lines.append(line)
            continue
        kept = _JOINTS.sub(_HARD, line)
        room = max(1, min(width, PROSE))
        if max(map(len, kept.split(" "))) > room:
            kept = line
        broken = wrap(kept, room, **WHOLE)
        lines += [part.replace(_HARD, " ") for part in broken]
    return lines


def table_text(table: Table, width: int) -> list[Text]:
    """Lines of a table, with title and notes."""
    from rich.text import Text

    lines: list[Text] = []
    if table.title:
        for number, line in enumerate(_wrap_lines(table.title, width)):
            lines.append(Text(line, style="" if number else "bold"))
    if table.rows:
        columns = fitting_columns(table, width)
        lines += _grid_lines(table, columns, width) if columns else _row_blocks(table, width)
        lines += [Text()] if table.notes else []
    lines += [Text(line) for note in table.notes for line in _wrap_lines(note, width)]
    return lines


def fitting_columns(table: Table, width: int) -> list[Column]:
    """Columns that fit in `width`: spare ones are dropped first, then cells may wrap. Empty list if not even
    the mandatory columns fit."""
    columns = list(table.visible_columns())
    spares = sorted((c for c in reversed(columns) if c.spare), key=lambda c: -c.spare)
    for place, spare in enumerate([None, *spares]):
        columns = [column for column in columns if column is not spare]
        breaks = not any(left.spare > USEFUL for left in spares[place:])
        wanted = sum(_preferred_width(column, table.rows, breaks=breaks) for column in columns)
        if wanted + GAP * (len(columns) - 1) <= width:
            return columns
    least = sum(_least_column_width(column, table.rows) for column in columns) + GAP * (len(columns) - 1)
    return columns if least <= width else []


def _preferred_width(column: Column, rows: Sequence[Mapping[str, Any]], *, breaks: bool) -> int:
    """Width in characters that a column needs, with its heading wrapped between words."""
    cells = [column.cell(row) for row in rows]
    widest = max(map(len, cells))
    if breaks and column.enough is not None:
        widest = max(min(widest, column.enough), *map(_longest_word_length, cells))
    return max(widest, _longest_word_length(column.heading))


def _least_column_width(column: Column, rows: Sequence[Mapping[str, Any]]) -> int:
    """Smallest width of a column in characters, without splitting words."""
    return max(_longest_word_length(column.heading), *(_least_cell_width(column, row, rows) for row in rows))


def _least_cell_width(column: Column, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> int:
    """Smallest width of a cell in characters, keeping a figure with its unit."""
    cell = column.cell(row)
    figure = column.alignment(rows) == "right" and _UNIT.match(cell)
    return len(cell) if figure else _longest_word_length(cell)


def _longest_word_length(text: str) -> int:
    """Length of the longest unbreakable word of a text."""
    return max((len(word) for word in _unbreakable_words(text)), default=0)


def _unbreakable_words(text: str) -> list[str]:
    """Parts of a cell that stay on one line, such as a count with its noun."""
    return _PARTS.findall(text)


def column_widths(table: Table, columns: Sequence[Column], width: int) -> list[int]:
    """Widths of columns that fit together: the widest shrink first, `whole` ones last."""
    widths = [_preferred_width(column, table.rows, breaks=False) for column in columns]
    floors = [_least_column_width(column, table.rows) for column in columns]
    room = width - GAP * (len(columns) - 1)
    for whole in (False, True):
        while sum(widths) > room:
            giving = [
                place
                for place, column in enumerate(columns)
                if widths[place] > floors[place] and (whole or not column.whole)
            ]
            if not giving:
                break
            widths[max(giving, key=widths.__getitem__)] -= 1
    return widths


def _grid_lines(table: Table, columns: Sequence[Column], width: int) -> list[Text]:
    """Lines of a table: headings, a rule, and rows with wrapped cells."""
    from rich.text import Text

    widths = column_widths(table, columns, width)
    sides = [column.alignment(table.rows) for column in columns]
    lines: list[Text] = []

    def add_row_lines(cells: Sequence[str], styles: Sequence[str], bottom: bool = False) -> None:
        """Appends the lines of one row, with cells aligned at the top or the bottom."""
        broken = [wrap_cell(cell, room) for cell, room in zip(cells, widths, strict=True)]
        height = max(map(len, broken))
        for number in range(height):
            line = Text()
            for place, parts in enumerate(broken):
                index = number - (height - len(parts) if bottom else 0)
                part = parts[index] if 0 <= index < len(parts) else ""
                padded = part.rjust(widths[place]) if sides[place] == "right" else part.ljust(widths[place])
                line.append(padded, style=styles[place])
                line.append("" if place == len(columns) - 1 else " " * GAP)
            line.rstrip()
            lines.append(line)

    if any(column.heading for column in columns):
        add_row_lines([column.heading for column in columns], ["bold"] * len(columns), bottom=True)
        lines.append(Text("─" * min(width, sum(widths) + GAP * (len(widths) - 1)), style="dim"))
    for row in table.rows:
        strong = "bold " if row.get("_choice") == CHOICE else ""
        styles = [strong + (c.style(row) if callable(c.style) else c.style) for c in columns]
        add_row_lines([column.cell(row) for column in columns], styles)
    return lines


def wrap_cell(text: str, width: int) -> list[str]:
    """Wraps a cell between words to lines of at most `width` characters."""
    if len(text) <= width:
        return [text]
    lines: list[str] = []
    for word in _unbreakable_words(text):
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]


def _row_blocks(table: Table, width: int) -> list[Text]:
    """Rows as lines of `heading value`, for terminals too narrow for a table."""
    from rich.text import Text

    columns = [column for column in table.visible_columns() if column.spare <= 1]
    leading = [column for column in columns if column.whole or not column.heading] or columns[:1]
    lines: list[Text] = []
    for row in table.rows:
        style = "bold" if row.get("_choice") == CHOICE else ""
        cells = {column.heading: column.cell(row) for column in columns if column.cell(row).strip(" -")}
        label = cells.pop("", "")
        names = [cells.pop(column.heading) for column in leading if column.heading in cells]
        pairs = [_unbreakable_pair(heading, value, width - GAP) for heading, value in cells.items()]
        lines += [Text()] if lines else []
        lines += [
            Text(line, style=style)
            for line in _wrap_lines(": ".join(filter(None, [label, ", ".join(names)])), width)
        ]
        broken = wrap((" " * 3).join(pairs), max(1, width - GAP), **WHOLE)
        lines += [Text(" " * GAP + line.replace(_HARD, " "), style=style) for line in broken]
    return lines


def _unbreakable_pair(heading: str, value: str, room: int) -> str:
    """Heading and value joined by non-breaking spaces, as far as they fit in `room`."""
    for first, between, last in ((_HARD, _HARD, _HARD), (" ", " ", _HARD)):
        text = between.join([heading.replace(" ", first), value.replace(" ", last)])
        if max(map(len, text.split(" "))) <= room:
            return text
    return f"{heading} {value}"


def screen_lines(result: Page | Table | Sequence[Table], width: int, *, explain: bool = True) -> list[Text]:
    """Lines of a page or of several tables, for a terminal of this width."""
    from rich.text import Text

    if isinstance(result, Page):
        return page_text(result, width, explain=explain)
    tables = [result] if isinstance(result, Table) else result
    lines: list[Text] = []
    for table in tables:
        block = table_text(table.for_screen(), width)
        lines += [*([Text()] if lines and block else []), *block]
    return lines


def show_plots(page: Page, max_width: int = 80) -> None:
    """Prints the plots of a page, at most `max_width` columns wide, if stdout is a terminal."""
    import sys

    if not sys.stdout.isatty() or not (sys.stdout.encoding or "").lower().startswith("utf"):
        return
    from rich.console import Console
    from rich.text import Text

    from planner.report.plots import chart_plot

    console = Console(highlight=False, markup=False)
    for picture in page.pictures():
        if picture.plotted and (chart := picture.draw()) is not None:
            drawn = chart_plot(chart, min(console.width, max_width))
            console.print()
            console.print(Text(drawn.plain) if console.no_color else drawn, no_wrap=True, overflow="crop")
