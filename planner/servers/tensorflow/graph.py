"""One recorded TensorFlow step, whatever its file (ops that ran, transfers), and the graph they form.

It runs producer -> _Send -> transfer -> _Recv -> consumer. Kept are the transfers and the ops that were
recorded; dropped are the ops that only hold the graph together (`STRUCTURAL`), transfers of no bytes (control
edges between tasks) and scalars that a worker sends without computing them (a learning rate). Dependencies
are carried through what is dropped.

Without partition graphs the graph comes from the labels of the recorded ops, "name = op(inputs)". An input
that is no recorded op was received: it is joined to the transfer of the same tensor. Several gradients may
share one name (the outputs of one op); they are joined in the order of their edges, that of creation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.errors import BadInput

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
    """Node of the executed graph; `edge` names the transfer of a _Send or _Recv node."""

    op: str
    device: str
    inputs: tuple[str, ...]
    edge: str | None = None


class RecordedSpan(NamedTuple):
    """Start and end of an op or transfer, in integer microseconds of the recording machine's clock."""

    start_us: float
    end_us: float


class RecordedTransfer(NamedTuple):
    """Tensor received over the network.

    `bytes` is None if not recorded or only rounded; `span` is None if the record was lost.
    """

    source: str
    target: str
    bytes: int | None
    rounded_bytes: int | None
    span: RecordedSpan | None

    @property
    def size(self) -> int:
        """Bytes of the transfer, rounded if only those are recorded; 0 if unknown."""
        return self.bytes if self.bytes is not None else self.rounded_bytes or 0


@dataclass
class Recording:
    """One recorded step; transfers are keyed by edge name.

    `graph` is `complete` if it came from partition graphs; otherwise it holds what op labels say.
    """

    where: str
    ran: dict[str, RecordedSpan] = field(default_factory=dict)
    on_gpu: set[str] = field(default_factory=set)  # ops whose span is that of their kernels
    transfers: dict[str, RecordedTransfer] = field(default_factory=dict)
    graph: dict[str, RecordedNode] = field(default_factory=dict)
    complete: bool = False
    unnamed_transfers: int = 0
    repeated: str | None = None  # an edge recorded twice: more than one step in the file


class Task(NamedTuple):
    """Process of a TensorFlow job, such as `ps:0` or `worker:1`."""

    job: str
    number: int

    @property
    def is_server(self) -> bool:
        """Whether the task is a parameter server (job `ps`)."""
        return self.job == "ps"

    def __str__(self) -> str:
        return f"{self.job}:{self.number}"


def task_of(device: str) -> Task | None:
    """Task in a device name such as "/job:ps/replica:0/task:0/device:CPU:0"; None if there is none."""
    match = TASK.match(device)
    return Task(match["job"], int(match["task"])) if match else None


def is_server(device: str) -> bool:
    """Whether a device name belongs to a parameter server."""
    task = task_of(device)
    return task is not None and task.is_server


def node_name(reference: str) -> str:
    """Name of the node in an input reference: both "a:1" and "^a" refer to node a."""
    name = reference[1:] if reference.startswith("^") else reference
    head, _, port = name.rpartition(":")
    return head if head and port.isdecimal() else name


def add_op(recording: Recording, name: str, device: str, label: str, span: RecordedSpan) -> None:
    """Adds one run of an op to a recording; the times of repeated runs, as in a loop, add up."""
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
    """Adds a transfer to a recording, parsed from its label; labels that cannot be parsed are counted."""
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


STRUCTURAL = frozenset(
    (
        *("Const", "Identity", "IdentityN", "NoOp", "Placeholder", "PlaceholderWithDefault", "StopGradient"),
        *("VariableV2", "Variable", "VarHandleOp", "ReadVariableOp", "PreventGradient", "ControlTrigger"),
        *("_Send", "_Recv", "_HostSend", "_HostRecv", "_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"),
        *("Enter", "Exit", "Switch", "Merge", "NextIteration", "LoopCond", "_Switch", "_Merge"),
    )
)
VARIABLES = frozenset(("VariableV2", "Variable", "VarHandleOp"))
RECEIVES = ("_Recv", "_HostRecv")
SMALL_BYTES = 64  # a scalar or two
MAX_DEPENDENCIES = 20_000_000  # carried through what is dropped; a hundred for each of 200,000 ops
EDGE = re.compile(r"edge_(\d{1,18})_(.*)")
RECEIVED = re.compile(
    r"(.*?)(?:_S(\d{1,18})|/_(\d{1,18}))$"
)  # the _Recv node of a tensor, as TF 2 and TF 1 name it


