"""A step as an ordering strategy sees it: which computation waits for which downloads.

Sets of downloads are Python integers used as bit sets: bit k is the k-th download *in order of consumption*,
so that "the lowest bit" is the documented tie-break of every strategy here.

Order of consumption: a worker that had all parameters would start its ops by depth (number of worker ops
before them), then by index; a download comes where its first consumer comes, then by its own index.
A parse op (by its role, waiting for one download only) belongs to its transfer: it is neither a
consumer nor work that another order could hide.

`pipeline_step` turns a step around for frameworks without a barrier between steps. TensorFlow starts a step
when the last one is over: downloads, forward, backward, uploads. MXNet and BytePS pull a tensor as soon as it
is updated, so the next forward pass overlaps with uploads that are not urgent; that overlap is what P3,
ByteScheduler and Prophet are for. The same ops in another order,

    backward -> up(t) -> update(t) -> down(t) -> forward,

where forward waits for the end of backward, and the step ends when forward does (Prophet, equation 1: an
iteration is backward, waiting, forward). Nothing is lost at the step's end: backward needs all of forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import BadInput
from planner.servers.placement import replace_deps
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Profile


def bit_positions(value: int) -> Iterator[int]:
    """Positions of the 1 bits of an integer, lowest first."""
    while value:
        low = value & -value
        yield low.bit_length() - 1
        value ^= low


def dependents_by_op(profile: Profile) -> list[list[int]]:
    """Ops that depend on each op, as lists of op indices."""
    start, index = profile.dependents()
    return [index[start[op] : start[op + 1]].tolist() for op in range(profile.ops)]


@dataclass(frozen=True)
class StepGraph:
    """Downloads of a profile in order of consumption, and the set of downloads that each op needs."""

    profile: Profile
    pulls: tuple[int, ...]  # op of bit k
    needs: tuple[int, ...]  # for each op the set of downloads it waits for, direct or not
    parses: frozenset[int]  # ops that parse a download

    @staticmethod
    def build(profile: Profile) -> StepGraph:
        """Graph of a profile: its downloads in order of consumption, and the downloads that each op needs."""
        resource = profile.resource.tolist()
        dependents = dependents_by_op(profile)
        topological = profile.topological_order().tolist()
        parses = profile.parsing_ops()

        depth = [0] * profile.ops
        for op in topological:
            own = int(resource[op] == WORKER and op not in parses)
            for dependent in dependents[op]:
                depth[dependent] = max(depth[dependent], depth[op] + own)

        def consumption_key(pull: int) -> tuple[int, int, int]:
            """Sort key of a download: depth in the graph, then index, of the first op that consumes it."""
            after = download_consumers(dependents, parses, pull)
            return min(((depth[op], op, pull) for op in after), default=(profile.ops, pull, pull))

        pulls = sorted((op for op in range(profile.ops) if resource[op] == DOWNLINK), key=consumption_key)
        if not pulls:
            raise BadInput(f"profile {profile.model!r} has no download to order")
        needs = [0] * profile.ops
        for bit, op in enumerate(pulls):
            needs[op] = 1 << bit
        for op in topological:
            for dependent in dependents[op]:
                needs[dependent] |= needs[op]
        return StepGraph(profile, tuple(pulls), tuple(needs), parses)

    def computation_ops(self) -> list[int]:
        """Worker ops that compute and wait for at least one download; parse ops are left out."""
        worker = np.flatnonzero(self.profile.resource == WORKER).tolist()
        return [op for op in worker if self.needs[op] and op not in self.parses]


def download_consumers(dependents: list[list[int]], parses: frozenset[int], pull: int) -> list[int]:
    """Ops that wait for a download, directly or through its parse op."""
    out = []
    for op in dependents[pull]:
        out += dependents[op] if op in parses else [op]
    return out


def transfer_priorities(
    profile: Profile, pulls: list[int], ranks: Sequence[float] | None = None
) -> dict[str, float]:
    """Priority of each transfer by name; an upload has the priority of its tensor's download.

    Downloads take their rank, or their position without `ranks`. Uploads of tensors that are not downloaded
    come last.
    """
    rank = dict(zip(pulls, ranks if ranks is not None else range(len(pulls)), strict=True))
    of_tensor = {int(profile.tensor[op]): r for op, r in rank.items() if profile.tensor[op] >= 0}
    out = {profile.names[op]: float(r) for op, r in rank.items()}
    last = max(rank.values(), default=0) + 1
    for op in np.flatnonzero(profile.resource == UPLINK).tolist():
        out[profile.names[op]] = float(of_tensor.get(int(profile.tensor[op]), last))
    return out


def pipeline_step(profile: Profile) -> Profile:
    """Copy of a step that runs backward first and downloads each tensor as soon as it is updated."""
    forward = forward_ops(profile)
    backward = {op for op in range(profile.ops) if profile.resource[op] == WORKER and op not in forward}
    uploads = set(np.flatnonzero(profile.resource == UPLINK).tolist())
    if not backward or not uploads:
        raise BadInput(
            f"profile {profile.model!r} has no backward pass with uploads; "
            "only training steps can be pipelined"
        )
    dependents = dependents_by_op(profile)
    backward_ends = [op for op in sorted(backward) if not backward.intersection(dependents[op])]
    updates = _update_ops(profile, dependents)
    deps: list[list[int]] = []
    for op in range(profile.ops):
        own = profile.deps(op).tolist()
        if profile.resource[op] == DOWNLINK:
            deps.append(sorted({*own, *updates.get(int(profile.tensor[op]), [])}))
        elif op in forward:
            first = not any(dep in forward for dep in own)
            deps.append(own + backward_ends * first)
        elif op in backward:  # the forward pass and the parameters it used belong to the step before
            deps.append([dep for dep in own if dep in backward])
        else:
            deps.append(own)
    return replace_deps(profile, deps)


def forward_ops(profile: Profile) -> set[int]:
    """Worker ops of the forward pass: parse ops, first consumers of each download, and their predecessors.
    Gradient ops may read parameters again; only the first read counts."""
    graph = StepGraph.build(profile)
    dependents = dependents_by_op(profile)
    depth = np.zeros(profile.ops, np.int64)
    for op in profile.topological_order().tolist():
        for dependent in dependents[op]:
            depth[dependent] = max(depth[dependent], depth[op] + 1)
    stack = list(graph.parses)
    for pull in graph.pulls:
        after = download_consumers(dependents, graph.parses, pull)
        stack += [min(after, key=lambda op: (depth[op], op))] if after else []
    present: set[int] = set()
    while stack:
        op = stack.pop()
        if op not in present and profile.resource[op] == WORKER:
            present.add(op)
            stack += profile.deps(op).tolist()
    return present


def _update_ops(profile: Profile, dependents: list[list[int]]) -> dict[int, list[int]]:
    """Last ops of each tensor's update, by tensor: its server ops, or uploads if it has no server ops."""
    out: dict[int, list[int]] = {}
    for resource in (PS, UPLINK):
        known = set(out)
        for op in np.flatnonzero((profile.resource == resource) & (profile.tensor >= 0)).tolist():
            tensor = int(profile.tensor[op])
            inner = any(
                profile.resource[d] == resource and profile.tensor[d] == tensor for d in dependents[op]
            )
            if tensor not in known and not inner:
                out.setdefault(tensor, []).append(op)
    return out
