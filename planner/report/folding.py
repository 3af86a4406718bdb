"""What matters of what was assumed: prices, computation, warnings; the rest with `--explain`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from planner.report.output import Table

KEPT = ("Plan:", "Price", "Compute:", "Input:", "Note:", "Spot:", "Measured:")
ENERGY = "Energy:"
LEFT_OUT = "Left out: "
FEW = 3  # sentences of a kind that a screen has room for


def folded(tables: Sequence[Table], *, explain: bool, energy: bool = False) -> list[Table]:
    """The tables of an answer as a screen has room for them; how `energy` was counted, where it is shown."""
    if explain:
        return list(tables)
    out = []
    for table in tables:
        if table.title == "Looked at":
            continue
        if table.title == "Assumed":
            wanted = (*KEPT, ENERGY) if energy else KEPT
            kept = [note for note in table.notes if note.startswith(wanted)]
            for what in ("Price:", "Compute:"):
                alike = [note for note in kept if note.startswith(what)]
                kept = [note for note in kept if note not in alike[FEW:]]
            left = [note for note in table.notes if note.startswith(LEFT_OUT)]
            less = len(table.notes) - len(kept) - len(left)
            more = [f"{less} more with --explain, and all names."] if less else []
            table = replace(table, notes=[*kept, *_joined(left), *more])
        out.append(table)
    return out


def _joined(notes: Sequence[str]) -> list[str]:
    """Sentences about machines that were left out as one: how many for each reason, the most first."""
    found = []
    for note in notes:
        match = re.fullmatch(rf"{LEFT_OUT}((?:[^\s,]+, )*[^\s,]+) (.+)\.", note, re.DOTALL)
        if match is None:
            return list(notes)
        found.append((match[1].split(", "), match[2]))
    if len(found) < 2 and all(len(names) <= FEW for names, _ in found):
        return list(notes)
    found.sort(key=lambda one: -len(one[0]))
    parts = [
        f"{names[0]} {reason}" if len(names) == 1 else f"{len(names)} ({names[0]}, ...) {reason}"
        for names, reason in found
    ]
    many = sum(len(names) for names, _ in found)
    return [f"{LEFT_OUT}{many} machines: {'; '.join(parts)}."]
