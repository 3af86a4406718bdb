"""Something to run, limits for CI, and real runs that correct later answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from planner.cli._app import app
from planner.errors import BadInput

ONE = ("--model", "alexnet", "--batch", "64", "--hardware", "g4dn.12xlarge", "--interval-width", "0.05")
DDP = (*ONE, "--workers", "4", "--exchange", "allreduce")


def run(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == code, done.output
    return done.stdout


def answer(*args: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(run(*args, "--format", "json"))
    return data


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("command", ["recommend", "simulate"])
def test_chosen_plan_is_written_as_a_task_that_starts_it(tmp_path: Path, command: str) -> None:
    yaml = pytest.importorskip("yaml")
    path = tmp_path / "job.yaml"
    data = answer(command, *DDP, "--export", str(path))
    plan = data["recommendation" if command == "recommend" else "plan"]
    task = yaml.safe_load(path.read_text())
    assert task["num_nodes"] == plan["rented"]["workers"]["machines"] == 1
    assert task["resources"]["instance_type"] == "g4dn.12xlarge"
    assert task["resources"]["infra"] == "aws/us-east-1"
    assert task["envs"]["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == str(plan["accumulate"])
    assert task["envs"]["ACCELERATE_MIXED_PRECISION"] == plan["number_format"].replace("fp32", "no")
    assert f"{plan['number_format']}; micro-batch 64," in path.read_text()
    assert "--nproc_per_node=4" in task["run"]
    assert f"{plan['samples_per_s']:,.4g} samples/s predicted" in path.read_text()


@pytest.mark.parametrize(
    ("file", "words"),
    [("job.exe", "unknown file type"), ("job.sh", "cannot start 1 parameter servers")],
)
def test_unwritable_output_is_refused(tmp_path: Path, file: str, words: str) -> None:
    servers = ("--exchange", "servers", "--servers", "1", "--workers", "4")
    done = CliRunner().invoke(app, ["simulate", *ONE, *servers, "--export", str(tmp_path / file)])
    assert isinstance(done.exception, BadInput)
    assert words in str(done.exception)
    assert not (tmp_path / file).exists()


def test_plan_over_the_limit_leaves_with_three() -> None:
    cost = answer("recommend", *DDP)["recommendation"]["usd_per_million_samples"]
    run("recommend", *DDP, "--fail-over", str(cost * 1.01))
    run("recommend", *DDP, "--fail-over", str(cost * 0.99), code=3)


def test_run_below_its_prediction_corrects_the_next_answer_until_it_is_forgotten(tmp_path: Path) -> None:
    before = answer("simulate", *DDP)
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(before))
    predicted = before["plan"]["samples_per_s"]
    assert before["plan"]["device"] == "T4"
    assert before["plan"]["measured_factor"] == 1.0
    run("check", str(path), "--measured", str(predicted * 0.8))
    after = answer("simulate", *DDP)
    assert after["plan"]["measured_factor"] == pytest.approx(0.8)
    assert after["plan"]["samples_per_s"] == pytest.approx(0.8 * predicted)
    assert after["plan"]["step_s"] == pytest.approx(before["plan"]["step_s"] / 0.8)
    assert after["plan"]["bound_share"] == pytest.approx(before["plan"]["bound_share"])
    assert any("measured here, " in words and "x 0.8" in words for words in after["assumptions"])
    chosen = answer("recommend", *DDP)["recommendation"]
    assert chosen["measured_factor"] == pytest.approx(0.8)
    other = answer("simulate", *[word.replace("g4dn", "g5") for word in DDP])
    assert other["plan"]["measured_factor"] == 1.0
    # the same run again says no more than before: factors do not add up
    path.write_text(json.dumps(after))
    run("check", str(path), "--measured", str(predicted * 0.8))
    assert answer("simulate", *DDP)["plan"]["measured_factor"] == pytest.approx(0.8)
    run("check", "--forget", "all")
    assert answer("simulate", *DDP)["plan"]["samples_per_s"] == predicted
