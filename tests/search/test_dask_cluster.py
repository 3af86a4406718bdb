"""A real Dask scheduler and two workers on loopback: the same result as here, even if one is killed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/robustness"))

from dask_here import scheduler, workers  # noqa: E402
from faults import SWEEP  # noqa: E402

from planner.answers.sweep import read_sweep, requests_from, sweep_for  # noqa: E402
from planner.search.simulations import executor_of  # noqa: E402

TINY = SWEEP.replace("[1, 2, 4, 8]", "[1, 2]").replace('["alexnet", "vgg11"]', '["alexnet"]')


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler, and its two workers' processes."""
    with scheduler(tmp_path) as (_, address), workers(tmp_path, address, 2) as processes:
        yield address, processes


def test_worker_that_dies_costs_only_its_tasks(cluster, tmp_path):
    address, processes = cluster
    config = tmp_path / "sweep.toml"
    config.write_text(TINY)
    requests = requests_from(read_sweep(config).scenarios)
    here = sweep_for(requests, tmp_path / "here.db")
    killed = []

    def kill_one(stage, done, of):
        if done >= 3 and not killed:
            killed.append(done)
            processes[0].send_signal(signal.SIGKILL)

    with executor_of(cluster=address) as pool:
        there = sweep_for(requests, tmp_path / "there.db", executor=pool, progress=kill_one)
    assert killed
    assert processes[0].wait() == -signal.SIGKILL
    assert killed[0] < there.total
    assert there.as_dict() == here.as_dict()
