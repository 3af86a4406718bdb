"""What matters of what was assumed: prices, computation, warnings; the rest with `--explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.note import LeftOut, Note, Topic
from planner.report.output import Section, Table

KEPT = (
    Topic.PLAN,
    Topic.MEMORY,
    Topic.JOB,
    Topic.MACHINES,
    Topic.PRICE,
    Topic.PRICES,
    Topic.COMPUTE,
    Topic.BATCH,
    Topic.INPUT,
    Topic.WARNING,
    Topic.SPOT,
    Topic.MEASURED,
)
OFTEN = (Topic.PRICE, Topic.COMPUTE)  # a sentence for each machine
FEW = 3  # sentences of a kind that a screen has room for


def folded(tables: Sequence[Table], *, explain: bool, energy: bool = False) -> list[Table]:
    """The tables of an answer as a screen has room for them; how `energy` was counted, where it is shown."""
    if explain:
        return list(tables)
    wanted = (*KEPT, Topic.ENERGY) if energy else KEPT
    shown = [table for table in tables if table.section is not Section.LOOKED_AT]
    return [_fewer(table, wanted) if table.section is Section.ASSUMED else table for table in shown]


def _fewer(table: Table, wanted: Sequence[Topic]) -> Table:
    """What is assumed about the topics wanted."""
    kept = [note for note in table.notes if isinstance(note, Note) and note.topic in wanted]
    for topic in OFTEN:
        alike = [note for note in kept if note.topic is topic]
        kept = [note for note in kept if note not in alike[FEW:]]
    left = [note for note in table.notes if isinstance(note, LeftOut)]
    less = len(table.notes) - len(kept) - len(left)
    more = [f"{less} more with --explain, and all names."] if less else []
    return replace(table, notes=[*kept, *_joined(left), *more])


def _joined(left: Sequence[LeftOut]) -> Sequence[Note]:
    """Sentences about machines that were left out as one: how many for each reason, the most first."""
    if len(left) < 2 and all(len(one.machines) <= FEW for one in left):
        return left
    most_first = sorted(left, key=lambda one: -len(one.machines))
    parts = [
        f"{one.machines[0]} {one.reason}"
        if len(one.machines) == 1
        else f"{len(one.machines)} ({one.machines[0]}, ...) {one.reason}"
        for one in most_first
    ]
    many = sum(len(one.machines) for one in left)
    return [Note(Topic.LEFT_OUT, f"{many} machines: {'; '.join(parts)}.")]
