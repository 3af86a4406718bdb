"""The graph of a training step: which ops a model needs and what each waits for; no durations yet.

    down(t) -> [parse(t)] -> forward(l) -> ... -> backward(l) -> up(t) -> update(t)

`forward(l)` waits for the layer's tensors and for the forward ops of the layers it reads; `backward(l)` for
the backward ops of all layers that read it, so branches stay branches. Layers without a kernel (input,
flatten) vanish. A tensor that its placement splits has a transfer and an update for each part.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.model import Model
from planner.profile._profile import DOWNLINK, PS, UPLINK, WORKER, Op, Profile
from planner.profile.compute import NO_KERNEL
from planner.profile.placement import Part, place_model


@dataclass(frozen=True, eq=False)
class StepGraph:
    """A profile of one step with all durations zero, and which op is what."""

    profile: Profile
    forward: npt.NDArray[np.intp]  # op of each layer; -1 for none
    backward: npt.NDArray[np.intp]
    parse: npt.NDArray[np.intp]  # op of each part; empty without parsing
    update: npt.NDArray[np.intp]  # op of each part; empty without training
    part_bytes: npt.NDArray[np.int64]


def step_graph(
    model: Model, servers: int = 1, placement: str = "greedy", *, parsing: bool = True, training: bool = True
) -> StepGraph:
    """The graph of a step; cached, as a search asks for the same one again and again."""
    return _step_graph(model, servers, placement, parsing=parsing, training=training)


@lru_cache(maxsize=256)
def _step_graph(model: Model, servers: int, placement: str, *, parsing: bool, training: bool) -> StepGraph:
    reads = _reads(model)
    parts = place_model(model, servers, placement)
    part_names = _part_names(model, parts)
    ops: list[Op] = []

    def add(op: Op) -> int:
        ops.append(op)
        return len(ops) - 1

    down = [
        add(Op(f"{part_name}/down", DOWNLINK, part.server, part.bytes, (), index))
        for index, (part, part_name) in enumerate(zip(parts, part_names, strict=True))
    ]
    parse = [
        add(Op(f"{part_names[index]}/parse", WORKER, deps=(op,))) for index, op in enumerate(down) if parsing
    ]
    arrived: dict[str, list[int]] = {}
    for part, op in zip(parts, parse or down, strict=True):
        arrived.setdefault(model.tensors[part.tensor].name, []).append(op)

    forward: dict[str, int] = {}
    for layer in model:
        if layer.kind in NO_KERNEL:
            continue
        inputs = [forward[read] for read in reads[layer.name]]
        weights = [op for tensor in layer.tensors for op in arrived[tensor.name]]
        forward[layer.name] = add(Op(f"{layer.name}/forward", WORKER, deps=(*inputs, *weights)))
    if not forward:
        raise BadInput(f"model {model.name!r} has no layer that computes; a profile needs at least one")

    backward: dict[str, int] = {}
    update: list[int] = []
    if training:
        for layer_name, readers in _gradient_order(model, reads):
            gradients = tuple(backward[reader] for reader in readers) or (forward[layer_name],)
            backward[layer_name] = add(Op(f"{layer_name}/backward", WORKER, deps=gradients))
        owner = [layer.name for layer in model for _ in layer.tensors]
        for index, (part, part_name) in enumerate(zip(parts, part_names, strict=True)):
            ready = backward[owner[part.tensor]]
            up = add(Op(f"{part_name}/up", UPLINK, part.server, part.bytes, (ready,), index))
            update.append(add(Op(f"{part_name}/update", PS, part.server, deps=(up,), tensor=index)))

    return StepGraph(
        profile=Profile.build(
            ops, np.zeros((1, len(ops))), model=model.name, batch=1, servers=servers, tensors=part_names
        ),
        forward=np.array([forward.get(layer.name, -1) for layer in model], np.intp),
        backward=np.array([backward.get(layer.name, -1) for layer in model], np.intp),
        parse=np.array(parse, np.intp),
        update=np.array(update, np.intp),
        part_bytes=np.array([part.bytes for part in parts], np.int64),
    )


def _reads(model: Model) -> dict[str, tuple[str, ...]]:
    """For each layer the layers with a kernel whose output it reads, looking through those without."""
    kind = {layer.name: layer.kind for layer in model}
    reads: dict[str, tuple[str, ...]] = {}
    for layer in model:
        found: dict[str, None] = {}
        for name in layer.inputs:
            found.update(dict.fromkeys(reads[name] if kind[name] in NO_KERNEL else (name,)))
        reads[layer.name] = tuple(found)
    return reads


def _gradient_order(model: Model, reads: dict[str, tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    """Layers that need a backward op, last first, each with the layers that read it. A layer with nothing to
    train at or before it needs none."""
    readers: dict[str, list[str]] = {layer.name: [] for layer in model}
    trained: set[str] = set()
    for layer in model:
        if layer.tensors or any(read in trained for read in reads[layer.name]):
            trained.add(layer.name)
        if layer.kind not in NO_KERNEL:
            for read in reads[layer.name]:
                readers[read].append(layer.name)
    return [
        (layer.name, tuple(readers[layer.name]))
        for layer in reversed(model.layers)
        if layer.name in trained and layer.kind not in NO_KERNEL
    ]


def _part_names(model: Model, parts: tuple[Part, ...]) -> list[str]:
    """`conv0/weights`, or `fc6/weights/part0`, `.../part1` where a tensor is split."""
    pieces = Counter(part.tensor for part in parts)
    seen: Counter[int] = Counter()
    names = []
    for part in parts:
        name = model.tensors[part.tensor].name
        names.append(f"{name}/part{seen[part.tensor]}" if pieces[part.tensor] > 1 else name)
        seen[part.tensor] += 1
    return names
