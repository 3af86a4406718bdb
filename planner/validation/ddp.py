"""Real PyTorch DDP and FSDP runs over bandwidth-limited links (tc), compared with predictions.

From a one-rank profile of each configuration and from raw collectives we predict the step time at every
measured number of workers. Predictions take the program's usual path: importer, computation, exchange,
simulator. What a user states is taken from config.json: bandwidth, delay, bucket sizes, accumulation, a slow
worker or link, jitter. Nothing is fitted to the runs.

A data folder holds one folder per configuration (`config.json`, `trace_ws1_rank0.json.gz`), `summary.csv`
with every measured run and `collectives.csv` with raw collectives (either may be gzipped).
`data/testbed-ddp/README.md` describes how they were recorded.
"""

from __future__ import annotations

import csv
import gzip
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.device.computation import (
    BACKWARD,
    FORWARD,
    Computation,
    Parameter,
    Variation,
    chain_deps,
    median_steps,
)
from planner.device.recorded.importers import import_computation
from planner.hardware import Device, Hardware, Market
from planner.memoize import memoize
from planner.parallel.data import Exchange, Site
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.fsdp import Sharded
from planner.simulator import simulate

DATA = Path(__file__).parent / "data" / "testbed-ddp"
DISTURBED = 1.08  # of the median: a longer step was disturbed by something else on the machine
SMALL_BYTES = 4096  # messages that are all latency


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Configuration of one measured run, read from its file."""

    name: str
    path: Path = field(compare=False)
    content: dict[str, Any] = field(compare=False, hash=False)

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Value of a key; the default if it is missing or empty."""
        return self.content.get(key) or default

    @property
    def trace(self) -> Path:
        """Path of the one-rank run's profiler trace; if there is none, rank 0's of the two-rank run."""
        kept = [self.path / f"trace_ws{ranks}_rank0.json.gz" for ranks in (1, 2)]
        return next((path for path in kept if path.exists()), kept[0])

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth of the links."""
        return float(self["mbit"]) * 1e6 / 8

    @property
    def delay_s(self) -> float:
        """Delay of the links."""
        return float(self.get("delay_ms", 0.0)) * 1e-3

    @property
    def group(self) -> str:
        """Feature that the configuration tests, such as `jitter`."""
        if self["mode"] != "ddp":
            return str(self["mode"])
        for key, name in (
            ("slow_worker", "slow worker"),
            ("slow_link", "slow link"),
            ("jitter_sigma", "jitter"),
            ("delay_ms", "latency"),
            ("find_unused", "find unused"),
        ):
            if self.get(key):
                return name
        if self.get("accum", 1) > 1:
            return "accumulation"
        return "plain" if self.get("buckets", "default") == "default" else "bucket sizes"


@dataclass(frozen=True, slots=True)
class DdpPoint:
    """Measured step time of one configuration and number of workers. Of the undisturbed repeat, or without
    its disturbed steps."""

    config: str
    workers: int
    step_s: float
    flags: str


def read_configs(data: Path) -> dict[str, RunConfig]:
    """Configurations of all runs in a folder, by name."""
    by_name = {}
    for path in sorted(data.glob("*/config.json*")):
        content = json.loads(_read(path))
        by_name[path.parent.name] = RunConfig(path.parent.name, path.parent, content)
    return by_name


def measured_points(data: Path) -> list[DdpPoint]:
    """Measured step time of every configuration and number of workers. Repeats with jitter are averaged, as
    their draws differ; otherwise the second repeat is used, which ran alone."""
    known = read_configs(data)
    runs: dict[tuple[str, int], list[dict[str, str]]] = defaultdict(list)
    for line in _read_csv(data, "summary.csv") or _summarize_steps(known.values()):
        if line["config"] in known:
            runs[line["config"], int(line["W"])].append(line)
    parts = []
    for (name, workers), lines in sorted(runs.items()):
        lines.sort(key=lambda line: line["rep"])
        last = lines[-1]
        if known[name].get("jitter_sigma"):
            steps = [int(line["n_steps"]) for line in lines]
            step_s = float(np.average([float(line["step_mean_s"]) for line in lines], weights=steps))
        else:
            step_s = float(last["step_mean_s" if last["rep"] != "rep1" else "step_clean_s"])
        parts.append(DdpPoint(name, workers, step_s, last["flags"]))
    return parts


@memoize
def hop_latencies_s(data: Path) -> dict[bool, dict[int, float]]:
    """Seconds per hop of a tiny all-reduce, minus the link delay: `[are links delayed][ranks]`. Runs with
    nothing else on the machine are preferred."""
    times: dict[tuple[bool, str, int], list[float]] = defaultdict(list)
    for line in _read_csv(data, "collectives.csv"):
        if line["op"] == "all_reduce" and int(line["bytes"]) <= SMALL_BYTES:
            ranks, delay_s = int(line["W"]), float(line["delay_us"]) * 1e-6
            hop_s = float(line["seconds"]) / (2 * (ranks - 1)) - 2 * delay_s
            times[delay_s > 0, line["lane"], ranks].append(hop_s)
    by_name: dict[bool, dict[int, float]] = {False: {}, True: {}}
    for relay, by_ranks in by_name.items():
        mine = {key: value for key, value in times.items() if key[0] is relay}
        alone = {key: value for key, value in mine.items() if key[1] == "alone"}
        for (_, _, ranks), values in (alone or mine).items():
            by_ranks[ranks] = statistics.median(values)
    return by_name


def round_trip_s(config: RunConfig, workers: int, data: Path) -> float:
    """Seconds per round trip: twice the link delay, plus the measured overhead of hosts and relay."""
    measured = hop_latencies_s(data)[config.delay_s > 0] or hop_latencies_s(DATA)[config.delay_s > 0]
    ranks = sorted(measured)
    extra = float(np.interp(workers, ranks, [measured[count] for count in ranks]))
    return 2 * config.delay_s + extra


def _read_csv(data: Path, name: str) -> list[dict[str, str]]:
    """Rows of a CSV file in a folder, which may be gzipped; empty list if there is none."""
    for path in (data / name, data / f"{name}.gz"):
        if path.exists():
            return list(csv.DictReader(_read(path).decode().splitlines()))
    return []


def _summarize_steps(known: Iterable[RunConfig]) -> list[dict[str, str]]:
    """Summary rows computed from recorded steps, in place of a missing summary.csv."""
    parts = []
    for config in known:
        for path in sorted(config.path.glob("steps_w*.json.gz")):
            run = json.loads(_read(path))
            ends = np.array([[step[1] for step in rank] for rank in run["steps"]]).mean(axis=0)
            lengths = np.diff(ends[max(run.get("first", 0) - 1, 0) :])
            clean = lengths[lengths <= DISTURBED * np.median(lengths)]
            parts.append(
                {
                    "config": config.name,
                    "W": str(run["W"]),
                    "rep": "rep2" if "_rep2" in path.name else "rep1",
                    "n_steps": str(len(lengths)),
                    "step_mean_s": str(lengths.mean()),
                    "step_clean_s": str(clean.mean()),
                    "flags": "",
                }
            )
    return parts


def _read(path: Path) -> bytes:
    """Contents of a file, which may be gzipped."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


