"""The profiler's own cost, taken out of recorded steps.

Tracing costs about the same for every call, however long the call takes: a step of many short calls is traced
several times slower than it runs, a step of a few large products hardly slower. The recorder times steps
without the profiler too; the cost per call is the one by which traced steps become as long as those:

    sum over ops of max(traced[op] - cost * calls[op], floor[op]) + communication = untraced step.

On a GPU, kernels keep their time (`floor`): the host alone is slowed, which shows in the gaps between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import numpy.typing as npt

from planner.device.recorded.importers.kineto import Step
from planner.device.recorded.importers.leaves import COMMUNICATION, split_op_time
from planner.simulator.step.recorded import Exposed, Facts, OpPart, Recorded, host_time_share

Floats = npt.NDArray[np.float64]

LEAST = 0.1  # of its traced time, what an op keeps
OUTLIER = 1.5  # median steps: a step that takes longer was disturbed
MOST_OUTLIERS = 0.25  # of the steps; where more are longer, steps really differ
TRUSTED = 5  # untraced steps: as many of them may also lengthen the traced ones
MOST_CALL_US = 30.0  # 2 to 10 are usual; what is beyond slowed all ops
BISECTIONS = 50
READY = 0.25  # quantile of the steps' communication: in longer ones it waits for other ranks


@dataclass(frozen=True, slots=True)
class TracingCost:
    """Overhead of the profiler: microseconds per traced call, and a factor on all remaining times."""

    call_us: float = 0.0
    factor: float = 1.0

    def remove_from(self, traced_us: float, calls: int) -> float:
        """Microseconds of a traced span without the tracing cost of its calls."""
        return max(traced_us - self.call_us * calls, LEAST * traced_us) * self.factor


def shorten_outliers(durations_us: Floats) -> Floats:
    """Shortens steps beyond 1.5 medians, if at most a quarter of the steps are that long."""
    whole_us = durations_us.sum(axis=1)
    most_us = OUTLIER * float(np.median(whole_us))
    long = whole_us > most_us
    if long.mean() > MOST_OUTLIERS:
        return durations_us
    return durations_us * np.where(long, most_us / np.maximum(whole_us, most_us), 1.0)[:, None]


def tracing_cost(
    durations_us: Floats, calls: Floats, floor_us: Floats, communication_us: float, facts: Facts
) -> TracingCost:
    """Tracing overhead per call that makes the traced step as long as the untraced one. Durations are steps x
    ops."""
    assert facts.step_s is not None
    mean_us = durations_us.mean(axis=0)
    wanted_us = max(facts.step_s * 1e6 - communication_us, LEAST * float(mean_us.sum()))
    if wanted_us >= mean_us.sum():
        trusted = (facts.untraced_steps or 0) >= TRUSTED
        return TracingCost(factor=wanted_us / float(mean_us.sum()) if trusted else 1.0)
    low, high = 0.0, MOST_CALL_US
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_long = np.maximum(mean_us - middle * calls, floor_us).sum() > wanted_us
        low, high = (middle, high) if too_long else (low, middle)
    left_us = np.maximum(mean_us - high * calls, floor_us).sum()
    return TracingCost(high, wanted_us / float(left_us))


class TracedSteps:
    """Durations of ops without the profiler's overhead, and the work of these ops. Columns are the input,
    each op of the network, and the optimizer."""

    def __init__(self, steps: Sequence[Step], begin: int, names: Sequence[str], facts: Facts | None) -> None:
        self.begin, self.names, self.facts, self.cost = begin, names, facts, TracingCost()
        rows = np.array([_column_times_us(step, begin) for step in steps])
        self.steps, self.durations_us = steps, rows
        if facts is None or facts.step_s is None:
            return
        rows = shorten_outliers(rows)
        calls = np.mean([_call_counts(step, begin) for step in steps], axis=0)
        traced_us = rows.mean(axis=0)
        least = np.full(len(traced_us), LEAST)
        if steps[0].on_gpu:  # the optimizer's kernels too
            least[1:-1] = [
                1.0 - host_time_share(self._op_parts(k, traced_us)) for k in range(begin, len(names))
            ]
            least[-1] = 1.0
        floor_us = least * traced_us
        exposed_us = float(np.quantile([_communication_us(step) for step in steps], READY))
        self.cost = tracing_cost(rows, calls, floor_us, exposed_us, facts)
        untraced_us = np.maximum(traced_us - self.cost.call_us * calls, floor_us) * self.cost.factor
        factors = np.divide(untraced_us, traced_us, out=np.ones_like(traced_us), where=traced_us > 0)
        self.durations_us = rows * factors  # their variation between steps stays as traced

    def to_recorded(self, passes: int) -> Recorded:
        """Recorded facts: the parts of each op, and the step's time outside computation."""
        assert self.facts is not None
        facts, begin, mean_us = self.facts, self.begin, self.durations_us.mean(axis=0)
        work: dict[str, tuple[OpPart, ...]] = {}
        launch_s: dict[str, float] = {}
        for k in range(begin, len(self.names)):
            name = self.names[k]
            if parts := self._op_parts(k, mean_us):
                work[name] = parts
            if self.steps[0].on_gpu:
                launches_us = [
                    max(step.ops[k].launch_us - self.cost.call_us * _op_calls(step, k), 0.0)
                    for step in self.steps
                ]
                launch_s[name] = float(np.mean(launches_us)) * 1e-6
        if not facts.framework:  # nobody noted what most of the arithmetic was done in
            facts = msgspec.structs.replace(facts, precision=_main_format(work.values()))
        exposed = Exposed(
            step_s=self._mean(lambda step: step.end_us - step.start_us) * 1e-6,
            input_s=float(mean_us[0]) * 1e-6,
            communication_s=self._mean(_communication_us) * 1e-6,
            idle_s=self._mean(lambda step: _idle_us(step, begin, self.cost)) * 1e-6,
            untraced_s=facts.step_s,
        )
        return Recorded(facts, work, exposed, launch_s, passes)

    def _op_parts(self, k: int, mean_us: Floats) -> tuple[OpPart, ...]:
        """Parts of the op with index `k`, given the mean durations of all ops."""
        assert self.facts is not None
        leaves = [
            [
                replace(leaf, us=self.cost.remove_from(leaf.us, 0 if step.on_gpu else leaf.calls))
                for leaf in step.ops[k].leaves
                if leaf.kind != COMMUNICATION
            ]
            for step in self.steps
        ]
        return split_op_time(leaves, float(mean_us[k - self.begin + 1]), self.facts.device_kind)

    def _mean(self, value: Callable[[Step], float]) -> float:
        """Mean of a value over the steps."""
        return float(np.mean([value(step) for step in self.steps]))


