"""Suites of `planner validate` as tables and data: a line per suite, tables per suite, and every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import planner
from planner.report.output import Format
from planner.report.page import Column, Table, columns_of
from planner.validation.evidence import Compared, Evidence, Figures, Part, Statement, error_statistics
from planner.validation.own import Account

MOST_REASONS = 12
MOST_WORST = 5
LARGEST_ERRORS = "Largest errors"


def format_percent(value: float) -> str:
    """Formats a fraction as percent, with one decimal below 10%."""
    return f"{100 * value:.1f}%" if abs(value) < 0.0995 else f"{100 * value:.0f}%"


def format_signed_percent(value: float) -> str:
    """Formats a fraction as percent with its sign."""
    return f"{'+' if value >= 0 else '-'}{format_percent(abs(value))}"


def median_and_p90(median: float | None, p90: float | None) -> str | None:
    """Text of the median and 90th percentile of an error: `7.2% / 31%`; None if either is unknown."""
    return None if median is None or p90 is None else f"{format_percent(median)} / {format_percent(p90)}"


def yes_or_no(value: bool | None) -> str | None:
    """Text on whether a target is met, `yes` or `NO`; None without a target."""
    return None if value is None else ("yes" if value else "NO")


def suite_summary_table(results: Sequence[Evidence]) -> Table:
    """Table with one row per suite."""
    return Table(
        [
            _error_cells(match.suite, match.whole) | {"_targets": _targets_met_words(match)}
            for match in results
        ],
        _error_columns("Suite", leave_out=("_target", "_reached")),
        title="Predictions compared with published and measured runs",
        notes=[
            "Errors are |predicted / measured - 1|: median / 90th percentile (p90). Source left out: "
            "the same with constants fitted without the run's source; '-' where nothing was fitted to them. "
            "In range: share of measured values inside the stated 90% range. `planner validate --suite NAME` "
            "has the details; `--rows` lists every run."
        ],
    )


def suite_tables(evidence: Evidence) -> list[Table]:
    """Tables of one suite: errors by part, other figures, and runs that could not be compared."""
    notes = [f"Errors are those of {evidence.quantity}. Fitted: {evidence.fitted}."]
    notes += [f"Rule of thumb: {evidence.rule}."] if evidence.rule else []
    notes += [f"Others: {evidence.peers}."] if evidence.peers else []
    notes += list(evidence.notes)
    parts = Table(
        [_error_cells(part.name, part.figures) | _target_cells(part) for part in evidence.parts],
        _error_columns("Part", leave_out=("_targets",)),
        title=evidence.title,
        notes=notes,
    )
    tables = [parts]
    if evidence.statements:
        tables.append(_statement_table(evidence.statements))
    if evidence.refused:
        tables.append(_skipped_runs_table(evidence))
    return tables


def source_table(evidence: Evidence) -> Table:
    """Table of one suite's errors, by source."""
    by_source: dict[str, list[Compared]] = {}
    for row in sorted(evidence.rows, key=lambda row: row.source):
        by_source.setdefault(row.source, []).append(row)
    cells = [_error_cells(source, error_statistics(rows)) for source, rows in by_source.items()]
    columns = _error_columns("Source", leave_out=("_target", "_reached", "_targets"))
    return Table(cells, columns, "By source")


def worst_runs_table(evidence: Evidence) -> Table:
    """Table of the runs with the largest errors."""
    rows = sorted(evidence.rows, key=lambda row: -abs(row.error))[:MOST_WORST]
    return _run_table(rows, LARGEST_ERRORS)


def all_runs_table(evidence: Evidence) -> Table:
    """Table of all compared runs of one suite, one per row."""
    return _run_table(evidence.rows, f"{evidence.suite}: every run")


def row_data(suite: str, row: Compared) -> dict[str, Any]:
    """Fields of one compared run, for CSV and JSON."""
    return {"suite": suite, **asdict(row), "error": row.error, "inside": row.is_in_range}


def account_table(account: Account) -> Table:
    """Table of how many of a user's rows were compared, and why the others were skipped."""
    reasons = Counter(account.skipped.values()).most_common()
    lines = [{"what": "compared", "rows": account.compared}]
    lines += [{"what": f"skipped: {reason}", "rows": count} for reason, count in reasons]
    share = account.compared / max(account.given, 1)
    title = f"{account.given:,} rows given, {account.compared:,} compared ({share:.0%})"
    return Table(lines, columns_of("account"), title)


