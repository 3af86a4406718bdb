"""The computation in recorded steps: what the worker does, without the transfers and updates around it.

A recorded step stays what it is for parameter servers (`Computation.step`); other exchanges take only its
compute ops. Parsing of messages belongs to the transfers and goes with them. A tensor is read by the compute
ops that wait for its download, and its gradient is made by what its upload waits for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.device.computation import Computation, Parameter
from planner.device.precision import FP32, PRECISIONS, Precision
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, OpRole, Profile


def computation_of(profile: Profile) -> Computation:
    """The computation of one worker in these steps."""
    order = profile.topological_order().tolist()
    kept = [op for op in order if profile.resource[op] == WORKER and not _parses(profile, op)]
    place = {op: at for at, op in enumerate(kept)}
    behind = _compute_before(profile, order, place)
    deps = [sorted({dep for before in profile.deps(op).tolist() for dep in behind[before]}) for op in kept]
    start = np.zeros(len(kept) + 1, np.int32)
    np.cumsum([len(waits) for waits in deps], out=start[1:])
    durations_s = np.ascontiguousarray(profile.durations_s[:, kept])
    durations_s.flags.writeable = False
    names = tuple(profile.names[op] for op in kept)
    precision = precision_of(profile)
    parameters = _parameters(profile, place, behind, precision.gradient_bytes)
    return Computation(
        model=profile.model,
        batch=profile.batch,
        names=names,
        role=np.ascontiguousarray(profile.role[kept]),
        layer=np.ascontiguousarray(profile.layer[kept]),
        layers=profile.layers,
        dep_start=start,
        dep_index=np.array([dep for waits in deps for dep in waits], np.int32),
        durations_s=durations_s,
        parameters=parameters,
        optimizer_s=_optimizer_s(profile),
        blocks=tuple(parameter.name for parameter in parameters) or ("",),
        precision=precision,
        hardware=profile.hardware,
        basis=profile.basis,
        source=profile.source,
        notes=profile.notes,
        step=profile,
        buckets=profile.buckets,
    )


def precision_of(profile: Profile) -> Precision:
    """The number formats of a recorded run. Under autocast parameters and gradients stay in single precision,
    as it is their bytes that were recorded."""
    facts = profile.recorded.facts if profile.recorded is not None else None
    if facts is None or facts.precision not in PRECISIONS:
        return FP32
    known = PRECISIONS[facts.precision]
    elements = sum(size for _, size in facts.parameters)
    sent = int(profile.bytes[profile.resource == UPLINK].sum())
    if elements and sent < 3 * elements:  # two bytes each, but for what is kept wider
        return known if known.gradient_bytes == 2 else PRECISIONS["bf16"]
    return replace(known, parameter_bytes=4, gradient_bytes=4, master_bytes=0)


def _optimizer_s(profile: Profile) -> float:
    """What the optimizer took where its time was recorded on the worker (traces of PyTorch: one update for
    each parameter); servers' updates say nothing of a device."""
    own = profile.role == OpRole.OPTIMIZER
    if has_servers(profile) or not own.any():
        return 0.0
    return float(profile.durations_s[:, own].sum(axis=1).mean())


def _parses(profile: Profile, op: int) -> bool:
    """Whether an op only turns a message into a tensor: it waits for one download and for nothing else."""
    deps = profile.deps(op).tolist()
    return bool(profile.parses[op]) and len(deps) == 1 and int(profile.resource[deps[0]]) == DOWNLINK


def _compute_before(profile: Profile, order: list[int], place: dict[int, int]) -> dict[int, tuple[int, ...]]:
    """For each op the compute ops whose end it stands for: itself, or those that it waits for."""
    found: dict[int, tuple[int, ...]] = {}
    for op in order:
        if op in place:
            found[op] = (place[op],)
        else:
            found[op] = tuple(sorted({dep for before in profile.deps(op).tolist() for dep in found[before]}))
    return found


def _parameters(
    profile: Profile, place: dict[int, int], behind: dict[int, tuple[int, ...]], element_bytes: int
) -> tuple[Parameter, ...]:
    readers: dict[int, set[int]] = {}
    start, index = profile.dependents()
    for op in np.flatnonzero(profile.resource == DOWNLINK).tolist():
        waiting = [op]
        while waiting:
            for after in index[start[waiting[0]] : start[waiting[0] + 1]].tolist():
                if after in place:
                    readers.setdefault(int(profile.tensor[op]), set()).add(place[after])
                elif profile.resource[after] in (WORKER, HOST):
                    waiting.append(after)
            waiting.pop(0)
    sizes: dict[int, int] = {}
    ready: dict[int, int] = {}
    for op in np.flatnonzero(profile.is_transfer).tolist():
        tensor, size = int(profile.tensor[op]), int(profile.bytes[op])
        sizes[tensor] = max(sizes.get(tensor, 0), size)
        if profile.resource[op] == UPLINK and behind[op]:
            ready[tensor] = max(*behind[op], ready.get(tensor, -1))
    return tuple(
        Parameter(
            profile.tensors[tensor] if 0 <= tensor < len(profile.tensors) else f"tensor {tensor}",
            max(1, sizes[tensor] // element_bytes),
            tuple(sorted(readers.get(tensor, ()))),
            ready.get(tensor),
            block,
        )
        for block, tensor in enumerate(sorted(number for number in sizes if number >= 0))
    )


def has_servers(profile: Profile) -> bool:
    """Whether a step was recorded with parameter servers: some op of theirs is no optimizer of a worker's
    own, as traces of PyTorch have it."""
    return bool(((profile.resource == PS) & (profile.role != OpRole.OPTIMIZER)).any())
