"""A step seen from backward to forward, for frameworks without a barrier between steps.

TensorFlow starts a step when the last one is over: downloads, forward, backward, uploads. MXNet and BytePS
pull a tensor as soon as it is updated, so the next forward pass overlaps with uploads that are not urgent;
that overlap is what P3, ByteScheduler and Prophet are for. The same ops tell it in another order,

    backward -> up(t) -> update(t) -> down(t) -> forward,

where forward waits for the end of backward, and the step ends when forward does (file 003, equation 1: an
iteration is backward, waiting, forward). Nothing is lost at the step's end: backward needs all of forward.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.errors import BadInput
from planner.servers.ordering.graph import StepGraph, consumers_of, dependents_of
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Profile


def pipelined(profile: Profile) -> Profile:
    """The profile with backward first and each download after the update of its tensor."""
    forward = forward_ops(profile)
    backward = {op for op in range(profile.ops) if profile.resource[op] == WORKER and op not in forward}
    uploads = set(np.flatnonzero(profile.resource == UPLINK).tolist())
    if not backward or not uploads:
        raise BadInput(
            f"profile {profile.model!r} has no backward pass with uploads; "
            "only training steps can be pipelined"
        )
    dependents = dependents_of(profile)
    backward_ends = [op for op in sorted(backward) if not backward.intersection(dependents[op])]
    updates = _updates(profile, dependents)
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
    return with_deps(profile, deps)


def forward_ops(profile: Profile) -> set[int]:
    """Worker ops of the forward pass: those up to the first consumer of some download, and parsing.

    Gradients of a layer may read its parameters again; what counts is where they are read first.
    """
    graph = StepGraph.of(profile)
    dependents = dependents_of(profile)
    depth = np.zeros(profile.ops, np.int64)
    for op in profile.topological_order().tolist():
        for dependent in dependents[op]:
            depth[dependent] = max(depth[dependent], depth[op] + 1)
    stack = list(graph.parses)
    for pull in graph.pulls:
        after = consumers_of(dependents, graph.parses, pull)
        stack += [min(after, key=lambda op: (depth[op], op))] if after else []
    present: set[int] = set()
    while stack:
        op = stack.pop()
        if op not in present and profile.resource[op] == WORKER:
            present.add(op)
            stack += profile.deps(op).tolist()
    return present


def _updates(profile: Profile, dependents: list[list[int]]) -> dict[int, list[int]]:
    """For each tensor the ops that end its update: its last server ops, or its uploads if it has none."""
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


def with_deps(profile: Profile, deps: list[list[int]]) -> Profile:
    """The profile with other dependencies."""
    start = np.zeros(profile.ops + 1, np.int32)
    np.cumsum([len(d) for d in deps], out=start[1:])
    return replace(profile, dep_start=start, dep_index=np.array([d for ds in deps for d in ds], np.int32))
