"""The graph of a step in the form that bounds need: orders, neighbours, longest paths, what lies before or
after an op. Made once for all profiles with the same graph, whatever their durations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from planner.files.byte_cache import ByteCache
from planner.simulator.step import Profile

Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]
OP_BYTES = 500  # of an op in a graph: its name, its place, what it waits for and what waits for it


@dataclass(frozen=True, eq=False)
class PathGraph:
    """Ops, what they use and what they wait for, of one or many profiles."""

    profile: Profile  # one of them, with one step of its durations

    @cached_property
    def order(self) -> list[int]:
        return [int(op) for op in self.profile.topological_order()]

    @cached_property
    def deps(self) -> list[list[int]]:
        p = self.profile
        return _lists(p.dep_start, p.dep_index)

    @cached_property
    def dependents(self) -> list[list[int]]:
        return _lists(*self.profile.dependents())

    def on(self, resource: int, server: int | None = None) -> npt.NDArray[np.intp]:
        """The ops of a resource."""
        p = self.profile
        mask = p.resource == resource
        if server is not None:
            mask = mask & (p.server == server)
        return np.flatnonzero(mask)

    def bytes_by_server(self, resource: int) -> Floats:
        """Bytes of a direction in a step."""
        p, ops = self.profile, self.on(resource)
        return np.bincount(p.server[ops], p.bytes[ops], p.servers).astype(np.float64)

    def heads_s(self, cost: Floats) -> Floats:
        """The longest path that ends just before each op; `cost` is ops x any."""
        return _longest_before(self.order, self.deps, cost)

    def tails_s(self, cost: Floats) -> Floats:
        """The longest path that begins just after each op."""
        return _longest_before(self.order[::-1], self.dependents, cost)

    def before(self, own: Mapping[int, int]) -> list[int]:
        """For each op the union of what it and everything before it owns, as bits of whole numbers."""
        return _gathered(self.order, self.deps, own)

    def after(self, own: Mapping[int, int]) -> list[int]:
        """For each op the union of what it and everything after it owns."""
        return _gathered(self.order[::-1], self.dependents, own)


def graph_of(profile: Profile) -> PathGraph:
    """The graph of a profile; the same object for profiles that differ in durations only."""
    shape = (profile.dep_start, profile.dep_index, profile.resource, profile.server, profile.bytes)
    key = (profile.servers, *(array.tobytes() for array in shape))
    return _GRAPHS.get(key, lambda: PathGraph(_brief(profile)))


def structure_of(profile: Profile) -> PathGraph:
    """The same, one object for all steps that differ in what their ops take and use."""
    key = (profile.dep_start.tobytes(), profile.dep_index.tobytes())
    return _GRAPHS.get(key, lambda: PathGraph(_brief(profile)))


def _brief(profile: Profile) -> Profile:
    """The profile without what takes most of its memory and no graph depends on."""
    return replace(
        profile, durations_s=profile.durations_s[:1].copy(), order=None, starts_s=None, recorded=None
    )


_GRAPHS: ByteCache[PathGraph] = ByteCache(8 << 20, lambda graph: OP_BYTES * graph.profile.ops)


def bit_rows(sets: Iterable[int], width: int) -> Bits:
    """Sets given as bits of whole numbers, as the rows of a matrix."""
    size = -(-width // 8)
    packed = b"".join(bits.to_bytes(size, "little") for bits in sets)
    table = np.frombuffer(packed, np.uint8).reshape(-1, size)
    return np.unpackbits(table, axis=1, count=width, bitorder="little").astype(np.bool_)


def _lists(start: npt.NDArray[np.int32], index: npt.NDArray[np.int32]) -> list[list[int]]:
    starts, flat = start.tolist(), index.tolist()
    return [flat[a:b] for a, b in pairwise(starts)]


def _longest_before(order: Sequence[int], before: Sequence[Sequence[int]], cost: Floats) -> Floats:
    """The longest path that ends just before each op; `order` puts what an op waits for first."""
    ends = cost.copy()
    rows = list(ends)  # views, made once: indexing would take as long as adding
    for op in order:
        waits = before[op]
        if waits:
            last = rows[waits[0]]
            for other in waits[1:]:
                last = np.maximum(last, rows[other])
            rows[op] += last
    return ends - cost


def _gathered(order: Iterable[int], before: Sequence[Sequence[int]], own: Mapping[int, int]) -> list[int]:
    out = [0] * len(before)
    for op in order:
        bits = own.get(op, 0)
        for other in before[op]:
            bits |= out[other]
        out[op] = bits
    return out
