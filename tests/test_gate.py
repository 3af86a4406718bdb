"""The prediction gate between two versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import gate  # noqa: E402

from planner.parallel.data import EXCHANGES  # noqa: E402

ONE = {"samples_per_s": 100.0, "low": 99.0, "high": 101.0, "usd_per_hour": 3.0}


def test_moved_predictions_are_listed() -> None:
    faster = ONE | {"samples_per_s": 103.0, "low": 102.0, "high": 104.0}
    assert gate.moved({"a": ONE}, {"a": ONE}, 0.01) == []
    assert gate.moved({"a": ONE}, {"a": faster}, 0.01) == ["a: 100 to 103 samples/s (+3.0%)"]
    assert gate.moved({"a": ONE}, {"a": faster}, 0.05) == []
    overlapping = faster | {"low": 100.5}
    assert "the intervals overlap" in gate.moved({"a": ONE}, {"a": overlapping}, 0.01)[0]
    assert gate.moved({"a": ONE}, {"a": ONE | {"usd_per_hour": 3.3}}, 0.01) == ["a: 3 to 3.3 USD/h (+10.0%)"]


def test_plans_of_one_version_are_listed() -> None:
    refused = {"refused": "too large"}
    assert gate.moved({"a": refused}, {"a": refused}, 0.01) == []
    assert gate.moved({"a": ONE}, {"a": refused}, 0.01) == ["a: now refused (too large)"]
    assert gate.moved({"a": refused}, {"a": ONE}, 0.01) == ["a: no longer refused (too large)"]
    assert gate.moved({}, {"a": ONE}, 0.01) == ["a: only in the new version's grid"]


def test_version_equals_itself() -> None:
    only = "alexnet b128, 1 x p3.2xlarge"
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "gate.py", sys.executable, sys.executable, "--only", only],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0 of 1 plans moved" in done.stdout


def test_environment_without_python_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "gate.py", tmp_path, sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("gate: no python at")


def test_every_exchange_and_both_cuts_are_asked() -> None:
    asked = list(gate.commands().values())
    assert {entry[entry.index("--exchange") + 1].partition(":")[0] for entry in asked} == set(EXCHANGES)
    assert {"--tensor", "--pipeline"} <= {word for entry in asked for word in entry}


def test_command_that_is_refused_is_told_apart() -> None:
    answered = gate.answered(["--model", "resnet50", "--hardware", "nosuch", "--workers", "1"], 0.01, 0)
    assert answered.keys() == {"refused"}
    assert "nosuch" in answered["refused"]
