"""A model: layers in a DAG, each with its parameter tensors, multiply-adds and activation sizes.

These are the nouns only; `planner.netlist` reads them from `models/*.toml`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

BYTES_PER_ELEMENT = 4  # single precision


@dataclass(frozen=True, slots=True)
class Tensor:
    """One trainable parameter tensor."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * BYTES_PER_ELEMENT


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. `kind` is one of conv, batch_norm, bias, relu, pool, lrn, fc, concat, add, global_pool,
    softmax, input, flatten, ... ; `inputs` are names of earlier layers; sizes are for one sample.

    `output_shape` is (height, width, channels) or (features,). `kernel` and `stride` are (height, width) and
    present for conv and pool. `macs` are forward multiply-adds for one sample.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    output_shape: tuple[int, ...]
    tensors: tuple[Tensor, ...] = ()
    macs: int = 0
    kernel: tuple[int, int] | None = None
    stride: tuple[int, int] | None = None
    input_elements: int = 0

    @property
    def output_elements(self) -> int:
        return math.prod(self.output_shape)

    @property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors)


@dataclass(frozen=True)
class Model:
    """Layers in creation order, which is a topological order."""

    name: str
    layers: tuple[Layer, ...]
    default_batch: int = 32
    samples_per_epoch: int | None = None
    description: str = ""
    source: str = ""

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All parameter tensors in creation order."""
        return tuple(tensor for layer in self.layers for tensor in layer.tensors)

    @property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    def consumers(self) -> dict[str, list[str]]:
        """For each layer the layers that read its output."""
        out: dict[str, list[str]] = {layer.name: [] for layer in self.layers}
        for layer in self.layers:
            for name in layer.inputs:
                out[name].append(layer.name)
        return out

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)
