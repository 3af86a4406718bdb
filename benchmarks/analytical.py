"""Plans bounded per CPU second, cold (step bounds computed anew for every family) on a graph of
Inception-v3's size: 190 tensors, about 1,000 ops. Run: python benchmarks/analytical.py

Measured on a like machine: Calculon 59, SimuMax 11, Paleo 50 to 600 configurations per CPU second.
"""

from __future__ import annotations

import time

import numpy as np

from planner.servers.bounds_grid import Plans, bound_plans
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile


def chain(tensors: int, servers: int, steps: int) -> Profile:
    """A chain of layers with one tensor each: download, forward, backward, upload, update."""
    ops = [Op(f"d{i}", DOWNLINK, i % servers, 100_000 + i, (), i) for i in range(tensors)]
    for i in range(tensors):
        ops.append(Op(f"f{i}", WORKER, -1, 0, (i, len(ops) - 1) if i else (i,)))
    last = len(ops) - 1
    for i in reversed(range(tensors)):
        at = len(ops)
        ops.append(Op(f"b{i}", WORKER, -1, 0, (last,)))
        ops.append(Op(f"u{i}", UPLINK, i % servers, 100_000 + i, (at,), i))
        ops.append(Op(f"p{i}", PS, i % servers, 0, (at + 1,), i))
        last = at
    durations = np.random.default_rng(0).uniform(1e-4, 1e-3, (steps, len(ops)))
    return Profile.build(ops, durations, model="chain", batch=32, servers=servers)


def main() -> None:
    servers = (1, 2, 4, 8)
    profiles = {count: chain(190, count, steps=20) for count in servers}
    workers, count, nic, colocated, per_node = (
        axis.ravel()
        for axis in np.meshgrid(
            np.arange(8, 264), servers, np.geomspace(1e8, 1e10, 12), (False, True), (1,), indexing="ij"
        )
    )
    plans = Plans(
        workers=workers,
        servers=count,
        worker_nic_bytes_per_s=nic,
        colocated=colocated,
        workers_per_node=per_node,
    )
    for mode in ("async", "sync"):
        start = time.process_time()
        bound = bound_plans(profiles, plans, mode=mode)
        spent = time.process_time() - start
        print(
            f"{mode:5}: {len(plans)} plans of {len(profiles)} profiles ({profiles[1].ops} ops, "
            f"{profiles[1].steps} steps) in {spent:.2f} CPU s: {len(plans) / spent:,.0f} plans a second; "
            f"bounds {bound.min():.0f} to {bound.max():.0f} samples/s"
        )


if __name__ == "__main__":
    main()
