"""What `planner validate` prints, writes and leaves with, on suites and rows that are small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.cli.validate import ValidationRequest, run_validation
from planner.errors import BadInput
from planner.report.output import Format
from planner.servers import validation as of_servers
from planner.validation.evidence import Compared, Evidence
from planner.validation.row import CheckName, Row, Section
from planner.validation.suites import SUITES

CHECK = Section(CheckName("paper", "check"), "so", "there")
GOOD, BAD = (CHECK.near("one", "one", 100, ours, 0.15) for ours in (101, 200))


def small(name: str, predicted: float = 11.0) -> Evidence:
    run = Compared(
        id="r1", source="x", part="p", what="a run", unit="s", measured=10.0, predicted=predicted, left_out=12
    )
    return Evidence(
        suite=name, title=f"Of {name}", quantity="step time", fitted="", rule="", peers="", rows=[run]
    )


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Small suites instead of the shipped ones; which sources are checked row by row, as they are asked."""
    asked: list[object] = []

    def validate(names: object, **_: object) -> list[Row]:
        asked.append(names)
        return [GOOD]

    monkeypatch.setattr("planner.validation.validate", validate)
    monkeypatch.setattr("planner.validation.suites.suite_evidence", small)
    monkeypatch.setattr(of_servers, "papers_evidence", lambda _: small("papers"))
    return asked


def suites(*names: str, **more: object) -> ValidationRequest:
    return ValidationRequest(suites=names, quiet=True, **more)


def test_suites_are_those_asked_for_or_all(checked, capsys) -> None:
    run_validation(suites("memory", "layouts"), Format.json)
    assert list(json.loads(capsys.readouterr().out)["suites"]) == ["memory", "layouts"]
    assert checked == []
    run_validation(suites(), Format.json)
    assert list(json.loads(capsys.readouterr().out)["suites"]) == list(SUITES)
    assert checked == [of_servers.PAPERS, ["testbed"]]


def test_runs_are_listed_where_they_are_asked_for(checked, capsys) -> None:
    run_validation(suites("memory"), Format.json)
    assert "rows" not in json.loads(capsys.readouterr().out)["suites"]["memory"]
    run_validation(suites("memory", rows=True), Format.json)
    assert len(json.loads(capsys.readouterr().out)["suites"]["memory"]["rows"]) == 1


def test_row_that_fails_is_named_and_decides_the_exit(checked, monkeypatch, capsys) -> None:
    assert run_validation(suites("papers")) is False
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("planner.validation.validate", lambda *_, **__: [GOOD, BAD])
    assert run_validation(suites("papers")) is True
    assert capsys.readouterr().err == "paper/check/one FAILS: one\n"


def test_page_that_says_otherwise_is_told_and_decides_the_exit(checked, monkeypatch, tmp_path, capsys):
    page, document = tmp_path / "page.html", tmp_path / "validation.md"
    assert run_validation(suites("memory", html=page, document=document)) is False
    assert "Of memory" in page.read_text("utf-8")
    capsys.readouterr()
    assert run_validation(suites("memory", check=document)) is False
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("planner.validation.suites.suite_evidence", lambda name: small(name, 14.0))
    assert run_validation(suites("memory", check=document)) is True
    assert "is 40%" in capsys.readouterr().err


def test_checks_by_name_fail_on_what_fails(checked, monkeypatch, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert run_validation(ValidationRequest(("paper",), html=page, quiet=True), Format.json) is False
    assert json.loads(capsys.readouterr().out)["as_claimed"] is True
    assert "paper/check" in page.read_text("utf-8")
    monkeypatch.setattr("planner.validation.validate", lambda *_, **__: [BAD])
    assert run_validation(ValidationRequest(("paper",), quiet=True)) is True


@pytest.mark.parametrize("file", ["html", "document", "check"])
def test_own_runs_have_no_pages(tmp_path: Path, file: str) -> None:
    with pytest.raises(BadInput, match="are for the shipped suites; use --output"):
        ValidationRequest(runs=tmp_path / "mine.csv", **{file: tmp_path / "x"})
