"""From PyTorch training steps to a profile: the worker's ops in a chain, its parameters as transfers.

PyTorch runs eagerly on one stream, so each op depends on the one before it. A gradient is what an
AccumulateGrad op receives: its size is the parameter's, the backward op before it made it, and the forward op
which that one differentiates reads the parameter. So each parameter gives a download that its forward op
waits for, an upload after its gradient, and an update whose time is its share, by bytes, of the optimizer's.

The time between two ops (Python, launching) is real and counts to the later one; time inside collective calls
does not. With DistributedDataParallel the unit of transfer is the bucket, as it is for the network.

With gradient accumulation a step is all passes up to the optimizer's; a parameter is read by each pass and
sent once, after the last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np

from planner.device.computation import BACKWARD, FORWARD, OTHER, Computation, Parameter, chain_deps
from planner.device.precision import BF16, FP32
from planner.device.recorded.importers.events import RECORD
from planner.device.recorded.importers.kineto import ACCUMULATE, OuterOp, Step
from planner.device.recorded.importers.leaves import ITEM_BYTES
from planner.device.recorded.importers.tracing import TracedSteps, durations_us
from planner.errors import BadInput
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, OpRole, Profile
from planner.simulator.step.recorded import Facts


@dataclass
class SentGradient:
    """One parameter or bucket: its readers, and the op after which its gradient is ready."""

    name: str
    bytes: int
    readers: tuple[int, ...]  # positions of forward ops
    ready: int  # position of the op after which it can be sent
    item_bytes: int = 4  # of an element of its gradient
    passes: int = 1  # that add to its gradient before it is sent


@dataclass(frozen=True)
class MicroSteps:
    """Positions of the ops at which the passes of a step begin, and of all differentiated ops."""

    starts: tuple[int, ...]
    forward: tuple[int, ...]

    def op_rank(self, position: int) -> int:
        """Rank of an op among the differentiated ops of its pass, from 0."""
        start = self.starts[bisect_right(self.starts, position) - 1]
        return bisect_right(self.forward, position) - bisect_right(self.forward, start)


def find_passes(ops: Sequence[OuterOp]) -> MicroSteps:
    """Finds the forward passes of a step; each begins with the first differentiated op after backward ops."""
    forward = sorted({op.forward for op in ops if op.forward is not None})
    differentiated, starts, fresh = set(forward), [], True
    for position, op in enumerate(ops):
        if op.backward:
            fresh = True
        elif fresh and position in differentiated:
            starts.append(position)
            fresh = False
    return MicroSteps(tuple(starts), tuple(forward))


def _merge_passes(parameters: list[SentGradient], passes: MicroSteps, notes: list[str]) -> list[SentGradient]:
    """Merges the gradients that accumulate over the passes of a step. Passes accumulate if each makes the
    same gradients for the same ops; otherwise each gradient stays separate."""
    if len(passes.starts) < 2:
        return parameters
    by_pass: list[list[SentGradient]] = [[] for _ in passes.starts]
    for parameter in parameters:
        by_pass[bisect_right(passes.starts, parameter.ready) - 1].append(parameter)
    alike = [
        [(passes.op_rank(parameter.readers[0]), parameter.bytes) for parameter in found] for found in by_pass
    ]
    if any(signature != alike[0] for signature in alike):
        notes.append(
            f"{len(by_pass)} backward passes in a step, which make different gradients: each counts as a "
            "tensor of its own"
        )
        return parameters
    notes.append(
        f"gradient accumulation: {len(by_pass)} passes a step, each reads every parameter, the last sends "
        "the gradients; the batch is that of all passes together"
    )
    return [
        replace(
            copies[0],
            readers=tuple(dict.fromkeys(p.readers[0] for p in copies)),
            ready=copies[-1].ready,
            passes=len(by_pass),
        )
        for copies in zip(*by_pass, strict=True)
    ]


def build_profile(
    steps: Sequence[Step], *, batch: int, model: str, facts: Facts | None = None, **about: Any
) -> Profile:
    """Builds the profile of one worker from its recorded steps."""
    steps, begin, names, _, parameters, notes = _prepare_steps(steps)
    first = steps[0]
    buckets = _buckets(first, parameters, notes)
    units = buckets or parameters
    reads: dict[int, list[int]] = defaultdict(list)
    for i, unit in enumerate(units):
        for k in unit.readers:
            reads[k].append(i)
    ops = [Op(f"download/{unit.name}", DOWNLINK, 0, unit.bytes, (), i) for i, unit in enumerate(units)]
    start = len(ops)
    ops.append(Op("input", WORKER))
    place = {}
    for k in range(begin, len(first.ops)):
        place[k] = len(ops)
        role = OpRole.BACKWARD if first.ops[k].backward else OpRole.FORWARD
        ops.append(Op(names[k], WORKER, deps=(len(ops) - 1, *reads[k]), role=role))
    uploads = len(ops)
    for i, unit in enumerate(units):
        ops.append(Op(f"upload/{unit.name}", UPLINK, 0, unit.bytes, (place[unit.ready],), i))
    for i, unit in enumerate(units):
        ops.append(Op(f"update/{unit.name}", PS, 0, 0, (uploads + i,), i, role=OpRole.OPTIMIZER))
    columns = [start, *place.values(), *range(uploads + len(units), len(ops))]
    share = np.array([unit.bytes for unit in units]) / sum(unit.bytes for unit in units)
    traced = TracedSteps(steps, begin, names, facts)
    if call_us := traced.cost.call_us:
        notes.append(f"the profiler's cost, {call_us:.1f} us per traced call, is taken off the times of ops")
    durations = np.zeros((len(traced.steps), len(ops)))
    durations[:, columns] = np.hstack([traced.durations_us[:, :-1], traced.durations_us[:, -1:] * share])
    if not all(step.optimizer_us for step in steps):
        notes.append("no optimizer step is in the trace: updates take no time on the servers")
    notes.append("transfers were not recorded (one machine): their durations are zero, their sizes are real")
    return Profile.build(
        ops,
        durations * 1e-6,
        batch=batch,
        model=model,
        servers=1,
        tensors=[unit.name for unit in units],
        buckets=bool(buckets),
        notes=tuple(notes),
        recorded=None if facts is None else traced.to_recorded(parameters[0].passes),
        **about,
    )


def build_computation(steps: Sequence[Step], *, batch: int, model: str, source: str) -> Computation:
    """Builds the computation of one worker: recorded ops in a chain, and parameters by their gradients."""
    steps, begin, names, labels, sent, notes = _prepare_steps(steps)
    shift = 1 - begin  # the input goes before the first forward op
    roles = [OTHER, *(BACKWARD if op.backward else FORWARD for op in steps[0].ops[begin:])]
    width = max(sent, key=lambda entry: entry.bytes).item_bytes
    readers = sorted({parameter.readers[0] for parameter in sent})
    parameters = tuple(
        Parameter(
            parameter.name,
            parameter.bytes // parameter.item_bytes,
            tuple(op + shift for op in parameter.readers),
            parameter.ready + shift,
            readers.index(parameter.readers[0]),
        )
        for parameter in sent
    )
    notes.append("the time between ops and after the backward pass is the host's, as it was recorded")
    return Computation(
        model=model,
        batch=batch,
        names=("input", *names[begin:]),
        role=np.array(roles, np.uint8),
        layer=np.full(len(roles), -1, np.int32),
        layers=(),
        deps=chain_deps(len(roles)),
        durations_s=np.array([durations_us(step, begin) for step in steps]) * 1e-6,
        parameters=parameters,
        optimizer_s=float(np.median([step.tail_us for step in steps])) * 1e-6,
        blocks=tuple(labels[op] for op in readers),
        precision=FP32 if width >= FP32.gradient_bytes else BF16,
        source=source,
        notes=tuple(notes),
    )


def _similar_steps(steps: Sequence[Step]) -> tuple[list[Step], list[str]]:
    """Steps that run the same ops as the majority, and notes on the steps left out."""
    shapes = [tuple(op.name for op in step.ops) for step in steps]
    (common, times), *_ = Counter(shapes).most_common(1)
    if 2 * times <= len(steps) and len(steps) > 1:
        raise BadInput(
            f"{steps[0].where}: the steps run different ops, no half of them alike; import one training loop"
        )
    notes = []
    if times < len(steps):
        notes.append(f"{len(steps) - times} of {len(steps)} steps ran other ops and are left out")
    if steps[0].on_gpu:
        notes.append("op times are those of GPU kernels; the gaps between kernels count to the later op")
    return [step for step, shape in zip(steps, shapes, strict=True) if shape == common], notes


class _Prepared(NamedTuple):
    """Steps that run the same ops, with the names of these ops and their parameters."""

    steps: list[Step]
    begin: int  # position of the first forward op
    names: list[str]  # of ops: `forward/conv2d_3`
    labels: list[str]  # of ops: `conv2d_3`
    parameters: list[SentGradient]
    notes: list[str]


def _prepare_steps(steps: Sequence[Step]) -> _Prepared:
    """Selects steps that run the same ops, and finds the names of ops and the parameters."""
    alike, notes = _similar_steps(steps)
    first = alike[0]
    begin = min((op.forward for op in first.ops if op.forward is not None), default=None)
    if begin is None:
        raise BadInput(
            f"{first.where}: no flow from forward to backward ops (fwdbwd events); record with PyTorch 1.10 "
            f"or later, {RECORD}"
        )
    numbers: dict[tuple[bool, str], Iterator[int]] = defaultdict(count)
    labels = [f"{op.name}_{next(numbers[op.backward, op.name])}" for op in first.ops]
    passes = ["backward" if op.backward else "forward" for op in first.ops]
    names = [f"{each}/{label}" for each, label in zip(passes, labels, strict=True)]
    return _Prepared(alike, begin, names, labels, _parameters(first, begin, labels, notes), notes)


def _parameters(step: Step, first_forward: int, labels: list[str], notes: list[str]) -> list[SentGradient]:
    """Parameters of a step, one per accumulated gradient, with size and readers."""
    gradients = []
    unsized = unread = 0
    producer: dict[Any, int] = {}
    for k, op in enumerate(step.ops):
        if not op.backward:
            continue
        if op.name != ACCUMULATE:
            producer[op.thread] = k
            continue
        if op.gradient is None:
            unsized += 1
            continue
        shape, kind = op.gradient
        if kind not in ITEM_BYTES:
            raise BadInput(f"{step.where}: a gradient of element type {kind!r}, whose size is not known")
        reader = step.ops[producer[op.thread]].forward if op.thread in producer else None
        if reader is None:
            unread += 1
            reader = first_forward
        size = prod(shape) * ITEM_BYTES[kind]
        if size:
            label = f"{labels[reader]}/{'x'.join(map(str, shape)) or 'scalar'}"
            gradients.append(SentGradient(label, size, (reader,), k, ITEM_BYTES[kind]))
    if unsized:
        raise BadInput(
            f"{step.where}: {unsized} gradients have no size; profile with record_shapes=True, {RECORD}"
        )
    if not gradients:
        raise BadInput(f"{step.where}: no gradients (AccumulateGrad) in the backward pass; {RECORD}")
    if unread:
        notes.append(
            f"{unread} parameters have no known reader; the first forward op is taken to wait for them"
        )
    gradients.sort(key=lambda p: (p.readers[0], -p.bytes))
    gradients = _merge_passes(gradients, find_passes(step.ops), notes)
    seen: Counter[str] = Counter()
    for parameter in gradients:
        seen[parameter.name] += 1
        if seen[parameter.name] > 1:
            parameter.name += f"#{seen[parameter.name]}"
    return gradients


def _buckets(step: Step, parameters: list[SentGradient], notes: list[str]) -> list[SentGradient]:
    """Gradient buckets that DistributedDataParallel sent. An all-reduce takes the gradients that are ready
    and not yet sent, in the order they became ready, up to its size."""
    last_pass = find_passes(step.ops).starts[-1]
    waiting: deque[SentGradient] = deque()
    buckets: list[SentGradient] = []
    by_op = {parameter.ready: parameter for parameter in parameters}
    short = 0
    differ = any(parameter.ready < last_pass for parameter in parameters)
    begin = 0 if differ else last_pass
    if any(op.buckets for op in step.ops[:begin]):
        notes.append("every pass sends its gradients; counted once, as with no_sync() in all but the last")
    for k, op in enumerate(step.ops):
        if k < begin:
            continue
        if k in by_op:
            waiting.append(by_op[k])
        for elements, kind in op.buckets:
            size = elements * ITEM_BYTES[kind]
            inside: list[SentGradient] = []
            room = size
            while waiting and waiting[0].bytes <= room:
                room -= waiting[0].bytes
                inside.append(waiting.popleft())
            short += room != 0
            readers = tuple(sorted({r for p in inside for r in p.readers}))
            name = f"bucket_{len(buckets)}"
            buckets.append(SentGradient(name, size, readers or (parameters[0].readers[0],), k))
    if not buckets:
        return []
    notes.append(
        f"DistributedDataParallel: {len(parameters)} gradients in {len(buckets)} buckets, the unit sent"
    )
    if short or waiting:
        notes.append(f"{short} buckets could not be matched to gradients by size; their readers are a guess")
    return buckets
