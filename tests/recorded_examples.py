"""Real recordings of one small network (tests/data/recordings), for tests of several folders."""

from __future__ import annotations

import copy
import gzip
import json
from math import prod
from pathlib import Path
from typing import Any

from planner.device.recorded.importers import import_profile
from planner.simulator.step import Profile

DATA = Path(__file__).parents[0] / "data" / "recordings"
CASES = ("plain", "accumulated", "autocast", "compiled", "ddp", "fsdp")
# stem 32x3x3x3, depthwise 32x1x3x3, 1x1 32x32, batch norm, 3x3 32x32, layer norm, 96x32, 32x32, 10x32
SHAPES = (
    *((32, 3, 3, 3), (32,), (32, 1, 3, 3), (32,), (32, 32, 1, 1), (32,), (32,), (32,), (32, 32, 3, 3), (32,)),
    *((32,), (32,), (96, 32), (96,), (32, 32), (32,), (10, 32), (10,)),
)
ELEMENTS = sum(map(prod, SHAPES))


def loaded(name: str) -> Profile:
    return import_profile([DATA / f"{name}.json.gz"])


def trace_of(name: str = "plain") -> dict[str, Any]:
    whole = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    assert isinstance(whole, dict)
    return whole


def written(path: Path, trace: dict[str, Any]) -> Path:
    path.write_text(json.dumps(trace))
    return path


LAG_US = 200.0


def on_gpu(trace: dict[str, Any], device: str, *, slower: float = 1.0) -> dict[str, Any]:
    """Every innermost call launches a kernel that lasts `slower` times as long as the call did; kernels run
    one after the other, none before it is launched."""
    out = copy.deepcopy(trace)
    calls = [e for e in out["traceEvents"] if e["cat"] == "cpu_op"]
    calls.sort(key=lambda e: (e["ts"], -e["dur"]))
    kernels, busy = [], 0.0
    for at, call in enumerate(calls):
        inside = at + 1 < len(calls) and calls[at + 1]["ts"] < call["ts"] + call["dur"]
        if inside or call["dur"] < 5 or not any(call["args"].get("Input Dims", [])):
            continue
        start = max(busy, call["ts"] + LAG_US)
        busy = start + slower * call["dur"]
        args = {"External id": call["args"]["External id"], "device": 0}
        kernels.append(
            {**call, "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": start, "dur": busy - start}
            | {"args": args}
        )
    out["traceEvents"] += kernels
    out["deviceProperties"] = [{"id": 0, "name": device}]
    out["planner"] |= {"device": device, "device_kind": "gpu"}
    return out
