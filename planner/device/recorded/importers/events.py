"""A PyTorch profiler's trace as events, with what stands beside them; traces that hold no training step.

Each refusal is a line that says how to record it properly.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from planner.errors import BadInput
from planner.files.decoding import from_json
from planner.simulator.step.facts import Facts

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
    names = {one.name for one in trace.deviceProperties}
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
    names = {one.id: one.name for one in trace.deviceProperties}
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
