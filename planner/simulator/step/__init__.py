"""The step: what one worker does in a training step, as the simulator runs it; its files and its summary.

A `Profile` is a graph of ops and a table of durations (steps x ops), as arrays the engine reads. It knows no
model and no plan: it imports nouns and files only.

Op i uses one resource: `downlink[s]`, `worker`, `uplink[s]`, `ps[s]` or `host` with s = `server[i]` (-1 for
worker and host), the number of a channel: channels go to the parameter servers, those beyond them wherever
the cluster says. `worker` is what computes, the accelerator; `host` is the processor beside it, which parses
and serialises messages: what waits for the tensor waits for that, the accelerator goes on. Transfers have
bytes and their duration follows from bandwidth; the durations table holds what was recorded for them (or
zero) but the simulator does not read it. `tensor[i]` tells which parameter tensor a transfer or an update
belongs to (-1: none), which is what synchronous training needs to join updates and downloads. `order[k, i]`
ranks the ops in step k by when their transfer was requested: ops that become ready at the same instant queue
in this order. No `order` (None) means that it is random in every step. `starts_s[k, i]`, where recorded, is
when op i started after the start of step k (for a transfer: when it was requested).

`scope[i]` >= 0 makes op i a joint op: the group of workers that the cluster has in that scope does it
together. It starts when it is ready at every member, runs once, on the lane of the group's leader, and ends
for all. `latency_s[i]` is a time that every chunk of a transfer takes before its bytes flow, besides the
policy's overhead (a block of transfers: that of its first). `role[i]` is an `OpRole`: what waits for an op
that parses waits for the transfer before it. `parts[i]` are the shares of op i's seconds by role, where it
merges ops of several. `layer[i]` is the layer of the model that op i is of (-1: none).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.memoize import memoize
from planner.simulator.cluster import Resource, ResourceKind

if TYPE_CHECKING:
    from planner.simulator.step.recorded import Recorded

DOWNLINK, WORKER, UPLINK, PS, HOST = 0, 1, 2, 3, 4


class OpRole(IntEnum):
    """Purpose of an op, by which step breakdowns add up a worker's seconds."""

    FORWARD = 0
    BACKWARD = 1
    OTHER = 2
    PARSE = 3  # it only turns a message into a tensor
    OPTIMIZER = 4  # a worker updates parameters itself, though the step gives that to a server
    RECOMPUTE = 5  # a forward pass again, for activations that were not kept
    COMMUNICATION = 6  # transfers; on a worker: it waits for them, or is slowed down by them
    BUBBLE = 7  # a worker waits for other pipeline stages
    INPUT = 8  # a worker waits for training data


RESOURCE_KINDS = tuple(map(ResourceKind, ("downlink", "worker", "uplink", "ps", "host")))  # by code
MAX_STEP_BYTES = 2**53  # transferred in one step: beyond it sums of bytes are no longer exact
_ABOUT = (  # what a step says of all its ops together
    "model", "batch", "servers", "tensors", "hardware", "bandwidth_bytes_per_s", "basis", "source", "notes",
    "layers", "buckets",
)  # fmt: skip
RoleShares = tuple[tuple[OpRole, float], ...]  # of an op's seconds; none: all are of the op's own role
MAX_STEP_S = 1e9  # of all ops of a step together: thirty years are a slip of the unit


@dataclass(frozen=True, slots=True)
class Op:
    """One op of a step, for building and reading profiles."""

    name: str
    resource: int
    server: int = -1
    bytes: int = 0
    deps: tuple[int, ...] = ()
    tensor: int = -1
    scope: int = -1
    latency_s: float = 0.0
    role: int = OpRole.OTHER
    layer: int = -1
    parts: RoleShares = ()


def resource_of(code: int, server: int) -> Resource:
    """Resource with this code (`WORKER`, `UPLINK`, ...) and server number."""
    return Resource(RESOURCE_KINDS[code], None if server < 0 else server)


