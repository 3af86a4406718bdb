"""From runs to a prediction: a throughput with its interval, how many runs it needs, and where the time goes.

Async workers fall into slow and fast patterns that last for many steps, so values inside one run are
correlated and batch means give intervals that are far too narrow. Independent runs, each with seeds and start
offsets of its own, are not: the interval is Student's t over runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.files.tomlfile import convert
from planner.memoize import memoize
from planner.simulator.cluster import (
    COMPUTATION,
    HOSTS,
    INPUT,
    Cluster,
    Resource,
    ResourceKind,
    figures_by_name,
)
from planner.simulator.run import RunResult

MOST_ROWS = 48  # of steps, when their sums are looked at; more are put together, each as its shortest
QUANTILES = {"p5": 0.05, "p50": 0.50, "p95": 0.95}


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean and half-width of its confidence interval."""

    mean: float
    half_width: float

    @property
    def precision(self) -> float:
        """Half-width divided by the mean."""
        return self.half_width / self.mean if self.mean > 0 else math.inf


@memoize
def t_quantile(confidence: float, degrees_of_freedom: int) -> float:
    """Two-sided quantile of Student's t: half-width of the interval in standard errors. By bisection of
    Student's distribution: importing scipy for this one number would take longer than many a simulation."""
    if not 0 < confidence < 1:
        raise BadInput(f"confidence is {confidence}; it must lie between 0 and 1, as 0.95")
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if _student_probability(middle, degrees_of_freedom) < confidence:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(degrees_of_freedom)


