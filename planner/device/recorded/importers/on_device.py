"""Steps whose kernels ran on a GPU: an op lasts as long as its kernels, and starts with the first of them.

The host issues ops ahead of the device; what it takes for each is kept (`launch_us`), for on a faster device
it may set the pace. Kernels of collectives run beside the others: what the device waits for them alone is
communication.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from planner.device.recorded.importers.events import EXTERNAL, RECORD, Event, Id, Spans
from planner.errors import BadInput

if TYPE_CHECKING:
    from planner.device.recorded.importers.kineto import OuterOp, Step
    from planner.device.recorded.importers.leaves import Leaf

OPTIMIZER = "Optimizer.step#"


@dataclass
class Calls:
    """What the host did: calls with the position of the op around each, their leaves, annotations, and calls
    of the device's library."""

    calls: Sequence[tuple[Event, int]]
    leaves: Sequence[Leaf]
    notes: Sequence[Event]
    runtime: Sequence[Event]


def move(steps: Sequence[Step], outer: Sequence[OuterOp], host: Calls, kernels: Sequence[Event]) -> None:
    """Put the times of the device into the steps."""
    _note_launches(steps, Spans((e.ts, e.end) for e in host.runtime if "Synchronize" in e.name))
    calls, leaves, notes = host.calls, host.leaves, host.notes
    owners = _Owners(host)
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
        index = owners.of(kernel)
        if index is None:
            continue
        call, at = calls[index]
        if optimizers.holds(call.ts, call.end):
            updating.append((kernel.ts, kernel.end))
        leaves[index].us += kernel.dur
        start, end = spans.get(at, (kernel.ts, kernel.end))
        spans[at] = (min(start, kernel.ts), max(end, kernel.end))
    last = 0.0
    for at, op in enumerate(outer):
        op.start_us, op.end_us = spans.get(at, (last, last))
        last = max(last, op.end_us)
    _restart(steps, sorted(computing), Spans(talking), Spans(updating))


class _Owners:
    """Which call launched a kernel: the innermost around the call of the library that has the kernel's
    correlation, or the one with its external id (which is the correlation again in some versions)."""

    def __init__(self, host: Calls) -> None:
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

    def of(self, kernel: Event) -> int | None:
        if not kernel.args:
            return None
        ids = EXTERNAL.decode(kernel.args)
        call = self.launched.get(ids.correlation) if ids.correlation >= 0 else None
        return self.external.get(ids.external) if call is None else call


def _note_launches(steps: Sequence[Step], waits: Spans) -> None:
    for step in steps:
        before = step.start_us
        for op in step.ops:
            op.launch_us = max(op.end_us - before - waits.within(before, op.end_us), 0.0)
            before = max(before, op.end_us)


def _restart(steps: Sequence[Step], ends: list[float], talking: Spans, updating: Spans) -> None:
    """Let each step start when the GPU had done the work before it."""
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
            op.communication_us, op.waited_us = 0.0, talking.within(before, op.start_us)
            before = max(before, op.end_us)
        if (busy_us := updating.within(before, following)) > 0:
            step.optimizer_us = busy_us
        step.tail_us = step.optimizer_us  # the host's clock says nothing about the device's end
        step.late_us, step.end_us = 0.0, before + step.tail_us
