"""What the engine refuses, how it stops, and that it can be interrupted."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from planner.errors import BadInput
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Fifo
from planner.simulator.run import RunOptions, run
from planner.simulator.step import PS, WORKER, Op, Profile


def computing(seconds: float) -> Profile:
    return Profile.build([Op("compute", WORKER)], [[seconds]], model="one", batch=1)


def test_refuses_more_dependencies_than_it_can_count() -> None:
    n = 2**16
    ops = [Op(f"a{i:05}", WORKER) for i in range(n)] + [Op("end", PS, 0, 0, tuple(range(n)))]
    profile = Profile.build(ops, [[0.0] * (n + 1)], model="wide", batch=1)
    with pytest.raises(BadInput, match="at most 65535 dependencies of one op, not 65536"):
        run(profile, Cluster.uniform(1), Fifo(), "async", RunOptions(steps=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": 5, "warmup_steps": 5},
        {"seed": -1},
        {"fairness_sigma": float("nan")},
        {"fairness_sigma": 4.0},
        {"server_cores": 0},
        {"local_bytes_per_s": 0.0},
        {"start_offsets_s": (-1.0,)},
    ],
)
def test_refuses_options_without_meaning(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        RunOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["engine", "reference"])
def test_caps_end_a_run_early(path: str) -> None:
    options = RunOptions(steps=100, max_time_s=4.5)
    result = run(computing(1.0), Cluster.uniform(2), Fifo(), "async", options, path=path)  # type: ignore[arg-type]
    assert (result.stopped, result.end_s, result.events) == ("time", 4.5, 8)
    assert result.worker_busy_s.tolist() == [4.5, 4.5]
    options = RunOptions(steps=100, max_events=7)
    result = run(computing(1.0), Cluster.uniform(2), Fifo(), "async", options, path=path)  # type: ignore[arg-type]
    assert (result.stopped, result.end_s, result.events) == ("events", 4.0, 7)


def test_run_can_be_interrupted() -> None:
    class Interrupted(Exception):
        pass

    def stop(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, stop)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(Interrupted):
            run(computing(1.0), Cluster.uniform(64), Fifo(), "async", RunOptions(steps=2**30))
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)