def _column_times_us(step: Step, begin: int) -> list[float]:
    """Microseconds of the input, each op, and the optimizer."""
    compute = durations_us(step, begin)
    compute[0] += max(step.tail_us - step.optimizer_us, 0.0)  # the loop's own, before the next input
    return [*compute, step.optimizer_us]


def _call_counts(step: Step, begin: int) -> list[int]:
    """Numbers of traced calls in the input, each op, and the optimizer."""
    before = sum(op.calls + op.gap_calls for op in step.ops[:begin]) + step.ops[begin].gap_calls
    ops = [_op_calls(step, k) for k in range(begin + 1, len(step.ops))]
    return [before + step.tail_calls, step.ops[begin].calls, *ops, step.optimizer_calls]


def _op_calls(step: Step, k: int) -> int:
    """Number of traced calls in an op and in the gap before it."""
    return step.ops[k].calls + step.ops[k].gap_calls


def _idle_us(step: Step, begin: int, cost: TracingCost) -> float:
    """Microseconds without ops or communication in a step."""
    idle, before = 0.0, step.ops[begin].end_us
    for op in step.ops[begin + 1 :]:
        gap_calls = op.calls + op.gap_calls if step.on_gpu else op.gap_calls
        idle += cost.remove_from(max(op.start_us - before - op.waited_us, 0.0), gap_calls)
        before = max(before, op.end_us)
    return idle


def _main_format(work: Iterable[tuple[OpPart, ...]]) -> str:
    """Number format of most of the recorded FLOPs."""
    flops: Counter[str] = Counter()
    for parts in work:
        for part in parts:
            flops["fp32" if part.format == "tf32" else part.format] += int(part.flops)
    return flops.most_common(1)[0][0] if flops else "fp32"


def durations_us(step: Step, begin: int) -> list[float]:
    """Microseconds of the input (all before the first forward op) and of each later op. The time between two
    ops counts to the later one."""
    first = step.ops[begin]
    talking_us = sum(op.waited_us + op.communication_us for op in step.ops[:begin]) + first.waited_us
    out = [max(first.start_us - step.start_us - talking_us, 0.0)]
    before = first.start_us
    for op in step.ops[begin:]:
        waited_us = 0.0 if op is first else op.waited_us
        out.append(max(op.end_us - before - waited_us - op.communication_us, 0.0))
        before = max(before, op.end_us)
    return out


def _communication_us(step: Step) -> float:
    """Microseconds of a step in which collectives run alone."""
    return sum(op.waited_us + op.communication_us for op in step.ops) + step.late_us
