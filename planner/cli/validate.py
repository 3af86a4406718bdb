"""`planner validate` compares published and measured figures with predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli._output import show_progress, write_html
from planner.errors import BadInput, unknown_name
from planner.report.output import Format, emit

if TYPE_CHECKING:
    from planner.validation import Row
    from planner.validation.evidence import Evidence


def validate_command(
    names: list[str] | None = None,
    *,
    suite: list[str] | None = None,
    rows: bool = False,
    runs: Path | None = None,
    layouts: Path | None = None,
    html: Path | None = None,
    document: Path | None = None,
    check: Path | None = None,
    jobs: int | None = None,
    quiet: bool = False,
    format: Format = Format.table,
    output: Path | None = None,
) -> None:
    """Compare predictions with published and measured runs; exit with status 1 if a claim fails.

    planner validate --suite sharded --rows
    """
    asked = ValidationRequest(
        tuple(names or ()), tuple(suite or ()), rows, runs, layouts, html, document, check, jobs, quiet
    )
    if run_validation(asked, format, output):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class ValidationRequest:
    """Comparisons to make, and the files to write or to compare with."""

    names: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    rows: bool = False
    runs: Path | None = None
    layouts: Path | None = None
    html: Path | None = None
    document: Path | None = None
    check: Path | None = None
    jobs: int | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        if sum(map(bool, (self.names, self.suites, self.runs or self.layouts))) > 1:
            raise BadInput("give only one of names, --suite and your own runs (--runs, --layouts)")
        if self.names and (self.document or self.check):
            raise BadInput("--document and --check compare whole suites; leave the names out")
        if (self.runs or self.layouts) and (self.document or self.check or self.html):
            raise BadInput(
                "--document, --check and --html are for the shipped suites; use --output for your own runs"
            )
        from planner.validation.suites import SUITES

        for name in self.suites:
            if name not in SUITES:
                raise unknown_name("suite", name, SUITES, hint=f"one of {', '.join(SUITES)}")


def run_validation(
    asked: ValidationRequest, format: Format = Format.table, output: Path | None = None
) -> bool:
    """Runs the requested comparisons and prints them; returns whether any claim fails."""
    if asked.names:
        return _check_rows(asked, format, output)
    if asked.runs or asked.layouts:
        _compare_user_runs(asked, format, output)
        return False
    return _compare_suites(asked, format, output)


def _check_rows(asked: ValidationRequest, format: Format, output: Path | None) -> bool:
    """Compares papers row by row and prints the rows; returns whether any claim fails."""
    from planner.report.validation import rows_data, validation_tables
    from planner.validation import validate

    with show_progress(asked.quiet) as report:
        rows = validate(asked.names, jobs=asked.jobs, progress=report)
    emit(validation_tables(rows, format), format, output, data=rows_data(rows))
    write_html(validation_tables(rows), asked.html, "planner validate: published figures and ours")
    return not all(row.is_as_claimed for row in rows)


def _compare_user_runs(asked: ValidationRequest, format: Format, output: Path | None) -> None:
    """Compares the user's own runs or layouts with predictions, and prints the errors."""
    from planner.report.evidence import account_table, evidence_data, evidence_tables
    from planner.validation.own import user_layout_evidence, user_run_evidence

    files = ((user_run_evidence, asked.runs), (user_layout_evidence, asked.layouts))
    made = [collect_evidence(path) for collect_evidence, path in files if path]
    evidence = [piece for evidences, _ in made for piece in evidences]
    accounts = [account for _, account in made]
    tables = [account_table(account) for account in accounts]
    if output is not None:  # every run goes to the file, the figures to the terminal
        written = Format.csv if format is Format.table else format
        every = evidence_tables(evidence, rows=True, format=written, accounts=accounts)
        emit(every, written, output, data=evidence_data(evidence, rows=True, accounts=accounts))
        emit([*evidence_tables(evidence, rows=asked.rows), *tables], Format.table)
        return
    shown = evidence_tables(evidence, rows=asked.rows, format=format, accounts=accounts)
    if format is not Format.csv:
        shown += tables
    emit(shown, format, data=evidence_data(evidence, rows=asked.rows, accounts=accounts))


def _compare_suites(asked: ValidationRequest, format: Format, output: Path | None) -> bool:
    """Compares whole suites, prints and writes them; returns whether a claim fails or figures changed."""
    from planner.report.evidence import evidence_data, evidence_tables, suite_summary_table, suite_tables
    from planner.report.validation import page_differences, write_pages

    evidence, rows = _suite_evidence(asked)
    shown = evidence_tables(evidence, rows=asked.rows, format=format)
    emit(shown, format, output, data=evidence_data(evidence, rows=asked.rows))
    tables = [suite_summary_table(evidence), *(table for each in evidence for table in suite_tables(each))]
    write_html(tables, asked.html, "planner validate: published and measured runs, and predictions")
    if asked.document is not None:
        write_pages(evidence, rows, asked.document)
    moved = (
        page_differences(evidence, rows, asked.check, whole=not asked.suites)
        if asked.check is not None
        else []
    )
    for line in moved:
        typer.echo(line, err=True)
    broken = [row for row in rows if not row.is_as_claimed]
    for row in broken:
        typer.echo(f"{row.name} {row.status}: {row.what}", err=True)
    return bool(moved or broken)


def _suite_evidence(asked: ValidationRequest) -> tuple[list[Evidence], list[Row]]:
    """Evidence of the requested suites, and the rows of the suites that are checked row by row."""
    from planner.servers import validation as of_servers
    from planner.validation import validate
    from planner.validation.suites import SUITES, suite_evidence

    chosen = asked.suites or SUITES
    evidences, rows = [], []
    with show_progress(asked.quiet) as report:
        for done, name in enumerate(chosen, 1):
            if name == "papers":
                mine = validate(of_servers.PAPERS, jobs=asked.jobs)
                rows += mine
                evidences.append(of_servers.papers_evidence(mine))
            else:
                rows += validate(["testbed"], jobs=asked.jobs) if name == "servers" else []
                evidences.append(suite_evidence(name))
            report(f"compared {name}", done, len(chosen))
    return evidences, rows
