"""A real Dask scheduler and two workers on loopback: the same result as here, even if one is killed."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from faults import SWEEP  # noqa: E402

from planner.errors import BadInput  # noqa: E402
from planner.search.executors import executor_of  # noqa: E402
from planner.search.sweep import read_sweep, requests_from, sweep_for  # noqa: E402

TINY = SWEEP.replace("[1, 2, 4, 8]", "[1, 2]").replace('["alexnet", "vgg11"]', '["alexnet"]')


@contextlib.contextmanager
def started(*words):
    process = subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler, and its two workers' processes."""
    file = tmp_path / "scheduler.json"
    here = ["--scheduler-file", str(file), "--host", "127.0.0.1", "--no-dashboard"]
    worker = ["distributed.cli.dask_worker", *here, "--no-nanny", "--nthreads", "1", "--local-directory"]
    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(started("distributed.cli.dask_scheduler", *here, "--port", "0"))
        workers = [stack.enter_context(started(*worker, str(tmp_path / f"w{k}"))) for k in range(2)]
        while not file.exists():
            assert scheduler.poll() is None, "the scheduler did not start"
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        from distributed import Client

        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield address, workers


def test_a_worker_that_dies_costs_only_its_tasks(cluster, tmp_path):
    address, workers = cluster
    config = tmp_path / "sweep.toml"
    config.write_text(TINY)
    requests = requests_from(read_sweep(config).scenarios)
    here = sweep_for(requests, tmp_path / "here.db")
    killed = []

    def kill_one(stage, done, of):
        if done >= 3 and not killed:
            killed.append(done)
            workers[0].send_signal(signal.SIGKILL)

    with executor_of(cluster=address) as pool:
        there = sweep_for(requests, tmp_path / "there.db", executor=pool, progress=kill_one)
    assert killed
    assert workers[0].wait() == -signal.SIGKILL
    assert killed[0] < there.total
    assert there.as_dict() == here.as_dict()


def test_addresses_where_nobody_answers(monkeypatch):
    with pytest.raises(BadInput, match="write the scheduler's address as tcp://"), executor_of(cluster="x"):
        pass
    monkeypatch.setattr("planner.search.executors.CONNECT_S", 0.5)
    with (
        pytest.raises(BadInput, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        executor_of(cluster="tcp://127.0.0.1:9"),
    ):
        pass


def test_without_dask_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(BadInput, match=r"pip install 'dnn-planner\[cluster\]'"),
        executor_of(cluster="tcp://127.0.0.1:8786"),
    ):
        pass
