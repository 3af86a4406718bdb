"""Recorded runs of PyTorch DDP and FSDP over shaped links: configurations, measured steps, raw collectives.

A folder holds one folder a configuration (`config.json`, `trace_ws1_rank0.json.gz`), `summary.csv` with every
measured run and `collectives.csv` with raw collectives (either may be gzipped). `data/testbed-ddp/README.md`
says how they were made.
"""

from __future__ import annotations

import csv
import gzip
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data" / "testbed-ddp"
DISTURBED = 1.08  # of the median: a longer step was disturbed by something else on the machine
SMALL_BYTES = 4096  # messages that are all latency


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One configuration as it was run."""

    name: str
    path: Path = field(compare=False)
    content: dict[str, Any] = field(compare=False, hash=False)

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.content.get(key) or default

    @property
    def trace(self) -> Path:
        """The profile of one rank, or of the first of two where that is all there is."""
        found = [self.path / f"trace_ws{ranks}_rank0.json.gz" for ranks in (1, 2)]
        return next((path for path in found if path.exists()), found[0])

    @property
    def bytes_per_s(self) -> float:
        return float(self["mbit"]) * 1e6 / 8

    @property
    def delay_s(self) -> float:
        return float(self.get("delay_ms", 0.0)) * 1e-3

    @property
    def group(self) -> str:
        """What is special about it."""
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
    """A measured step time: of the undisturbed repeat, else without the steps that were disturbed."""

    config: str
    workers: int
    step_s: float
    flags: str


def configs(data: Path) -> dict[str, RunConfig]:
    """All configurations of a folder by name."""
    found = {}
    for path in sorted(data.glob("*/config.json*")):
        content = json.loads(_read(path))
        found[path.parent.name] = RunConfig(path.parent.name, path.parent, content)
    return found


def points(data: Path) -> list[DdpPoint]:
    """What was measured. Repeats of a run with jitter are pooled, because the draws differ; of others the
    second repeat counts, which ran with nothing beside it."""
    known = configs(data)
    runs: dict[tuple[str, int], list[dict[str, str]]] = defaultdict(list)
    for line in _rows(data, "summary.csv") or _from_steps(known.values()):
        if line["config"] in known:
            runs[line["config"], int(line["W"])].append(line)
    found = []
    for (name, workers), lines in sorted(runs.items()):
        lines.sort(key=lambda line: line["rep"])
        last = lines[-1]
        if known[name].get("jitter_sigma"):
            steps = [int(line["n_steps"]) for line in lines]
            step_s = float(np.average([float(line["step_mean_s"]) for line in lines], weights=steps))
        else:
            step_s = float(last["step_mean_s" if last["rep"] != "rep1" else "step_clean_s"])
        found.append(DdpPoint(name, workers, step_s, last["flags"]))
    return found


@cache
def waits(data: Path) -> dict[bool, dict[int, float]]:
    """What a hop of a tiny all-reduce takes beyond the links' delay, in seconds by number of ranks: without
    and with the relay that delays. Runs with nothing beside them only, where there are any."""
    times: dict[tuple[bool, str, int], list[float]] = defaultdict(list)
    for line in _rows(data, "collectives.csv"):
        if line["op"] == "all_reduce" and int(line["bytes"]) <= SMALL_BYTES:
            ranks, delay_s = int(line["W"]), float(line["delay_us"]) * 1e-6
            hop_s = float(line["seconds"]) / (2 * (ranks - 1)) - 2 * delay_s
            times[delay_s > 0, line["lane"], ranks].append(hop_s)
    found: dict[bool, dict[int, float]] = {False: {}, True: {}}
    for relay, by_ranks in found.items():
        mine = {key: value for key, value in times.items() if key[0] is relay}
        alone = {key: value for key, value in mine.items() if key[1] == "alone"}
        for (_, _, ranks), values in (alone or mine).items():
            by_ranks[ranks] = statistics.median(values)
    return found


def round_trip_s(config: RunConfig, workers: int, data: Path) -> float:
    """Of a notice and its answer: the links' delay twice, and what hosts and relay add."""
    measured = waits(data)[config.delay_s > 0] or waits(DATA)[config.delay_s > 0]
    ranks = sorted(measured)
    extra = float(np.interp(workers, ranks, [measured[count] for count in ranks]))
    return 2 * config.delay_s + extra


def _rows(data: Path, name: str) -> list[dict[str, str]]:
    for path in (data / name, data / f"{name}.gz"):
        if path.exists():
            return list(csv.DictReader(_read(path).decode().splitlines()))
    return []


def _from_steps(known: Iterable[RunConfig]) -> list[dict[str, str]]:
    """The rows of a summary that is not there, from the recorded steps of each run."""
    found = []
    for config in known:
        for path in sorted(config.path.glob("steps_w*.json.gz")):
            run = json.loads(_read(path))
            ends = np.array([[step[1] for step in rank] for rank in run["steps"]]).mean(axis=0)
            lengths = np.diff(ends[max(run.get("first", 0) - 1, 0) :])
            clean = lengths[lengths <= DISTURBED * np.median(lengths)]
            found.append(
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
    return found


def _read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
