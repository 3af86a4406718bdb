"""Real runs: asynchronous training with TensorFlow 2.21, a one-worker profile in, throughput out.

`data/testbed/` holds the profiles, `<configuration>_ps<servers>.json.gz`, and `measured.csv`, the throughput
of 1 to 8 workers without tracing; its README says how both were made. Nothing is fitted to these runs.

What simpler models predict, to compare with: ideal scaling, Cynthia's formula, a queueing network.

All three need only a few figures of a single worker, which `measure_one_worker` takes from a simulated run
with its timeline, and none knows that computation and communication overlap op by op (Li et al., Fig. 3c,
shows how far off they are).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.servers.calibration import infer_window
from planner.servers.transmissions import Wire
from planner.simulator import Prediction, simulate
from planner.simulator.cluster import Cluster
from planner.simulator.policy import DEFAULT_WINDOW_BYTES, Multiplexed, Policy
from planner.simulator.run import RunOptions, run
from planner.simulator.step import DOWNLINK, UPLINK, Profile
from planner.validation.row import (
    CheckName,
    Row,
    Section,
    compute_once,
    load_profile,
    read_data_table,
    workers_label,
)

STEPS = 100


@dataclass(frozen=True, slots=True)
class OneWorker:
    """Step of a worker that trains alone: its length, and the length of each of its four phases."""

    batch: int
    step_s: float
    downlink_s: float  # until the last download has ended
    compute_s: float  # from then until the first upload starts
    uplink_s: float  # from then until the last upload has ended
    update_s: float  # from then until the end of the step
    busy_s: float  # the worker computes, whatever else goes on
    transfer_s: float  # the model in one direction, over the busiest link
    network_use: float  # share of the step during which that link is busy


def measure_one_worker(profile: Profile, cluster: Cluster, policy: Policy | None = None) -> OneWorker:
    """Simulates the cluster's first worker alone and measures the four phases of its step."""
    alone = replace(cluster, worker_nodes=cluster.worker_nodes[:1], worker_speeds=cluster.worker_speeds[:1])
    options = RunOptions(steps=STEPS, timeline=True)
    result = run(profile, alone, policy or Multiplexed(), "async", options)
    assert result.timeline is not None
    chunks, starts, ends = result.timeline, result.step_starts_s[0], result.step_ends_s[0]

    def phase_ends_s(resource: int, column: str, pick: np.ufunc, missing: np.ndarray) -> np.ndarray:
        """Per step, the least or greatest time in a column of a resource's chunks, chosen by `pick`."""
        rows = chunks[chunks["resource"] == resource]
        out = np.full(len(ends), np.inf if pick is np.minimum else -np.inf)
        pick.at(out, rows["step"], rows[column])
        return np.where(np.isfinite(out), out, missing)

    down_end = phase_ends_s(DOWNLINK, "end_s", np.maximum, starts)
    up_end = phase_ends_s(UPLINK, "end_s", np.maximum, ends)
    up_start = np.maximum(phase_ends_s(UPLINK, "start_s", np.minimum, up_end), down_end)
    step_s = float((ends - starts).mean())
    transfer_s = _transfer_s(profile, alone)
    return OneWorker(
        batch=profile.batch,
        step_s=step_s,
        downlink_s=float((down_end - starts).mean()),
        compute_s=float((up_start - down_end).mean()),
        uplink_s=float(np.maximum(up_end - up_start, 0.0).mean()),
        update_s=float((ends - np.maximum(up_end, up_start)).mean()),
        busy_s=float(result.worker_busy_s[0]) / len(ends),
        transfer_s=transfer_s,
        network_use=min(1.0, transfer_s / step_s),
    )


def ideal_samples_per_s(single: OneWorker, workers: int) -> float:
    """Samples per second with linear scaling: one worker's throughput times the number of workers."""
    return workers * single.batch / single.step_s


