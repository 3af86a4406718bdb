"""Where the cells of a table break into lines, so that it fits into a terminal.

Headings give way first, then the widest column of words. Words stay whole as long as that is enough; then
names break after `-` and `/`, and only then a figure goes apart from its unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

GAP = 2  # between columns
_WORD = re.compile(r"\S+")
_PIECE = re.compile(r"[^\s/-]*[/-]+|[^\s/-]+")
_FIGURE = re.compile(r"[-+<]?[\d.]")  # how one begins
Least = Callable[[str, bool], int]  # of a cell, which may be a figure: the width that it can do with


def _longest(pattern: re.Pattern[str], text: str) -> int:
    return max(map(len, pattern.findall(text)), default=0)


_LEAST: tuple[Least, ...] = (
    lambda cell, figure: len(cell),
    lambda cell, figure: len(cell) if figure else _longest(_WORD, cell),
    lambda cell, figure: len(cell) if figure else _longest(_PIECE, cell),
    lambda cell, figure: _longest(_WORD if figure else _PIECE, cell),
)


def wrapped_columns(
    columns: Sequence[Sequence[str]],
    to_the_right: Sequence[bool],
    width: int,
    whole: Sequence[bool] = (),
) -> list[list[str]]:
    """The columns, each a heading and its cells, with lines broken to fit into `width` all together; figures
    are set to the right, and `whole` columns break as late as they do. What does not fit without cutting
    words comes back as it is."""
    whole = whole or [False] * len(columns)
    widths = [max(map(len, cells)) for cells in columns]
    room = width - GAP * (len(columns) - 1)
    for least in _LEAST:
        floors = [
            max(
                _longest(_WORD, heading),
                *(least(cell, late or (right and _FIGURE.match(cell) is not None)) for cell in cells),
            )
            for (heading, *cells), right, late in zip(columns, to_the_right, whole, strict=True)
        ]
        if sum(floors) <= room:
            widths = _shrunk(widths, floors, room)
            return [[wrapped(cell, most) for cell in c] for c, most in zip(columns, widths, strict=True)]
        if least is _LEAST[0]:  # headings are not enough, but they have given way
            widths = floors
    return [list(cells) for cells in columns]


def _shrunk(widths: Sequence[int], floors: Sequence[int], room: int) -> list[int]:
    """Widths that fit into the room, the widest reduced first, none below its floor."""
    out = list(widths)
    while sum(out) > room:
        out[max((i for i in range(len(out)) if out[i] > floors[i]), key=out.__getitem__)] -= 1
    return out


def wrapped(text: str, width: int) -> str:
    """Lines of at most `width`, broken at spaces; a word that is longer breaks after `-` and `/`."""
    if len(text) <= width:
        return text
    lines = [""]
    for word in text.split():
        for index, piece in enumerate([word] if len(word) <= width else _PIECE.findall(word)):
            joined = f"{lines[-1]} {piece}" if lines[-1] and not index else lines[-1] + piece
            if len(joined) <= width or not lines[-1]:
                lines[-1] = joined
            else:
                lines.append(piece)
    return "\n".join(lines)
