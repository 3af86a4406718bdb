"""The graph of a model's computation: which ops a step needs and what each waits for; no durations yet.

`forward(l)` waits for the forward ops of the layers it reads; `backward(l)` for the backward ops of all
layers that read it, so branches stay branches. Layers without a kernel (input, flatten) vanish.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.device.computation import BACKWARD, FORWARD, Parameter
from planner.errors import BadInput
from planner.memoize import memoize
from planner.model import Layer, Model, Tensor
from planner.model.layers import kind_of

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ComputeGraph:
    """Columns of a `Computation`, and where a layer's ops are (-1: it has none)."""

    names: tuple[str, ...]
    role: npt.NDArray[np.uint8]
    layer: Ints
    dep_start: Ints
    dep_index: Ints
    parameters: tuple[Parameter, ...]
    blocks: tuple[str, ...]


@memoize
def compute_graph(model: Model, *, training: bool = True) -> ComputeGraph:
    """The graph of a training step, or of a forward pass only; cached, as a search asks for it often."""
    reads = _reads(model)
    place = {layer.name: at for at, layer in enumerate(model)}
    names: list[str] = []
    roles: list[int] = []
    layers: list[int] = []
    deps: list[tuple[int, ...]] = []

    def add(layer: str, role: int, what: str, waits: tuple[int, ...]) -> int:
        names.append(f"{layer}/{what}")
        roles.append(role)
        layers.append(place[layer])
        deps.append(waits)
        return len(names) - 1

    forward: dict[str, int] = {}
    for layer in model:
        if kind_of(layer).computes:
            inputs = tuple(forward[read] for read in reads[layer.name])
            forward[layer.name] = add(layer.name, FORWARD, "forward", inputs)
    if not forward:
        raise BadInput(f"model {model.name!r} has no layer that computes; a profile needs at least one")
    backward: dict[str, int] = {}
    for name, readers in _gradient_order(model, reads) if training else ():
        waits = tuple(backward[reader] for reader in readers) or (forward[name],)
        backward[name] = add(name, BACKWARD, "backward", waits)
    blocks = tuple(dict.fromkeys(block_of(layer) for layer in model if layer.tensors)) or ("",)
    place_of_block = {name: at for at, name in enumerate(blocks)}
    start = np.zeros(len(deps) + 1, np.int32)
    np.cumsum([len(waits) for waits in deps], out=start[1:])
    return ComputeGraph(
        names=tuple(names),
        role=np.array(roles, np.uint8),
        layer=np.array(layers, np.int32),
        dep_start=start,
        dep_index=np.array([dep for waits in deps for dep in waits], np.int32),
        parameters=tuple(
            Parameter(
                tensor.name,
                tensor.trained_elements,
                (forward[layer.name],),
                backward.get(layer.name) if tensor.frozen_bits is None else None,
                place_of_block[block_of(layer)],
                _moving_averages(layer, tensor),
                frozen_bytes=tensor.frozen_bytes,
            )
            for layer in model
            for tensor in layer.tensors
        ),
        blocks=blocks,
    )


def _moving_averages(layer: Layer, tensor: Tensor) -> tuple[int, ...]:
    """Elements of the mean and variance that a layer keeps, created after its last tensor."""
    last = kind_of(layer).moving_averages and tensor is layer.tensors[-1]
    return (layer.tensors[0].elements,) * 2 if last else ()


def block_of(layer: Layer) -> str:
    """The unit that a layer is part of: its block; outside of blocks all of a scope, or a layer and what
    follows it."""
    return layer.block or layer.scope or layer.follows or layer.name


def _reads(model: Model) -> dict[str, tuple[str, ...]]:
    """For each layer the layers with a kernel whose output it reads, looking through those without."""
    computes = {layer.name: kind_of(layer).computes for layer in model}
    reads: dict[str, tuple[str, ...]] = {}
    for layer in model:
        found: dict[str, None] = {}
        for name in layer.inputs:
            found.update(dict.fromkeys((name,) if computes[name] else reads[name]))
        reads[layer.name] = tuple(found)
    return reads


def _gradient_order(model: Model, reads: dict[str, tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    """Layers that need a backward op, last first, each with the layers that read it. A layer with nothing to
    train at or before it needs none."""
    readers: dict[str, list[str]] = {layer.name: [] for layer in model}
    trained: set[str] = set()
    for layer in model:
        own = any(tensor.frozen_bits is None for tensor in (*layer.tensors, *layer.tied))
        if own or any(read in trained for read in reads[layer.name]):
            trained.add(layer.name)
        if kind_of(layer).computes:
            for read in reads[layer.name]:
                readers[read].append(layer.name)
    return [
        (layer.name, tuple(readers[layer.name]))
        for layer in reversed(model.layers)
        if layer.name in trained and kind_of(layer).computes
    ]
