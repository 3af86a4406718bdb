"""A PyTorch profiler's trace as events, with what stands beside them; traces that hold no training step are
refused in a line that says how to record it properly.

Steps whose kernels ran on a GPU: an op lasts as long as its kernels, and starts with the first of them. The
host issues ops ahead of the device; what it takes for each is kept (`launch_us`), for on a faster device it
may set the pace. Kernels of collectives run beside the others: what the device waits for them alone is
communication.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import msgspec

from planner.errors import BadInput
from planner.files.tomlfile import from_json
from planner.simulator.step.recorded import Facts

if TYPE_CHECKING:
    from planner.device.recorded.importers.kineto import OuterOp, Step
    from planner.device.recorded.importers.leaves import Leaf

BACKWARD = "autograd::engine::evaluate_function: "
RUNTIME = ("cuda_runtime", "cuda_driver")
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
OPTIMIZER = "Optimizer.step#"
RECORD = "docs/recording.md has the lines to record it"

Id = int | str


class Event(msgspec.Struct, gc=False):
    """One event of a Chrome trace; `args` are decoded on demand."""

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
        """End of the event in microseconds."""
        return self.ts + self.dur


class DeviceProperties(msgspec.Struct, gc=False):
    """A device that the trace names."""

    id: int = 0
    name: str = ""


class Distributed(msgspec.Struct, gc=False):
    """Place of the traced process in its process group."""

    rank: int = 0
    world_size: int = 1


class Trace(msgspec.Struct, gc=False):
    """A trace file. `planner` holds the recorder's notes; the profiler names the devices."""

    traceEvents: list[Event]
    planner: Facts | None = None
    deviceProperties: list[DeviceProperties] = msgspec.field(default_factory=list)
    distributedInfo: Distributed | None = None


class _External(msgspec.Struct, gc=False):
    """Ids of a kernel's event that link it to the call that launched it."""

    external: int = msgspec.field(name="External id", default=-1)
    correlation: int = -1
    device: int = 0


EXTERNAL = msgspec.json.Decoder(_External)


def read_trace(data: bytes, where: str) -> Trace:
    """Parses a PyTorch trace and checks that it holds training steps."""
    trace = from_json(data, Trace)
    spans = [e for e in trace.traceEvents if e.ph == "X"]
    _check_steps(spans, where)
    _check_processes(spans, where)
    _check_devices(trace, spans, where)
    return trace


def run_facts(trace: Trace, batch: int | None, where: str) -> Facts:
    """Facts that planner's recorder or else the profiler noted; `batch` overrides the recorded batch."""
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
    """Raises BadInput unless the trace holds backward passes of a supported PyTorch version."""
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
    """Raises BadInput if several processes train in the trace."""
    training = {e.pid for e in spans if e.cat == "cpu_op" and e.name.startswith(BACKWARD)}
    if len(training) > 1:
        raise BadInput(
            f"{where}: {len(training)} processes train in it, the traces of several ranks mixed; record one "
            f"rank (`planner record` takes the first), {RECORD}"
        )