def _student_probability(angle: float, degrees_of_freedom: int) -> float:
    """Probability that Student's |T| <= sqrt(degrees) * tan(angle), for whole degrees of freedom. A finite
    sum (Abramowitz and Stegun, 26.7.3 and 26.7.4). Beyond a few thousand degrees T is as good as normal."""
    if degrees_of_freedom > 5000:
        return math.erf(math.tan(angle) * math.sqrt(degrees_of_freedom / 2))
    odd = degrees_of_freedom % 2
    cosine = math.cos(angle)
    term = cosine if odd else 1.0
    total = term if degrees_of_freedom > 1 else 0.0
    for k in range(2 if not odd else 3, degrees_of_freedom, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if odd else total


@dataclass(frozen=True, slots=True)
class TwoStage:
    """Number of runs that reach a wanted precision, and the confidence interval that they give. Stein, A
    two-sample test for a linear hypothesis whose power is independent of the variance, Annals of Mathematical
    Statistics 16 (1945). A first stage of n0 runs estimates the variance s0**2; then N = max(n0, ceil((t * s0
    / d)**2)) runs in all give the interval mean +- t * s0 / sqrt(N), with t for n0 - 1 degrees of freedom and
    d the wanted half-width. As N depends on s0 alone and s0 is independent of the mean of normal data, the
    coverage is as promised; adding runs until the interval looks narrow enough stops too early and covers
    less. We differ in taking d relative to the mean of the runs so far."""

    confidence: float
    precision: float
    first: tuple[float, ...]  # what the runs of the first stage gave

    @property
    def run_half_width(self) -> float:
        """Half-width of the interval from a single run: t * s0."""
        spread = float(np.std(self.first, ddof=1))
        return t_quantile(self.confidence, len(self.first) - 1) * spread

    def required_runs(self, max_runs: int, values: Sequence[float] = ()) -> int:
        """Number of runs needed for the precision: at least the first stage's, at most `max_runs`."""
        wanted = self.precision * float(np.mean(values or self.first))
        needed = math.inf if wanted <= 0 < self.run_half_width else 0.0
        if wanted > 0:
            needed = (self.run_half_width / wanted) ** 2
        return max(len(self.first), math.ceil(min(needed, max_runs)))

    def interval(self, values: Sequence[float]) -> Interval:
        """Confidence interval from all runs."""
        return Interval(float(np.mean(values)), self.run_half_width / math.sqrt(len(values)))


def measured_s(result: RunResult) -> float:
    """Seconds of a run's measured part, which begins after the last worker's warm-up."""
    return result.end_s - result.measured_from_s


def steps_per_s(result: RunResult) -> npt.NDArray[np.float64]:
    """Steps per second of each worker in the measured part of a run."""
    ends, worker = _step_ends_and_workers(result)
    inside = (ends > result.measured_from_s) & (ends <= result.end_s)
    counts = np.bincount(worker[inside], minlength=len(result.step_ends_s))
    return counts.astype(np.float64) / measured_s(result)


def measured_steps(result: RunResult) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Seconds and staleness of each step that ended in the measured part of a run."""
    ends, _ = _step_ends_and_workers(result)
    rows = zip(result.step_starts_s, result.step_ends_s, strict=True)
    starts = np.concatenate([starts[: len(ends)] for starts, ends in rows])
    inside = ends > result.measured_from_s
    return (ends - starts)[inside], np.concatenate(result.staleness)[inside]


def _step_ends_and_workers(result: RunResult) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """End times of all steps in one array, and their workers in another."""
    counts = [len(ends) for ends in result.step_ends_s]
    return np.concatenate(result.step_ends_s), np.repeat(np.arange(len(counts)), counts)


def mean_of_slowest_s(
    rows: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]], members: npt.NDArray[np.float64]
) -> float:
    """Mean seconds of the slowest of many independent workers, each drawing a random head and tail. Each kind
    draws a head and a tail from its rows; long lists are shortened to smaller values."""
    sums = [np.sort(np.add.outer(_shorten_rows(head), _shorten_rows(tail)).ravel()) for head, tail in rows]
    values = np.unique(np.concatenate(sums))
    below = np.ones(len(values))  # probability that no member takes longer
    for ordered, count in zip(sums, members, strict=True):
        below *= (np.searchsorted(ordered, values, side="right") / len(ordered)) ** count
    return float(values @ np.diff(below, prepend=0.0))


def _shorten_rows(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """At most MOST_ROWS equally likely values, each the smallest of the values that it stands for."""
    if len(rows) <= MOST_ROWS:
        return rows
    share = len(rows) / MOST_ROWS
    return np.asarray(np.sort(rows)[(np.arange(MOST_ROWS) * share).astype(np.intp)])


@dataclass(frozen=True, slots=True)
class Prediction:
    """Throughput of a plan with its interval, and the utilisation of each resource. `utilisation` maps a
    resource to the share of time (for links: of capacity) it is used, averaged over workers for `worker`;
    `bottleneck` is the most used one."""

    samples_per_s: float
    samples_per_s_low: float
    samples_per_s_high: float
    confidence: float
    precision: float  # half-width reached, relative to samples_per_s
    runs: int
    steps: int  # measured steps over all runs and workers
    step_s: float  # mean
    step_s_quantiles: dict[str, float]  # p5, p50, p95
    utilisation: dict[Resource, float]
    bottleneck: Resource
    worker_samples_per_s: tuple[float, ...]
    staleness_mean: float = 0.0
    staleness_max: int = 0
    events: int = 0
    engine: str = ""  # which path ran, as RunResult.path says
    timeline: Any = None
    notes: tuple[str, ...] = field(default=())
    input_s: float = 0.0  # of a step, in which devices wait for their input

    def limit_by_input(self, samples_per_s: float) -> Prediction:
        """Prediction with throughput capped at the rate at which the input pipeline delivers samples."""
        step_s = self.step_s * self.samples_per_s / samples_per_s
        wait_s = step_s - self.step_s
        if wait_s <= 0:
            return self
        share = self.step_s / step_s
        return replace(
            self,
            samples_per_s=samples_per_s,
            samples_per_s_low=min(self.samples_per_s_low, samples_per_s),
            samples_per_s_high=samples_per_s,
            step_s=step_s,
            step_s_quantiles={name: value / share for name, value in self.step_s_quantiles.items()},
            utilisation={name: used * share for name, used in self.utilisation.items()} | {INPUT: 1.0},
            bottleneck=INPUT,
            worker_samples_per_s=tuple(value * share for value in self.worker_samples_per_s),
            input_s=wait_s,
        )

    def record(self) -> dict[str, Any]:
        """Plain values of the prediction, without its timeline, for stores, studies and JSON."""
        record = asdict(replace(self, timeline=None)) | {
            "utilisation": figures_by_name(self.utilisation),
            "bottleneck": str(self.bottleneck),
        }
        if not self.input_s:
            del record["input_s"]
        return record

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Prediction:
        """Restores a prediction from its record."""
        used = convert(record.get("utilisation"), dict[str, float])
        typed = {
            "utilisation": {Resource.parse(text): share for text, share in used.items()},
            "bottleneck": Resource.parse(convert(record.get("bottleneck"), str)),
        }
        return convert({**record, **typed}, Prediction)


def utilisation(
    cluster: Cluster, results: Sequence[RunResult], server_cores: int | None = None
) -> dict[Resource, float]:
    """Fraction of its capacity that each resource used, over all runs. `downlink[s]` and `uplink[s]` are
    server s's NIC out and in; `worker`, `host` and `ps[s]` are averages over workers; an op that runs once
    for several workers counts once, and where a node has fewer cores than workers, or a server has other
    cores, `host` and `ps[s]` are shares of those. Where a worker's NIC can be the narrower end, `worker
    downlink` and `worker uplink` are the busiest worker node's NIC. A link goes by its name, with the busiest
    of the ports that its flows cross; a joint op crosses its leader's ports alone, so they stand for the
    other members'."""
    seconds = sum(measured_s(result) for result in results)
    sent, busy, updating, parsing = (
        np.sum([getattr(result, name) for result in results], axis=0) / seconds
        for name in ("link_bytes", "worker_busy_s", "ps_busy_s", "host_busy_s")
    )
    nodes, servers = cluster.nodes, [cluster.nodes[node] for node in cluster.server_nodes]
    ends = np.array(cluster.ends, np.int64).reshape(cluster.workers, cluster.channels, 2)
    sent = sent * (ends[:, :, 0] != ends[:, :, 1])
    out: dict[Resource, float] = {}
    for s, node in enumerate(servers):
        out[Resource(ResourceKind.DOWNLINK, s)] = float(sent[0, :, s].sum()) / node.egress_bytes_per_s
    out[COMPUTATION] = float(busy.mean())
    if parsing.any():
        out[HOSTS] = _host_utilisation(cluster, parsing)
    for s, node in enumerate(servers):
        out[Resource(ResourceKind.UPLINK, s)] = float(sent[1, :, s].sum()) / node.ingress_bytes_per_s
    for s, node in enumerate(servers):
        lanes = max(np.count_nonzero(updating[:, s]), 1)
        cores = server_cores or min(node.cores or lanes, lanes)
        out[Resource(ResourceKind.PS, s)] = float(updating[:, s].sum() / cores)
    for direction, kind, side, far_side in (
        (0, ResourceKind.WORKER_DOWNLINK, "ingress_bytes_per_s", "egress_bytes_per_s"),
        (1, ResourceKind.WORKER_UPLINK, "egress_bytes_per_s", "ingress_bytes_per_s"),
    ):
        by_node: dict[int, float] = {}
        for w, n in enumerate(cluster.worker_nodes):
            by_node[n] = by_node.get(n, 0.0) + float(sent[direction, w, : cluster.servers].sum())
        narrowest = min(getattr(nodes[n], side) for n in by_node)
        servers_together = sum(getattr(node, far_side) for node in servers)
        if narrowest < servers_together:
            out[Resource(kind)] = max(value / getattr(nodes[n], side) for n, value in by_node.items())
    for channel in range(cluster.servers, cluster.channels):
        link, busiest = cluster.link_resource(channel), _busiest_port(cluster, ends, sent, channel)
        busy_lane = float(updating[:, channel].max())  # joint ops of a known duration
        out[link] = max(busiest, busy_lane, out.get(link, 0.0))
    return out


def _host_utilisation(cluster: Cluster, parsing: npt.NDArray[np.float64]) -> float:
    """Fraction of time that hosts parse, relative to their node's cores if these are fewer."""
    there = np.array(cluster.worker_nodes)
    shares = []
    for node in np.unique(there).tolist():
        busy = parsing[(there == node) & (parsing > 0)]
        if len(busy):
            shares.append(busy.sum() / min(cluster.nodes[node].cores or len(busy), len(busy)))
    return float(np.mean(shares))


def _busiest_port(
    cluster: Cluster, ends: npt.NDArray[np.int64], sent: npt.NDArray[np.float64], channel: int
) -> float:
    """Fraction of capacity that this channel used at its busiest port."""
    near, far, nodes = ends[:, channel, 0], ends[:, channel, 1], len(cluster.nodes)
    down, up = sent[0, :, channel], sent[1, :, channel]
    egress = np.bincount(near, up, nodes) + np.bincount(far, down, nodes)
    ingress = np.bincount(far, up, nodes) + np.bincount(near, down, nodes)
    shares = [0.0]
    for node in np.flatnonzero(egress + ingress):
        shares.append(egress[node] / cluster.nodes[node].egress_bytes_per_s)
        shares.append(ingress[node] / cluster.nodes[node].ingress_bytes_per_s)
    return float(max(shares))
