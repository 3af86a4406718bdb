"""Recordings made here, with the CPU build of torch: what is noted, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.errors import BadInput

torch = pytest.importorskip("torch")

TRAIN = """
import sys, torch
from torch import nn

def train(steps, micro_steps=1, amp=False, ddp=False, compiled=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
    if ddp:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    if compiled:
        model = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(micro_steps):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                loss = nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.randint(0, 10, (4,)))
            loss.backward()
        optimizer.step()

if __name__ == "__main__":
    train(12, **{word: int(value) for word, _, value in (arg.partition("=") for arg in sys.argv[1:])})
"""
TENSORS = [["0.weight", 216], ["0.bias", 8], ["3.weight", 2880], ["3.bias", 10]]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def train(script: Path, *args: Any, **settings: Any) -> None:
    scope: dict[str, Any] = {"__name__": "train"}
    exec(compile(script.read_text(), str(script), "exec"), scope)
    scope["train"](*args, **settings)


def facts_of(path: Path) -> dict[str, Any]:
    told = json.loads(gzip.decompress(path.read_bytes()))["planner"]
    assert isinstance(told, dict)
    return told


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"micro_steps": 4}, {"micro_steps": 4}),
        ({"amp": True}, {"precision": "bf16"}),
        ({"compiled": True}, {"compiled": True}),
    ],
)
def test_a_loop_is_recorded_with_its_settings(
    settings: dict[str, Any], expected: dict[str, Any], script: Path, tmp_path: Path
) -> None:
    path = tmp_path / "step.json.gz"
    with planner.record(path, steps=4):
        train(script, 12, **settings)
    told = facts_of(path)
    assert told["batch"] == 4
    assert [[name.removeprefix("_orig_mod."), size] for name, size in told["parameters"]] == TENSORS
    assert {key: told.get(key, default) for key, default in (("micro_steps", 1), ("precision", "fp32"))} == {
        "micro_steps": expected.get("micro_steps", 1),
        "precision": expected.get("precision", "fp32"),
    }
    assert told.get("compiled", False) == expected.get("compiled", False)
    assert told["step_s"] > 0
    marks = [
        event["name"]
        for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if event.get("name", "").startswith("ProfilerStep#") and event.get("cat") == "user_annotation"
    ]
    assert len(set(marks)) == 4


def command(script: Path, output: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from planner.cli import main; sys.exit(main())"
    args = ["record", "-o", str(output), "--steps", "3", "--", *words]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=script.parent,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_program_is_recorded_without_a_change(script: Path, tmp_path: Path) -> None:
    path = tmp_path / "step.json.gz"
    done = command(script, path, "python", "train.py", "micro_steps=2")
    assert done.returncode == 0, done.stderr
    assert facts_of(path)["micro_steps"] == 2
    assert "profile show" in done.stderr


def test_of_two_ranks_the_first_is_recorded(script: Path, tmp_path: Path) -> None:
    path = tmp_path / "step.json.gz"
    launcher = ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = command(script, path, *launcher, "train.py", "ddp=1")
    assert done.returncode == 0, done.stderr
    told = facts_of(path)
    assert (told["strategy"], told["world_size"], told["bucket_bytes"]) == ("ddp", 2, 1 << 20)
    assert [[name.removeprefix("module."), size] for name, size in told["parameters"]] == TENSORS


def test_the_program_keeps_its_exit_status(script: Path, tmp_path: Path) -> None:
    done = command(script, tmp_path / "step.json.gz", "python", "-c", "raise SystemExit(7)")
    assert done.returncode == 7


def test_a_command_that_does_not_train_is_told_so(script: Path, tmp_path: Path) -> None:
    done = command(script, tmp_path / "step.json.gz", "python", "-c", "print('no torch')")
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    assert "nothing was recorded" in done.stderr


def test_a_loop_that_is_too_short_is_told_how_long_it_must_be(script: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(BadInput, match=r"took 5 steps.*at least 7, and 16"),
        planner.record(tmp_path / "s.json.gz"),
    ):
        train(script, 5)
    assert not (tmp_path / "s.json.gz").exists()


def test_a_block_without_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no optimizer took a step"), planner.record(tmp_path / "s.json.gz"):
        pass


def test_an_error_of_the_loop_comes_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), planner.record(tmp_path / "s.json.gz"):
        1 / 0  # noqa: B018
