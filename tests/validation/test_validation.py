"""`planner validate`: the checks at hand, the document, and the door."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from planner.errors import BadInput
from planner.report.output import Format, render
from planner.report.validation import outcome_sentence, page_texts, table_differences, validation_tables
from planner.servers.validation import papers_evidence
from planner.validation import Row, check_names, checks, known_failure_reasons, validate
from planner.validation.row import load_figures

DOCS = Path(__file__).parents[2] / "docs"
PAPERS = DOCS / "validation-papers.md"
# Checks of a few CPU seconds in all; CI compares every row (`planner validate --check docs/validation.md`).
FAST = [
    "li/split",
    "li/overhead",
    "tictac/table",
    "tictac/overlap",
    "tictac/orders",
    "yan",
    "prophet",
    "ordering_abstract",
    "devices",
]


@pytest.fixture(scope="module")
def fast() -> list[Row]:
    return validate(FAST)


def test_rows_do_as_claimed(fast: list[Row]) -> None:
    assert [row.name for row in fast if not row.is_as_claimed] == []
    assert [row.name for row in fast if row.holds and row.known] == []
    assert all(row.reason for row in fast if not row.holds)


def test_prophet_at_1_gbit_is_at_most_18_percent_below(fast: list[Row]) -> None:
    """The published rates are 96% to 106% of what the server's NIC can carry, more than any order reaches."""
    errors = [row.error for row in fast if row.name.check == "table2" and row.name.case.endswith("-1")]
    assert len(errors) == 3
    assert all(error is not None and -0.18 <= error < 0 for error in errors)


def test_every_row_has_one_name_and_says_how_and_whence(fast: list[Row]) -> None:
    assert len({row.name for row in fast}) == len(fast)
    assert all(row.name.check_name in checks() for row in fast)
    assert all(row.how and row.source and row.claim for row in fast)


def test_list_of_failing_rows_names_checks_that_exist() -> None:
    assert [name for name in known_failure_reasons() if name.check_name not in checks()] == []


def test_document_is_that_of_the_code(fast: list[Row]) -> None:
    pages = page_texts([papers_evidence(fast)], fast, whole=False)
    varying = {row.what for row in fast if row.varies}
    differences = table_differences(pages["papers"], PAPERS.read_text("utf-8"), varying, whole=False)
    checked = {str(row.name.check_name) for row in fast}
    assert [line for line in differences if line.split(" / ")[1] in checked] == []


def test_document_has_every_check_and_nine_rows_in_ten_hold() -> None:
    text = PAPERS.read_text("utf-8")
    mine = [name for name in checks() if name.paper != "large"]  # `planner validate large` has those
    assert [name for name in mine if f"**{name}**" not in text] == []
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    holds = [row[-1] for row in cells if len(row) == 6 and row[0] != "What"]
    assert set(holds) == {"yes", "NO"}
    assert holds.count("yes") >= 0.9 * len(holds)


def test_figure_that_moved_is_found() -> None:
    rows = validate(["li/split"])
    text = render(validation_tables(rows)[:-1], Format.markdown)
    assert table_differences(text, text) == []
    (moved,) = table_differences(text, text.replace("406.6 MiB", "417.6 MiB"))
    assert "was 417.6 MiB, is 406.6 MiB" in moved
    assert table_differences(text, text.replace("406.6 MiB", "408.6 MiB")) == []
    assert "is new" in table_differences(text, text.replace("the larger one", "the other one"))[0]
    assert "was NO, is yes" in table_differences(text, text.replace("| yes |", "| NO |"))[0]
    assert len(table_differences(text, "# nothing")) == 1 + len(rows)  # with the headings
    assert table_differences(text, text.replace("406.6", "417.6"), {row.what for row in rows}) == []


def test_names_choose_papers_and_checks() -> None:
    assert {row.name.check for row in validate(["overhead"])} == {"overhead"}
    assert [str(row.name) for row in validate(["li/split"])] == ["li/split/larger", "li/split/smaller"]
    assert {"li", "saturation", "testbed/points"} <= set(check_names())
    with pytest.raises(BadInput, match="nearest: split"):
        validate(["splitt"])


def test_listed_row_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(load_figures("known"), "li/split/middle", "it was renamed")
    with pytest.raises(BadInput, match="do not exist: li/split/middle"):
        validate(["li/split"])
    assert len(validate(["li/overhead"])) == 2


def test_rows_do_not_depend_on_the_number_of_threads() -> None:
    asked = ["tictac/table", "ordering_abstract/extremes", "li/split"]
    assert validate(asked, jobs=1) == validate(asked, jobs=4)


def test_summary_counts(fast: list[Row]) -> None:
    failing = [row for row in fast if not row.holds]
    assert outcome_sentence(fast).startswith(f"{len(fast) - len(failing)} of {len(fast)} rows hold")
    assert f"{len(failing)} known not to hold" in outcome_sentence(fast)


def test_end_names_what_is_not_as_claimed() -> None:
    broken = [replace(row, holds=False) for row in validate(["li/split"])]
    text = render(validation_tables(broken), Format.table)
    assert "li/split/larger FAILS: 407 MiB, ours 406.6 MiB, claimed: within 0.5 MiB." in text
    assert "failing although claimed to hold: 2" in text
    listed = [row.mark_known("a reason") for row in validate(["li/split"])]
    assert "holding although listed as failing: 2" in outcome_sentence(listed)


def test_formats(fast: list[Row]) -> None:
    lines = list(csv.DictReader(io.StringIO(render(validation_tables(fast, Format.csv), Format.csv))))
    assert [line["name"] for line in lines] == [str(row.name) for row in fast]
    text = render(validation_tables(fast), Format.table)
    assert all(row.reason.split()[0] in text for row in fast if not row.holds)
