"""A recording as a GPU would have made it: calls of a CPU recording, with kernels that run behind them."""

from __future__ import annotations

import copy
from typing import Any

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