def cynthia_samples_per_s(single: OneWorker, workers: int) -> float:
    """Samples per second by Cynthia (Zheng et al., ICPP 2019), as Li et al. quotes it in section 1:

        W * K / (T_P * max(1, W * U1) + 2 * T_C)

    W workers, K the batch, T_P the time to process a batch, T_C the time to transmit the model or its
    updates, U1 the network utilisation of a single worker.
    """
    processing_s = single.busy_s * max(1.0, workers * single.network_use)
    return workers * single.batch / (processing_s + 2 * single.transfer_s)


def queueing_samples_per_s(single: OneWorker, workers: int) -> float:
    """Samples per second of a closed queueing network, four phases per step (Li et al., section 1, on [10]).
    W customers go round downlink (a queue), computation (no waiting), uplink (a queue) and update (no
    waiting), with the phases of a single worker as service demands. Exact mean value analysis: with n
    customers the time at queue i is R_i = D_i * (1 + Q_i(n - 1)), throughput X = n / (Z + sum R_i), and
    Q_i(n) = X * R_i."""
    demands = (single.downlink_s, single.uplink_s)
    think_s = single.compute_s + single.update_s
    queues = [0.0, 0.0]
    throughput = 0.0
    for customers in range(1, workers + 1):
        times = [demand * (1 + queue) for demand, queue in zip(demands, queues, strict=True)]
        throughput = customers / (think_s + sum(times))
        queues = [throughput * time for time in times]
    return throughput * single.batch


BASELINES: dict[str, Callable[[OneWorker, int], float]] = {
    "ideal": ideal_samples_per_s,
    "cynthia": cynthia_samples_per_s,
    "queueing": queueing_samples_per_s,
}


def _transfer_s(profile: Profile, alone: Cluster) -> float:
    """Seconds to send the model in one direction over the slowest NIC."""
    nodes, worker = alone.nodes, alone.nodes[alone.worker_nodes[0]]
    times = []
    for resource in (DOWNLINK, UPLINK):
        down = resource == DOWNLINK
        sizes = profile.bytes * (profile.resource == resource)
        by_server = [float(sizes[profile.server == s].sum()) for s in range(profile.servers)]
        for node, size in zip(alone.server_nodes, by_server, strict=True):
            times.append(size / (nodes[node].egress_bytes_per_s if down else nodes[node].ingress_bytes_per_s))
        times.append(sum(by_server) / (worker.ingress_bytes_per_s if down else worker.egress_bytes_per_s))
    return max(times)


TOLERANCE = 0.15  # of a point
MEAN = 0.06  # of all
OF_BASELINE = 0.5  # our mean error against that of each simpler model
SOURCE = "measured for this package (planner/validate/data/testbed/README.md)"


@dataclass(frozen=True, slots=True)
class TestbedPoint:
    """Measured throughput of one configuration with one number of workers, averaged over repeats."""

    config: str
    servers: int
    workers: int
    samples_per_s: float
    runs: int
    window_s: float  # over all runs
    spread: float  # relative standard deviation between runs, weighed by their windows; nan for one run

    @property
    def name(self) -> str:
        """Name of the point's recorded profile, such as `vgg11_b8_100_ps2`."""
        return f"{self.config}_ps{self.servers}"


@dataclass(frozen=True, slots=True)
class ComparedPoints:
    """Measured point, its prediction, and the relative errors of simpler models."""

    point: TestbedPoint
    prediction: Prediction
    baselines: dict[str, float]  # relative errors

    @property
    def error(self) -> float:
        """Relative error of the predicted throughput."""
        return self.prediction.samples_per_s / self.point.samples_per_s - 1


def measured_points() -> list[TestbedPoint]:
    """All measured points that ship with the package."""
    return pool_runs(read_data_table("testbed", "measured.csv"))


def pool_runs(lines: Iterable[Mapping[str, str]]) -> list[TestbedPoint]:
    """Averages repeated runs of each configuration, weighted by the length of their measurement."""
    runs = defaultdict(list)
    for line in lines:
        key = line["config"], int(line["n_ps"]), int(line["W"])
        runs[key].append((float(line["samples_per_s"]), float(line["window_s"])))
    return [_pool_run(*key, pairs) for key, pairs in sorted(runs.items())]