def evidence_data(
    results: Sequence[Evidence], *, rows: bool = False, accounts: Sequence[Account] = ()
) -> dict[str, Any]:
    """Suites with their parts, statements and runs as plain values, for JSON."""
    return {
        "version": planner.__version__,
        **({"accounts": [asdict(account) for account in accounts]} if accounts else {}),
        "suites": {
            match.suite: {
                "title": match.title,
                "quantity": match.quantity,
                "fitted": match.fitted,
                "rule_of_thumb": match.rule,
                "peers": match.peers,
                "all": asdict(match.whole) if match.rows else None,
                "parts": {
                    part.name: asdict(part.figures) | {"target": part.target, "reached": part.meets_target}
                    for part in match.parts
                },
                "statements": {
                    each.name: {"value": each.value, "target": each.target, "reached": each.meets_target}
                    for each in match.statements
                },
                "refused": dict(match.refused),
                **({"rows": [row_data(match.suite, row) for row in match.rows]} if rows else {}),
            }
            for match in results
        },
    }


def evidence_tables(
    results: Sequence[Evidence],
    *,
    rows: bool = False,
    format: Format = Format.table,
    accounts: Sequence[Account] = (),
) -> list[Table]:
    """Tables that `validate` prints: one row per suite if there are several, else the suite's tables. CSV
    lists every run, then the rows that no suite compares with the reason."""
    if format is Format.csv:
        lines = [row_data(match.suite, row) for match in results for row in match.rows]
        if accounts and lines:
            empty = dict.fromkeys(lines[0])
            lines = [line | {"skipped": None} for line in lines]
            skipped = (item for account in accounts for item in account.skipped.items())
            lines += [empty | {"id": id, "skipped": reason} for id, reason in skipped]
        return [Table(lines)]
    tables = [suite_summary_table(results)] if len(results) > 1 else []
    if len(results) == 1 or rows:
        for match in results:
            tables += suite_tables(match)
            tables += [all_runs_table(match)] if rows else []
    return tables


def _error_cells(name: str, errors: Figures) -> dict[str, Any]:
    """Table cells of error statistics, in the row with this name."""
    return asdict(errors) | {
        "_name": name,
        "_errors": median_and_p90(errors.median, errors.ninth),
        "_left": median_and_p90(errors.left_median, errors.left_ninth),
        "_rule": median_and_p90(errors.rule_median, errors.rule_ninth),
    }


def _target_cells(part: Part) -> dict[str, Any]:
    """Table cells with a part's target, and whether it is met."""
    target = None if part.target is None else median_and_p90(*part.target)
    return {"_target": target, "_reached": yes_or_no(part.meets_target)}


def _targets_met_words(evidence: Evidence) -> str | None:
    """Text on how many targets are met: `5 of 7`; None without targets."""
    figures: Sequence[Part | Statement] = (*evidence.parts, *evidence.statements)
    each = [figure.meets_target for figure in figures]
    asked = [value for value in each if value is not None]
    return f"{sum(asked)} of {len(asked)}" if asked else None


def _error_columns(first: str, leave_out: Sequence[str]) -> list[Column]:
    """Columns of error tables; `first` is the title of the name column."""
    show = {"worst": format_signed_percent, "bias": format_signed_percent}
    name, *others = columns_of("errors", show=show, leave_out=leave_out)
    return [replace(name, title=first), *others]


def _format_statement_value(statement: Statement, value: float) -> str:
    """Formats a figure of a statement as a percentage or with two decimals."""
    return format_percent(value) if statement.percent else f"{value:.2f}"


def _statement_table(statements: Sequence[Statement]) -> Table:
    """Table of figures other than errors, with targets."""
    lines = [
        {
            "_name": each.name,
            "_value": _format_statement_value(each, each.value),
            "_target": None
            if each.target is None
            else f"at {'most' if each.most else 'least'} {_format_statement_value(each, each.target)}",
            "_reached": yes_or_no(each.meets_target),
            "_peer": each.peer or None,
        }
        for each in statements
    ]
    return Table(lines, columns_of("statements"), "Other figures")


def _skipped_runs_table(evidence: Evidence) -> Table:
    """Table of the reasons why runs could not be compared, most frequent first."""
    common = evidence.refused.most_common()
    lines = [{"reason": reason, "runs": count} for reason, count in common[:MOST_REASONS]]
    if rest := sum(count for _, count in common[MOST_REASONS:]):
        lines.append({"reason": "other reasons", "runs": rest})
    return Table(lines, columns_of("refused"), "Not compared")


def _run_table(rows: Sequence[Compared], title: str) -> Table:
    """Table of compared runs, one per row."""
    lines = [
        asdict(row)
        | {
            "_error": format_signed_percent(row.error),
            "_measured": f"{row.measured:.4g}",
            "_predicted": f"{row.predicted:.4g}",
            "_inside": yes_or_no(row.is_in_range),
        }
        for row in rows
    ]
    return Table(lines, columns_of("compared_runs"), title)
