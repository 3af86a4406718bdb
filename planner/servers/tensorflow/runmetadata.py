"""TensorFlow's RunMetadata protobuf (tensorflow/core/protobuf/config.proto) as a `Recording`.

Only the fields below are read. Each device may stand several times in `dev_stats`: the transfers it received
and the ops it ran come from two logs. Kernels on a GPU stand under `<device>/stream:all` by the name
`<node>:<op>`; their span replaces the time that the executor took to launch them.
"""

from __future__ import annotations

from planner.errors import BadInput
from planner.files.protobuf import BYTES, VARINT, WireError, decode_text, iterate_fields, parse_fields
from planner.servers.tensorflow.graph import (
    RecordedNode,
    RecordedSpan,
    Recording,
    add_op,
    add_transfer,
    node_name,
)
from planner.units import format_bytes

STEP_STATS, PARTITION_GRAPHS = 1, 3  # RunMetadata
DEV_STATS = 1  # StepStats
DEVICE, NODE_STATS = 1, 2  # DeviceStepStats
NAME, ALL_START_US, OP_START_US, OP_END_US, ALL_END_US, OUTPUT, LABEL = 1, 2, 3, 4, 5, 7, 8  # NodeExecStats
TENSOR_DESCRIPTION, ALLOCATION, REQUESTED_BYTES = 3, 4, 1  # NodeOutput, TensorDescription, Allocation...
GRAPH_NODE = 1  # GraphDef
NODE_NAME, NODE_OP, NODE_INPUT, NODE_DEVICE, NODE_ATTR = 1, 2, 3, 4, 5  # NodeDef
KEY, VALUE, STRING = 1, 2, 2  # an entry of the attr map, AttrValue

MAX_BYTES = 2**28  # a step of a large network has some megabytes
MAX_RECORDS = 5_000_000  # of one device; such a step has some thousands

RECORD = (
    "record it with RunOptions(trace_level=FULL_TRACE, output_partition_graphs=True); docs/recording.md "
    "has the lines"
)


def read_run_metadata(data: bytes, source: str, graph: bool = True) -> Recording:
    """Reads one step from a serialized RunMetadata. `graph=False` skips the graph, equal in all steps."""
    if len(data) > MAX_BYTES:
        raise BadInput(f"{source}: more than {format_bytes(MAX_BYTES)} for one step; {RECORD}")
    recording = Recording(source)
    try:
        top = [
            (number, kind, a, b)
            for number, kind, a, b in iterate_fields(data, 0, len(data))
            if number in (STEP_STATS, PARTITION_GRAPHS)
        ]
        if any(kind != BYTES for _, kind, _, _ in top):
            raise WireError("step_stats is not a message")
        for number, _, a, b in top:
            if number == PARTITION_GRAPHS and graph:
                recording.complete = True
                _read_graph(recording, data, a, b)
        kernels: dict[str, RecordedSpan] = {}
        labels = graph and not recording.complete
        for number, _, a, b in top:
            if number == STEP_STATS:
                for inner, kind, c, d in iterate_fields(data, a, b):
                    if inner == DEV_STATS and kind == BYTES:
                        kernels |= _read_device(recording, data, c, d, labels)
        recording.ran |= kernels
        recording.on_gpu.update(kernels)
    except WireError as error:
        raise BadInput(
            f"{source}: a truncated file, or not a TensorFlow RunMetadata ({error}); "
            f"copy it again or {RECORD}"
        ) from error
    if not recording.ran and not recording.transfers and not recording.unnamed_transfers:
        raise BadInput(
            f"{source}: a protobuf without step_stats: nothing was traced, or not RunMetadata; {RECORD}"
        )
    return recording


def _read_device(
    recording: Recording, data: bytes, start: int, end: int, labels: bool
) -> dict[str, RecordedSpan]:
    """Adds a device's ops and transfers to a recording; returns the time span of each node's kernel."""
    device = ""
    stats: list[tuple[int, int]] = []
    for number, kind, a, b in iterate_fields(data, start, end):
        if number == NODE_STATS and kind == BYTES:
            stats.append((a, b))
            if len(stats) > MAX_RECORDS:
                raise BadInput(
                    f"{recording.where}: more than {MAX_RECORDS:,} records of one device; {RECORD}"
                )
        elif number == DEVICE and kind == BYTES:
            device = decode_text(data, a, b)
    on_stream = "/stream:" in device
    if on_stream and not device.endswith("/stream:all"):
        return {}  # the same kernels again, by stream
    kernels: dict[str, RecordedSpan] = {}
    for a, b in stats:
        name, label, size, span = _read_node(recording.where, data, a, b, labels)
        if on_stream:
            node = node_name(name.partition(":")[0])
            before = kernels.get(node, span)
            kernels[node] = RecordedSpan(min(before.start_us, span.start_us), max(before.end_us, span.end_us))
        elif name == "RecvTensor":
            add_transfer(recording, label, size, span)
        else:
            add_op(recording, name, device, label, span)
    return kernels


