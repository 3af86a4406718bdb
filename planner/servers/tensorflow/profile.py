"""From recorded TensorFlow steps to a profile of the worker that ran them.

A profile's worker runs one op at a time: ops that ran at the same time share it (`shared_durations`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.servers.tensorflow.graph import (
    RecordedNode,
    RecordedSpan,
    RecordedTransfer,
    Recording,
    Task,
    insert_transfers,
    match_variables,
    profile_op_deps,
    restore_lost_transfers,
    task_of,
)
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile


def shared_durations(
    starts: npt.NDArray[np.float64], ends: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Duration of each interval if overlapping ones share time equally, in the unit of the inputs."""
    times = np.unique(np.concatenate([starts, ends]))
    if len(times) < 2:
        return ends - starts
    first, last = np.searchsorted(times, starts), np.searchsorted(times, ends)
    change = np.bincount(first, minlength=len(times)) - np.bincount(last, minlength=len(times))
    running = np.cumsum(change)[:-1]
    share = np.diff(times) / np.maximum(running, 1)
    total = np.concatenate([[0.0], np.cumsum(share)])
    alone = total[last] - total[first]
    overlaps = np.array([running[a:b].max(initial=1) > 1 for a, b in zip(first, last, strict=True)])
    return np.where(overlaps, alone, ends - starts)  # those that ran alone keep their time to the last bit


def dispatch_gaps(
    starts: npt.NDArray[np.float64],
    ends: npt.NDArray[np.float64],
    ops: npt.NDArray[np.intp],
    deps: Sequence[Sequence[int]],
) -> npt.NDArray[np.float64]:
    """Time from when an op could start until it did, by step and op, in the unit of the inputs.

    An op can start once its inputs are ready and the worker is free.
    """
    own_starts, own_ends = starts[:, ops], ends[:, ops]
    gaps = np.zeros(own_starts.shape)
    for column, needs in enumerate(deps):
        start = own_starts[:, column, None]
        free = np.where(own_ends <= start, own_ends, -np.inf).max(axis=1)
        ready = np.maximum(free, ends[:, list(needs)].max(axis=1)) if needs else free
        busy = ((own_starts < start) & (own_ends > start)).any(axis=1)
        known = np.isfinite(ready) & ~busy
        gaps[:, column] = np.where(known, np.maximum(start[:, 0] - np.where(known, ready, 0.0), 0.0), 0.0)
    return gaps


MAX_STEP_S = 3600.0
MAX_SERVERS = 65536
MAX_LOST = 0.2  # of a step's records; TensorFlow loses less than one in a hundred
CLOCK_TOLERANCE_S = 1e-3
RECORD = "docs/recording.md tells how to record"


def build_profile(steps: Sequence[Recording], *, dispatch: bool = True, **metadata: Any) -> Profile:
    """Builds one worker's profile from recordings, one per step.

    Without `dispatch`, worker ops last as recorded and the gaps between them are dropped.
    """
    for step in steps:
        _check_recording(step)
    base = next((step for step in steps if step.complete), steps[0])
    _check_clocks(steps, base.graph)
    notes: list[str] = []
    if not base.complete:
        notes.append(
            "no partition graphs: dependencies are read from op labels, gradients of one op matched by order"
        )
    transfers: dict[str, RecordedTransfer] = {}
    for step in steps:
        for edge, transfer in step.transfers.items():
            if edge not in transfers or transfers[edge].bytes is None:
                transfers[edge] = transfer
    worker = _find_worker(base.where, transfers)
    foreign = [
        edge
        for edge, transfer in transfers.items()
        if (task_of(transfer.source) == worker) == (task_of(transfer.target) == worker)
    ]
    if foreign:
        notes.append(f"{len(foreign)} transfers between servers or inside a task are left out: {foreign[0]}")
        for edge in foreign:
            transfers[edge] = transfers[edge]._replace(bytes=0, rounded_bytes=0)
    graph = insert_transfers(base, transfers)
    restored = restore_lost_transfers(graph, transfers)
    if restored:
        notes.append(
            f"{len(restored)} transfers were recorded in no step; their sizes are those of the variables"
        )
    kept = profile_op_deps(graph, transfers, {name for step in steps for name in step.ran}, worker, notes)
    if not kept:
        raise BadInput(
            f"{base.where}: no transfer of any size and no op of {worker} is recorded; {RECORD} it"
        )
    return _assemble_profile(
        graph, kept, transfers, steps, worker=worker, notes=notes, dispatch=dispatch, **metadata
    )