def insert_transfers(recording: Recording, transfers: dict[str, RecordedTransfer]) -> dict[str, RecordedNode]:
    """Graph of a recording with one node per transfer, between its sender and its receivers.

    Transfer nodes have an `edge` and are keyed by it.
    """
    return (
        _join_partition_graphs(recording, transfers)
        if recording.complete
        else _join_labels(recording, transfers)
    )


def _join_partition_graphs(
    recording: Recording, transfers: dict[str, RecordedTransfer]
) -> dict[str, RecordedNode]:
    """Graph of all partition graphs, joined by the edge names of their _Send and _Recv nodes."""
    graph: dict[str, RecordedNode] = {}
    senders: dict[str, str] = {}
    receivers: dict[str, str] = {}
    for name, node in recording.graph.items():
        inputs = node.inputs
        if node.edge and node.op in RECEIVES:
            receivers[node.edge] = node.device
            inputs = (*inputs, node.edge)
        elif node.edge:
            senders[node.edge] = name
        graph[name] = RecordedNode(node.op, node.device, inputs)
    for edge, device in receivers.items():
        sender = senders.get(edge)
        source = task_of(recording.graph[sender].device) if sender else None
        crosses = edge in transfers or source not in (None, task_of(device))
        graph[edge] = RecordedNode(
            "RecvTensor", device, (sender,) if sender else (), edge if crosses else None
        )
    return graph


def _join_labels(recording: Recording, transfers: dict[str, RecordedTransfer]) -> dict[str, RecordedNode]:
    """Graph of a recording without partition graphs; ops are joined by the tensor names in their labels."""
    graph: dict[str, RecordedNode] = {}
    edges: dict[tuple[str, Task | None], list[tuple[int, str]]] = defaultdict(list)  # of a tensor at a task
    for edge, transfer in transfers.items():
        match = EDGE.fullmatch(edge)
        number, tensor = (int(match[1]), match[2]) if match else (0, edge)
        edges[tensor, task_of(transfer.target)].append((number, edge))
        graph[edge] = RecordedNode(
            "RecvTensor", transfer.target, (tensor,) if tensor in recording.graph else (), edge
        )
    references: dict[tuple[str, Task | None], set[tuple[int, str]]] = defaultdict(set)
    for node in recording.graph.values():
        for reference in node.inputs:
            match = RECEIVED.fullmatch(reference)
            if match and reference not in recording.graph:
                references[match[1], task_of(node.device)].add((int(match[2] or match[3]), reference))
    joins: dict[tuple[str, Task | None], list[str]] = {}
    for (tensor, task), asked in references.items():
        sent = [edge for _, edge in sorted(edges.get((tensor, task), ()))]
        for k, (_, reference) in enumerate(sorted(asked)):
            joins[reference, task] = sent[k : k + 1] if len(sent) == len(asked) else sent
    for name, node in recording.graph.items():
        inputs: list[str] = []
        for reference in node.inputs:
            if reference in recording.graph:
                inputs.append(reference)
            else:
                inputs += joins.get((reference, task_of(node.device)), ())
        graph[name] = RecordedNode(node.op, node.device, tuple(inputs))
    return graph


