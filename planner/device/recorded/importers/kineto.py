"""The PyTorch profiler's (Kineto) trace as training steps: the outermost ops of each step, in time.

An op is an event that no other op of its thread encloses: `aten::conv2d` in the forward pass, or
`autograd::engine::evaluate_function: X` in the backward pass. `fwdbwd` flow events tie a backward op to the
forward op it differentiates. Steps are the `ProfilerStep#` annotations that `prof.step()` makes. Where
kernels of a GPU were traced, the time of an op is that of its kernels (`on_device`), not that of launching
them. Time in collective calls, and in which sharded training waits for them, is not an op's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from operator import attrgetter

import msgspec

from planner.device.recorded.importers.events import (
    BACKWARD,
    GPU,
    OPTIMIZER,
    RECORD,
    RUNTIME,
    Event,
    Id,
    Spans,
    Trace,
    TracedCalls,
    read_trace,
    use_kernel_times,
)
from planner.device.recorded.importers.leaves import COLLECTIVE_CALL, Leaf, Shapes, find_leaves
from planner.errors import BadInput

ACCUMULATE = "AccumulateGrad"
COLLECTIVE = ("gloo:", "nccl:")
SHARDED = "FSDP::"  # annotations around what sharded training does besides computing
CLOCK_TOLERANCE_US = 1000.0
MAX_STEP_US = 3.6e9


@dataclass
class OuterOp:
    """One outermost op of a step, with its times and the traced calls inside. `forward` is the position, in
    the step, of the op that a backward op differentiates; `gradient` is (shape, element type) of the tensor
    that an AccumulateGrad op received; `communication_us` is the time in collectives inside it, `waited_us`
    that between the op before and it; `buckets` are the elements of each all-reduce; `leaves` are the calls
    inside it; `launch_us` is what the host took to issue it, where that is apart; `calls` and `gap_calls`
    count traced calls inside and since the op before."""

    name: str
    start_us: float
    end_us: float
    thread: tuple[Id, Id]
    backward: bool
    forward: int | None = None
    gradient: tuple[tuple[int, ...], str] | None = None
    communication_us: float = 0.0
    waited_us: float = 0.0
    buckets: list[tuple[int, str]] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    launch_us: float = 0.0
    calls: int = 0
    gap_calls: int = 0


@dataclass
class Step:
    """The ops of one step in the order of their end, and the time of its optimizer. `tail_us` is what follows
    the backward pass and the collectives: the optimizer, and what the loop does besides. `late_us` is
    communication between the last op and there; `optimizer_calls` and `tail_calls` count traced calls."""

    where: str
    start_us: float
    ops: list[OuterOp]
    optimizer_us: float
    tail_us: float = 0.0
    late_us: float = 0.0
    end_us: float = 0.0
    on_gpu: bool = False
    optimizer_calls: int = 0
    tail_calls: int = 0


def read_trace_and_steps(data: bytes, where: str) -> tuple[Trace, list[Step]]:
    """Parses a trace and finds its training steps."""
    try:
        trace = read_trace(data, where)
        return trace, _find_steps(trace, where)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{where}: not a complete trace ({error}); export it again, {RECORD}") from error


def _find_steps(trace: Trace, where: str) -> list[Step]:
    """Finds the training steps of a parsed trace."""
    spans = [e for e in trace.traceEvents if e.ph == "X"]
    notes = [e for e in spans if e.cat == "user_annotation"]
    helpers = {(e.pid, e.tid) for e in notes if e.name.startswith(COLLECTIVE)}
    ops = [e for e in spans if e.cat == "cpu_op"]
    helpers -= {(e.pid, e.tid) for e in ops if e.name.startswith(BACKWARD)}
    ops = [e for e in ops if (e.pid, e.tid) not in helpers]
    kernels = [e for e in spans if e.cat in GPU]
    flows: dict[Id, dict[str, Event]] = defaultdict(dict)
    for e in trace.traceEvents:
        if e.cat == "fwdbwd" and e.ph in ("s", "f"):
            flows[e.id][e.ph] = e
    windows = _step_windows(where, notes, ops)
    # what sharded training does around collectives is its own (copies), but for the wait for them
    sharded = Spans((e.ts, e.end) for e in notes if e.name.startswith(SHARDED))
    collectives = Spans((e.ts, e.end) for e in notes if e.name.startswith(COLLECTIVE))
    calls = ((e.ts, e.end) for e in ops if e.name.startswith(COLLECTIVE_CALL))
    talking = Spans([*calls, *sharded.intersection(collectives)])
    outer, inner = _outermost_ops(where, ops)
    _read_inner_calls(inner, outer)
    pairs = _flow_pairs(outer, flows)
    weights = {op.gradient[0] for op in outer if op.gradient is not None}
    tf32 = trace.planner is not None and trace.planner.precision == "tf32"
    leaves = find_leaves(inner, weights, tf32=tf32)
    for leaf, (_, at) in zip(leaves, inner, strict=True):
        if not outer[at].leaves or outer[at].leaves[-1] is not leaf:
            outer[at].leaves.append(leaf)
    around = _TraceContext(notes, talking, [call.ts for call, _ in inner])
    steps = [_build_step(where, window, outer, pairs, around) for window in windows]
    if kernels:
        runtime = [e for e in spans if e.cat in RUNTIME]
        use_kernel_times(steps, outer, TracedCalls(inner, leaves, notes, runtime), kernels)
    return steps


def _step_windows(where: str, notes: list[Event], ops: list[Event]) -> list[tuple[float, float]]:
    """Start and end of each training step in microseconds, from profiler and optimizer annotations."""
    marks = sorted((e.ts, e.end) for e in notes if e.name.startswith("ProfilerStep#"))
    for (_, end), (start, _) in pairwise(marks):
        if start < end - CLOCK_TOLERANCE_US:
            raise BadInput(
                f"{where}: two steps overlap by {end - start:.0f} us: marks of several processes, or the "
                "clock jumped; record one process"
            )
    optimizers = [e for e in notes if e.name.startswith(OPTIMIZER)]
    if marks:
        return join_passes(marks, [e.ts for e in optimizers])
    if len(optimizers) > 1:
        raise BadInput(
            f"{where}: {len(optimizers)} optimizer steps but no ProfilerStep marks: several steps in one "
            f"file; call prof.step() after each, {RECORD}"
        )
    return [(min(e.ts for e in ops), max(e.end for e in ops))]


def join_passes(
    windows: Sequence[tuple[float, float]], optimizer_starts: Sequence[float]
) -> list[tuple[float, float]]:
    """Joins windows of single passes to windows of whole steps, each ending with the optimizer. Steps with an
    unusual number of passes are left out: the first and last, which were recorded in part, and those that the
    optimizer skipped."""
    groups = list(_passes_by_step(windows, sorted(optimizer_starts)))
    if not groups:
        return list(windows)
    most = max(Counter(map(len, groups)).items(), key=lambda found: (found[1], -found[0]))[0]
    return [(group[0][0], group[-1][1]) for group in groups if len(group) == most]


def _passes_by_step(
    windows: Sequence[tuple[float, float]], optimizer_starts: Sequence[float]
) -> Iterator[list[tuple[float, float]]]:
    """Groups the windows of passes by the optimizer step that ends them."""
    group: list[tuple[float, float]] = []
    for low, high in windows:
        group.append((low, high))
        if bisect_left(optimizer_starts, low) < bisect_left(optimizer_starts, high):
            yield group
            group = []


def _outermost_ops(where: str, ops: list[Event]) -> tuple[list[OuterOp], list[tuple[Event, int]]]:
    """Outermost ops sorted by start, and every op with the index of its outermost op."""
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


def _read_inner_calls(inner: list[tuple[Event, int]], outer: list[OuterOp]) -> None:
    """Sets `gradient` and `buckets` of the outermost ops, read from the calls inside them."""
    decoder = msgspec.json.Decoder(Shapes)
    for e, at in inner:
        op = outer[at]
        if not op.backward:
            continue
        if e.name.startswith(COLLECTIVE_CALL):
            if "allreduce" in e.name and e.args:
                tensors = next(iter(decoder.decode(e.args).dims), None)  # a list such as [[10], [20]]
                for dims in tensors if isinstance(tensors, list) else ():
                    op.buckets.append((prod(_check_dims(dims)), "float"))
        elif op.gradient is None and e.name.endswith(ACCUMULATE) and not e.name.startswith(BACKWARD):
            shapes = decoder.decode(e.args) if e.args else Shapes()
            if shapes.dims and shapes.types:
                op.gradient = (tuple(_check_dims(shapes.dims[0])), shapes.types[0])


def _check_dims(dims: object) -> list[int]:
    """Returns a tensor's dimensions, empty if there are none; raises an error if they are malformed."""
    if not isinstance(dims, list):
        return []
    if not all(isinstance(d, int) and d >= 0 for d in dims):
        raise msgspec.ValidationError(f"a tensor of shape {dims!r:.60}")
    return dims


