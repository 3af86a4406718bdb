"""`planner hardware`, as a user runs it."""

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli._app import app
from planner.errors import BadInput, Infeasible

RUNNER = CliRunner()


def run(*args: str) -> str:
    result = RUNNER.invoke(app, ["hardware", *args], env={"COLUMNS": "140"}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_list_has_every_machine() -> None:
    rows = json.loads(run("--format", "json"))
    assert len(rows) == 290
    p3 = next(row for row in rows if row["name"] == "p3.2xlarge")
    assert p3["nic_baseline_gbit_per_s"] == 2.5
    assert p3["nic_burst_gbit_per_s"] == 10
    assert p3["on_demand_usd_per_hour"] == 3.06
    assert p3["still_sold"] is False
    assert not any(key.startswith("_") for row in rows for key in row)


def test_patterns_and_what_is_sold() -> None:
    text = run("p3*", "--sold")
    assert "p3dn.24xlarge" in text
    assert "p3.2xlarge" not in text
    rows = list(csv.DictReader(io.StringIO(run("g5.*,p4d.*", "-f", "csv"))))
    assert [row["name"] for row in rows][-1] == "p4d.24xlarge"
    assert len(rows) == 9


def test_page_has_every_source_and_the_successor() -> None:
    text = run("p3.2xlarge")
    assert "2.5 Gbit/s" in text
    assert "Nearest machine still sold: g5.2xlarge" in text
    assert "zz_generated.bandwidth.go" in text
    data = json.loads(run("p3.2xlarge", "-f", "json"))
    assert data["nearest_current"]["name"] == "g5.2xlarge"
    assert data["sources"]["nic_baseline"]["basis"] == "published"


def test_unknown_figures_are_shown_as_unknown() -> None:
    assert "not published (High)" in run("c4.4xlarge")
    assert json.loads(run("c4.4xlarge", "-f", "json"))["nic_baseline_gbit_per_s"] is None


def test_private_price_gives_its_reasoning() -> None:
    text = run("private-opteron")
    assert "estimated" in text
    assert "USD/kWh" in text


def test_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "hardware.csv"
    assert run("p3", "-f", "csv", "-o", str(target)) == ""
    assert target.read_text().count("\n") == 4


@pytest.mark.parametrize(("name", "words"), [("p3.9xlarge", "nearest: p3"), ("./none.toml", "cannot read")])
def test_bad_names(name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        run(name)


def test_filters_without_match_print_no_empty_table() -> None:
    with pytest.raises(Infeasible, match="still sold"):
        run("p2", "--sold")


def test_pattern_gives_a_list_even_of_one_machine_and_a_name_its_page() -> None:
    assert [row["name"] for row in json.loads(run("p3.2xlarg?", "--format", "json"))] == ["p3.2xlarge"]
    assert isinstance(json.loads(run("p3.2xlarge", "--format", "json")), dict)