def _read_node(
    source: str, data: bytes, start: int, end: int, labels: bool
) -> tuple[str, str, int | None, RecordedSpan]:
    """Name, label, requested bytes and time span in one NodeExecStats message."""
    name = label = ""
    values = [0] * (ALL_END_US + 1)
    size: int | None = None
    head, at = parse_fields(data, start, end, ALL_END_US)
    for number, kind, a, b in head:
        if kind == VARINT:
            values[number] = a
        elif number == NAME:
            name = decode_text(data, a, b)
    if labels or name == "RecvTensor":  # of the other ops, which are most, nothing else is needed
        for number, kind, a, b in iterate_fields(data, at, end, LABEL):
            if number == LABEL:
                label = decode_text(data, a, b)
            elif number == OUTPUT and kind == BYTES and name == "RecvTensor" and size is None:
                size = _requested_bytes(data, a, b)
    start_us = end_us = _to_signed(values[ALL_START_US])
    if name == "RecvTensor":
        end_us += _to_signed(values[ALL_END_US])
    else:
        start_us += _to_signed(values[OP_START_US])
        end_us += _to_signed(values[OP_END_US])
    if end_us < start_us:
        raise BadInput(
            f"{source}: {name!r} ends {start_us - end_us} us before it starts: the clock jumped while the "
            "step was recorded; record another step"
        )
    return name, label, size, RecordedSpan(start_us, end_us)


def _to_signed(value: int) -> int:
    """Reinterprets an unsigned 64-bit varint as a signed integer."""
    return value - 2**64 if value >= 2**63 else value


def _requested_bytes(data: bytes, start: int, end: int) -> int | None:
    """Bytes that a NodeOutput message says were requested; None if it says nothing."""
    described = _message_bounds(data, start, end, TENSOR_DESCRIPTION)
    allocation = _message_bounds(data, *described, ALLOCATION) if described else None
    if allocation is None:
        return None
    for number, kind, value, _ in parse_fields(data, *allocation, REQUESTED_BYTES)[0]:
        if number == REQUESTED_BYTES and kind == VARINT:
            return value
    return 0  # proto3 leaves zeros out


def _message_bounds(data: bytes, start: int, end: int, number: int) -> tuple[int, int] | None:
    """Start and end of the first embedded message with this field number; None if there is none."""
    for entry, kind, a, b in parse_fields(data, start, end, number)[0]:
        if entry == number and kind == BYTES:
            return a, b
    return None


def _read_graph(recording: Recording, data: bytes, start: int, end: int) -> None:
    """Adds the nodes of a GraphDef message to a recording."""
    for number, kind, a, b in iterate_fields(data, start, end):
        if number != GRAPH_NODE or kind != BYTES:
            continue
        name = op = device = ""
        edge: str | None = None
        inputs: list[str] = []
        for inner, _, c, d in iterate_fields(data, a, b):
            if inner == NODE_NAME:
                name = decode_text(data, c, d)
            elif inner == NODE_OP:
                op = decode_text(data, c, d)
            elif inner == NODE_INPUT:
                inputs.append(node_name(decode_text(data, c, d)))
            elif inner == NODE_DEVICE:
                device = decode_text(data, c, d)
            elif inner == NODE_ATTR and op in ("_Send", "_Recv", "_HostSend", "_HostRecv"):
                edge = edge or _tensor_name(data, c, d)
        recording.graph[name] = RecordedNode(op, device, tuple(inputs), edge)


def _tensor_name(data: bytes, start: int, end: int) -> str | None:
    """Value of the attribute `tensor_name` in one entry of a node's attributes; None if absent."""
    key = ""
    for number, _, a, b in iterate_fields(data, start, end):
        if number == KEY:
            key = decode_text(data, a, b)
        elif number == VALUE and key == "tensor_name":
            for inner, kind, c, d in iterate_fields(data, a, b):
                if inner == STRING and kind == BYTES:
                    return decode_text(data, c, d) or None
    return None
