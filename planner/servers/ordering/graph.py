"""A step as an ordering strategy sees it: which computation waits for which downloads.

Sets of downloads are Python integers used as bit sets: bit k is the k-th download *in order of consumption*,
so that "the lowest bit" is the documented tie-break of every strategy here.

Order of consumption: a worker that had all parameters would start its ops by depth (number of worker ops
before them), then by index; a download comes where its first consumer comes, then by its own index.
A parse op (by its role, waiting for one download only) belongs to its transfer: it is neither a
consumer nor work that another order could hide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import BadInput
from planner.simulator.step import Profile
from planner.simulator.step._profile import DOWNLINK, HOST, UPLINK, WORKER


def bits(value: int) -> Iterator[int]:
    """The positions of the bits of a set, lowest first."""
    while value:
        low = value & -value
        yield low.bit_length() - 1
        value ^= low


def dependents_of(profile: Profile) -> list[list[int]]:
    """For each op the ops that wait for it."""
    start, index = profile.dependents()
    return [index[start[op] : start[op + 1]].tolist() for op in range(profile.ops)]


@dataclass(frozen=True)
class StepGraph:
    """The downloads of a profile in order of consumption, and what each op needs of them."""

    profile: Profile
    pulls: tuple[int, ...]  # op of bit k
    needs: tuple[int, ...]  # for each op the set of downloads it waits for, direct or not
    parses: frozenset[int]  # ops that parse a download

    @staticmethod
    def of(profile: Profile) -> StepGraph:
        resource = profile.resource.tolist()
        dependents = dependents_of(profile)
        topological = profile.topological_order().tolist()
        parses = parse_ops(profile)

        depth = [0] * profile.ops
        for op in topological:
            own = int(resource[op] == WORKER and op not in parses)
            for dependent in dependents[op]:
                depth[dependent] = max(depth[dependent], depth[op] + own)

        def consumed(pull: int) -> tuple[int, int, int]:
            after = consumers_of(dependents, parses, pull)
            return min(((depth[op], op, pull) for op in after), default=(profile.ops, pull, pull))

        pulls = sorted((op for op in range(profile.ops) if resource[op] == DOWNLINK), key=consumed)
        if not pulls:
            raise BadInput(f"profile {profile.model!r} has no download to order")
        needs = [0] * profile.ops
        for bit, op in enumerate(pulls):
            needs[op] = 1 << bit
        for op in topological:
            for dependent in dependents[op]:
                needs[dependent] |= needs[op]
        return StepGraph(profile, tuple(pulls), tuple(needs), parses)

    def computation(self) -> list[int]:
        """The worker ops that wait for a download, parsing aside."""
        worker = np.flatnonzero(self.profile.resource == WORKER).tolist()
        return [op for op in worker if self.needs[op] and op not in self.parses]


def parse_ops(profile: Profile) -> frozenset[int]:
    """Ops of the worker or of its host that only parse a download."""
    return frozenset(
        op
        for op in np.flatnonzero(profile.parses).tolist()
        if profile.resource[op] in (WORKER, HOST)
        and len(profile.deps(op)) == 1
        and profile.resource[profile.deps(op)[0]] == DOWNLINK
    )


def consumers_of(dependents: list[list[int]], parses: frozenset[int], pull: int) -> list[int]:
    """The ops that wait for a download, looking through its parsing."""
    out = []
    for op in dependents[pull]:
        out += dependents[op] if op in parses else [op]
    return out


def with_pushes(profile: Profile, pulls: list[int], ranks: Sequence[float] | None = None) -> dict[str, float]:
    """Priorities of downloads in this order (or with these ranks), and of each upload as of its tensor's
    download: the gradient that the next step needs first goes first. Uploads of no downloaded tensor come
    last, in order of index."""
    rank = dict(zip(pulls, ranks if ranks is not None else range(len(pulls)), strict=True))
    of_tensor = {int(profile.tensor[op]): r for op, r in rank.items() if profile.tensor[op] >= 0}
    out = {profile.names[op]: float(r) for op, r in rank.items()}
    last = max(rank.values(), default=0) + 1
    for op in np.flatnonzero(profile.resource == UPLINK).tolist():
        out[profile.names[op]] = float(of_tensor.get(int(profile.tensor[op]), last))
    return out
