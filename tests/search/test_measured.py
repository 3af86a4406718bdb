"""Factors that real runs give: which answers they count for, and how they are kept."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.errors import BadInput
from planner.search.measured import Measured, add_run, factor_for, load_runs, reach_of, remove_runs, runs_file


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path / "home"))


def run(device: str = "A10G", reach: str = "device", rate: float = 80.0, day: str = "2026-11-16") -> Measured:
    return Measured(device, reach, "resnet50", "fp32", 100.0, rate, day)  # type: ignore[arg-type]


def test_run_of_one_device_counts_for_all_reaches_without_their_own() -> None:
    add_run(run(rate=80))
    add_run(run(reach="machines", rate=50))
    runs = load_runs()
    values = [factor_for(runs, "A10G", reach).value for reach in ("device", "machine", "machines")]  # type: ignore[union-attr, arg-type]
    assert values == pytest.approx([0.8, 0.8, 0.5])
    assert factor_for(runs, "H100", "device") is None


def test_run_of_several_machines_says_nothing_of_one_device() -> None:
    add_run(run(reach="machines", rate=50))
    assert factor_for(load_runs(), "A10G", "device") is None


def test_several_runs_give_their_geometric_mean_and_the_newest_day() -> None:
    add_run(run(rate=50, day="2026-01-02"))
    add_run(run(rate=200, day="2025-01-02"))
    factor = factor_for(load_runs(), "A10G", "device")
    assert factor is not None
    assert math.isclose(factor.value, 1.0)
    assert factor.words == "measured here, 2026-01-02, 2 runs: x 1"


def test_forgotten_measurement_is_gone() -> None:
    for device in ("A10G", "H100", "A10G"):
        add_run(run(device))
    assert remove_runs(position=2) == 1
    assert [each.device for each in load_runs()] == ["A10G", "A10G"]
    assert remove_runs(device="A10G") == 2
    assert load_runs() == ()
    with pytest.raises(BadInput, match="no kept run 1"):
        remove_runs(position=1)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf, 1e9, 0.01])
def test_rate_that_cannot_be_meant_is_refused_and_nothing_is_kept(rate: float) -> None:
    with pytest.raises(BadInput):
        add_run(run(rate=rate))
    assert not runs_file().exists()


def test_damaged_file_is_named() -> None:
    runs_file().parent.mkdir()
    runs_file().write_text('{"version": 1, "runs": [')
    with pytest.raises(BadInput, match=r"measured\.json"):
        load_runs()
    runs_file().write_text('{"version": 2, "runs": []}')
    with pytest.raises(BadInput, match="version 2"):
        load_runs()


def test_how_far_a_plan_reaches() -> None:
    assert [reach_of(1, 1), reach_of(4, 1), reach_of(4, 4)] == ["device", "machine", "machines"]


def test_runs_added_by_eight_processes_at_once_are_all_kept(tmp_path, monkeypatch):
    """Each reads, adds and replaces the file: without a lock they lose each other's runs."""
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    program = (
        "import sys, time; from planner.search.measured import Measured, add_run\n"
        "time.sleep(max(0.0, float(sys.argv[2]) - time.time()))\n"
        "for count in range(5):\n"
        "    model = f'net-{sys.argv[1]}-{count}'\n"
        "    add_run(Measured('V100', 'device', model, 'fp32', 10.0, 9.0, '2026-01-01'))\n"
    )
    start = time.time() + 3.0  # all begin together, however long they take to load
    crew = [subprocess.Popen([sys.executable, "-c", program, str(number), str(start)]) for number in range(8)]
    assert [process.wait(60) for process in crew] == [0] * 8
    names = {run.model for run in load_runs()}
    assert names == {f"net-{number}-{count}" for number in range(8) for count in range(5)}
    assert remove_runs() == 40