def _pool_run(config: str, servers: int, workers: int, pairs: Sequence[tuple[float, float]]) -> TestbedPoint:
    """Mean throughput of repeated runs, weighted by the length of their measurement, and their spread."""
    rates, windows = np.array(pairs).T
    mean = float(np.average(rates, weights=windows))
    spread = math.nan
    if len(rates) > 1:
        # Weights that say how much each run knows: the unbiased form for reliability weights.
        weights = windows / windows.sum()
        spread = math.sqrt(np.sum(weights * (rates - mean) ** 2) / (1 - np.sum(weights**2))) / mean
    return TestbedPoint(config, servers, workers, mean, len(rates), float(windows.sum()), spread)


def recorded_profile(name: str) -> Profile:
    """Recorded one-worker profile with this name, such as `vgg11_b8_100_ps2`."""
    return load_profile("testbed", f"{name}.json.gz")


def recorded_policy(recorded: Profile) -> Multiplexed:
    """Multiplexed policy with gRPC's initial window, or a larger one if the recording shows it."""
    largest = int(recorded.bytes[recorded.resource == DOWNLINK].max(initial=0))
    if largest <= DEFAULT_WINDOW_BYTES:  # the first window already lets every stream through whole
        return Multiplexed()
    fit = infer_window([recorded], Wire(bandwidth_bytes_per_s=recorded.bandwidth_bytes_per_s or math.inf))
    window = min(fit.window_bytes, fit.largest_bytes)
    return Multiplexed(window_bytes=max(DEFAULT_WINDOW_BYTES, round(window)))


@compute_once
def compared_points() -> tuple[ComparedPoints, ...]:
    """All measured points, each with its prediction."""
    policies = {
        name: recorded_policy(recorded_profile(name)) for name in {point.name for point in measured_points()}
    }
    return tuple(_predict_point(point, policies[point.name]) for point in measured_points())


def _predict_point(point: TestbedPoint, policy: Multiplexed) -> ComparedPoints:
    """Predicts a measured point from its one-worker profile, also by simpler models."""
    trace = recorded_profile(point.name)
    cluster = Cluster.uniform(point.workers, point.servers, trace.bandwidth_bytes_per_s or math.nan)
    alone = measure_one_worker(trace, cluster, policy)
    errors = {
        name: baseline(alone, point.workers) / point.samples_per_s - 1 for name, baseline in BASELINES.items()
    }
    return ComparedPoints(point, simulate(trace, cluster, policy), errors)


def point_rows() -> list[Row]:
    """Rows comparing each measured throughput with its prediction."""
    how = "simulated from the profile of a single worker; measured without tracing, repeats pooled"
    check, rows = Section(CheckName("testbed", "points"), how, SOURCE), []
    for pair in compared_points():
        point, ours = pair.point, pair.prediction.samples_per_s
        case, what = f"{point.name}-w{point.workers}", f"{point.name}, {workers_label(point.workers)}"
        rows.append(check.near(case, what, point.samples_per_s, ours, TOLERANCE, unit="samples/s"))
    return rows


def summary_rows() -> list[Row]:
    """Rows with the mean error over all points, for our predictions and for simpler models."""
    pairs = compared_points()
    ours = float(np.mean([abs(pair.error) for pair in pairs]))
    how = f"mean absolute error over {len(pairs)} points"
    check, claim = Section(CheckName("testbed", "summary"), how, SOURCE), f"at most {MEAN:.0%}"
    rows = [check.stated("mean", "mean error of all points", "-", f"{ours:.1%}", ours <= MEAN, claim)]
    half = f"{how}; claimed: at most half"
    for name in BASELINES:
        theirs = 100 * float(np.mean([abs(pair.baselines[name]) for pair in pairs]))
        what, most = f"mean error, beside that of the {name} model", round(OF_BASELINE * theirs, 2)
        error = round(100 * ours, 2)
        rows.append(check.at_most(name, what, round(theirs, 1), error, most, unit="%", how=half))
    return rows


CHECKS = {"points": point_rows, "summary": summary_rows}
