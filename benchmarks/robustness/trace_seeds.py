"""Traces of TensorFlow and PyTorch to start fuzzing from: real ones, and small ones that are read quickly."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from mutations import message, slim

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"


def _unpacked(folder: str, *names: str) -> list[bytes]:
    return [gzip.decompress((DATA / folder / f"{name}.gz").read_bytes()) for name in names]


@cache
def run_metadata() -> list[bytes]:
    """Two real ones, and a step of two variables, which is quick to read: more often than they."""
    real = [slim(data) for data in _unpacked("tensorflow", "alexnet_ps1_step0.pb", "vgg11_ps2_step0.pb")]
    return [*[_small_run_metadata()] * 12, *real]


def _small_run_metadata() -> bytes:
    worker, server = (f"/job:{job}/replica:0/task:0/device:CPU:0" for job in ("worker", "ps"))
    graph: dict[str, list[bytes]] = {worker: [], server: []}
    stats: dict[str, list[bytes]] = {worker: [], server: []}

    def node(name: str, op: str, device: str, *inputs: str, edge: str = "") -> None:
        attr = message((1, b"tensor_name"), (2, message((2, edge.encode()))))
        fields = [(1, name), (2, op), *((3, i) for i in inputs), (4, device), *([(5, attr)] if edge else [])]
        graph[device].append(message(*fields))

    def ran(name: str, device: str, start: int, last: int, label: str, *more: tuple[int, Any]) -> None:
        times = ((2, start), (3, 0), (4, last), (5, last))
        stats[device].append(message((1, name), *times, *more, (8, label)))

    for k, at in enumerate((1000, 2000)):
        node(f"v{k}", "VariableV2", server)
        node(f"v{k}/send", "_Send", server, f"v{k}", edge=f"edge_{k}_v{k}")
        node(f"v{k}/recv", "_Recv", worker, edge=f"edge_{k}_v{k}")
        node(f"g{k}", "MatMul", worker, f"v{k}/recv")
        node(f"g{k}/send", "_Send", worker, f"g{k}", edge=f"edge_{k + 5}_g{k}")
        node(f"g{k}/recv", "_Recv", server, edge=f"edge_{k + 5}_g{k}")
        node(f"u{k}", "ApplyGradientDescent", server, f"v{k}", f"g{k}/recv")
        size = (7, message((3, message((4, message((1, 200_000)))))))
        down, up = f"edge_{k}_v{k} from {server} to {worker}", f"edge_{k + 5}_g{k} from {worker} to {server}"
        ran("RecvTensor", worker, at, 90, f"[0.2MB] {down}", size)
        ran(f"g{k}", worker, at + 100, 300, f"g{k} = MatMul(v{k}/recv)")
        ran("RecvTensor", server, at + 450, 90, f"[0.2MB] {up}", size)
        ran(f"u{k}", server, at + 600, 30, f"u{k} = ApplyGradientDescent(v{k}, g{k}/recv)")
    devices = [message((1, device), *((2, stat) for stat in stats[device])) for device in stats]
    graphs = [(3, message(*((1, entry) for entry in nodes))) for nodes in graph.values()]
    return message((1, message(*((1, device) for device in devices))), *graphs)


@cache
def timelines() -> list[bytes]:
    """TensorFlow's own, and one with the labels that it drops."""
    label = (
        "[0.2MB] edge_{}_w{} from /job:ps/replica:0/task:0/device:CPU:0 to /job:worker/task:0/device:CPU:0"
    )
    back = "[0.2MB] edge_{}_g{} from /job:worker/task:0/device:CPU:0 to /job:ps/replica:0/task:0/device:CPU:0"
    events: list[dict[str, Any]] = [
        {
            "ph": "M",
            "name": "process_name",
            "pid": 1,
            "args": {"name": "/job:worker/task:0/device:CPU:0 Compute"},
        },
        {
            "ph": "M",
            "name": "process_name",
            "pid": 2,
            "args": {"name": "/job:ps/task:0/device:CPU:0 Compute"},
        },
    ]
    for k in range(2):
        args: dict[str, Any] = {"name": "RecvTensor", "label": label.format(k, k), "bytes": 200_000}
        events.append({"ph": "X", "name": "RecvTensor", "pid": 1, "ts": 10 * k, "dur": 5, "args": args})
        args = {"name": f"g{k}", "op": "MatMul", "input0": f"w{k}_S{k}"}
        events.append({"ph": "X", "name": "MatMul", "pid": 1, "ts": 20 + 10 * k, "dur": 9, "args": args})
        args = {"name": "RecvTensor", "label": back.format(k + 5, k), "bytes": 200_000}
        events.append({"ph": "X", "name": "RecvTensor", "pid": 2, "ts": 40 + 10 * k, "dur": 5, "args": args})
        args = {"name": f"u{k}", "op": "ApplyGradientDescent", "input0": f"g{k}_S{k + 5}"}
        events.append({"ph": "X", "name": "Apply", "pid": 2, "ts": 60 + 10 * k, "dur": 2, "args": args})
    made = json.dumps({"traceEvents": events}).encode()
    real = json.loads(_unpacked("tensorflow", "timeline.json")[0])
    real["traceEvents"] = real["traceEvents"][:80]
    return [made, json.dumps(real).encode()]


@cache
def pytorch() -> list[bytes]:
    """One step of each recording, with the kinds of events that are read."""
    out = []
    for data in _unpacked("pytorch", "plain.json", "ddp.json"):
        trace = json.loads(data)
        events = [e for e in trace["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation", "fwdbwd")]
        mark = next(e for e in events if e["name"].startswith("ProfilerStep#"))
        low, high = mark["ts"], mark["ts"] + mark["dur"]
        events, end = [e for e in events if low <= e["ts"] < high], dict[Any, float]()
        for e in sorted(events, key=lambda e: (e["ts"], -e.get("dur", 0))):
            if e["cat"] == "cpu_op" and e["ts"] >= end.get(e["tid"], 0):
                end[e["tid"]] = e["ts"] + e["dur"]
                e["outer"] = True
        needed = ("AccumulateGrad", "c10d::")
        events = [
            e
            for e in events
            if e["cat"] != "cpu_op" or e.pop("outer", False) or any(w in e["name"] for w in needed)
        ]
        for e in events:
            e["args"] = {k: v for k, v in e.get("args", {}).items() if k in ("Input Dims", "Input type")}
        trace = {"traceEvents": events}
        out.append(json.dumps(trace).encode())
    trace = json.loads(out[0])
    kernels = []
    for k, e in enumerate(trace["traceEvents"]):  # a GPU that runs each op just after its launch
        if e["cat"] == "cpu_op":
            e["args"]["External id"] = k
            times = {"ts": e["ts"] + 50, "dur": e["dur"] / 2}
            kernels.append({"ph": "X", "cat": "kernel", "name": "gemm", **times, "args": {"External id": k}})
    trace["traceEvents"] += kernels
    facts = {"version": 1, "batch": 8, "micro_steps": 2, "model": "m", "device_kind": "cuda", "world_size": 2}
    facts |= {"strategy": "ddp", "bucket_bytes": 26214400, "parameters": [["a.weight", 12], ["a.bias", 3]]}
    facts |= {"precision": "bf16", "input_shape": [8, 3, 4], "step_s": 0.25, "compiled": False}
    recorded = json.loads(out[1]) | {"planner": facts}
    return [*out, json.dumps(trace).encode(), json.dumps(recorded).encode()]
