"""What matters of what was assumed: prices, computation, warnings; the rest with `--explain`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from planner.report.output import Table

KEPT = ("Plan:", "Price", "Compute:", "Note:", "Left out:", "Spot:", "Measured:", "One device alone")
FEW = 3  # names of a list that say what it is about


def folded(tables: Sequence[Table], *, explain: bool) -> list[Table]:
    """The tables of an answer as a screen has room for them."""
    if explain:
        return list(tables)
    out = []
    for table in tables:
        if table.title == "Looked at":
            continue
        if table.title == "Assumed":
            kept = [_short(note) for note in table.notes if note.startswith(KEPT)]
            for what in ("Price:", "Compute:"):
                alike = [note for note in kept if note.startswith(what)]
                kept = [note for note in kept if note not in alike[FEW:]]
            less = len(table.notes) - len(kept)
            more = [f"{less} more with --explain, and all names."] if less else []
            table = replace(table, notes=[*kept, *more])
        out.append(table)
    return out


def _short(note: str) -> str:
    """A sentence about many machines with the first few of them, and how many there are."""
    match = re.fullmatch(r"(Left out: )((?:[^\s,]+, )+[^\s,]+)( .+)", note, re.DOTALL)
    if match is None:
        return note
    names = match[2].split(", ")
    if len(names) <= FEW:
        return note
    return f"{match[1]}{len(names)} machines ({', '.join(names[:FEW])}, ...) that {match[3].strip()}"
