"""`planner prices` and `planner hardware --gpu`, as a user runs them."""

import json
import os
import shutil
from datetime import date, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli._app import app
from planner.errors import BadInput, Infeasible
from planner.hardware.prices import cost

DATA = Path(__file__).parents[2] / "data/prices"


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "150"}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_import_show_and_diff(home: Path) -> None:
    said = run("prices", "import", str(DATA / "v8"), "--as-of", "2026-11-16")
    assert str(home / "prices/gcp-2026-11-16.csv") in said
    assert "aws: left out 1 of machines that the catalog lacks." in said
    assert "Dated by" not in said
    shown = json.loads(run("prices", "show", "g5.48xlarge", "-f", "json"))
    assert (shown[0]["region"], shown[0]["spot_usd_per_hour"]) == ("us-east-1", 7.1)
    assert {row["as_of"] for row in shown} == {"2026-11-16", "2026-08-22"}
    rows = {row["provider"]: row for row in json.loads(run("prices", "show", "-f", "json"))}
    assert (rows["aws"]["imported"], rows["oci"]["imported"]) == (4, 0)
    changed = json.loads(run("prices", "diff", "shipped", "now", "-f", "json"))
    assert {row["name"] for row in changed} >= {"g5.48xlarge", "c5.18xlarge", "lambda-8x-h100-sxm5"}
    saved = str(home / "prices/aws-2026-11-16.csv")
    assert "6 prices are the same; 0 machines" in run("prices", "diff", saved, str(DATA / "v8/aws/vms.csv"))


def test_day_of_the_file_is_said_to_be_a_guess(tmp_path: Path) -> None:
    path = tmp_path / "nebius.csv"
    shutil.copy(DATA / "gpuhunt/nebius.csv", path)
    day = datetime(2026, 10, 20, 12).timestamp()
    os.utime(path, (day, day))
    said = run("prices", "import", str(path))
    assert "2026-10-20" in said
    assert "--as-of" in said
    assert run("prices", "show", "nebius-8x-h100-sxm", "-f", "csv").splitlines()[1].split(",")[2] == "37.6"
    tomorrow = datetime(2026, 11, 18, 12).timestamp()
    os.utime(path, (tomorrow, tomorrow))
    with pytest.raises(BadInput, match="future"):
        run("prices", "import", str(path))


def test_offers_in_the_terminal() -> None:
    text = run("hardware", "--gpu", "H100", "--provider", "aws,gcp,azure")
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["machine", "devices", "$/GPU-h"]
    assert lines[2].split()[:4] == ["p5.48xlarge", "8x", "H100-SXM5", "6.88"]
    rows = json.loads(run("hardware", "--gpu", "A100:8", "--region", "cheapest", "--spot", "-f", "json"))
    spots = [row["spot_usd_per_device_hour"] for row in rows if row["spot_usd_per_device_hour"]]
    assert spots == sorted(spots)
    assert all(row["price_as_of"] and row["price_source"] for row in rows)


def test_unrentable_machines_are_shown_only_when_asked() -> None:
    assert "p3.2xlarge" not in run("hardware", "--gpu", "V100")
    text = run("hardware", "--gpu", "V100", "--all")
    assert next(line for line in text.splitlines() if line.startswith("p3.2xlarge")).endswith("retired")
    with pytest.raises(Infeasible, match="--all"):
        run("hardware", "--gpu", "K80")


def test_sold_leaves_out_example_clusters_too() -> None:
    rows = json.loads(run("hardware", "--sold", "-f", "json"))
    assert {row["state"] for row in rows} == {"sold"}
    assert len(rows) == 290 - 11 - 3


def test_lists_by_provider() -> None:
    rows = json.loads(run("hardware", "--provider", "verda", "-f", "json"))
    assert {row["provider"] for row in rows} == {"verda"}
    assert len(rows) == 10


def test_bad_words() -> None:
    for words, what in (
        (("prices", "import", "none.csv"), "cannot read"),
        (("prices", "diff", "shipped", "none.csv"), "cannot read"),
        (("prices", "diff", "shipped", "now", "--provider", "asw"), "known: aws"),
        (("hardware", "--gpu", "B2000"), "nearest: B200"),
        (("prices", "show", "g5.xlrage"), "nearest"),
    ):
        with pytest.raises(BadInput, match=what):
            run(*words)


class Later(date):
    @classmethod
    def today(cls) -> date:
        return date(2027, 2, 1)


@pytest.mark.parametrize(
    "command",
    [
        "recommend --model vgg11 --budget 5 --hardware g5.xlarge --explain",
        "simulate --model vgg11 --hardware g5.xlarge --workers 2 --explain",
        "compare --model vgg11 --hardware g5.xlarge,g4dn.xlarge --budget 5 --explain",
        "saturation --model vgg11 --hardware g5.xlarge --explain",
        "fit --model llama3-8b --gpu L4",
        "hardware g5",
        "hardware g5.xlarge",
        "hardware --gpu L4",
        "prices show g5.xlarge",
        "prices show",
    ],
)
def test_old_prices_name_the_command_that_updates_them(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "date", Later)
    text = " ".join(run(*command.split()).split())
    assert "older than 90 days" in text
    assert "`planner prices import FILE` updates them" in text


def test_import_of_aws_json_is_dated_by_the_list_and_keeps_spot(home: Path) -> None:
    text = run("prices", "import", str(DATA / "aws/index.json"))
    assert str(home / "prices/aws-2026-11-12.csv") in text
    assert "Dated by" not in text
    shown = json.loads(run("prices", "show", "p5.48xlarge", "-f", "json"))
    assert (shown[0]["on_demand_usd_per_hour"], shown[0]["as_of"]) == (54.5, "2026-11-12")
    assert shown[0]["spot_usd_per_hour"] == 20.7387  # the catalog's, as the list says nothing of spot


def test_import_of_two_columns(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "quotes.csv"
    path.write_text("p5.48xlarge,50\na2-highgpu-8g,28\n")
    assert str(home / "prices/several-2026-11-16.csv") in run(
        "prices", "import", str(path), "--as-of", "2026-11-16"
    )
    assert json.loads(run("prices", "show", "p5.48xlarge", "-f", "json"))[0]["on_demand_usd_per_hour"] == 50
    assert "2 prices are the same" in run("prices", "diff", str(path), "now")
