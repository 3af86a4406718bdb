"""Real runs: asynchronous training with TensorFlow 2.21, a one-worker profile in, throughput out.

`data/testbed/` holds the profiles, `<configuration>_ps<servers>.json.gz`, and `measured.csv`, the throughput
of 1 to 8 workers without tracing; its README says how both were made. Nothing is fitted to these runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.memoize import memoize
from planner.servers.network.transmissions import Wire
from planner.servers.network.window import infer_window
from planner.simulator import Prediction, simulate
from planner.simulator.baselines import BASELINES, one_worker
from planner.simulator.cluster import Cluster
from planner.simulator.policy import DEFAULT_WINDOW_BYTES, Multiplexed
from planner.simulator.step import DOWNLINK, Profile
from planner.validation import row
from planner.validation.figures import once, profile, table
from planner.validation.row import Row, RowName

TOLERANCE = 0.15  # of a point
MEAN = 0.06  # of all
OF_BASELINE = 0.5  # our mean error against that of each simpler model
SOURCE = "measured for this package (planner/validate/data/testbed/README.md)"


@dataclass(frozen=True, slots=True)
class TestbedPoint:
    """What was measured for one configuration and number of workers, repeats pooled."""

    config: str
    servers: int
    workers: int
    samples_per_s: float
    runs: int
    window_s: float  # over all runs
    spread: float  # relative standard deviation between runs, weighed by their windows; nan for one run

    @property
    def name(self) -> str:
        return f"{self.config}_ps{self.servers}"


@dataclass(frozen=True, slots=True)
class ComparedPoints:
    point: TestbedPoint
    prediction: Prediction
    baselines: dict[str, float]  # relative errors

    @property
    def error(self) -> float:
        return self.prediction.samples_per_s / self.point.samples_per_s - 1


def measured() -> list[TestbedPoint]:
    """Every measured point of the package."""
    return points_of(table("testbed", "measured.csv"))


def points_of(lines: Iterable[Mapping[str, str]]) -> list[TestbedPoint]:
    """The points of measured runs. A run counts by the length of its window, so that a run of 90 s weighs as
    much as three of 30 s."""
    runs = defaultdict(list)
    for line in lines:
        key = line["config"], int(line["n_ps"]), int(line["W"])
        runs[key].append((float(line["samples_per_s"]), float(line["window_s"])))
    return [_pooled(*key, pairs) for key, pairs in sorted(runs.items())]


def _pooled(config: str, servers: int, workers: int, pairs: Sequence[tuple[float, float]]) -> TestbedPoint:
    rates, windows = np.array(pairs).T
    mean = float(np.average(rates, weights=windows))
    spread = math.nan
    if len(rates) > 1:
        # Weights that say how much each run knows: the unbiased form for reliability weights.
        weights = windows / windows.sum()
        spread = math.sqrt(np.sum(weights * (rates - mean) ** 2) / (1 - np.sum(weights**2))) / mean
    return TestbedPoint(config, servers, workers, mean, len(rates), float(windows.sum()), spread)


def recorded(name: str) -> Profile:
    """The profile of one worker, as `vgg11_b8_100_ps2`."""
    return profile("testbed", f"{name}.json.gz")


def policy_of(recorded: Profile) -> Multiplexed:
    """How the recorded transfers shared their connection: gRPC's first window, or a larger one if the profile
    shows that streams were sent whole beyond it."""
    largest = int(recorded.bytes[recorded.resource == DOWNLINK].max(initial=0))
    if largest <= DEFAULT_WINDOW_BYTES:  # the first window already lets every stream through whole
        return Multiplexed()
    fit = infer_window([recorded], Wire(bandwidth_bytes_per_s=recorded.bandwidth_bytes_per_s or math.inf))
    window = min(fit.window_bytes, fit.largest_bytes)
    return Multiplexed(window_bytes=max(DEFAULT_WINDOW_BYTES, round(window)))


@memoize
def _policy(name: str) -> Multiplexed:
    return policy_of(recorded(name))


@once
def compared() -> tuple[ComparedPoints, ...]:
    """Every measured point with its prediction."""
    return tuple(_compare(point) for point in measured())


def _compare(point: TestbedPoint) -> ComparedPoints:
    trace, policy = recorded(point.name), _policy(point.name)
    cluster = Cluster.uniform(point.workers, point.servers, trace.bandwidth_bytes_per_s or math.nan)
    one = one_worker(trace, cluster, policy)
    return ComparedPoints(
        point,
        simulate(trace, cluster, policy),
        {
            name: baseline(one, point.workers) / point.samples_per_s - 1
            for name, baseline in BASELINES.items()
        },
    )


def points() -> list[Row]:
    """Each configuration and number of workers."""
    return [
        row.near(
            found.point.samples_per_s,
            found.prediction.samples_per_s,
            TOLERANCE,
            unit="samples/s",
            name=RowName("testbed", "points", f"{found.point.name}-w{found.point.workers}"),
            what=f"{found.point.name}, {row.workers(found.point.workers)}",
            how="simulated from the profile of a single worker; measured without tracing, repeats pooled",
            source=SOURCE,
        )
        for found in compared()
    ]


def summary() -> list[Row]:
    """All points together: the mean error, and that of simpler models."""
    found = compared()
    ours = float(np.mean([abs(one.error) for one in found]))
    how = f"mean absolute error over {len(found)} points"
    rows = [
        row.stated(
            "-",
            f"{ours:.1%}",
            ours <= MEAN,
            f"at most {MEAN:.0%}",
            name=RowName("testbed", "summary", "mean"),
            what="mean error of all points",
            how=how,
            source=SOURCE,
        )
    ]
    for name in BASELINES:
        theirs = float(np.mean([abs(one.baselines[name]) for one in found]))
        rows.append(
            row.at_most(
                round(100 * theirs, 1),
                round(100 * ours, 2),
                round(100 * OF_BASELINE * theirs, 2),
                unit="%",
                name=RowName("testbed", "summary", name),
                what=f"mean error, beside that of the {name} model",
                how=f"{how}; claimed: at most half",
                source=SOURCE,
            )
        )
    return rows


CHECKS = {"points": points, "summary": summary}
