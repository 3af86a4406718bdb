"""The graph of a step in the form that bounds need: longest paths, what lies before or after an op, and what
downloads in random order have delivered before it. Made once for all steps that differ in durations only.

Downloads in random order. Where nothing ranks them, all downloads of a step queue on their links at its
start, in an order that is random in every step. Let A be the k downloads of one server that an op v waits
for, directly or through others. The last of them has each of the server's other downloads before it with
probability k / (k + 1), so that the link has delivered, in the mean, at least

    X(A) = bytes of A + k / (k + 1) * bytes of the others

before v can start. Streams cut by a window send all first pieces before any rest: the same holds for first
pieces among each other and for rests among each other. After that v and its descendants must be computed,
one op at a time, and something follows the last of them; where all uploads wait for some of these ops, those
are computed, then everything is uploaded:

    E[step] >= X(A(v)) / rate + max(work after v + tail, work between v and uploads + uploads + tail)

for every v. It is no bound on a single step, which may be lucky, and none for policies that rank downloads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.memoize import memoize
from planner.simulator.policy import Fifo, Multiplexed, Policy
from planner.simulator.step import DOWNLINK, UPLINK, WORKER, Profile

Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]
OP_BYTES = 500  # of an op in a graph: its name, its place, what it waits for and what waits for it
MOST_RELEASES = 24  # ops v that are looked at; each gives a bound of its own


class Use(NamedTuple):
    """Resource, channel and scope that an op uses (scope -1: the op is not joint)."""

    resource: int
    channel: int
    scope: int

    @property
    def is_transfer(self) -> bool:
        """Whether the op is a transfer."""
        return self.resource in (DOWNLINK, UPLINK)


@dataclass(frozen=True, eq=False)
class DownloadWaits:
    """Worker ops that wait for downloads in random order, and what surrounds them. `delivered_bytes`: mean
    bytes that each server delivers before such an op starts. `follow`: the worker ops after it;
    `precede_uploads`: those of them that every upload waits for."""

    delivered_bytes: Floats  # ops x servers
    follow: Floats  # ops x worker's ops, 0 or 1
    precede_uploads: Floats  # likewise

    def work_s(self, durations_s: Floats) -> Floats:
        """Seconds of worker ops after each waiting op: of all, and of those before every upload."""
        which = np.stack([self.follow, self.precede_uploads])
        return np.asarray(np.einsum("kvo,os->kvs", which, durations_s))  # too small for the threads of @


class OpGraph:
    """Ops of a step, with their uses and dependencies, for profiles that differ in durations only."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile  # one of them, with one step of its durations
        self.order: list[int] = profile.topological_order().tolist()
        self.deps = _index_lists(profile.dep_start, profile.dep_index)
        self.dependents = _index_lists(*profile.dependents())
        table = np.stack([profile.resource, profile.server, profile.scope], axis=1)
        rows, use_of_op = np.unique(table, axis=0, return_inverse=True)
        self.uses = tuple(Use(*map(int, row)) for row in rows)  # distinct, sorted
        self.use_of_op: Ints = np.asarray(use_of_op, np.intp).reshape(-1)
        self.ops_by_use = [np.flatnonzero(self.use_of_op == at) for at in range(len(self.uses))]
        sizes = np.bincount(self.use_of_op, profile.bytes, len(self.uses))
        self.bytes_by_use: Floats = sizes.astype(np.float64)
        self.worker_ops: Ints = np.flatnonzero(profile.resource == WORKER)
        self.joint_ops: Ints = np.flatnonzero(profile.scope >= 0)
        self._download_waits: dict[int | None, DownloadWaits] = {}  # by window

    @cached_property
    def joint_work(self) -> tuple[Floats, Floats]:
        """Masks (0 or 1) of the worker ops that must run before and after each joint op."""
        own = _assign_bits(self.worker_ops)
        before, after = (
            _bit_rows((table[op] for op in self.joint_ops.tolist()), len(own)).astype(np.float64)
            for table in (self.ancestor_bits(own), self.descendant_bits(own))
        )
        return before, after

    def bytes_by_server(self, resource: int) -> Floats:
        """Bytes per step to or from each server, in one direction."""
        p, ops = self.profile, np.flatnonzero(self.profile.resource == resource)
        return np.bincount(p.server[ops], p.bytes[ops], p.servers).astype(np.float64)

    def heads_s(self, op_s: Floats) -> Floats:
        """Seconds of the longest path that ends just before each op; `op_s` has a row of seconds per op."""
        return _longest_path_before(self.order, self.deps, op_s)

    def tails_s(self, op_s: Floats) -> Floats:
        """Seconds of the longest path that starts just after each op; `op_s` has a row of seconds per op."""
        return _longest_path_before(self.order[::-1], self.dependents, op_s)

    def ancestor_bits(self, bit_by_op: Mapping[int, int]) -> list[int]:
        """Set of the ops before each op, itself included, as bits of `bit_by_op`."""
        return _accumulate_bits(self.order, self.deps, bit_by_op)

    def descendant_bits(self, bit_by_op: Mapping[int, int]) -> list[int]:
        """Set of the ops after each op, itself included, as bits of `bit_by_op`."""
        return _accumulate_bits(self.order[::-1], self.dependents, bit_by_op)

    def download_waits(self, profile: Profile, policy: Policy | None) -> DownloadWaits | None:
        """Waits of worker ops for downloads in random order; None if the order is fixed."""
        downloads = profile.resource == DOWNLINK
        joint = (profile.scope[downloads] >= 0).any()
        if joint or not downloads.any() or np.diff(profile.dep_start)[downloads].any():
            return None  # no downloads queue when a step starts
        if profile.order is not None or not isinstance(policy, Fifo | Multiplexed):
            return None
        window_bytes = policy.window_bytes if isinstance(policy, Multiplexed) else None
        if window_bytes not in self._download_waits:
            self._download_waits[window_bytes] = _compute_download_waits(self, window_bytes)
        return self._download_waits[window_bytes]


