"""What joint ops cost the engine: hierarchical all-reduce of a step of ResNet-152's size on many machines.

    python benchmarks/speed/joint.py [--machines 128] [--devices 8]

Prints the CPU time of `simulate` and what it predicts.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from planner.simulator import simulate
from planner.simulator.cluster import Cluster, Node, Resource
from planner.simulator.policy import Fifo
from planner.simulator.step import UPLINK, WORKER, Op, Profile

FABRIC, NIC = 0, 1  # channels
MACHINE, ALL = 0, 1  # scopes


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--machines", type=int, default=128)
    parser.add_argument("--devices", type=int, default=8)
    arguments = parser.parse_args()
    profile, machines = step(), cluster(arguments.machines, arguments.devices)
    simulate(profile, cluster(2, 2), Fifo())  # imports
    start = time.process_time()
    result = simulate(profile, machines, Fifo())
    seconds = time.process_time() - start
    print(
        f"{machines.workers} workers: {seconds:.2f} s of CPU, {result.runs} runs, {result.steps} steps, "
        f"{result.events:,} events, {result.samples_per_s:,.0f} samples/s within {result.precision:.2%}, "
        f"bottleneck {result.bottleneck} ({result.engine})"
    )


if __name__ == "__main__":
    main()