# The bucket of the shapers, of which one frame cannot be used: messages up to this size pass a link that was
# idle at once (100 Mbit/s, 262144 bytes on 4 ranks: 12.3 ms a hop of 10.4 and 2.66 less 0.76).
BURST_BYTES = 10_000
CORES = 2  # of the machine that all ranks ran on (data/testbed-ddp/README.md)
ROWS = 400  # draws of a step with jitter
HOST = Hardware("host", Device("host", "cpu", {"fp32": 1e9}, 1e9, cores=1))


@dataclass(frozen=True, slots=True)
class DdpResult:
    """Measured and predicted step time of one configuration and number of workers."""

    config: RunConfig
    point: DdpPoint
    predicted_s: float

    @property
    def error(self) -> float:
        """Relative error: predicted / measured - 1."""
        return self.predicted_s / self.point.step_s - 1


@memoize
def recorded_computation(config: RunConfig, workers: int = 1) -> Computation:
    """Traced computation of one step, with jitter as configured. Host work of FSDP2 grows with the number of
    workers that share the cores."""
    if config["mode"] == "fsdp":  # a loop without autograd: its trace has no layers
        return configured_computation(config)
    imported = import_computation([config.trace], batch=1, model=config["model"])
    if config["mode"] == "fsdp2":
        return regroup_by_fsdp_unit(median_steps(block_on_collectives(imported, config, workers)), config)
    traced = median_steps(imported)
    sigma = config.get("jitter_sigma", 0.0)
    if not sigma:
        return traced
    stated = config["compute_s"] * config.get("accum", 1) / traced.durations_s.sum()
    mean = replace(traced, durations_s=traced.durations_s * stated)
    return median_steps(mean, Variation(sigma, 0.0), steps=ROWS)


