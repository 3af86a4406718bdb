"""Reads a user's own tables of measured runs and layouts, and compares them like the published ones.

Columns are those of `data/training.csv.gz` (docs/accuracy.md lists them); missing ones are empty or derived
from others, unknown ones are ignored. Every row is accounted for (`Account`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.errors import BadInput
from planner.memoize import memoize
from planner.validation import scaling
from planner.validation.evidence import OTHER_KIND, Evidence
from planner.validation.layouts import layouts_evidence, read_layouts
from planner.validation.reader import UnreadableRow, published_runs, read_rows
from planner.validation.row import figure_problem, fill_columns, read_table
from planner.validation.run import Row, Run
from planner.validation.suites import OF_RUNS, evidence_from_runs

NEEDED = ("model", "device", "devices")


def read_user_rows(path: Path) -> tuple[list[Row], list[UnreadableRow]]:
    """Complete rows of a user's table, with derived columns, and the rows that cannot be read."""
    rows = read_table(path)
    if not rows:
        raise BadInput(f"{path} has no rows; give a CSV file with a header and a run a line")
    for name in NEEDED:
        if name not in rows[0]:
            raise BadInput(f"{path} has no column {name}; it needs {', '.join(NEEDED)} and others by the run")
    parts: list[Row] = []
    refused = []
    for line, row in enumerate(rows, 2):
        full = fill_columns(row, line, path.stem)
        if wrong := figure_problem(full):
            refused.append(UnreadableRow(full["id"], full["source_id"], wrong))
        else:
            parts.append(full)
    return parts, refused


@dataclass(frozen=True, slots=True)
class Account:
    """Number of a user's rows, how many were compared, and why each other row was skipped."""

    given: int
    compared: int
    skipped: Mapping[str, str]


def user_run_evidence(path: Path) -> tuple[list[Evidence], Account]:
    """Results of all suites that can compare some of a user's runs, with an account of every row."""
    rows, unread = read_user_rows(path)
    runs, refused = read_rows(rows)
    runs = [replace(run, fit_id=_fit_id(run)) for run in runs]
    reasons = {entry.id: entry.reason for entry in (*unread, *refused)}
    results = [evidence_from_runs(name, runs, reasons) for name in OF_RUNS]
    compared = {row.id for match in results for row in match.rows}
    skipped = {
        id: _skip_reason(id, results) for match in results for id in match.skipped if id not in compared
    }
    account = Account(len(rows) + len(unread), len(compared), skipped)
    kept = [match for match in results if match.rows]
    if not kept:
        raise BadInput(f"{path}: no row can be compared ({_frequent_reasons(skipped)})")
    return kept, account


def _skip_reason(id: str, evidences: Sequence[Evidence]) -> str:
    """Reason why no suite compares a row, by the suite that it fits best."""
    reasons = [match.skipped[id] for match in evidences if id in match.skipped]
    reasons = [reason for reason in reasons if reason not in (OTHER_KIND, "no memory is stated")]
    general = ("not plain data parallelism", "no smaller run of its series", scaling.FIRST)
    reasons = [reason for reason in reasons if reason not in general] or reasons
    return reasons[0] if reasons else "of no known kind"


def _frequent_reasons(skipped: Mapping[str, str]) -> str:
    """The three most frequent reasons for skipping rows, with their counts."""
    ranked = Counter(skipped.values()).most_common(3)
    return "; ".join(f"{count} x {reason}" for reason, count in ranked) or "it has none"


@memoize
def _shipped_runs() -> Mapping[str, Run]:
    """Published runs by id; cached."""
    return {run.id: run for run in published_runs()[0]}


def _fit_id(run: Run) -> str | None:
    """Id of the shipped run that a user's run repeats; None if there is none."""
    same = _shipped_runs().get(run.id)
    alike = same is not None and (same.source, same.series, same.step_s) == (
        run.source,
        run.series,
        run.step_s,
    )
    return run.id if alike else None


def user_layout_evidence(path: Path) -> tuple[list[Evidence], Account]:
    """Result of the layouts suite on a user's table, without corrections from our fit."""
    runs, refused = read_layouts(read_table(path), path.stem)
    result = layouts_evidence(
        [replace(run, fit_id=None) for run in runs], {entry.id: entry.reason for entry in refused}
    )
    if not result.rows:
        raise BadInput(f"{path}: no row can be compared ({_frequent_reasons(result.skipped)})")
    return [result], Account(len(runs) + len(refused), len(result.rows), result.skipped)
