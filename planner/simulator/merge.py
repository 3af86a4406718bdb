"""Merging chains of computation, only where the simulator could not tell.

Two worker ops a -> b become one of the summed duration if nothing else follows a, nothing else precedes b,
and every other worker op comes before a or after b in the graph. The last condition matters: the worker runs
its queue first come first served, and with any op beside the chain, that op may run between a and b. (Merging
such chains as well moves results by 0.1 to 0.9%.) What changes is rounding: t + (x + y) for (t + x) + y.
"""

from __future__ import annotations

import numpy as np

from planner.profile import WORKER, Op, Profile


def merge_chains(profile: Profile) -> Profile:
    """The same profile with its pure chains of worker ops merged, named by the first op of each."""
    alone = _comparable_to_all(profile)
    start, _index = profile.dependents()
    head = list(range(profile.ops))  # the op that each op is merged into
    for op in profile.topological_order().tolist():
        deps = profile.deps(op)
        if not alone[op] or len(deps) != 1:
            continue
        before = int(deps[0])
        if alone[before] and start[before + 1] - start[before] == 1:
            head[op] = head[before]
    kept = [op for op in range(profile.ops) if head[op] == op]
    if len(kept) == profile.ops:
        return profile
    place = {op: i for i, op in enumerate(kept)}
    ops = [
        Op(
            profile.names[op],
            int(profile.resource[op]),
            int(profile.server[op]),
            int(profile.bytes[op]),
            tuple(place[head[dep]] for dep in profile.deps(op).tolist()),
            int(profile.tensor[op]),
        )
        for op in kept
    ]
    durations = np.zeros((profile.steps, len(kept)))
    for op in profile.topological_order().tolist():
        durations[:, place[head[op]]] += profile.durations_s[:, op]
    return Profile.build(
        ops,
        durations,
        model=profile.model,
        batch=profile.batch,
        servers=profile.servers,
        tensors=profile.tensors,
        order=None if profile.order is None else profile.order[:, kept],
        hardware=profile.hardware,
        bandwidth_bytes_per_s=profile.bandwidth_bytes_per_s,
        basis=profile.basis,
        source=profile.source,
        notes=profile.notes,
    )


def _comparable_to_all(profile: Profile) -> list[bool]:
    """Worker ops that come before or after every other worker op. Sets of ops are bits of an integer."""
    order = profile.topological_order().tolist()
    start, index = profile.dependents()
    on_worker = (profile.resource == WORKER).tolist()
    before, after = [0] * profile.ops, [0] * profile.ops
    for op in order:
        for dep in profile.deps(op).tolist():
            before[op] |= before[dep] | (on_worker[dep] << dep)
    for op in reversed(order):
        for dependent in index[start[op] : start[op + 1]].tolist():
            after[op] |= after[dependent] | (on_worker[dependent] << dependent)
    others = sum(on_worker) - 1
    return [
        on_worker[op] and before[op].bit_count() + after[op].bit_count() == others
        for op in range(profile.ops)
    ]
