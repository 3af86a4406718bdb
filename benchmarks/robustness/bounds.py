"""The bound against runs of the simulator on random plans: how many exceed it, and how close they come.

Run: python benchmarks/robustness/bounds.py [COUNT]
"""

from __future__ import annotations

import sys

import numpy as np
from cases import allreduce_case, random_case, random_joint_case, window_tolerance

from planner.simulator import Case, simulate
from planner.simulator.bounds import bounds_of
from planner.simulator.run import RunOptions, run
from planner.simulator.simulate import simulate_case


def share_of_bound(seed: int, steps: int = 30) -> float:
    """Throughput of one run, whole steps of every worker, over the bound."""
    profile, cluster, policy, mode = random_case(seed)
    case = Case(profile=profile, cluster=cluster, policy=policy, mode=mode)
    bound = float(bounds_of([case], "fastest")[0])
    result = run(profile, cluster, policy, mode, options=RunOptions(seed=seed, steps=steps))
    done = sum(len(ends) for ends in result.step_ends_s)
    last = max(float(ends[-1]) for ends in result.step_ends_s if len(ends))
    return done * profile.batch / last / bound


def share_of_mean_bound(seed: int) -> float:
    """The lower end of a prediction's 99.9% interval over the bound on the long run, less what a window that
    cuts steps may add."""
    profile, cluster, policy, mode = random_case(seed)
    bound = float(bounds_of([Case(profile=profile, cluster=cluster, policy=policy, mode=mode)])[0])
    result = simulate(profile, cluster, policy, mode, seed=seed, max_steps=2000, confidence=0.999)
    return (
        result.samples_per_s_low / bound / (1 + window_tolerance(result.steps, cluster.workers, result.runs))
    )


def share_of_joint_bound(seed: int, steps: int = 20) -> float:
    """One run of a case with joint ops, whole steps of every worker, over its bound. The period of joint ops
    is between steps: n of them have n - 1."""
    case = random_joint_case(seed)
    bound = float(bounds_of([case], "fastest")[0])
    result = run(case.profile, case.cluster, case.policy, options=RunOptions(seed=seed, steps=steps))
    done = sum(len(ends) for ends in result.step_ends_s)
    last = max(float(ends[-1]) for ends in result.step_ends_s if len(ends))
    return done * case.profile.batch / last / bound * (steps - 1) / steps


def share_of_mean_joint_bound(case: Case, seed: int) -> float:
    """A prediction's lower end over the bound on the long run."""
    result = simulate_case(case, {"seed": seed, "max_steps": 2000, "confidence": 0.999})
    tolerance = window_tolerance(result.steps, case.cluster.workers, result.runs)
    return result.samples_per_s_low / float(bounds_of([case])[0]) / (1 + tolerance)


def joint(count: int) -> None:
    """Cases with joint ops: none above its bound, and how close equal ranks come to it."""
    shares = np.array([share_of_joint_bound(seed) for seed in range(count)])
    above = int((shares > 1 + 1e-9).sum())
    print(f"{count} random cases with joint ops: {above} above the bound; highest share {shares.max():.6f}")
    print(f"  half of them reach at least {np.median(shares):.3f} of their bound")
    means = [share_of_mean_joint_bound(random_joint_case(seed), seed) for seed in range(count // 4)]
    above = int((np.array(means) > 1).sum())
    print(f"{len(means)} in the long run: {above} above the bound; highest share {max(means):.6f}")
    equal = [share_of_mean_joint_bound(allreduce_case(seed), seed) for seed in range(count // 8)]
    above = int((np.array(equal) > 1).sum())
    print(f"{len(equal)} all-reduce on equal ranks: {above} above the bound; shares of it:")
    print("  " + ", ".join(f"{q}%: {np.percentile(equal, q):.3f}" for q in (0, 10, 50, 90, 100)))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    shares = np.array([share_of_bound(seed) for seed in range(count)])
    above = int((shares > 1 + 1e-9).sum())
    print(f"{count} random plans: {above} above the bound; highest share {shares.max():.6f}")
    for quantile in (10, 50, 90):
        print(f"  {quantile}% of plans reach at most {np.percentile(shares, quantile):.3f} of their bound")
    means = np.array([share_of_mean_bound(seed) for seed in range(count // 4)])
    above = int((means > 1).sum())
    print(f"{len(means)} in the long run: {above} above the bound; highest share {means.max():.6f}")
    print(f"  half of them reach at least {np.median(means):.3f} of their bound")
    joint(count)


if __name__ == "__main__":
    main()