def _check_recording(step: Recording) -> None:
    """Raises BadInput unless the recording has one step and some transfers."""
    if step.repeated:
        raise BadInput(
            f"{step.where}: transfer {step.repeated!r} stands twice: several steps in one file; write one "
            f"file a step ({RECORD} them)"
        )
    if step.unnamed_transfers and not step.transfers:
        raise BadInput(
            f"{step.where}: its {step.unnamed_transfers} RecvTensor records name no tensor, size or source; "
            f"trace a distributed session with FULL_TRACE ({RECORD} it)"
        )
    if not step.transfers:
        raise BadInput(
            f"{step.where}: no transfer between a worker and a parameter server is recorded; trace a "
            f"distributed session with FULL_TRACE ({RECORD} it)"
        )
    spans = _recorded_spans(step)
    first = min(span.start_us for span in spans)
    last = max(span.end_us for span in spans)
    if (last - first) * 1e-6 > MAX_STEP_S:
        raise BadInput(
            f"{step.where}: the step lasts {(last - first) * 1e-6:.0f} s: a clock jumped, or the "
            "hosts' clocks differ; synchronise them (NTP) and record again"
        )


def _check_clocks(steps: Sequence[Recording], graph: dict[str, RecordedNode]) -> None:
    """Raises BadInput if an op starts before one of its inputs on the same device has ended."""
    ran = {name for step in steps for name in step.ran}
    pairs = [
        (name, dep)
        for name, node in graph.items()
        if name in ran and node.op != "Merge"
        for dep in node.inputs
        if dep in ran and graph.get(dep, node).device == node.device
    ]
    for step in steps:
        for name, dep in pairs:
            span, before = step.ran.get(name), step.ran.get(dep)
            if span and before and dep not in step.on_gpu:
                gap_s = (before.end_us - span.start_us) * 1e-6
                if gap_s > CLOCK_TOLERANCE_S:
                    raise BadInput(
                        f"{step.where}: {name!r} starts {gap_s:.3f} s before its input {dep!r} ends: "
                        "the clock of that device jumped; record another step"
                    )


def _recorded_spans(step: Recording) -> list[RecordedSpan]:
    """Time spans of all recorded ops and transfers of a step."""
    return [*step.ran.values(), *(t.span for t in step.transfers.values() if t.span)]


def _communicating_tasks(transfers: Mapping[str, RecordedTransfer]) -> set[Task | None]:
    """Tasks that send or receive these transfers; None for devices without a task."""
    return {task_of(device) for t in transfers.values() for device in (t.source, t.target)}


def _find_worker(source: str, transfers: Mapping[str, RecordedTransfer]) -> Task:
    """The only worker among these transfers' tasks; raises BadInput if there are none or several."""
    named = _communicating_tasks(transfers)
    tasks = sorted(task for task in named if task is not None)
    if None in named:
        raise BadInput(f"{source}: a transfer names no task; {RECORD}")
    if any(task.number >= MAX_SERVERS for task in tasks):
        raise BadInput(f"{source}: a transfer names a task above {MAX_SERVERS}; {RECORD}")
    workers = [task for task in tasks if not task.is_server]
    if not any(task.is_server for task in tasks) or not workers:
        between = ", ".join(map(str, tasks)) or "unnamed tasks"
        raise BadInput(f"{source}: transfers run between {between}; a job 'ps' and a worker are needed")
    if len(workers) > 1:
        raise BadInput(
            f"{source}: records of several workers ({', '.join(map(str, workers))}); a profile is of one: "
            "record one worker, or set device filters for the servers and the worker itself"
        )
    return workers[0]


