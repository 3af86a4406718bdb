"""Traces of real runs, made into the profiles that the package ships.

    python benchmarks/accuracy/testbed.py        writes planner/validation/data/testbed/*.json.gz

`benchmarks/data/testbed/` holds traces of one worker, `<configuration>_ps<servers>.json.gz`: the static graph
(`ops`: name, kind, resource, bytes, deps) and for each step the start and end of every op in microseconds
after the call of `session.run`, null where TensorFlow lost the record. What was measured with more workers
stands in `planner/validation/data/testbed/`, whose README says how all of it was made.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.servers.validation.testbed import TestbedPoint, pool_runs, recorded_policy
from planner.servers.validation.testbed import measured_points as shipped
from planner.simulator.step import DOWNLINK, PS, RESOURCE_KINDS, UPLINK, WORKER, Op, Profile
from planner.simulator.step.files import save

__all__ = ["TestbedPoint", "recorded_policy"]

DATA = Path(__file__).parent / "testbed_data"
PROFILES = Path(__file__).parents[2] / "planner" / "validation" / "data" / "testbed"
MBIT_BYTES_PER_S = 1e6 / 8

# TCP payload over line rate, from iperf3 between two hosts of the testbed (99.3 of 100 and 198.8 of 200
# Mbit/s one way): Ethernet, IP and TCP headers at an MTU of 9000.
GOODPUT = 0.993


def trace_files() -> dict[str, Path]:
    """The traces at hand by name, as `vgg11_b8_100_ps2`: files `<name>.json.gz`, or the layout in which the
    runs were recorded, `<configuration>/.../compact_ps<servers>.json.gz`."""
    by_name = {path.name.removesuffix(".json.gz"): path for path in DATA.glob("*_ps*.json.gz")}
    for path in DATA.glob("*/**/compact_ps*.json.gz"):
        servers = path.name.removesuffix(".json.gz").removeprefix("compact_")
        by_name[f"{path.relative_to(DATA).parts[0]}_{servers}"] = path
    return dict(sorted(by_name.items()))


def traces() -> list[str]:
    return list(trace_files())


def read_trace(name: str) -> dict[str, Any]:
    with gzip.open(trace_files()[name], "rt") as file:
        trace: dict[str, Any] = json.load(file)
    return trace


def measured_points() -> list[TestbedPoint]:
    """The measured points that belong to the traces."""
    for name in ("measured.csv", "summary.csv"):
        if (DATA / name).exists():
            with (DATA / name).open(newline="") as file:
                return pool_runs(csv.DictReader(file))
    return shipped()


def bandwidth_bytes_per_s(trace: dict[str, Any]) -> float:
    """What a TCP flow alone on a link of the testbed delivers."""
    return float(trace["config"]["mbit"]) * MBIT_BYTES_PER_S * GOODPUT


def profile_of(trace: dict[str, Any], *, latency: bool = True, skip_steps: int = 0) -> Profile:
    """The profile of a trace.

    - A step's order of requests is that of the recorded starts.
    - A compute op lasts from when its last dependency ended (or, if later, the op before it on the worker)
      to its own end: the microseconds that TensorFlow needs to dispatch it are part of it.
    - A lost record gets the median of that op over the other steps.
    - Zero-byte control messages are dropped and their dependencies carried on.
    - With `latency`, what the client waits before the first request and after the last update
      (`step/begin`, `step/end`) is a compute op on the worker at either end of the step.
    """
    all_ops = trace["ops"]
    kept = [i for i, op in enumerate(all_ops) if op["kind"] != "control"]
    times = _times_s(trace, kept)[skip_steps:]
    step_s = np.array([step["duration_us"] for step in trace["steps"][skip_steps:]]) * 1e-6
    deps = _carried_deps(all_ops, kept)
    ops = [_op(all_ops[i], op_deps) for i, op_deps in zip(kept, deps, strict=True)]
    durations = times[:, :, 1] - times[:, :, 0]
    for column, op in enumerate(ops):
        if op.resource == WORKER:
            durations[:, column] = times[:, column, 1] - _ready_s(times, ops, column)
    order = times[:, :, 0].argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    ops, tensors = _with_tensors(ops)
    starts = times[:, :, 0]
    if latency:
        ops, durations, order = _with_latency(ops, durations, order, times, step_s)
        starts = np.column_stack([starts, np.zeros(len(starts)), times[:, :, 1].max(axis=1)])
    return Profile.build(
        ops,
        np.maximum(durations, 0.0),
        model=trace["config"]["model"],
        batch=int(trace["config"]["batch"]),
        servers=int(trace["n_ps"]),
        tensors=tensors,
        order=order,
        starts_s=starts,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s(trace),
        source=f"testbed trace {trace['config']['name']}, {trace['n_ps']} server(s)",
    )


def _times_s(trace: dict[str, Any], kept: Sequence[int]) -> npt.NDArray[np.float64]:
    """steps x ops x (start, end); a lost record becomes the op's median start and duration."""
    nothing = (math.nan, math.nan)
    times = np.array([[step["times"][i] or nothing for i in kept] for step in trace["steps"]], float) * 1e-6
    lost_step, lost_op = np.nonzero(np.isnan(times[:, :, 0]))
    if len(lost_op):
        start = np.nanmedian(times[:, lost_op, 0], axis=0)
        length = np.nanmedian(times[:, lost_op, 1] - times[:, lost_op, 0], axis=0)
        times[lost_step, lost_op, 0] = start
        times[lost_step, lost_op, 1] = start + length
    return times


