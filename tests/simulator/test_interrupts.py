"""Ctrl-C ends a simulation within a fifth of a second of CPU time, wherever it runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.search.simulations import executor_of
from planner.servers.synthesis import profile_for
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Multiplexed
from planner.simulator.run import RunOptions, call_stoppable, run

# A simulation of hours. A thread sends what Ctrl-C sends; CPU time is the same on a busy machine.
LONG = """
import os, signal, sys, threading, time
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Multiplexed
from planner.servers.synthesis import profile_for
from planner.search.simulations import executor_of
from planner.simulator.run import RunOptions, run

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have told us to ignore
servers, jobs = int(sys.argv[1]), int(sys.argv[2])
profile = profile_for(load_model("resnet50"), 32, load_hardware("p3.2xlarge"), servers)
case = (profile, Cluster.uniform(256, servers), Multiplexed(), "async", RunOptions(steps=10**6))
sent = []

def interrupt():
    time.sleep(0.5)
    sent.append(time.process_time())
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    if jobs == 0:
        run(*case)
    with executor_of(jobs=jobs) as pool:
        [future.result() for future in [pool.submit(run, *case) for _ in range(3)]]
except KeyboardInterrupt:
    print(time.process_time() - sent[0])
"""


@pytest.mark.parametrize(("servers", "jobs"), [(1, 0), (8, 0), (2, 2)])
def test_ctrl_c_ends_a_simulation(servers, jobs):
    done = subprocess.run(
        [sys.executable, "-c", LONG, str(servers), str(jobs)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.2 * max(1, jobs)


def test_stopped_simulation_is_cancelled():
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledError):
        call_stoppable(stop, run)


def test_interrupt_drops_runs_that_did_not_begin():
    with executor_of(jobs=1) as pool:
        hold = threading.Event()
        first = pool.submit(hold.wait)
        last = pool.submit(print)
        hold.set()
    assert first.done()
    assert last.done()


def test_many_simulations_at_once_equal_those_one_by_one():
    """Sixteen plans of both link models, by eight threads and twice over."""
    cases = []
    for number in range(16):
        servers = 1 + number % 3
        profile = profile_for(load_model("alexnet"), 32, load_hardware("p3.2xlarge"), servers)
        options = RunOptions(seed=number, steps=12, warmup_steps=2, fairness_sigma=0.1 * (number % 2))
        mode = "sync" if number % 5 == 4 else "async"
        cases.append((profile, Cluster.uniform(1 + number % 7, servers), Multiplexed(), mode, options))

    def ends(case):
        result = run(*case)
        return np.concatenate([*result.step_ends_s, result.link_bytes.ravel(), [result.end_s]])

    serial = [ends(case) for case in cases]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(2):
            for alone, together in zip(serial, threads.map(ends, cases), strict=True):
                np.testing.assert_array_equal(alone, together)


PEAK = """
import resource, sys
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Multiplexed
from planner.servers.synthesis import profile_for
from planner.simulator.run import RunOptions, run

profile = profile_for(load_model("resnet50"), 32, load_hardware("p3.2xlarge"), 1)
peaks = []
for steps in (5, 40):
    result = run(profile, Cluster.uniform(64), Multiplexed(), "async", RunOptions(steps=steps))
    peaks += [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, result.events]
print(*peaks)
"""


def test_memory_does_not_grow_with_events():
    """Eight times the events may not cost a megabyte more: what is kept is the start and end of each step."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    short_mib, short_events, long_mib, long_events = map(float, done.stdout.split())
    assert long_events > 7 * short_events > 7e5
    assert long_mib - short_mib < 2.0


def test_sizes_that_cannot_be_held_are_refused():
    from planner.errors import BadInput

    profile = profile_for(load_model("resnet152"), 32, load_hardware("p3.2xlarge"), 1)
    with pytest.raises(BadInput, match="simulate at most 46,"):
        run(profile, Cluster.uniform(2_000_000), Multiplexed(), "async", replace(RunOptions(), steps=1))
