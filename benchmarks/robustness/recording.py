"""One rank recorded, two ranks predicted: `planner record` on this machine against the real run.

    python benchmarks/robustness/recording.py [--steps 30] [--repeats 3]

Needs torch and a quiet machine with two cores. A network of 12 million parameters is trained by one process
of one thread on a core of its own and recorded; Gloo's all-reduce between two processes, each on its core, is
timed by itself (bytes a second, by a straight line over sizes, and the CPU time for a byte);
`planner simulate` predicts two ranks of DistributedDataParallel from both; then two ranks, each on its core,
are run and timed without a profiler. Two processes that share a machine also slow each other down
without exchanging anything (memory, caches, other programs): that is measured too, with two ranks that never
exchange, and the prediction is printed as it is and with that factor on computation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

BATCH = 16
WARM = 5
SIZES = (1 << 18, 1 << 20, 1 << 22, 1 << 24)


def network():  # type: ignore[no-untyped-def]
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 16 * 16, 640), nn.ReLU(), nn.Linear(640, 1000)),
    )


def pinned() -> None:
    """A rank has one core, as on a machine whose cores all compute."""
    rank, cores = int(os.environ.get("LOCAL_RANK", "0")), sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def train(mode: str, steps: int, path: str) -> None:
    """One rank: `record`, `alone` (several that never exchange) or `ddp`; prints seconds a step."""
    import time

    import torch
    from torch import nn

    import planner

    torch.manual_seed(0)
    torch.set_num_threads(1)
    pinned()
    model = network()
    joined = mode != "record"
    if joined:
        torch.distributed.init_process_group("gloo")
    if mode == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs, labels = torch.randn(BATCH, 3, 64, 64), torch.randint(0, 1000, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    if mode == "record":
        with planner.record(path, steps=steps):
            for _ in range(steps + 6):
                step()
        return
    for _ in range(WARM):
        step()
    torch.distributed.barrier()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    if torch.distributed.get_rank() == 0:
        print(json.dumps({"step_s": float(np.mean(times)), "median_s": float(np.median(times))}))
    torch.distributed.destroy_process_group()


def collective(repeats: int) -> None:
    """Prints bytes a second, the fixed cost and the CPU time of an all-reduce between two ranks."""
    import time

    import torch

    torch.set_num_threads(1)
    pinned()
    torch.distributed.init_process_group("gloo")
    result, cpu_s = [], 0.0
    for size in SIZES:
        tensor = torch.ones(size // 4)
        times, used = [], []
        for _ in range(3 + repeats):
            start, before = time.perf_counter(), time.process_time()
            torch.distributed.all_reduce(tensor)
            times.append(time.perf_counter() - start)
            used.append(time.process_time() - before)
        result.append(float(np.median(times[3:])))
        cpu_s = float(np.median(used[3:])) / size
    if torch.distributed.get_rank() == 0:
        slope, fixed = np.polyfit(SIZES, result, 1)
        print(json.dumps({"bytes_per_s": 1 / slope, "fixed_s": fixed, "cpu_s_per_byte": cpu_s}))
    torch.distributed.destroy_process_group()


def launched(ranks: int, *words: str) -> dict[str, float]:
    env = dict(os.environ, OMP_NUM_THREADS="1")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [*launcher, __file__, *words], env=env, capture_output=True, text=True, check=True, timeout=600
    )
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def predicted_s(path: Path, bytes_per_s: float, slower: float = 1.0) -> float:
    """Seconds of a step of two ranks by all-reduce, each with a NIC as fast as Gloo's loopback."""
    from dataclasses import replace

    from planner.answers import questions
    from planner.device.recorded import open_step
    from planner.search.request import Request

    profile = open_step(path)  # steps differ as they were recorded; the slower rank decides each
    profile = replace(profile, durations_s=profile.durations_s * slower)
    request = Request(
        model=profile.model,
        profile=profile,
        workers=(2,),
        exchanges=(("allreduce", {}),),
        bandwidth_bytes_per_s=bytes_per_s,
    )
    return questions.simulation_for(request).scored.prediction.step_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", nargs="?", default="", help=argparse.SUPPRESS)
    parser.add_argument("path", nargs="?", default="", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    if asked.mode == "collective":
        return collective(20)
    if asked.mode:
        return train(asked.mode, asked.steps, asked.path)
    steps = ("--steps", str(asked.steps))
    print(f"load average before: {os.getloadavg()[0]:.1f}")
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(asked.repeats):
            path = Path(folder) / f"one{repeat}.json.gz"
            env = dict(os.environ, OMP_NUM_THREADS="1")
            subprocess.run(
                [sys.executable, __file__, "record", str(path), *steps],
                env=env,
                check=True,
                capture_output=True,
            )
            rate = launched(2, "collective")
            apart, first = launched(2, "alone", *steps), launched(1, "alone", *steps)
            real = launched(2, "ddp", *steps)
            slower = apart["median_s"] / first["median_s"]
            plain = predicted_s(path, rate["bytes_per_s"])
            shared = predicted_s(path, rate["bytes_per_s"], slower)
            errors.append((plain / real["step_s"] - 1, shared / real["step_s"] - 1))
            print(
                f"{repeat}: one rank {first['median_s'] * 1e3:.1f} ms; all-reduce "
                f"{rate['bytes_per_s'] / 1e9:.2f} GB/s + {rate['fixed_s'] * 1e3:.2f} ms, "
                f"{rate['cpu_s_per_byte'] * 1e9:.2f} ns of CPU a byte; two ranks that "
                f"never exchange take {slower:.2f} times; two ranks: measured "
                f"{real['step_s'] * 1e3:.1f} ms, predicted {plain * 1e3:.1f} ms "
                f"({errors[-1][0]:+.1%}), with that factor "
                f"{shared * 1e3:.1f} ms ({errors[-1][1]:+.1%})",
                flush=True,
            )
    print(f"load average after: {os.getloadavg()[0]:.1f}")
    for name, at in (("as it is", 0), ("with the slowdown of sharing the machine", 1)):
        print(f"median error {name}: {np.median([abs(error[at]) for error in errors]):.1%} (aim: 15%)")


if __name__ == "__main__":
    main()
