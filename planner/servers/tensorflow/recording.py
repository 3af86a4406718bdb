"""One recorded TensorFlow step, whatever the file: ops that ran, transfers, the graph they form.

Also the reader of TensorFlow's timeline (a Chrome trace made by tensorflow.python.client.timeline). Its ops
carry their name, type and inputs; transfers do only where the tool that wrote the file kept their label.
TensorFlow's own timeline.py drops it, and such a file can only be refused with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from planner.errors import BadInput
from planner.files.tomlfile import from_json

# "[0.2MB] [239.7Mb/s] edge_41_affine2/weights/read from /job:ps/... to /job:worker/..."; TF 1 has no rate.
TRANSFER_LABEL = re.compile(
    r"\[(?P<size>\d{1,15}(?:\.\d{1,15})?)(?P<unit>[KMG]?B)\] (?:\[[^\]]*\] )?"
    r"(?P<edge>\S+) from (?P<source>\S+) to (?P<target>\S+)"
)
# "conv1/fwd = MatMul(a, b)"
OP_LABEL = re.compile(r"(?P<name>\S+) = (?P<op>\w+)\((?P<inputs>.*)\)", re.DOTALL)
TASK = re.compile(r"/job:(?P<job>[^/:]+)(?:/replica:\d+)?/task:(?P<task>\d{1,9})(?!\d)")
UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}


class RecordedNode(NamedTuple):
    """One node of the executed graph. `edge` names the transfer of a _Send or a _Recv."""

    op: str
    device: str
    inputs: tuple[str, ...]
    edge: str | None = None


class RecordedSpan(NamedTuple):
    """Start and end in microseconds of the recording machine's clock (whole ones stay exact)."""

    start_us: float
    end_us: float


class RecordedTransfer(NamedTuple):
    """One tensor received over the network. `bytes` is None if not recorded, or only rounded; `span` is None
    if the graph has it but the record was lost."""

    source: str
    target: str
    bytes: int | None
    rounded_bytes: int | None
    span: RecordedSpan | None

    @property
    def size(self) -> int:
        return self.bytes if self.bytes is not None else self.rounded_bytes or 0


@dataclass
class Recording:
    """One step. Transfers go by the name of their edge; `graph` is complete if it came from partition graphs,
    else it holds what the labels of the recorded ops say."""

    where: str
    ran: dict[str, RecordedSpan] = field(default_factory=dict)
    on_gpu: set[str] = field(default_factory=set)  # ops whose span is that of their kernels
    transfers: dict[str, RecordedTransfer] = field(default_factory=dict)
    graph: dict[str, RecordedNode] = field(default_factory=dict)
    complete: bool = False
    unnamed_transfers: int = 0
    repeated: str | None = None  # an edge recorded twice: more than one step in the file


class Task(NamedTuple):
    """A process of the job: `ps:0`, `worker:1`."""

    job: str
    number: int

    @property
    def serves(self) -> bool:
        return self.job == "ps"

    def __str__(self) -> str:
        return f"{self.job}:{self.number}"


def task_of(device: str) -> Task | None:
    """Parse the task of "/job:ps/replica:0/task:0/device:CPU:0"; None if there is none."""
    match = TASK.match(device)
    return Task(match["job"], int(match["task"])) if match else None


def serves(device: str) -> bool:
    """Whether a device belongs to a parameter server."""
    task = task_of(device)
    return task is not None and task.serves


def node_name(reference: str) -> str:
    """The node of an input reference: "a:1" and "^a" are outputs of node a."""
    name = reference[1:] if reference.startswith("^") else reference
    head, _, port = name.rpartition(":")
    return head if head and port.isdigit() else name


def add_op(recording: Recording, name: str, device: str, label: str, span: RecordedSpan) -> None:
    """Record that an op ran; repeated runs (in a loop) add up."""
    before = recording.ran.get(name)
    if before is not None:
        start_us = min(before.start_us, span.start_us)
        span = RecordedSpan(
            start_us, start_us + before.end_us - before.start_us + span.end_us - span.start_us
        )
    recording.ran[name] = span
    match = OP_LABEL.search(label) if label and not recording.complete else None
    if match:
        inputs = tuple(node_name(part.strip()) for part in match["inputs"].split(",") if part.strip())
        recording.graph[name] = RecordedNode(match["op"], device, inputs)


def add_transfer(recording: Recording, label: str, size: int | None, span: RecordedSpan) -> None:
    """Record a transfer by its label; one that the label does not name is only counted."""
    match = TRANSFER_LABEL.search(label)
    if match is None:
        recording.unnamed_transfers += 1
        return
    number, unit, edge, source, target = match.groups()
    rounded = round(float(number) * UNITS[unit])
    if size is None and unit == "B":
        size = rounded
    if edge in recording.transfers:
        recording.repeated = recording.repeated or edge
    recording.transfers[edge] = RecordedTransfer(source, target, size, rounded, span)


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    pid: int = 0
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, object] = {}


class _Timeline(msgspec.Struct):
    traceEvents: list[_Event]


def read_timeline(data: bytes, where: str) -> Recording:
    """Read the step in a timeline."""
    try:
        events = from_json(data, _Timeline).traceEvents
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{where}: not a complete Chrome trace ({error}); write it again") from error
    devices = {
        e.pid: str(e.args.get("name", "")).removesuffix(" Compute")
        for e in events
        if e.ph == "M" and e.name == "process_name"
    }
    recording = Recording(where)
    for e in events:
        if e.ph != "X":
            continue
        if e.dur < 0:
            raise BadInput(
                f"{where}: {e.name!r} ends before it starts: the clock jumped; record another step"
            )
        span = RecordedSpan(e.ts, e.ts + e.dur)
        name = str(e.args.get("name", e.name))
        if "RecvTensor" in (e.name, name):
            texts = [v for v in (*e.args.values(), e.name) if isinstance(v, str) and TRANSFER_LABEL.search(v)]
            size = e.args.get("bytes")
            add_transfer(recording, texts[0] if texts else "", size if isinstance(size, int) else None, span)
            continue
        device = devices.get(e.pid, "")
        add_op(recording, name, device, "", span)
        inputs = (v for k, v in e.args.items() if k.startswith("input") and isinstance(v, str))
        recording.graph[name] = RecordedNode(
            str(e.args.get("op", e.name)), device, tuple(map(node_name, inputs))
        )
    return recording