def _check_devices(trace: Trace, spans: Sequence[Event], where: str) -> None:
    """Raises BadInput if the kernels in the trace ran on several devices."""
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
    """Union of time intervals in microseconds."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def covered_us(self, low: float, high: float) -> float:
        """Microseconds of the interval from `low` to `high` that the spans cover."""
        at = max(bisect_right(self._starts, low) - 1, 0)
        filled = 0.0
        while at < len(self._starts) and self._starts[at] < high:
            filled += max(min(self._ends[at], high) - max(self._starts[at], low), 0.0)
            at += 1
        return filled

    def intersection(self, other: Spans) -> list[tuple[float, float]]:
        """Intervals that are covered by both sets of spans."""
        out = []
        for start, end in zip(self._starts, self._ends, strict=True):
            at = max(bisect_right(other._starts, start) - 1, 0)
            while at < len(other._starts) and other._starts[at] < end:
                low, high = max(start, other._starts[at]), min(end, other._ends[at])
                if low < high:
                    out.append((low, high))
                at += 1
        return out

    def contains(self, low: float, high: float) -> bool:
        """Whether a single span contains the whole interval from `low` to `high`."""
        at = bisect_right(self._starts, low) - 1
        return at >= 0 and self._ends[at] >= high


@dataclass
class TracedCalls:
    """Host calls of a trace: each with its outermost op, their leaves, annotations and library calls."""

    calls: Sequence[tuple[Event, int]]
    leaves: Sequence[Leaf]
    notes: Sequence[Event]
    runtime: Sequence[Event]


def use_kernel_times(
    steps: Sequence[Step], outer: Sequence[OuterOp], host: TracedCalls, kernels: Sequence[Event]
) -> None:
    """Replaces the host times of ops by the times of their GPU kernels, in place."""
    _set_launch_times(steps, Spans((e.ts, e.end) for e in host.runtime if "Synchronize" in e.name))
    calls, leaves, notes = host.calls, host.leaves, host.notes
    launches = _Launches(host)
    computing, talking, updating = [], [], []
    optimizers = Spans((e.ts, e.end) for e in notes if e.name.startswith(OPTIMIZER))
    spans: dict[int, tuple[float, float]] = {}
    for leaf in leaves:
        leaf.us = 0.0
    for kernel in kernels:
        if "nccl" in kernel.name.lower():
            talking.append((kernel.ts, kernel.end))
            continue
        computing.append(kernel.end)
        index = launches.launching_call(kernel)
        if index is None:
            continue
        call, at = calls[index]
        if optimizers.contains(call.ts, call.end):
            updating.append((kernel.ts, kernel.end))
        leaves[index].us += kernel.dur
        start, end = spans.get(at, (kernel.ts, kernel.end))
        spans[at] = (min(start, kernel.ts), max(end, kernel.end))
    last = 0.0
    for at, op in enumerate(outer):
        op.start_us, op.end_us = spans.get(at, (last, last))
        last = max(last, op.end_us)
    _align_to_gpu(steps, sorted(computing), Spans(talking), Spans(updating))


class _Launches:
    """Finds the call that launched a kernel, by correlation id or else by external id. It is the innermost
    call around the library call with the kernel's correlation id, or the one with its external id (which is
    the correlation id again in some versions)."""

    def __init__(self, host: TracedCalls) -> None:
        self.external: dict[int, int] = {}
        for index, (call, _) in enumerate(host.calls):
            if call.args:
                self.external[EXTERNAL.decode(call.args).external] = index
        self.launched: dict[int, int] = {}
        both = [(e.ts, -e.dur, index, e) for index, (e, _) in enumerate(host.calls)]
        both += [(e.ts, 0.0, -1, e) for e in host.runtime if e.args]
        stacks: dict[tuple[Id, Id], list[tuple[float, int]]] = {}
        for _, _, index, e in sorted(both, key=lambda entry: entry[:3]):
            stack = stacks.setdefault((e.pid, e.tid), [])
            while stack and stack[-1][0] <= e.ts:
                stack.pop()
            if index >= 0:
                stack.append((e.end, index))
            elif stack:
                self.launched[EXTERNAL.decode(e.args).correlation] = stack[-1][1]

    def launching_call(self, kernel: Event) -> int | None:
        """Index of the call that launched a kernel; None if unknown."""
        if not kernel.args:
            return None
        ids = EXTERNAL.decode(kernel.args)
        call = self.launched.get(ids.correlation) if ids.correlation >= 0 else None
        return self.external.get(ids.external) if call is None else call


def _set_launch_times(steps: Sequence[Step], waits: Spans) -> None:
    """Sets `launch_us` of each op: host time since the previous op, without waits for the device."""
    for step in steps:
        before = step.start_us
        for op in step.ops:
            op.launch_us = max(op.end_us - before - waits.covered_us(before, op.end_us), 0.0)
            before = max(before, op.end_us)


def _align_to_gpu(steps: Sequence[Step], ends: list[float], talking: Spans, updating: Spans) -> None:
    """Moves the start of each step to the time when the GPU finished the previous step."""
    firsts = []
    for step in steps:
        first = min((op.start_us for op in step.ops if op.end_us > 0), default=None)
        if first is None:
            raise BadInput(
                f"{step.where}: no GPU kernel belongs to an op of the step; profile CPU and CUDA together, "
                f"{RECORD}"
            )
        firsts.append(first)
        k = bisect_right(ends, first) - 1
        step.start_us = max(step.start_us, ends[k]) if k >= 0 else step.start_us
    for step, following in zip(steps, (*firsts[1:], inf), strict=True):
        step.on_gpu = True
        before = step.start_us
        for op in step.ops:
            op.communication_us, op.waited_us = 0.0, talking.covered_us(before, op.start_us)
            before = max(before, op.end_us)
        if (busy_us := updating.covered_us(before, following)) > 0:
            step.optimizer_us = busy_us
        step.tail_us = step.optimizer_us  # the host's clock says nothing about the device's end
        step.late_us, step.end_us = 0.0, before + step.tail_us
