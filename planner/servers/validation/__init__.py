"""The suites of parameter servers: `papers`, the figures of five papers and published throughputs of the
devices of their time; `servers`, real TensorFlow runs predicted from the profile of one worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.servers.validation import testbed
from planner.validation import SOURCES, validate
from planner.validation.evidence import Compared, Evidence, Statement, add_ranges
from planner.validation.row import Row
from planner.validation.suites import build_evidence

LEAST_HOLD = 0.9
PAPERS = tuple(source for source in SOURCES if source not in ("testbed", "large"))


def evidence(name: str) -> Evidence:
    """Measured and predicted figures of the suite `servers` or `papers`."""
    return servers_evidence() if name == "servers" else papers_evidence(validate(PAPERS))


def servers_evidence() -> Evidence:
    """Measured and predicted throughputs of real TensorFlow runs."""
    rows = []
    for entry in testbed.compared_points():
        point = entry.point
        rows.append(
            Compared(
                id=f"{point.name}-w{point.workers}",
                source=point.config,
                part="one server" if point.servers == 1 else f"{point.servers} servers",
                what=f"{point.name}, {point.workers} workers",
                unit="samples/s",
                measured=point.samples_per_s,
                predicted=entry.prediction.samples_per_s,
                rule=point.samples_per_s * (1 + entry.baselines["ideal"]),
            )
        )
    return build_evidence("servers", add_ranges(rows), {})


def papers_evidence(rows: Sequence[Row]) -> Evidence:
    """Errors of predicted figures against papers, and the fraction of papers' claims that hold."""
    hold = [row.holds for row in rows]
    compared = [pair for row in rows if (pair := _comparison(row)) is not None]
    share = Statement(
        name="claims reproduced (share)", value=sum(hold) / len(hold), target=LEAST_HOLD, most=False
    )
    notes = [f"{sum(hold)} of {len(hold)} rows hold. Rows about wording or order have no error figure."]
    return replace(build_evidence("papers", compared, {}, [share]), notes=notes)


def _comparison(row: Row) -> Compared | None:
    """Published and predicted value of one row, for the error statistics; None unless both are numbers."""
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