def _flow_pairs(outer: list[OuterOp], flows: dict[Id, dict[str, Event]]) -> dict[int, int]:
    """For each backward op, the index of the forward op that it differentiates."""
    by_thread: dict[tuple[Id, Id], tuple[list[float], list[int]]] = {}
    for at, op in enumerate(outer):
        starts, positions = by_thread.setdefault(op.thread, ([], []))
        starts.append(op.start_us)
        positions.append(at)

    def enclosing_op(e: Event) -> int | None:
        """Index of the outermost op around an event; None if there is none."""
        starts, positions = by_thread.get((e.pid, e.tid), ([], []))
        k = bisect_right(starts, e.ts) - 1
        return positions[k] if k >= 0 else None

    pairs = {}
    for ends in flows.values():
        if "s" in ends and "f" in ends:
            forward, backward = enclosing_op(ends["s"]), enclosing_op(ends["f"])
            if forward is not None and backward is not None:
                pairs[backward] = forward
    return pairs


@dataclass
class _TraceContext:
    """Data of a trace besides its ops: annotations, times of collectives, and calls by start."""

    notes: list[Event]
    talking: Spans
    call_starts: list[float]

    def count_calls(self, low: float, high: float) -> int:
        """Number of traced calls that start in [low, high)."""
        return max(bisect_left(self.call_starts, high) - bisect_left(self.call_starts, low), 0)


