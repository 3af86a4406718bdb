"""The anatomy of a plan as tables: the parts of a step, and what a device holds."""

from __future__ import annotations

from planner.answers.anatomy import Anatomy
from planner.report.page import Column, Table
from planner.units import format_bytes, format_seconds

BAR = 24  # characters
PARTS = {
    "compute_s": "compute",
    "communication_s": "communication, exposed",
    "bubble_s": "pipeline bubble",
    "input_s": "waiting for input",
    "optimizer_s": "optimizer",
}


def anatomy_tables(anatomy: Anatomy | None) -> list[Table]:
    """Where a step goes and what a device holds, as far as they are known."""
    if anatomy is None:
        return []
    parts, whole = anatomy.parts, max(anatomy.parts.step_s, 1e-12)
    rows = []
    for name, words in PARTS.items():
        seconds = getattr(parts, name)
        if name == "compute_s" and parts.recompute_s:
            words = f"compute ({parts.recompute_s / max(seconds, 1e-12):.0%} of it recompute)"
        if seconds:
            rows.append(_row(words, seconds, seconds / whole))
    rows.append(_row("the step", whole, None))
    tables = [
        Table(
            rows,
            [
                Column("part", ""),
                Column("seconds", "seconds", show=format_seconds, align="right"),
                Column("share", "share", show=lambda v: "" if v is None else f"{v:.1%}", align="right"),
                Column("bar", ""),
            ],
            title="The step of a device",
        )
    ]
    if anatomy.memory is not None:
        tables.append(_memory_table(anatomy))
    return tables


def _memory_table(anatomy: Anatomy) -> Table:
    memory = anatomy.memory
    assert memory is not None
    total = memory.total_bytes
    rows = [
        {"part": kind, "bytes": size, "bar": "█" * round(BAR * size / total)}
        for kind, size in memory.bytes_by_kind.items()
    ]
    share = total / memory.usable_bytes
    rows.append(
        {"part": "in all", "bytes": total, "bar": f"{share:.0%} of {format_bytes(memory.usable_bytes)}"}
    )
    return Table(
        rows,
        [Column("part", ""), Column("bytes", "held", show=format_bytes, align="right"), Column("bar", "")],
        title="What a device holds",
    )


def _row(part: str, seconds: float, share: float | None) -> dict[str, object]:
    bar = "" if share is None else "█" * round(BAR * share)
    return {"part": part, "seconds": seconds, "share": share, "bar": bar}
