"""The PyTorch profiler's (Kineto) trace as training steps: the outermost ops of each step, in time.

An op is an event that no other op of its thread encloses: `aten::conv2d` in the forward pass, or
`autograd::engine::evaluate_function: X` in the backward pass. `fwdbwd` flow events tie a backward op to the
forward op it differentiates. Steps are the `ProfilerStep#` annotations that `prof.step()` makes. Where
kernels of a GPU were traced, the time of an op is that of its kernels (joined by "External id"), not that of
launching them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

import msgspec

from planner.computation.importers.accumulation import joined
from planner.errors import BadInput
from planner.files.decoding import from_json

BACKWARD = "autograd::engine::evaluate_function: "
ACCUMULATE = "AccumulateGrad"
OPTIMIZER = "Optimizer.step#"
COLLECTIVE = ("gloo:", "nccl:")
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CLOCK_TOLERANCE_US = 1000.0
MAX_STEP_US = 3.6e9

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


class _Trace(msgspec.Struct, gc=False):
    traceEvents: list[Event]


class _Shapes(msgspec.Struct, gc=False):
    dims: list[object] = msgspec.field(name="Input Dims", default_factory=list)
    types: list[str] = msgspec.field(name="Input type", default_factory=list)


class _External(msgspec.Struct, gc=False):
    external: int = msgspec.field(name="External id", default=-1)


@dataclass
class OuterOp:
    """One outermost op. `forward` is the position, in the step, of the op that a backward op differentiates;
    `gradient` is (shape, element type) of the tensor that an AccumulateGrad op received; `communication_us`
    is the time inside it spent in collective calls; `buckets` are the elements of each all-reduce."""

    name: str
    start_us: float
    end_us: float
    thread: tuple[Id, Id]
    backward: bool
    forward: int | None = None
    gradient: tuple[tuple[int, ...], str] | None = None
    communication_us: float = 0.0
    buckets: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Step:
    """The ops of one step in the order of their end, and the time of its optimizer. `tail_us` is what follows
    the backward pass and the collectives: the optimizer, and what the loop does besides."""

    where: str
    start_us: float
    ops: list[OuterOp]
    optimizer_us: float
    tail_us: float = 0.0
    on_gpu: bool = False


def read(data: bytes, where: str) -> list[Step]:
    """The training steps in a trace."""
    try:
        return _steps(from_json(data, _Trace).traceEvents, where)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{where}: not a complete trace ({error}); export it again, {RECORD}") from error


def _steps(events: list[Event], where: str) -> list[Step]:
    spans = [e for e in events if e.ph == "X"]
    ops = [e for e in spans if e.cat == "cpu_op"]
    notes = [e for e in spans if e.cat == "user_annotation"]
    if not any(e.name.startswith(BACKWARD) for e in ops):
        raise BadInput(
            f"{where}: no backward pass is in the trace; profile whole training steps, one cycle of them "
            f"(repeat=1), {RECORD}"
        )
    bad = next((e for e in spans if e.dur < 0), None)
    if bad is not None:
        raise BadInput(f"{where}: {bad.name!r} ends before it starts: the clock jumped; record it again")
    kernels = [e for e in spans if e.cat in GPU]
    flows: dict[Id, dict[str, Event]] = defaultdict(dict)
    for e in events:
        if e.cat == "fwdbwd" and e.ph in ("s", "f"):
            flows[e.id][e.ph] = e
    del events, spans
    windows = _windows(where, notes, ops)
    outer, inner = _outermost(where, ops)
    _read_inner(inner, outer)
    pairs = _flow_pairs(outer, flows)
    steps = [_step(where, window, outer, pairs, notes) for window in windows]
    if kernels:
        _move_to_gpu(outer, inner, kernels)
        _restart_on_gpu(steps, kernels)
    return steps


def _windows(where: str, notes: list[Event], ops: list[Event]) -> list[tuple[float, float]]:
    marks = sorted((e.ts, e.end) for e in notes if e.name.startswith("ProfilerStep#"))
    for (_, end), (start, _) in pairwise(marks):
        if start < end - CLOCK_TOLERANCE_US:
            raise BadInput(
                f"{where}: two steps overlap by {end - start:.0f} us: marks of several processes, or the "
                "clock jumped; record one process"
            )
    optimizers = [e for e in notes if e.name.startswith(OPTIMIZER)]
    if marks:
        return joined(marks, [e.ts for e in optimizers])
    if len(optimizers) > 1:
        raise BadInput(
            f"{where}: {len(optimizers)} optimizer steps but no ProfilerStep marks: several steps in one "
            f"file; call prof.step() after each, {RECORD}"
        )
    return [(min(e.ts for e in ops), max(e.end for e in ops))]


def _outermost(where: str, ops: list[Event]) -> tuple[list[OuterOp], list[tuple[Event, int]]]:
    """The outermost ops sorted by start, and every op with the position of the outermost one around it."""
    ops.sort(key=lambda e: (e.ts, -e.dur))
    current: dict[tuple[Id, Id], int] = {}
    outer: list[OuterOp] = []
    inner: list[tuple[Event, int]] = []
    for e in ops:
        thread = (e.pid, e.tid)
        at = current.get(thread)
        if at is None or e.ts >= outer[at].end_us:
            at = current[thread] = len(outer)
            backward = e.name.startswith(BACKWARD)
            name = e.name.removeprefix(BACKWARD) if backward else e.name
            outer.append(OuterOp(name.rpartition("::")[2], e.ts, e.end, thread, backward))
        elif e.end > outer[at].end_us + CLOCK_TOLERANCE_US:
            raise BadInput(
                f"{where}: {e.name!r} starts inside {outer[at].name!r} and ends after it on one thread: "
                "the clock jumped; record it again"
            )
        inner.append((e, at))
    return outer, inner


def _move_to_gpu(outer: list[OuterOp], inner: list[tuple[Event, int]], kernels: list[Event]) -> None:
    decoder = msgspec.json.Decoder(_External)
    owner = {}
    for e, at in inner:
        if e.args:
            owner[decoder.decode(e.args).external] = at
    spans: dict[int, tuple[float, float]] = {}
    for kernel in kernels:
        at = owner.get(decoder.decode(kernel.args).external, -1) if kernel.args else -1
        if at < 0 or "nccl" in kernel.name.lower():
            continue
        start, end = spans.get(at, (kernel.ts, kernel.end))
        spans[at] = (min(start, kernel.ts), max(end, kernel.end))
    last = 0.0
    for at, op in enumerate(outer):
        op.start_us, op.end_us = spans.get(at, (last, last))
        last = max(last, op.end_us)


def _restart_on_gpu(steps: list[Step], kernels: list[Event]) -> None:
    """Let each step start when the GPU had done the work before it."""
    ends = sorted(kernel.end for kernel in kernels)
    for step in steps:
        first = min((op.start_us for op in step.ops if op.end_us > 0), default=None)
        if first is None:
            raise BadInput(
                f"{step.where}: no GPU kernel belongs to an op of the step; profile CPU and CUDA together, "
                f"{RECORD}"
            )
        k = bisect_right(ends, first) - 1
        step.start_us = max(step.start_us, ends[k]) if k >= 0 else step.start_us
        step.on_gpu = True
        step.tail_us = step.optimizer_us  # the host's clock says nothing about the device's end


def _read_inner(inner: list[tuple[Event, int]], outer: list[OuterOp]) -> None:
    decoder = msgspec.json.Decoder(_Shapes)
    for e, at in inner:
        op = outer[at]
        if not op.backward:
            continue
        if e.name.startswith("c10d::"):
            op.communication_us += e.dur
            if "allreduce" in e.name and e.args:
                shapes = decoder.decode(e.args)
                for dims in _listed(shapes.dims[:1]):
                    op.buckets.append((_product(dims), "float"))
        elif op.gradient is None and e.name.endswith(ACCUMULATE) and not e.name.startswith(BACKWARD):
            shapes = decoder.decode(e.args) if e.args else _Shapes()
            if shapes.dims and shapes.types:
                op.gradient = (tuple(_numbers(shapes.dims[0])), shapes.types[0])


def _listed(dims: list[object]) -> list[object]:
    """[[[10], [20]]] (a list of tensors) as [[10], [20]]."""
    first = dims[0] if dims else None
    return first if isinstance(first, list) else []


def _numbers(dims: object) -> list[int]:
    if not isinstance(dims, list):
        return []
    if not all(isinstance(d, int) and d >= 0 for d in dims):
        raise msgspec.ValidationError(f"a tensor of shape {dims!r:.60}")
    return dims


def _product(dims: object) -> int:
    out = 1
    for d in _numbers(dims):
        out *= d
    return out


def _flow_pairs(outer: list[OuterOp], flows: dict[Id, dict[str, Event]]) -> dict[int, int]:
    """Backward op -> forward op, as positions in `outer`."""
    by_thread: dict[tuple[Id, Id], tuple[list[float], list[int]]] = {}
    for at, op in enumerate(outer):
        starts, positions = by_thread.setdefault(op.thread, ([], []))
        starts.append(op.start_us)
        positions.append(at)

    def around(e: Event) -> int | None:
        starts, positions = by_thread.get((e.pid, e.tid), ([], []))
        k = bisect_right(starts, e.ts) - 1
        return positions[k] if k >= 0 else None

    pairs = {}
    for ends in flows.values():
        if "s" in ends and "f" in ends:
            forward, backward = around(ends["s"]), around(ends["f"])
            if forward is not None and backward is not None:
                pairs[backward] = forward
    return pairs


def _step(
    where: str,
    window: tuple[float, float],
    outer: list[OuterOp],
    pairs: dict[int, int],
    notes: list[Event],
) -> Step:
    low, high = window
    if high - low > MAX_STEP_US:
        raise BadInput(
            f"{where}: a step lasts {(high - low) * 1e-6:.0f} s: the clock jumped; record it again"
        )
    notes = [e for e in notes if low <= e.ts < high]
    optimizer = [e for e in notes if e.name.startswith(OPTIMIZER)]
    stop = min((e.ts for e in optimizer), default=high)
    first = bisect_right(outer, low, key=attrgetter("start_us"))
    last = bisect_right(outer, stop, key=attrgetter("start_us"))
    here = list(range(first, last))
    while here and not outer[here[-1]].backward:  # copies of buckets and the like, after the backward pass
        here.pop()
    position = {at: k for k, at in enumerate(here)}
    ops = [outer[at] for at in here]
    for at, op in zip(here, ops, strict=True):
        op.forward = position.get(pairs.get(at, -1))
    if not any(op.backward for op in ops):
        raise BadInput(
            f"{where}: a step without a backward pass; profile whole training steps, one cycle of them "
            f"(repeat=1), {RECORD}"
        )
    busy_until = max([op.end_us for op in ops] + [e.end for e in notes if e.name.startswith(COLLECTIVE)])
    optimizer_us = sum(e.dur for e in optimizer)
    return Step(where, low, ops, optimizer_us, max(high - busy_until, optimizer_us))