COLUMNS = {  # of a profile, with a value for each op
    **{"resource": np.uint8, "server": np.int32, "bytes": np.int64, "tensor": np.int32},
    **{"scope": np.int32, "latency_s": np.float64, "role": np.uint8, "layer": np.int32},
}


def _read_only(values: Any, dtype: Any) -> npt.NDArray[Any]:
    """Contiguous array of the values that cannot be written to."""
    array = np.ascontiguousarray(values, dtype=dtype)
    array.flags.writeable = False
    return array


def dependency_arrays(deps: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Dependencies of each op as CSR arrays: op i waits for index[start[i]:start[i + 1]]."""
    start = np.cumsum([0, *map(len, deps)])
    return _read_only(start, np.int32), _read_only(list(chain.from_iterable(deps)), np.int32)


def _steps_by_ops(values: npt.ArrayLike, dtype: Any) -> npt.NDArray[Any]:
    """Read-only table of steps x ops, from one row or many."""
    return _read_only(np.atleast_2d(np.asarray(values, np.float64 if dtype is np.float64 else None)), dtype)


@dataclass(frozen=True, eq=False)
class Profile:
    """Training step of one worker, for one (model, batch, hardware). Build it with `Profile.build`."""

    model: str
    batch: int
    servers: int  # channels of a worker; a file calls them servers
    names: tuple[str, ...]
    resource: npt.NDArray[np.uint8]
    server: npt.NDArray[np.int32]
    bytes: npt.NDArray[np.int64]
    dep_start: npt.NDArray[np.int32]  # op i depends on dep_index[dep_start[i]:dep_start[i + 1]]
    dep_index: npt.NDArray[np.int32]
    tensor: npt.NDArray[np.int32]
    tensors: tuple[str, ...]
    scope: npt.NDArray[np.int32]  # -1: each worker does the op for itself
    latency_s: npt.NDArray[np.float64]
    role: npt.NDArray[np.uint8]
    layer: npt.NDArray[np.int32]
    durations_s: npt.NDArray[np.float64]  # steps x ops
    order: npt.NDArray[np.int32] | None = None  # steps x ops
    starts_s: npt.NDArray[np.float64] | None = None  # steps x ops
    hardware: str = ""
    bandwidth_bytes_per_s: float | None = None  # while it was recorded
    basis: str = "measured"
    source: str = ""
    notes: tuple[str, ...] = field(default=())
    recorded: Recorded | None = None  # what the recording knows beside its times
    layers: tuple[str, ...] = ()  # names; the column `layer` has indices
    buckets: bool = False  # its tensors are buckets of gradients, as they were recorded
    parts: Mapping[int, RoleShares] = field(default_factory=dict)

    @staticmethod
    def build(
        ops: Sequence[Op],
        durations_s: npt.ArrayLike,
        *,
        model: str,
        batch: int,
        servers: int = 1,
        tensors: Sequence[str] = (),
        order: npt.ArrayLike | None = None,
        starts_s: npt.ArrayLike | None = None,
        **about: Any,
    ) -> Profile:
        """Builds a profile from a list of ops and their durations in seconds (one row per step)."""
        wrong = next((op for op in ops if op.bytes < 0), None)
        if wrong is not None:
            raise BadInput(f"op {wrong.name!r} has {wrong.bytes} bytes; a size is not negative")
        if sum(op.bytes for op in ops) > MAX_STEP_BYTES:
            largest = max(ops, key=lambda op: op.bytes)
            raise BadInput(
                f"the transfers of a step hold more than 2**53 bytes, {largest.name!r} alone {largest.bytes}"
            )
        dep_start, dep_index = dependency_arrays([op.deps for op in ops])
        columns: dict[str, Any] = {
            name: _read_only(list(map(attrgetter(name), ops)), dtype) for name, dtype in COLUMNS.items()
        }
        return Profile(
            model=model,
            batch=batch,
            servers=servers,
            names=tuple(op.name for op in ops),
            dep_start=dep_start,
            dep_index=dep_index,
            tensors=tuple(tensors),
            durations_s=_steps_by_ops(durations_s, np.float64),
            order=None if order is None else _steps_by_ops(order, np.int32),
            starts_s=None if starts_s is None else _steps_by_ops(starts_s, np.float64),
            parts={index: op.parts for index, op in enumerate(ops) if op.parts},
            **columns,
            **about,
        )

    def with_ops(self, ops: Sequence[Op], durations_s: npt.ArrayLike, **changes: Any) -> Profile:
        """Copy of the profile with other ops and durations; `changes` replaces further arrays by op."""
        about = {name: getattr(self, name) for name in _ABOUT}
        return Profile.build(ops, durations_s, **(about | changes))

    def __post_init__(self) -> None:
        n = len(self.names)
        if n == 0:
            raise BadInput("a profile needs at least one op")
        if self.batch < 1 or self.servers < 0:
            raise BadInput(
                f"a profile needs a batch of at least 1 and servers of at least 0, not {self.batch} and "
                f"{self.servers}"
            )
        shape = self.durations_s.shape
        if len(shape) != 2 or shape[1] != n or shape[0] < 1:
            raise BadInput(f"durations are {shape}; they must be steps x {n} ops")
        for name in COLUMNS:
            if len(getattr(self, name)) != n:
                raise BadInput(f"{name} has {len(getattr(self, name))} entries for {n} ops")
        for name, table in (("order is", self.order), ("starts are", self.starts_s)):
            if table is not None and table.shape != shape:
                raise BadInput(f"{name} {table.shape}; it must be {shape} as the durations")
        start = self.dep_start
        if len(start) != n + 1 or start[0] != 0 or start[-1] != len(self.dep_index):
            raise BadInput(
                f"dep_start must have {n + 1} entries that begin with 0 and end with all dependencies"
            )
        if (np.diff(start) < 0).any():
            raise BadInput("dep_start must not decrease")
        if len(set(self.names)) != n:
            twice = Counter(self.names).most_common(1)[0][0]
            raise BadInput(f"op {twice!r} stands twice in the profile; names must be unique")
        bad = ~np.isfinite(self.durations_s) | (self.durations_s < 0)
        if bad.any():
            step, op = np.argwhere(bad)[0]
            raise BadInput(f"op {self.names[op]!r} lasts {self.durations_s[step, op]} s in step {step}")
        longest_s = self.durations_s.sum(axis=1).max()
        if longest_s > MAX_STEP_S:
            raise BadInput(
                f"the ops of a step last {longest_s:.3g} s together; are the durations really in seconds?"
            )
        transfers, latency_s = self.is_transfer, self.latency_s
        on_server = (self.resource != WORKER) & (self.resource != HOST)
        for wrong, words in (
            (self.resource > HOST, "uses an unknown resource"),
            (
                on_server & ((self.server < 0) | (self.server >= self.servers)),
                f"is on server {{server}} of {self.servers}",
            ),
            (
                transfers & (self.bytes <= 0),
                "has {bytes} bytes; a transfer needs at least one",
            ),
            (
                (self.scope >= 0) & (self.resource == WORKER),
                "is computation and has a scope; only ops on a link, a server or a host can be joint",
            ),
            (
                ~np.isfinite(latency_s) | (latency_s < 0) | ((latency_s > 0) & ~transfers),
                "has a latency of {latency_s} s; only a transfer has one, finite and not negative",
            ),
        ):
            if wrong.any():
                op = int(np.argmax(wrong))
                figures = {name: getattr(self, name)[op] for name in COLUMNS}
                raise BadInput(f"op {self.names[op]!r} " + words.format(**figures))
        if len(self.dep_index) and not (self.dep_index.min() >= 0 and self.dep_index.max() < n):
            raise BadInput("a dependency points outside the profile")
        if self.starts_s is not None and not (np.isfinite(self.starts_s) & (self.starts_s >= 0)).all():
            raise BadInput("the start of an op is not a finite time after the start of its step")
        if len(self.tensor) and int(self.tensor.max()) >= len(self.tensors) > 0:
            raise BadInput(f"an op belongs to tensor {self.tensor.max()} of {len(self.tensors)}")
        self.topological_order()

    @property
    def ops(self) -> int:
        """Number of ops."""
        return len(self.names)

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return int(self.durations_s.shape[0])

    @property
    def is_transfer(self) -> npt.NDArray[np.bool_]:
        """Mask of the ops on a downlink or an uplink."""
        return np.asarray((self.resource == DOWNLINK) | (self.resource == UPLINK), np.bool_)

    @property
    def is_parsing(self) -> npt.NDArray[np.bool_]:
        """Mask of the ops that only parse a message into a tensor."""
        return np.asarray(self.role == OpRole.PARSE, np.bool_)

    def parsing_ops(self) -> frozenset[int]:
        """Ops on a worker or its host that do nothing but parse one download."""
        candidates = np.flatnonzero(self.is_parsing & np.isin(self.resource, (WORKER, HOST))).tolist()
        return frozenset(op for op in candidates if self.resource[self.deps(op)].tolist() == [DOWNLINK])

    def op(self, index: int) -> Op:
        """Op with this index, as an `Op` value."""
        columns = {name: getattr(self, name)[index].item() for name in COLUMNS}
        deps = tuple(self.deps(index).tolist())
        return Op(self.names[index], deps=deps, parts=self.parts.get(index, ()), **columns)

    def worker_s_by_role(self) -> dict[OpRole, float]:
        """Mean seconds per step of the worker's ops, by their purpose."""
        seconds = dict.fromkeys(OpRole, 0.0)
        mean_s = self.durations_s.mean(axis=0).tolist()
        for op in np.flatnonzero(self.resource == WORKER).tolist():
            for role, share in self.parts.get(op) or ((OpRole(self.role[op]), 1.0),):
                seconds[role] += share * mean_s[op]
        return seconds

    def deps(self, op: int) -> npt.NDArray[np.int32]:
        """Indices of the ops that an op waits for."""
        return self.dep_index[self.dep_start[op] : self.dep_start[op + 1]]

    def dependents(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Ops that depend on each op, as CSR arrays (start, index) in ascending order."""
        return _reversed_edges(self.dep_start, self.dep_index)

    def topological_order(self) -> npt.NDArray[np.int32]:
        """Indices of all ops, dependencies first; the lowest index goes first (Kahn's algorithm)."""
        order = _topological_order(self.dep_start.tobytes(), self.dep_index.tobytes())
        if len(order) != self.ops:
            stuck = self.names[min(set(range(self.ops)) - set(order.tolist()))]
            raise BadInput(f"the ops of the profile wait for each other in a cycle through {stuck!r}")
        return order


@memoize
def _topological_order(dep_start: bytes, dep_index: bytes) -> npt.NDArray[np.int32]:
    """Topological order, cached, as many profiles differ in durations only. Ops in or after a cycle are
    missing."""
    dep_starts, deps = np.frombuffer(dep_start, np.int32), np.frombuffer(dep_index, np.int32)
    waiting: list[int] = np.diff(dep_starts).tolist()
    starts, index = (array.tolist() for array in _reversed_edges(dep_starts, deps))
    wave = [op for op, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while wave:
        order += wave
        ready: list[int] = []
        for op in wave:
            for dependent in index[starts[op] : starts[op + 1]]:
                waiting[dependent] -= 1
                if waiting[dependent] == 0:
                    ready.append(dependent)
        wave = sorted(ready)
    return _read_only(order, np.int32)


def _reversed_edges(
    dep_start: npt.NDArray[np.int32], dep_index: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Ops that depend on each op, as CSR arrays (start, index)."""
    n = len(dep_start) - 1
    consumer = np.repeat(np.arange(n, dtype=np.int32), np.diff(dep_start))
    by_producer = np.argsort(dep_index, kind="stable")
    start = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(dep_index, minlength=n), out=start[1:])
    return start, consumer[by_producer]
