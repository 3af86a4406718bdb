"""`papers`: the figures of five papers, and published throughputs of the devices of their time."""

from __future__ import annotations

from collections.abc import Sequence

from planner.validation.evidence import Compared, Evidence, Statement
from planner.validation.row import Row
from planner.validation.suite import SOURCES, validate

LEAST_HOLD = 0.9
PAPERS = tuple(source for source in SOURCES if source not in ("testbed", "large"))


def found() -> Evidence:
    return evidence_of(validate(PAPERS))


def evidence_of(rows: Sequence[Row]) -> Evidence:
    """What rows say together: the errors of figures, and how many do what is claimed of them."""
    hold = [row.holds for row in rows]
    return Evidence(
        suite="papers",
        title="Figures of five papers, and throughputs of their devices",
        quantity="figures of the papers",
        fitted="kernel rates of four devices were fitted to `devices/fitted`; nothing else",
        rule="",
        peers="",
        rows=[one for row in rows if (one := _compared(row)) is not None],
        statements=[
            Statement(
                name="rows that hold what is claimed of them",
                value=sum(hold) / len(hold),
                target=LEAST_HOLD,
                most=False,
            )
        ],
        notes=[f"{sum(hold)} of {len(hold)} rows hold; words and orders count as rows, not as errors."],
    )


def _compared(row: Row) -> Compared | None:
    if row.error is None or isinstance(row.published, str) or isinstance(row.ours, str) or not row.published:
        return None
    return Compared(
        id=str(row.name),
        source=row.name.paper,
        part=row.name.paper,
        what=row.what,
        unit=row.unit,
        measured=float(row.published),
        predicted=float(row.ours),
        claimed=row.holds,
    )
