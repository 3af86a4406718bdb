"""Recordings made here, with the CPU build of torch: what is noted, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.device.recorded.importers import import_profile
from planner.device.recorded.recordings import recorded_computation
from planner.errors import BadInput
from planner.simulator.step import DOWNLINK, UPLINK

torch = pytest.importorskip("torch")

TRAIN = """
import sys, torch
from torch import nn

def train(steps, micro_steps=1, amp=False, ddp=False, fsdp=False, compiled=""):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
    if ddp or fsdp:
        torch.distributed.init_process_group("gloo")
    if ddp:
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    if fsdp:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    if compiled:
        model = torch.compile(model, backend=compiled)
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
BYTES = sorted(4 * size for _, size in TENSORS)
COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")


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
        ({"compiled": "aot_eager"}, {"compiled": True}),
        pytest.param({"compiled": "inductor"}, {"compiled": True}, marks=COMPILER),
    ],
)
def test_loop_is_recorded_with_its_settings(
    settings: dict[str, Any], expected: dict[str, Any], script: Path, tmp_path: Path
) -> None:
    path = tmp_path / "step.json.gz"
    with planner.record(path, steps=4):
        train(script, 12, **settings)
    told = facts_of(path)
    assert told["batch"] == 4
    assert told["parameters"] == TENSORS
    assert told["model"] == "Sequential"
    assert {key: told.get(key, default) for key, default in (("micro_steps", 1), ("precision", "fp32"))} == {
        "micro_steps": expected.get("micro_steps", 1),
        "precision": expected.get("precision", "fp32"),
    }
    assert told.get("compiled", False) == expected.get("compiled", False)
    assert told["step_s"] > 0
    assert told["threads"] >= 1
    assert 1 <= told["cores"] <= (os.cpu_count() or 1)
    marks = [
        event["name"]
        for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if event.get("name", "").startswith("ProfilerStep#") and event.get("cat") == "user_annotation"
    ]
    assert len(set(marks)) == 4
    profile = import_profile([path])
    assert (profile.batch, profile.steps) == (4 * expected.get("micro_steps", 1), 4)
    for resource in (DOWNLINK, UPLINK):
        assert sorted(profile.bytes[profile.resource == resource].tolist()) == BYTES
    assert recorded_computation(profile).precision.compute == expected.get("precision", "fp32")


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


def test_program_is_recorded_without_a_change(script: Path, tmp_path: Path) -> None:
    path = tmp_path / "step.json.gz"
    done = command(script, path, "python", "train.py", "micro_steps=2")
    assert done.returncode == 0, done.stderr
    assert facts_of(path)["micro_steps"] == 2
    assert "profile show" in done.stderr


TWO_RANKS = ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py")


def test_record_of_two_ranks_takes_the_first(script: Path, tmp_path: Path) -> None:
    path = tmp_path / "step.json.gz"
    done = command(script, path, *TWO_RANKS, "ddp=1")
    assert done.returncode == 0, done.stderr
    told = facts_of(path)
    assert (told["strategy"], told["world_size"], told["bucket_bytes"]) == ("ddp", 2, 1 << 20)
    assert told["parameters"] == TENSORS
    profile = import_profile([path])
    assert profile.tensors == ("bucket_0",)
    assert int(profile.bytes[profile.resource == UPLINK].sum()) == sum(BYTES)


def test_fully_sharded_ranks_are_recorded_with_whole_tensors(script: Path, tmp_path: Path) -> None:
    path = tmp_path / "step.json.gz"
    done = command(script, path, *TWO_RANKS, "fsdp=1")
    assert done.returncode == 0, done.stderr
    told = facts_of(path)
    assert (told["strategy"], told["world_size"], told["model"]) == ("fsdp", 2, "Sequential")
    assert told["parameters"] == TENSORS
    profile = import_profile([path])
    assert sorted(profile.bytes[profile.resource == UPLINK].tolist()) == BYTES
    assert profile.recorded is not None
    assert profile.recorded.exposed is not None
    assert profile.recorded.exposed.communication_s > 0


def test_program_keeps_its_exit_status(script: Path, tmp_path: Path) -> None:
    done = command(script, tmp_path / "step.json.gz", "python", "-c", "raise SystemExit(7)")
    assert done.returncode == 7


def test_command_that_does_not_train_is_told_so(script: Path, tmp_path: Path) -> None:
    done = command(script, tmp_path / "step.json.gz", "python", "-c", "print('no torch')")
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    assert "nothing was recorded" in done.stderr


def test_loop_that_is_too_short_is_told_how_long_it_must_be(script: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(BadInput, match=r"took 5 steps.*at least 9, or 18 to record 10"),
        planner.record(tmp_path / "s.json.gz"),
    ):
        train(script, 5)
    assert not (tmp_path / "s.json.gz").exists()


def test_block_without_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no optimizer took a step"), planner.record(tmp_path / "s.json.gz"):
        pass


def test_error_of_the_loop_comes_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), planner.record(tmp_path / "s.json.gz"):
        1 / 0  # noqa: B018


@pytest.mark.parametrize("batches", [31, 40, 50])
def test_recipe_for_the_bare_profiler_records_twenty_steps_however_long_the_loop(
    batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "recording.md").read_text()
    recipe = page.partition("## Importing a PyTorch trace")[2].partition("```python")[2].partition("```")[0]
    model = torch.nn.Linear(6, 3)
    scope = {
        "batches": [(torch.randn(4, 6), torch.randint(0, 3, (4,)))] * batches,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loss_function": torch.nn.functional.cross_entropy,
    }
    monkeypatch.chdir(tmp_path)
    exec(recipe, scope)
    profile = import_profile(["steps.json"], batch=4)
    assert profile.steps == 20
    assert sorted(profile.bytes[profile.resource == UPLINK].tolist()) == [12, 72]