def _build_step(
    where: str,
    window: tuple[float, float],
    outer: list[OuterOp],
    pairs: dict[int, int],
    context: _TraceContext,
) -> Step:
    """Builds one training step from the ops inside its window."""
    low, high = window
    talking = context.talking
    if high - low > MAX_STEP_US:
        raise BadInput(
            f"{where}: a step lasts {(high - low) * 1e-6:.0f} s: the clock jumped; record it again"
        )
    notes = [e for e in context.notes if low <= e.ts < high]
    first = bisect_right(outer, low, key=attrgetter("start_us"))
    optimizer = _optimizer_spans(notes, outer, (first, bisect_left(outer, high, key=attrgetter("start_us"))))
    stop = min((start for start, _ in optimizer), default=high)
    last = bisect_right(outer, stop, key=attrgetter("start_us"))
    # what runs inside a collective is not computation, but for gradients, which may be ready there
    here = [
        at
        for at in range(first, last)
        if outer[at].backward or not talking.contains(outer[at].start_us, outer[at].end_us)
    ]
    while here and not outer[here[-1]].backward:  # copies of buckets and the like, after the backward pass
        here.pop()
    position = {at: k for k, at in enumerate(here)}
    ops = [outer[at] for at in here]
    before = low
    for at, op in zip(here, ops, strict=True):
        op.forward = position.get(pairs.get(at, -1))
        op.communication_us = talking.covered_us(max(before, op.start_us), op.end_us)
        op.waited_us = talking.covered_us(before, op.start_us)
        op.gap_calls = context.count_calls(before, op.start_us)
        op.calls = context.count_calls(max(before, op.start_us), op.end_us)
        before = max(before, op.end_us)
    if not any(op.backward for op in ops):
        raise BadInput(
            f"{where}: a step without a backward pass; profile whole training steps, one cycle of them "
            f"(repeat=1), {RECORD}"
        )
    ended = max(op.end_us for op in ops)
    collectives = [e.end for e in notes if e.name.startswith(COLLECTIVE) and e.ts < stop]
    busy_until = min(max([ended, *collectives]), max(stop, ended))
    optimizer_us = sum(min(end, high) - start for start, end in optimizer)  # our recorder marks steps inside
    optimizer_calls = sum(context.count_calls(start, min(end, high)) for start, end in optimizer)
    return Step(
        where,
        low,
        ops,
        optimizer_us,
        tail_us=max(high - busy_until, optimizer_us),
        late_us=busy_until - ended,
        end_us=high,
        optimizer_calls=optimizer_calls,
        tail_calls=max(context.count_calls(busy_until, high) - optimizer_calls, 0),
    )


def _optimizer_spans(
    notes: Sequence[Event], outer: Sequence[OuterOp], here: tuple[int, int]
) -> list[tuple[float, float]]:
    """Start and end of each optimizer update in microseconds. A step given a closure (Lightning, L-BFGS)
    contains the passes too; its update follows the last of them."""
    spans = []
    for e in notes:
        if e.name.startswith(OPTIMIZER):
            inside = (op.end_us for op in outer[slice(*here)] if op.backward and e.ts <= op.start_us < e.end)
            spans.append((max(inside, default=e.ts), e.end))
    return spans
