"""A PyTorch profiler's trace as events, with what stands beside them; traces that hold no training step.

Each refusal is a line that says how to record it properly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from planner.errors import BadInput
from planner.files.tomlfile import from_json
from planner.simulator.step.recorded import Facts

BACKWARD = "autograd::engine::evaluate_function: "
RUNTIME = ("cuda_runtime", "cuda_driver")
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
RECORD = "docs/recording.md has the lines to record it"

Id = int | str


class Event(msgspec.Struct, gc=False):
    """One event of a Chrome trace. `args` stay undecoded until someone needs them."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Id = 0
    tid: Id = 0
    ts: float = 0.0
    dur: float = 0.0
    id: Id = 0
    args: msgspec.Raw = msgspec.Raw()

    @property
    def end(self) -> float:
        return self.ts + self.dur


class DeviceProperties(msgspec.Struct, gc=False):
    id: int = 0
    name: str = ""


class Distributed(msgspec.Struct, gc=False):
    rank: int = 0
    world_size: int = 1


class Trace(msgspec.Struct, gc=False):
    """A trace file. `planner` is what our recorder noted; the profiler itself names the devices it saw."""

    traceEvents: list[Event]
    planner: Facts | None = None
    deviceProperties: list[DeviceProperties] = msgspec.field(default_factory=list)
    distributedInfo: Distributed | None = None


class _External(msgspec.Struct, gc=False):
    external: int = msgspec.field(name="External id", default=-1)
    correlation: int = -1
    device: int = 0


EXTERNAL = msgspec.json.Decoder(_External)


def read_trace(data: bytes, where: str) -> Trace:
    """The events of a file, if training steps can be read from them."""
    trace = from_json(data, Trace)
    spans = [e for e in trace.traceEvents if e.ph == "X"]
    _check_steps(spans, where)
    _check_processes(spans, where)
    _check_devices(trace, spans, where)
    return trace


def facts_of(trace: Trace, batch: int | None, where: str) -> Facts:
    """What the recorder noted, or as much of it as the profiler did. `batch` overrides it."""
    if trace.planner is not None:
        facts = trace.planner
        passes = facts.micro_steps
        if batch is None:
            return facts
        if batch % passes:
            raise BadInput(f"{where}: --batch {batch} is no multiple of the {passes} passes of a step")
        return msgspec.structs.replace(facts, batch=batch // passes)
    if batch is None:
        raise BadInput(
            f"{where}: recorded by hand, so that nobody has noted the batch: give --batch, the samples of "
            "one step, to `planner profile import`, or record with `planner record`"
        )
    names = {device.name for device in trace.deviceProperties}
    joined = trace.distributedInfo
    return Facts(
        batch=batch,
        device=names.pop() if len(names) == 1 else "",
        device_kind="gpu" if any(e.cat in GPU for e in trace.traceEvents) else "cpu",
        world_size=1 if joined is None else joined.world_size,
    )


def _check_steps(spans: Sequence[Event], where: str) -> None:
    if any(e.cat == "Operator" for e in spans):
        raise BadInput(
            f"{where}: a trace of PyTorch 1.11 or older, whose events have other names; record with 1.12 or "
            f"later, or with `planner record` from 2.4 on, {RECORD}"
        )
    if not any(e.cat == "cpu_op" and e.name.startswith(BACKWARD) for e in spans):
        inference = any(e.cat == "cpu_op" for e in spans)
        what = "inference only: " if inference else ""
        raise BadInput(
            f"{where}: {what}no backward pass is in the trace; profile whole training steps, one cycle of "
            f"them (repeat=1), {RECORD}"
        )
    bad = next((e for e in spans if e.dur < 0), None)
    if bad is not None:
        raise BadInput(f"{where}: {bad.name!r} ends before it starts: the clock jumped; record it again")


def _check_processes(spans: Sequence[Event], where: str) -> None:
    """One rank trains in one process."""
    training = {e.pid for e in spans if e.cat == "cpu_op" and e.name.startswith(BACKWARD)}
    if len(training) > 1:
        raise BadInput(
            f"{where}: {len(training)} processes train in it, the traces of several ranks mixed; record one "
            f"rank (`planner record` takes the first), {RECORD}"
        )


def _check_devices(trace: Trace, spans: Sequence[Event], where: str) -> None:
    names = {device.id: device.name for device in trace.deviceProperties}
    used = {EXTERNAL.decode(e.args).device for e in spans if e.cat == "kernel" and e.args}
    kinds = sorted({names[at] for at in used if at in names})
    if len(kinds) > 1:
        raise BadInput(
            f"{where}: kernels of two kinds of device ({', '.join(kinds)}); a step is recorded on one: hide "
            f"the others (CUDA_VISIBLE_DEVICES=0) and record again, {RECORD}"
        )
    if len(used) > 1:
        raise BadInput(
            f"{where}: one process computes on {len(used)} devices; record one of them "
            f"(CUDA_VISIBLE_DEVICES=0), or one rank of DistributedDataParallel, {RECORD}"
        )


class Spans:
    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def within(self, low: float, high: float) -> float:
        """How much of this span is filled."""
        at = max(bisect_right(self._starts, low) - 1, 0)
        filled = 0.0
        while at < len(self._starts) and self._starts[at] < high:
            filled += max(min(self._ends[at], high) - max(self._starts[at], low), 0.0)
            at += 1
        return filled

    def common(self, other: Spans) -> list[tuple[float, float]]:
        """What both fill."""
        out = []
        for start, end in zip(self._starts, self._ends, strict=True):
            at = max(bisect_right(other._starts, start) - 1, 0)
            while at < len(other._starts) and other._starts[at] < end:
                low, high = max(start, other._starts[at]), min(end, other._ends[at])
                if low < high:
                    out.append((low, high))
                at += 1
        return out

    def holds(self, low: float, high: float) -> bool:
        """Whether one of the spans has all of this one."""
        at = bisect_right(self._starts, low) - 1
        return at >= 0 and self._ends[at] >= high