def configured_computation(config: RunConfig) -> Computation:
    """Computation with a chain of layers whose passes take the configured times."""
    layers = config["layers"]
    n = len(layers)
    unit = _fsdp_unit_by_layer(config)
    parameters = tuple(
        Parameter(tensor["name"], tensor["floats"], (at,), 2 * n - 1 - at, unit[layer["name"]])
        for at, layer in enumerate(layers)
        for tensor in layer["tensors"]
    )
    seconds = [layer["fwd_s"] for layer in layers] + [layer["bwd_s"] for layer in reversed(layers)]
    return Computation(
        model=config["model"],
        batch=1,
        names=tuple(f"{layer['name']}/forward" for layer in layers)
        + tuple(f"{layer['name']}/backward" for layer in reversed(layers)),
        role=np.array([FORWARD] * n + [BACKWARD] * n, np.uint8),
        layer=np.full(2 * n, -1, np.int32),
        layers=(),
        deps=chain_deps(2 * n),
        durations_s=np.array([seconds]),
        parameters=parameters,
        optimizer_s=0.0,
        blocks=tuple(f"unit{at}" for at in range(len(config["ddp_buckets"]))),
    )


def block_on_collectives(computation: Computation, config: RunConfig, workers: int) -> Computation:
    """Retimes a traced computation for collectives that block the host. No kernel is launched ahead, so each
    takes its configured time; host work slows down as ranks share the cores."""
    stated_s = {f"forward/{layer['name']}": layer["fwd_s"] for layer in config["layers"]}
    stated_s |= {f"backward/{layer['name']}Backward": layer["bwd_s"] for layer in config["layers"]}
    kernel_s = np.array([stated_s.get(name.rpartition("_")[0], np.nan) for name in computation.names])
    host_s = computation.durations_s * max(1.0, workers / CORES)
    return replace(computation, durations_s=np.where(np.isnan(kernel_s), host_s, kernel_s))


def regroup_by_fsdp_unit(computation: Computation, config: RunConfig) -> Computation:
    """Assigns the traced parameters to the configuration's FSDP units instead of to layers."""
    unit = _fsdp_unit_by_layer(config)
    layer = [name.rpartition("_")[0] for name in computation.blocks]
    return replace(
        computation,
        parameters=tuple(
            replace(parameter, block=unit.get(layer[parameter.block], 0))
            for parameter in computation.parameters
        ),
        blocks=tuple(f"unit{at}" for at in range(len(config["ddp_buckets"]))),
    )


def _fsdp_unit_by_layer(config: RunConfig) -> dict[str, int]:
    """Index of the FSDP unit of each layer, by name."""
    return {name: at for at, unit in enumerate(config["ddp_buckets"]) for name in unit["tensors"]}


def exchange_of(config: RunConfig) -> Exchange:
    """Strategy of a configuration: DDP, or FSDP with blocking or overlapped collectives."""
    if config["mode"] != "ddp":
        blocking = config["mode"] == "fsdp2"
        return Sharded(library="gloo", blocking=blocking, least_unit=0, accesses=0.0, jitter=0.0)
    return AllReduce(
        bucket_bytes=config["bucket_cap"],
        first_bucket_bytes=config["bucket_first"],
        rebuilt=not config.get("find_unused", False),
        library="gloo",
        accesses=0.0,  # emulated kernels do not slow down,
        jitter=0.0,  # and vary as the configuration states
    )


def site_of(config: RunConfig, workers: int, data: Path) -> Site:
    """Site of a configuration: its machines and network, with slow workers and links."""
    slow = {int(rank): factor for rank, factor in config.get("slow_worker", {}).items()}
    narrow = {int(rank): mbit for rank, mbit in config.get("slow_link", {}).items()}
    return Site(
        HOST,
        workers,
        Market(bandwidth_bytes_per_s=config.bytes_per_s),
        speeds=tuple(1 / slow.get(rank, 1.0) for rank in range(workers)),
        nic_shares=tuple(narrow.get(rank, config["mbit"]) / config["mbit"] for rank in range(workers)),
        round_trip_s=round_trip_s(config, workers, data),
        burst_bytes=BURST_BYTES,
    )


def predict_step_s(config: RunConfig, workers: int, data: Path) -> float:
    """Predicted seconds per step."""
    case = exchange_of(config).lower(recorded_computation(config, workers), site_of(config, workers, data))
    result = simulate(case.profile, case.cluster, case.policy, precision=0.005)
    return workers * case.profile.batch / result.samples_per_s


def compare_points(data: Path = DATA) -> list[DdpResult]:
    """Measured and predicted step time of every configuration and number of workers."""
    known = read_configs(data)
    return [
        DdpResult(known[point.config], point, predict_step_s(known[point.config], point.workers, data))
        for point in measured_points(data)
    ]