def _assemble_profile(
    graph: dict[str, RecordedNode],
    op_deps: dict[str, tuple[str, ...]],
    transfers: dict[str, RecordedTransfer],
    steps: Sequence[Recording],
    *,
    worker: Task,
    notes: list[str],
    dispatch: bool,
    **metadata: Any,
) -> Profile:
    """Builds the profile from the recorded spans of its ops, one row of durations per step."""
    names = list(op_deps)
    index = {name: i for i, name in enumerate(names)}
    tensors, tensor_of = match_variables(graph, op_deps)
    servers = 1 + max(
        task.number for task in _communicating_tasks(transfers) if task is not None and task.is_server
    )
    ops = []
    rounded = []
    for name, deps in op_deps.items():
        node = graph[name]
        size = 0
        if node.edge:
            transfer = transfers[name]
            size = transfer.size
            if transfer.bytes is None:
                rounded.append(name)
            resource = DOWNLINK if task_of(transfer.target) == worker else UPLINK
            task = task_of(transfer.source if resource == DOWNLINK else transfer.target)
        else:
            task = task_of(node.device)
            if task != worker and not (task is not None and task.is_server and task.number < servers):
                raise BadInput(
                    f"{steps[0].where}: {name!r} ran on {task}, which no transfer of {worker} names; record "
                    "one worker and its servers"
                )
            resource = WORKER if task == worker else PS
        server = -1 if resource == WORKER or task is None else task.number
        deps_index = tuple(index[dep] for dep in deps)
        ops.append(Op(name, resource, server, size, deps_index, tensor_of.get(name, -1)))
    if rounded:
        notes.append(f"the sizes of {len(rounded)} transfers are rounded to 0.1 MB, as their labels are")
    starts, ends = _span_times(names, graph, steps)
    _fill_lost_records(ops, starts, ends, steps, notes)
    order = np.argsort(np.argsort(starts, axis=1, kind="stable"), axis=1, kind="stable")
    _serialize_worker(ops, starts, ends, notes, dispatch)
    return Profile.build(
        ops,
        (ends - starts) * 1e-6,
        order=order,
        starts_s=starts * 1e-6,
        servers=servers,
        tensors=tensors,
        notes=tuple(notes),
        **metadata,
    )


def _span_times(
    names: Sequence[str], graph: dict[str, RecordedNode], steps: Sequence[Recording]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Starts and ends (steps x ops) in microseconds since the step's first record; NaN where missing."""
    lost = RecordedSpan(np.nan, np.nan)
    is_transfer = [bool(graph[name].edge) for name in names]
    starts, ends = np.empty((len(steps), len(names))), np.empty((len(steps), len(names)))
    for k, step in enumerate(steps):
        zero = min(span.start_us for span in _recorded_spans(step))
        received = {edge: transfer.span for edge, transfer in step.transfers.items()}
        spans = [
            (received if transfer else step.ran).get(name) or lost
            for name, transfer in zip(names, is_transfer, strict=True)
        ]
        starts[k] = [span.start_us - zero for span in spans]
        ends[k] = [span.end_us - zero for span in spans]
    return starts, ends


def _fill_lost_records(
    ops: Sequence[Op],
    starts: npt.NDArray[np.float64],
    ends: npt.NDArray[np.float64],
    steps: Sequence[Recording],
    notes: list[str],
) -> None:
    """Replaces records that TensorFlow lost by medians over the other steps, in place."""
    lost = np.isnan(starts)
    foreign = lost.mean(axis=1) > MAX_LOST
    if foreign.any():
        raise BadInput(
            f"{steps[int(np.argmax(foreign))].where}: many ops of the other files are missing in it; "
            "all files of one import must be steps of the same graph"
        )
    for k, i in np.argwhere(lost).tolist():
        others = [s for s in range(len(steps)) if not lost[s, i]]
        if not others:  # a transfer: what counts is its size; it cannot start before what it waits for
            deps = ops[i].deps
            starts[k, i] = ends[k, i] = max((ends[k, dep] for dep in deps if not lost[k, dep]), default=0.0)
            continue
        length = float(np.median(ends[others, i] - starts[others, i]))
        starts[k, i] = np.median(starts[others, i])
        ends[k, i] = starts[k, i] + length
    if lost.any():
        some = ", ".join(dict.fromkeys(ops[i].name for _, i in np.argwhere(lost)[:3].tolist()))
        notes.append(
            f"{int(lost.sum())} of {lost.size} records were lost and are filled with medians ({some})"
        )


def _serialize_worker(
    ops: Sequence[Op],
    starts: npt.NDArray[np.float64],
    ends: npt.NDArray[np.float64],
    notes: list[str],
    dispatch: bool,
) -> None:
    """Runs the worker's ops one at a time, in place: overlapping ops share time, and dispatch gaps count.

    The gap from when an op's inputs and the worker were ready is part of it: no other op can use it.
    """
    mine = np.flatnonzero([op.resource == WORKER for op in ops])
    if not len(mine):
        return
    gaps = dispatch_gaps(starts, ends, mine, [ops[i].deps for i in mine.tolist()]) if dispatch else 0.0
    before_s = float((ends - starts)[:, mine].sum())
    for k in range(len(starts)):
        ends[k, mine] = starts[k, mine] + shared_durations(starts[k, mine], ends[k, mine])
    after_s = float((ends - starts)[:, mine].sum())
    starts[:, mine] -= gaps
    if before_s > 1.01 * after_s:
        notes.append(
            f"worker ops overlapped (their durations add up to {before_s / after_s:.2f} times the busy "
            "time); each has its share of it"
        )