def _carried_deps(all_ops: Sequence[dict[str, Any]], kept: Sequence[int]) -> list[tuple[int, ...]]:
    position = {old: new for new, old in enumerate(kept)}

    def carried(old: int) -> set[int]:
        out: set[int] = set()
        for dep in all_ops[old]["deps"]:
            out |= {position[dep]} if dep in position else carried(dep)
        return out

    return [tuple(sorted(carried(old))) for old in kept]


def _op(record: dict[str, Any], deps: tuple[int, ...]) -> Op:
    kind = record["resource"].rstrip("0123456789")
    resource = RESOURCE_KINDS.index(kind)
    server = -1 if resource == WORKER else int(record["resource"][len(kind) :] or 0)
    return Op(record["name"], resource, server, int(record.get("bytes", 0)), deps)


def _ready_s(times: npt.NDArray[np.float64], ops: Sequence[Op], column: int) -> npt.NDArray[np.float64]:
    """When, in each step, the worker could have started this op: dependencies done, worker free."""
    start = times[:, column, 0]
    on_worker = [i for i, op in enumerate(ops) if op.resource == WORKER and i != column]
    ends = times[:, on_worker, 1]
    free = np.where(ends <= start[:, None] + 1e-9, ends, -np.inf).max(axis=1, initial=-np.inf)
    deps = list(ops[column].deps)
    done = times[:, deps, 1].max(axis=1) if deps else np.full(len(start), -np.inf)
    ready = np.maximum(free, done)
    return np.where(np.isfinite(ready), np.minimum(ready, start), start)


def _with_tensors(ops: Sequence[Op]) -> tuple[list[Op], list[str]]:
    """Join each tensor's download (`edge_7_fc/weights/read`), upload and update (`train/update_fc/..`)."""
    tensor: dict[int, str] = {}
    for i, op in enumerate(ops):
        if op.resource == DOWNLINK and op.name.endswith("/read"):
            tensor[i] = op.name.split("_", 2)[2].removesuffix("/read")
        elif op.resource == PS:
            tensor[i] = op.name.removeprefix("train/update_").rsplit("/", 1)[0]
            tensor |= {dep: tensor[i] for dep in op.deps if ops[dep].resource == UPLINK}
    names = sorted(set(tensor.values()))
    index = {name: k for k, name in enumerate(names)}
    joined = [replace(op, tensor=index[tensor[i]]) if i in tensor else op for i, op in enumerate(ops)]
    return joined, names


def _with_latency(
    ops: Sequence[Op],
    durations: npt.NDArray[np.float64],
    order: npt.NDArray[np.int64],
    times: npt.NDArray[np.float64],
    step_s: npt.NDArray[np.float64],
) -> tuple[list[Op], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    begin, end = len(ops), len(ops) + 1
    needed = {dep for op in ops for dep in op.deps}
    last = tuple(i for i in range(len(ops)) if i not in needed)
    out = [
        op if op.deps else Op(op.name, op.resource, op.server, op.bytes, (begin,), op.tensor) for op in ops
    ]
    out += [Op("step/begin", WORKER), Op("step/end", WORKER, deps=last)]
    begin_s, end_s = times[:, :, 0].min(axis=1), step_s - times[:, :, 1].max(axis=1)
    durations = np.column_stack([durations, begin_s, np.maximum(end_s, 0.0)])
    order = np.column_stack([order + 1, np.zeros(len(order), int), np.full(len(order), end)])
    return out, durations, order


def main() -> None:
    for name in traces():
        save(profile_of(read_trace(name)), PROFILES / f"{name}.json.gz")
        print(PROFILES / f"{name}.json.gz")


if __name__ == "__main__":
    main()
