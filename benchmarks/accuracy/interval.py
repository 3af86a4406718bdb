"""Are stated ranges honest? How often intervals cover the long-run value, and runs end in the stated time.

    python benchmarks/accuracy/interval.py [--seeds 100]   # the interval of a simulation
    python benchmarks/accuracy/interval.py --published     # the time that is stated at 90% confidence

For each number of workers it predicts with 100 seeds and counts the intervals that hold the long-run value,
which is the mean over many more runs, each several times as long, with seeds of their own. A 95% interval
should hold it about 95 times; at least 90 must.

For every published run that was compared with its source left out (`planner validate`), the stated time is
that of the left-out prediction at the width of its range (`planner.search.rank`). The share of runs that
finish within it should lie between 85 and 97% in each suite. The exit status is 1 where either does not hold.
"""

from __future__ import annotations

import argparse
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import testbed

from planner.search.flag_values import CONFIDENCE
from planner.search.scored import RANGE_SIGMAS, confident_share
from planner.simulator import simulate
from planner.simulator.cluster import Cluster
from planner.simulator.run import RunOptions, run
from planner.simulator.simulate import FAIRNESS_SIGMA, Case, run_length, start_offsets_s
from planner.simulator.statistics import steps_per_s
from planner.simulator.step import Profile
from planner.validation.evidence import Compared
from planner.validation.suites import suite_evidence

WORKERS = (1, 4, 8, 32)
LEAST = 90
SEEDS_OF_TRUTH = 10**6  # none of the seeds tested
SUITES = ("devices", "sharded", "throughput", "allreduce", "layouts")
LEAST_SHARE, MOST_SHARE = 0.85, 0.97


def long_run(case: Case, runs: int, times: int, threads: ThreadPoolExecutor) -> tuple[float, float]:
    """Mean and standard error of steps/s over runs that are `times` times as long as usual."""
    warmup, measured = run_length(case.cluster.workers)
    options = RunOptions(
        seed=SEEDS_OF_TRUTH,
        steps=2 * warmup + times * measured,
        warmup_steps=2 * warmup,
        fairness_sigma=FAIRNESS_SIGMA,
    )

    def one(number: int) -> float:
        offsets = start_offsets_s(case.profile, case.cluster, options.seed, number)
        chosen = replace(options, run=number, start_offsets_s=offsets)
        return float(steps_per_s(run(case.profile, case.cluster, case.policy, case.mode, chosen)).sum())

    rates = list(threads.map(one, range(runs)))
    return float(np.mean(rates)), float(np.std(rates, ddof=1) / np.sqrt(runs))


def covered(profile: Profile, workers: int, seeds: int, threads: ThreadPoolExecutor) -> int:
    cluster = Cluster.uniform(workers, profile.servers, profile.bandwidth_bytes_per_s or 1.0)
    case = Case(profile=profile, cluster=cluster)
    truth, error = long_run(case, 400 if workers < 32 else 150, 5, threads)
    truth, error = truth * profile.batch, error * profile.batch
    predictions = list(threads.map(lambda seed: simulate(profile, cluster, seed=seed), range(seeds)))
    hits = sum(p.samples_per_s_low <= truth <= p.samples_per_s_high for p in predictions)
    mean = np.mean([p.samples_per_s for p in predictions])
    print(
        f"W={workers:2}  long run {truth:8.3f} +- {error / truth:.2%}  predicted {mean / truth - 1:+.2%}  "
        f"half-width {np.mean([p.precision for p in predictions]):.2%}  "
        f"runs {np.mean([p.runs for p in predictions]):5.1f}  covered {hits} of {seeds}"
    )
    return hits


def finishes_in_time(row: Compared) -> bool | None:
    """Whether a run was no slower than stated; None where no range is stated."""
    if row.low is None or row.high is None:
        return None
    predicted = row.predicted if row.left_out is None else row.left_out
    share = confident_share(math.log(row.high / row.low) / (2 * RANGE_SIGMAS), CONFIDENCE)
    if row.unit.endswith("/s"):
        return row.measured >= predicted * share
    return row.measured <= predicted / share


def check_stated_times() -> int:
    """Print the share of published runs that finish in the stated time; 1 where a suite's is out of range."""
    missed = False
    for name in SUITES:
        verdicts = [
            verdict for row in suite_evidence(name).rows if (verdict := finishes_in_time(row)) is not None
        ]
        share = sum(verdicts) / max(len(verdicts), 1)
        missed |= not LEAST_SHARE <= share <= MOST_SHARE
        print(f"{name:12} {len(verdicts):5} runs  {share:6.1%} finish in the time stated at {CONFIDENCE:.0%}")
    return int(missed)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trace", action="append", choices=testbed.traces(), help="default: AlexNet and VGG-11"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--published", action="store_true", help="stated times of published runs")
    arguments = parser.parse_args()
    if arguments.published:
        return check_stated_times()
    least = 1.0
    with ThreadPoolExecutor(2) as threads:
        for name in arguments.trace or ("alexnet_b16_100_ps1", "vgg11_b8_100_ps1"):
            profile = testbed.profile_of(testbed.read_trace(name))
            print(name)
            for workers in arguments.workers:
                least = min(least, covered(profile, workers, arguments.seeds, threads) / arguments.seeds)
    print(
        f"{'holds' if least >= LEAST / 100 else 'FAILS'}: covered at least {LEAST} times in 100 ({least:.0%})"
    )
    return 0 if least >= LEAST / 100 else 1


if __name__ == "__main__":
    sys.exit(main())
