"""How near predictions come to measured throughput: `python benchmarks/accuracy/accuracy.py`.

From each one-worker trace in `benchmarks/data/testbed/` it predicts every measured number of workers, and
prints predicted against measured. Columns: the error; the noise of the measurement, which is the relative
standard deviation between runs where there were several and otherwise the spread that the simulator expects
of a window of that length; the errors of the baselines. Ends with a summary and whether the targets hold.

`--data FOLDER` takes traces and measurements from elsewhere (see `testbed.trace_files`).
`--ddp` compares runs of PyTorch with all-reduce and sharding instead (`planner.validation.ddp`).
`--ablate` also predicts without each of the effects that the model adds to the paper's.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import testbed
from testbed import TestbedPoint

from planner.servers.validation.testbed import BASELINES, measure_one_worker
from planner.simulator import Prediction, simulate
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Multiplexed
from planner.simulator.run import RunOptions, run_all
from planner.simulator.simulate import FAIRNESS_SIGMA, run_length, start_offsets_s
from planner.simulator.step import Profile
from planner.validation import ddp

# What must hold: mean absolute error, share of points within 15%, worst, and the mean relative to each
# baseline's.
MEAN, WITHIN, WITHIN_ERROR, WORST, OF_BASELINE = 0.06, 0.90, 0.15, 0.25, 0.5

# The same of PyTorch runs: mean and worst error of DDP points, mean of every group.
DDP_MEAN, DDP_WORST, DDP_GROUP = 0.02, 0.08, 0.04

TRACING = 0.03  # difference of one-worker steps, traced and not, that is worth a note


@dataclass(frozen=True, slots=True)
class Model:
    """What a prediction takes into account."""

    name: str
    recorded_order: bool = True
    recorded_window: bool = True
    latency: bool = True
    fairness_sigma: float = FAIRNESS_SIGMA


MODEL = Model("as shipped")
ABLATIONS = (
    replace(MODEL, name="even shares", fairness_sigma=0.0),
    replace(MODEL, name="window 4 MiB", recorded_window=False),
    replace(MODEL, name="no latency", latency=False),
    replace(MODEL, name="random order", recorded_order=False),
)


@dataclass(frozen=True, slots=True)
class Result:
    point: TestbedPoint
    prediction: Prediction
    noise: float
    baselines: dict[str, float]

    @property
    def error(self) -> float:
        return self.prediction.samples_per_s / self.point.samples_per_s - 1

    def baseline_error(self, name: str) -> float:
        return self.baselines[name] / self.point.samples_per_s - 1


@cache
def profile_of(name: str, latency: bool) -> Profile:
    return testbed.profile_of(testbed.read_trace(name), latency=latency)


@cache
def policy_of(name: str) -> Multiplexed:
    return testbed.recorded_policy(profile_of(name, latency=True))


def predict(point: TestbedPoint, model: Model, precision: float = 0.01) -> Prediction:
    profile, cluster, policy = inputs(point, model)
    return simulate(profile, cluster, policy, precision=precision, fairness_sigma=model.fairness_sigma)


def inputs(point: TestbedPoint, model: Model) -> tuple[Profile, Cluster, Multiplexed]:
    profile = profile_of(point.name, model.latency)
    policy = policy_of(point.name) if model.recorded_window else Multiplexed()
    if not model.recorded_order:
        profile = replace(profile, order=None)
    cluster = Cluster.uniform(point.workers, point.servers, profile.bandwidth_bytes_per_s or math.nan)
    return profile, cluster, policy


def measurement_spread(
    profile: Profile, cluster: Cluster, policy: Multiplexed, window_s: float, runs: int = 32
) -> float:
    """Relative standard deviation of simulated measurements over windows of that length."""
    fastest = max(simulate(profile, cluster, policy).worker_samples_per_s) / profile.batch
    warmup, _ = run_length(cluster.workers)
    steps = warmup + math.ceil(1.2 * window_s * fastest) + 2
    options = [
        RunOptions(
            run=number,
            steps=steps,
            warmup_steps=warmup,
            start_offsets_s=start_offsets_s(profile, cluster, 0, number),
            fairness_sigma=FAIRNESS_SIGMA,
        )
        for number in range(runs)
    ]
    rates = []
    for result in run_all(profile, cluster, policy, "async", options):
        begin_s = result.measured_from_s
        ends = [e[(e > begin_s) & (e <= begin_s + window_s)] for e in result.step_ends_s]
        rates.append(sum((len(own) - 1) / float(own[-1] - own[0]) for own in ends if len(own) > 1))
    return float(np.std(rates, ddof=1) / np.mean(rates))


def compare(point: TestbedPoint) -> Result:
    profile, cluster, policy = inputs(point, MODEL)
    noise = point.spread
    if math.isnan(noise):
        noise = measurement_spread(profile, cluster, policy, window_s=point.window_s / point.runs)
    result = measure_one_worker(profile, cluster, policy)
    baselines = {name: baseline(result, point.workers) for name, baseline in BASELINES.items()}
    return Result(point, predict(point, MODEL), noise, baselines)


def table(results: list[Result]) -> None:
    names = list(BASELINES)
    print(
        f"{'configuration':20} {'PS':>2} {'W':>2} {'measured':>9} {'runs':>4} {'noise':>6} "
        f"{'predicted':>9} {'+-':>5} {'error':>7}  " + " ".join(f"{name:>8}" for name in names)
    )
    for result in results:
        point, prediction = result.point, result.prediction
        print(
            f"{point.config:20} {point.servers:2} {point.workers:2} {point.samples_per_s:9.2f} "
            f"{point.runs:4} {result.noise:6.1%} {prediction.samples_per_s:9.2f} {prediction.precision:5.1%} "
            f"{result.error:+7.1%}  " + " ".join(f"{result.baseline_error(name):+8.1%}" for name in names)
        )


def line(name: str, errors: list[float]) -> None:
    size = np.abs(errors)
    print(
        f"{name:22} mean {size.mean():6.2%}  within {WITHIN_ERROR:.0%}: {(size <= WITHIN_ERROR).mean():6.1%}"
        f"  worst {size.max():6.1%}  bias {np.mean(errors):+6.1%}"
    )


def summary(results: list[Result]) -> bool:
    errors = [result.error for result in results]
    size = np.abs(errors)
    warn_of_tracing(results)
    print(
        f"\n{len(results)} points; the noise of the measurements is {np.mean([r.noise for r in results]):.1%}"
    )
    line("predicted", errors)
    for config in sorted({result.point.name for result in results}):
        line(f"  {config}", [result.error for result in results if result.point.name == config])
    means = {name: float(np.mean([abs(r.baseline_error(name)) for r in results])) for name in BASELINES}
    for name in BASELINES:
        line(name, [result.baseline_error(name) for result in results])
    checks = {
        f"mean below {MEAN:.0%}": size.mean() < MEAN,
        f"{WITHIN:.0%} of points within {WITHIN_ERROR:.0%}": (size <= WITHIN_ERROR).mean() >= WITHIN,
        f"worst below {WORST:.0%}": size.max() < WORST,
        "mean below half of every baseline's": all(size.mean() < OF_BASELINE * m for m in means.values()),
    }
    print()
    for what, holds in checks.items():
        print(f"{'holds' if holds else 'FAILS'}: {what}")
    return all(checks.values())


def warn_of_tracing(results: list[Result]) -> None:
    """Tracing itself costs time; a profile that is longer than an untraced step predicts too little. Nothing
    is rescaled: by how much tracing lengthens which op is not known."""
    for result in results:
        if result.point.workers == 1 and abs(result.error) > TRACING:
            print(
                f"note: {result.point.name}: untraced steps of one worker differ by {result.error:+.1%} "
                f"from traced ones (noise {result.noise:.1%})"
            )


def ablate(points: list[TestbedPoint]) -> None:
    print("\nWithout one of the effects:")
    for model in ABLATIONS:
        line(model.name, [predict(point, model).samples_per_s / point.samples_per_s - 1 for point in points])


def ddp_table(results: list[ddp.DdpResult]) -> None:
    rows: dict[str, list[ddp.DdpResult]] = defaultdict(list)
    for result in results:
        rows[result.config.name].append(result)
    print(f"{'configuration':32} {'group':13} error of the predicted step time by number of workers")
    for name, entry in rows.items():
        cells = "  ".join(f"{match.point.workers}: {match.error:+5.1%}" for match in entry)
        print(f"{name:32} {entry[0].config.group:13} {cells}")


def ddp_summary(results: list[ddp.DdpResult]) -> bool:
    groups: dict[str, list[float]] = defaultdict(list)
    for result in results:
        groups[result.config.group].append(abs(result.error))
    of_ddp = [error for name, errors in groups.items() if not name.startswith("fsdp") for error in errors]
    print(f"\n{len(results)} points, {len(of_ddp)} of them DDP")
    checks: dict[str, bool] = {}
    if of_ddp:
        print(f"DDP mean {np.mean(of_ddp):.2%} worst {max(of_ddp):.1%}")
        checks[f"DDP: mean below {DDP_MEAN:.0%}"] = float(np.mean(of_ddp)) < DDP_MEAN
        checks[f"DDP: worst below {DDP_WORST:.0%}"] = max(of_ddp) < DDP_WORST
    for name, errors in sorted(groups.items()):
        mean = float(np.mean(errors))
        print(f"  {name:13} {len(errors):3} points  mean {mean:.2%}  worst {max(errors):.1%}")
        checks[f"{name}: mean below {DDP_GROUP:.0%}"] = mean < DDP_GROUP
    print()
    for what, holds in checks.items():
        print(f"{'holds' if holds else 'FAILS'}: {what}")
    return all(checks.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of traces and measured.csv")
    parser.add_argument("--ablate", action="store_true")
    parser.add_argument("--ddp", action="store_true", help="PyTorch runs with all-reduce and sharding")
    arguments = parser.parse_args()
    if arguments.ddp:
        results = ddp.compare_points(arguments.data or ddp.DATA)
        ddp_table(results)
        return 0 if ddp_summary(results) else 1
    if arguments.data:
        testbed.DATA = arguments.data
    known = set(testbed.traces())
    points = [point for point in testbed.measured_points() if point.name in known]
    results = [compare(point) for point in points]
    table(results)
    holds = summary(results)
    if arguments.ablate:
        ablate(points)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
