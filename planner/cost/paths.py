"""The graph of a step in the form that bounds need: orders, neighbours, longest paths, what lies before or
after an op. Made once for all profiles with the same graph, whatever their durations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from planner.step import Profile

Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PathGraph:
    """Ops, what they use and what they wait for, of one or many profiles."""

    profile: Profile  # one of them

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
    return _graph(_Key((profile.servers, *(array.tobytes() for array in shape)), profile))


class _Key:
    """Tells graphs apart by content and carries a profile to make one from."""

    def __init__(self, content: tuple[object, ...], profile: Profile) -> None:
        self.content = content
        self.profile = profile

    def __hash__(self) -> int:
        return hash(self.content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.content == other.content


@lru_cache(maxsize=64)
def _graph(key: _Key) -> PathGraph:
    return PathGraph(key.profile)


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
