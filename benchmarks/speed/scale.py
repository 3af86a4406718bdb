"""How time and memory of one simulation grow with workers, servers and joint ops.

    python benchmarks/speed/scale.py            # ResNet-152: 1 to 1024 workers, then 1 to 32 servers
    python benchmarks/speed/scale.py --quick    # a few points of each, shorter runs
    python benchmarks/speed/scale.py --joint 128,8   # hierarchical all-reduce, 128 machines of 8 devices

Every point is a process of its own (its peak memory is its own) and runs `--steps` steps of every worker.
Times are CPU times, as ratios: of a point to W = 8, and of that to W log W, which stays near or below 1 where
growth is no worse.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time

import numpy as np

from planner.simulator import simulate
from planner.simulator.cluster import Cluster, Node, Resource
from planner.simulator.policy import Fifo, Multiplexed
from planner.simulator.run import RunOptions, run
from planner.simulator.step import UPLINK, WORKER, Op, Profile

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SERVERS = (1, 2, 4, 8, 16, 32)
FABRIC, NIC = 0, 1  # channels
MACHINE, ALL = 0, 1  # scopes
MEMORY_WORKERS = 64  # of the rows that vary the servers


def measure(model: str, workers: int, servers: int, steps: int) -> dict[str, float]:
    """One run in this process: CPU seconds, events, and memory in MiB above what was there before it."""
    from planner.hardware.catalog import load_hardware
    from planner.model.catalog import load_model
    from planner.servers.synthesis import profile_for

    profile = profile_for(load_model(model), 32, load_hardware("p3.2xlarge"), servers)
    cluster = Cluster.uniform(workers, servers, 1.25e9)
    options = RunOptions(steps=steps, until="all", fairness_sigma=0.0)
    run(profile, Cluster.uniform(1, servers), Multiplexed(), "async", RunOptions(steps=1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    result = run(profile, cluster, Multiplexed(), "async", options)
    return {
        "cpu_s": time.process_time() - began,
        "events": result.events,
        "ops": profile.ops,
        "mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "steps": sum(len(ends) for ends in result.step_ends_s),
    }


def point(model: str, workers: int, servers: int, steps: int) -> dict[str, float]:
    words = ["--one", f"{workers},{servers}", "--model", model, "--steps", str(steps)]
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def table(model: str, rows: list[tuple[int, int]], base: tuple[int, int], steps: int) -> float:
    """Print the rows; returns the largest growth over W log W from the base on."""
    by_name = {row: point(model, *row, steps) for row in dict.fromkeys([base, *rows])}
    worst = 0.0
    print(
        f"{'workers':>8}{'servers':>8}{'events':>13}{'x time':>9}{'ns/event':>10}{'MiB':>8}{'vs W log W':>12}"
    )
    for (workers, servers), got in ((row, by_name[row]) for row in rows):
        ratio = got["cpu_s"] / by_name[base]["cpu_s"]
        growth = ratio / (workers / base[0] * math.log2(max(workers, 2)) / math.log2(base[0]))
        if workers >= base[0]:
            worst = max(worst, growth)
        line = f"{workers:8}{servers:8}{got['events']:13,.0f}{ratio:9.2f}"
        line += f"{got['cpu_s'] / got['events'] * 1e9:10.0f}{got['mib']:8.1f}"
        print(line + (f"{growth:12.2f}" if servers == 1 else ""), flush=True)
    return worst


def step(ops: int = 900, tensors: int = 60, buckets: int = 10, rows: int = 20) -> Profile:
    """Forward, backward, a hierarchical all-reduce of each bucket, the optimizer."""
    made: list[Op] = []
    for i in range(ops):
        made.append(Op(f"compute{i:04}", WORKER, deps=(i - 1,) if i else ()))
    sizes = 241_000_000 // buckets
    reduced: list[int] = []
    for bucket in range(buckets):
        last = ops // 3 + (bucket + 1) * (ops - ops // 3) // buckets - 1
        ready = tuple(range(max(ops // 3, last - tensors // buckets), last + 1))
        for phase, (channel, scope, size) in enumerate(
            ((FABRIC, MACHINE, sizes), (NIC, ALL, 2 * sizes), (FABRIC, MACHINE, sizes))
        ):
            deps = ready if phase == 0 else (len(made) - 1,)
            name = f"bucket{bucket:02}/{phase}"
            made.append(Op(name, UPLINK, channel, size, deps, scope=scope, latency_s=2e-5))
        reduced.append(len(made) - 1)
    made.append(Op("optimizer", WORKER, deps=(ops - 1, *reduced)))
    rng = np.random.default_rng(1)
    durations = rng.gamma(20.0, 0.05, (rows, len(made)))
    durations *= [op.resource == WORKER for op in made]
    durations *= 0.1 / durations.sum(axis=1, keepdims=True) * rng.normal(1, 0.02, (rows, 1))
    return Profile.build(made, durations, model="resnet152", batch=64, servers=2)


def cluster(machines: int, devices: int) -> Cluster:
    """Every device has a port on its machine's fabric, every machine a NIC."""
    nic, port = Node(12.5e9, 12.5e9), Node(150e9, 150e9)
    workers = machines * devices
    links = []
    for w in range(workers):
        machine, first = w // devices, w // devices * devices
        fabric = (machines + w, machines + first + (w + 1 - first) % devices)
        links.append((fabric, (machine, (machine + 1) % machines)))
    return Cluster(
        (nic,) * machines + (port,) * workers,
        tuple(w // devices for w in range(workers)),
        (),
        links=tuple(links),
        link_resources=(Resource.link("fabric"), Resource.link("nic")),
        leaders=(tuple(w // devices * devices for w in range(workers)), (0,) * workers),
    )


def joint(machines: int, devices: int) -> None:
    """Print the CPU time of `simulate` for a step with a hierarchical all-reduce, and what it predicts."""
    profile, site = step(), cluster(machines, devices)
    simulate(profile, cluster(2, 2), Fifo())  # imports
    began = time.process_time()
    result = simulate(profile, site, Fifo())
    seconds = time.process_time() - began
    print(
        f"{site.workers} workers: {seconds:.2f} s of CPU, {result.runs} runs, {result.steps} steps, "
        f"{result.events:,} events, {result.samples_per_s:,.0f} samples/s within {result.precision:.2%}, "
        f"bottleneck {result.bottleneck} ({result.engine})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Growth of time and memory with workers and servers.")
    parser.add_argument("--model", default="resnet152")
    parser.add_argument("--steps", type=int, default=100, help="steps of each worker")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--joint", metavar="MACHINES,DEVICES", help="one step with joint ops instead")
    parser.add_argument("--one", help="W,M: one point, as JSON")
    args = parser.parse_args()
    if args.joint:
        joint(*map(int, args.joint.split(",")))
        return 0
    if args.one:
        workers, servers = map(int, args.one.split(","))
        print(json.dumps(measure(args.model, workers, servers, args.steps)))
        return 0
    steps = 10 if args.quick else args.steps
    counts = (8, 64, 512) if args.quick else WORKERS
    print(f"{args.model}, {steps} steps of each worker, one server:")
    worst = table(args.model, [(w, 1) for w in counts], (8, 1), steps)
    print(f"largest time over that of W log W from 8 workers on: {worst:.2f}")
    few = max(5, steps // 10)
    print(f"\n{args.model}, {few} steps of each of {MEMORY_WORKERS} workers, by servers:")
    table(args.model, [(MEMORY_WORKERS, m) for m in SERVERS], (MEMORY_WORKERS, 1), few)
    return 0


if __name__ == "__main__":
    sys.exit(main())