def profile_op_deps(
    graph: dict[str, RecordedNode],
    transfers: dict[str, RecordedTransfer],
    executed: Collection[str],
    worker: Task,
    notes: list[str],
) -> dict[str, tuple[str, ...]]:
    """Dependencies of each op of the profile, by op name, in graph order."""
    order = topological_nodes(graph)
    carried = 0
    above: dict[str, tuple[str, ...]] = {}
    kept: dict[str, tuple[str, ...]] = {}
    control: list[str] = []
    constant: list[str] = []
    for name in order:
        node = graph[name]
        deps = tuple(dict.fromkeys(a for dep in node.inputs if dep in above for a in above[dep]))
        carried += len(deps)
        if carried > MAX_DEPENDENCIES:
            raise BadInput(
                f"the recorded ops have more than {MAX_DEPENDENCIES:,} dependencies; is it one step?"
            )
        if node.edge:
            transfer = transfers.get(name)
            keep = transfer is not None and transfer.size > 0
            if transfer is not None and not keep:
                control.append(name)
            elif (
                transfer and not deps and task_of(transfer.source) == worker and transfer.size <= SMALL_BYTES
            ):
                constant.append(name)
                keep = False
        else:
            keep = name in executed and node.op not in STRUCTURAL and task_of(node.device) is not None
        if keep:
            kept[name] = deps
            above[name] = (name,)
        else:
            above[name] = deps
    if control:
        notes.append(
            f"{len(control)} transfers without bytes (control edges) are left out, their dependencies kept"
        )
    if constant:
        notes.append(f"scalars that the worker sends uncomputed are left out: {', '.join(constant)}")
    return {name: kept[name] for name in graph if name in kept}


def topological_nodes(graph: dict[str, RecordedNode]) -> list[str]:
    """Node names in topological order; the back edges of loops (NextIteration) are ignored."""
    waiting: dict[str, int] = {}
    consumers: dict[str, list[str]] = defaultdict(list)
    for name, node in graph.items():
        inputs = {dep for dep in node.inputs if dep in graph and graph[dep].op != "NextIteration"}
        waiting[name] = len(inputs)
        for dep in inputs:
            consumers[dep].append(name)
    order = [name for name, count in waiting.items() if count == 0]
    for name in order:
        for consumer in consumers[name]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                order.append(consumer)
    if len(order) != len(graph):
        stuck = next(name for name, count in waiting.items() if count > 0)
        raise BadInput(f"the recorded graph has a cycle through {stuck!r}; is it made of several steps?")
    return order


def match_variables(
    graph: dict[str, RecordedNode], ops: dict[str, tuple[str, ...]]
) -> tuple[list[str], dict[str, int]]:
    """Names of variables, and for each transfer or update op the index of its variable."""
    variables: dict[str, int] = {}
    of: dict[str, int] = {}

    def variable_above(name: str) -> str | None:
        """Name of the variable that a transfer or update op reads, found by following its inputs."""
        todo, seen = [name], {name}
        for at in todo:
            node = graph[at]
            if node.op in VARIABLES:
                return at
            if at == name or node.op in STRUCTURAL:
                fresh = dict.fromkeys(dep for dep in node.inputs if dep in graph and not graph[dep].edge)
                todo += [dep for dep in fresh if dep not in seen]
                seen.update(fresh)
        return None

    for name in ops:
        node = graph[name]
        if node.edge or is_server(node.device):
            result = variable_above(name)
            if result is not None:
                of[name] = variables.setdefault(result, len(variables))
    for name, deps in ops.items():
        if name in of and not graph[name].edge:
            for dep in deps:
                if graph[dep].edge and dep not in of:
                    of[dep] = of[name]
    return list(variables), of


def restore_lost_transfers(
    graph: dict[str, RecordedNode], transfers: dict[str, RecordedTransfer]
) -> list[str]:
    """Adds transfers that were not recorded, sized as others of the same variable; returns their names."""
    lost = [name for name, node in graph.items() if node.edge and name not in transfers]
    if not lost:
        return []
    through: dict[str, tuple[str, ...]] = {}
    for name in topological_nodes(graph):  # the transfers that reach a node without an op in between
        node = graph[name]
        if node.edge:
            through[name] = (name,)
        else:
            direct = [t for dep in node.inputs if dep in through for t in through[dep]]
            through[name] = tuple(dict.fromkeys(direct)) if node.op in STRUCTURAL else ()
    updates = {
        name: tuple(t for dep in node.inputs if dep in through for t in through[dep])
        for name, node in graph.items()
        if not node.edge and node.op not in STRUCTURAL and is_server(node.device)
    }
    _, of = match_variables(graph, {**{name: () for name in graph if graph[name].edge}, **updates})
    size_of = {of[name]: transfer for name, transfer in transfers.items() if name in of and transfer.bytes}
    restored = []
    for name in lost:
        partner = size_of.get(of.get(name, -1))
        if partner is not None:
            transfers[name] = RecordedTransfer(
                partner.target, partner.source, partner.bytes, partner.rounded_bytes, None
            )
            restored.append(name)
    return restored
