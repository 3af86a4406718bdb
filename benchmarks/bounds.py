"""The bound against runs of the simulator on random plans: how many exceed it, and how close they come.

Run: python benchmarks/bounds.py [COUNT]
"""

from __future__ import annotations

import sys

import numpy as np
from cases import random_case

from planner.cost.bounds import upper_bound
from planner.simulator.run import RunOptions, run


def share_of_bound(seed: int, steps: int = 30) -> float:
    """Throughput of one run, whole steps of every worker, over the bound."""
    profile, cluster, policy, mode = random_case(seed)
    bound = upper_bound(profile, cluster, policy, mode).samples_per_s
    result = run(profile, cluster, policy, mode, options=RunOptions(seed=seed, steps=steps))
    done = sum(len(ends) for ends in result.step_ends_s)
    last = max(float(ends[-1]) for ends in result.step_ends_s if len(ends))
    return done * profile.batch / last / bound


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    shares = np.array([share_of_bound(seed) for seed in range(count)])
    above = int((shares > 1 + 1e-9).sum())
    print(f"{count} random plans: {above} above the bound; highest share {shares.max():.6f}")
    for quantile in (10, 50, 90):
        print(f"  {quantile}% of plans reach at most {np.percentile(shares, quantile):.3f} of their bound")


if __name__ == "__main__":
    main()
