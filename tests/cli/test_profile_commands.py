"""`planner profile` and `planner calibrate` as a user runs them."""

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli._app import app
from planner.errors import BadInput
from planner.simulator.step import files

DATA = Path(__file__).parents[1] / "data"
STEPS = [str(DATA / "tensorflow" / f"alexnet_ps1_step{k}.pb.gz") for k in range(3)]


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=True)


@pytest.fixture
def imported(tmp_path):
    path = tmp_path / "alexnet.json.gz"
    result = run("profile", "import", *STEPS, "--batch", 4, "-o", path, "--bandwidth", "198.6Mbit")
    assert result.exit_code == 0, result.output
    return path


def test_import_writes_a_profile_and_says_what_it_did(imported, tmp_path):
    profile = files.load(imported)
    assert (profile.steps, profile.ops, profile.batch) == (3, 65, 4)
    assert profile.bandwidth_bytes_per_s == pytest.approx(198.6e6 / 8)
    parsed = tmp_path / "parsed.json.gz"
    result = run("profile", "import", *STEPS, "--batch", 4, "-o", parsed, "--overhead", "1.6e-10,3e-4")
    assert result.exit_code == 0
    assert files.load(parsed).ops == 65 + 32
    assert "learning_rate" in result.output


def test_show_for_people_and_for_programs(imported):
    table = run("profile", "show", imported).output
    for words in ("downlink[0]", "critical path: 13", "communication / computation: 1.7", "3 steps only"):
        assert words in table
    data = json.loads(run("profile", "show", imported, "--format", "json", "--slowest", 2).output)
    assert {op["name"] for op in data["slowest"]} == {
        "edge_35_affine0/weights/read",
        "edge_64_gradients/affine0/bwd/compute",
    }
    assert data["resources"][0]["bytes"] == 2_400_008
    rows = list(csv.DictReader(io.StringIO(run("profile", "show", imported, "--format", "csv").output)))
    assert [row["resource"] for row in rows] == ["downlink[0]", "worker", "uplink[0]", "ps[0]"]


def test_calibrate_compute_never_replaces_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("kept")
    refused = run("calibrate", "compute", "-o", file).exception
    assert isinstance(refused, BadInput)
    assert f"{file} exists; --into {file} adds" in str(refused)
    assert file.read_text() == "kept"


def test_calibrate_compute_refuses_a_file_without_machines_before_measuring(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "planner.calibrate.compute.calibrate_compute", lambda on_progress: pytest.fail("measured")
    )
    file = tmp_path / "mine.toml"
    file.write_text("[devices]\n")
    refused = run("calibrate", "compute", "--into", file, "--device", "cpu").exception
    assert isinstance(refused, BadInput)
    assert "defines no machine" in str(refused)
    assert file.read_text() == "[devices]\n"


def test_calibrate(imported):
    fits = json.loads(run("calibrate", "overhead", DATA / "overhead_capture.csv", "--format", "json").output)
    assert [fit["direction"] for fit in fits] == ["downlink", "uplink"]
    assert fits[0]["beta_s"] == pytest.approx(283e-6, rel=0.05)
    windows = json.loads(run("calibrate", "window", imported, "--format", "json").output)
    assert [(w["window_bytes"], w["at_least_bytes"]) for w in windows] == [(None, 1_464_968)] * 2
    assert "no preemption is seen" in run("calibrate", "window", *STEPS, "--bandwidth", "198.6Mbit").output
    assert "is the bandwidth right" in run("calibrate", "window", imported, "--bandwidth", "50Mbit").output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["profile", "import", "none.pb", "--batch", "4", "-o", "{tmp}/x.gz"], "cannot read none.pb"),
        (["profile", "import", STEPS[0], "--batch", "4", "-o", "{tmp}/no/x.gz"], "there is no folder"),
        (["profile", "import", STEPS[0], "--batch", "4", "-o", "{tmp}/x.gz", "--bandwidth", "5"], "unit"),
        (["profile", "import", STEPS[0], "--batch", "4", "-o", "{tmp}/x.gz", "--overhead", "x"], "overhead"),
        (["profile", "import", STEPS[0], "-o", "{tmp}/x.gz"], "does not record the batch; give --batch"),
        (["profile", "import", STEPS[0], "--batch", "0", "-o", "{tmp}/x.gz"], "value for '--batch'"),
        (["profile", "show", STEPS[0]], "not a profile"),
        (["profile", "show", str(DATA / "pytorch" / "plain.json.gz")], "planner profile import"),
        (["calibrate", "window", STEPS[0]], "--bandwidth"),
        (["calibrate", "overhead", str(DATA / "pytorch" / "plain.json.gz")], "recorded transfers are needed"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(args, message, tmp_path):
    result = run(*(arg.replace("{tmp}", str(tmp_path)) for arg in args))
    assert isinstance(result.exception, BadInput)
    assert result.exception.exit_code == 2
    import re

    assert re.search(message, str(result.exception))
    assert list(tmp_path.iterdir()) == []


def test_page_of_a_profile_is_written_where_it_is_asked_for(imported, tmp_path):
    plain = run("profile", "show", imported)
    assert (plain.exit_code, plain.exception) == (0, None)
    page = tmp_path / "p.html"
    assert run("profile", "show", imported, "--html", page).exit_code == 0
    assert "<h2>Command</h2>" in page.read_text()