def _graph_key(profile: Profile) -> Hashable:
    """Cache key of a profile that ignores its durations."""
    p = profile
    columns = (p.dep_start, p.dep_index, p.resource, p.server, p.scope, p.bytes)
    return (profile.servers, *(column.tobytes() for column in columns))


@memoize(most_bytes=8 << 20, bytes_of=lambda graph: OP_BYTES * graph.profile.ops, key=_graph_key)
def graph_of(profile: Profile) -> OpGraph:
    """Op graph of a profile, shared by all profiles that differ in durations only."""
    once_s = profile.durations_s[:1].copy()  # the other tables are large, and the graph does not need them
    return OpGraph(replace(profile, durations_s=once_s, order=None, starts_s=None, recorded=None))


def _compute_download_waits(graph: OpGraph, window_bytes: int | None) -> DownloadWaits:
    """Waits of worker ops for downloads, as streams that are cut after `window_bytes`."""
    profile = graph.profile
    downloads, uploads = (np.flatnonzero(profile.resource == link) for link in (DOWNLINK, UPLINK))
    needs = graph.ancestor_bits(_assign_bits(downloads))
    chosen = _pick_waiting_ops(graph, needs)
    waited = _bit_rows((needs[op] for op in chosen), len(downloads))
    after = graph.descendant_bits(_assign_bits(graph.worker_ops))
    follow = _bit_rows((after[op] for op in chosen), len(graph.worker_ops)).astype(np.float64)
    reach = graph.descendant_bits(_assign_bits(uploads))
    every = (1 << len(uploads)) - 1
    common = np.array([reach[op] == every for op in graph.worker_ops.tolist()], np.float64)

    sizes = profile.bytes[downloads].astype(np.float64)
    pieces = np.minimum(sizes, window_bytes or np.inf)
    rests = sizes - pieces
    delivered = np.zeros((len(chosen), profile.servers))
    for server in range(profile.servers):
        here = profile.server[downloads] == server
        large = here & (rests > 0)
        first = _mean_bytes_sent(waited[:, here], pieces[here])
        late = waited[:, large].any(axis=1)
        delivered[:, server] = np.where(late, pieces[here].sum(), first)
        delivered[:, server] += _mean_bytes_sent(waited[:, large], rests[large])
    return DownloadWaits(delivered, follow, follow * common)


def _pick_waiting_ops(graph: OpGraph, needs: list[int]) -> list[int]:
    """Worker ops to bound: the first op per number of needed downloads, for evenly spread numbers."""
    first: dict[int, int] = {}
    for op in graph.order:
        if graph.profile.resource[op] == WORKER and needs[op]:
            first.setdefault(needs[op].bit_count(), op)
    ops = [first[count] for count in sorted(first)]
    picks = np.linspace(0, len(ops) - 1, min(MOST_RELEASES, len(ops))).round().astype(int)
    return [ops[at] for at in picks]


def _mean_bytes_sent(waited: Bits, sizes: Floats) -> Floats:
    """Mean bytes sent until the last awaited stream ends, over all random orders of the streams."""
    count, own = waited.sum(axis=1), waited @ sizes
    return np.asarray(own + count / (count + 1.0) * (sizes.sum() - own))


def _assign_bits(ops: Ints) -> dict[int, int]:
    """Bit that stands for each op in sets of ops, by index of the op."""
    return {op: 1 << at for at, op in enumerate(ops.tolist())}


def _bit_rows(sets: Iterable[int], width: int) -> Bits:
    """Sets of ops, given as bits, as rows of a boolean matrix."""
    size = -(-width // 8)
    packed = [bits.to_bytes(size, "little") for bits in sets]
    table = np.frombuffer(b"".join(packed), np.uint8).reshape(len(packed), size)
    return np.unpackbits(table, axis=1, count=width, bitorder="little").astype(np.bool_)


def _index_lists(start: npt.NDArray[np.int32], index: npt.NDArray[np.int32]) -> list[list[int]]:
    """Rows of a compressed sparse table (CSR), as lists of indices."""
    starts, flat = start.tolist(), index.tolist()
    return [flat[a:b] for a, b in pairwise(starts)]


def _longest_path_before(order: Sequence[int], before: Sequence[Sequence[int]], op_s: Floats) -> Floats:
    """Length of the longest path that ends just before each op; `order` lists dependencies first."""
    ends = op_s.copy()
    rows = list(ends)  # views, made once: indexing would take as long as adding
    for op in order:
        waits = before[op]
        if waits:
            last = rows[waits[0]]
            for other in waits[1:]:
                last = np.maximum(last, rows[other])
            rows[op] += last
    return ends - op_s


def _accumulate_bits(
    order: Iterable[int], before: Sequence[Sequence[int]], bit_by_op: Mapping[int, int]
) -> list[int]:
    """Set of each op and all ops before it, as bits of `bit_by_op`; `order` lists dependencies first."""
    out = [0] * len(before)
    for op in order:
        bits = bit_by_op.get(op, 0)
        for other in before[op]:
            bits |= out[other]
        out[op] = bits
    return out
