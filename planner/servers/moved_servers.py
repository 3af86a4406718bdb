"""A profile moved to another number of servers: the same computation, its tensors placed by another rule.

One-worker profiles are recorded with one or two servers; a plan may have more. Transfers and updates of a
tensor move to the server that the rule gives it, and are cut where the rule splits the tensor: then whatever
waited for the whole waits for all its parts, and part k of a gradient is applied by update k.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.errors import BadInput
from planner.servers.placement import TensorPart, place
from planner.simulator.step._profile import DOWNLINK, PS, UPLINK, WORKER, Op, Profile


def on_servers(profile: Profile, servers: int, placement: str = "greedy") -> Profile:
    """The profile for so many servers; the same object where nothing would change."""
    if servers == 1 and profile.servers == 1:
        return profile
    if not profile.tensors:
        raise BadInput(
            "the profile does not say which tensor a transfer belongs to, so that it cannot be moved to "
            f"{servers} servers; record it with that many"
        )
    parts = _parts(profile, servers, placement)
    ops: list[Op] = []
    source: list[int] = []  # the op of the profile that each new op comes from
    share: list[float] = []
    pieces: list[list[int]] = []  # the new ops of each old one
    names: list[str] = []
    first_part = np.cumsum([0, *(len(part) for part in parts)])
    for tensor, entry in enumerate(parts):
        name = profile.tensors[tensor]
        names += [f"{name}/part{k}" for k in range(len(entry))] if len(entry) > 1 else [name]
    order = profile.topological_order().tolist()
    pieces = [[] for _ in range(profile.ops)]
    for op in order:
        whole = profile.op(op)
        tensor, resource = whole.tensor, whole.resource
        held = parts[tensor] if tensor >= 0 and resource != WORKER else [None]
        total = sum(part.bytes for part in held if part is not None) or 1
        sent = 0
        for k, part in enumerate(held):
            deps: list[int] = []
            for dep in whole.deps:
                same = len(held) > 1 and int(profile.tensor[dep]) == tensor and len(pieces[dep]) == len(held)
                deps += pieces[dep][k : k + 1] if same else pieces[dep]
            fraction = 1.0 if part is None else part.bytes / total
            size = whole.bytes
            if len(held) > 1 and size:
                size = size - sent if k == len(held) - 1 else max(1, round(size * fraction))
                sent += size
            pieces[op].append(len(ops))
            source.append(op)
            share.append(fraction)
            ops.append(
                replace(
                    whole,
                    name=whole.name + (f"/part{k}" if len(held) > 1 else ""),
                    server=_server(resource, part, whole.server, servers),
                    bytes=size,
                    deps=tuple(deps),
                    tensor=-1 if tensor < 0 else int(first_part[tensor]) + k,
                )
            )
    return profile.rebuilt(
        ops,
        profile.durations_s[:, source] * np.array(share),
        servers=servers,
        tensors=names,
        order=None if profile.order is None else profile.order[:, source],
        notes=(*profile.notes, f"moved from {profile.servers} to {servers} servers ({placement})"),
    )


def _parts(profile: Profile, servers: int, placement: str) -> list[list[TensorPart | None]]:
    """Where each tensor of the profile goes, largest transfer of it as its size."""
    sizes = [0] * len(profile.tensors)
    for op in np.flatnonzero((profile.resource == DOWNLINK) | (profile.resource == UPLINK)).tolist():
        tensor = int(profile.tensor[op])
        if tensor >= 0:
            sizes[tensor] = max(sizes[tensor], int(profile.bytes[op]))
    parts: list[list[TensorPart | None]] = [[] for _ in sizes]
    for part in place([max(size, 1) for size in sizes], servers, placement):
        parts[part.tensor].append(part)
    return parts


def _server(resource: int, part: TensorPart | None, now: int, servers: int) -> int:
    if resource == WORKER:
        return -1
    if part is not None:
        return part.server
    return now % servers if resource in (DOWNLINK, UPLINK, PS) else -1
