"""A third axis as a plug-in: context parallelism, in one class and one line.

Each rank computes some positions of every sequence. Before attention it gathers the keys and values of the
others (and scatters their gradients after its backward pass). All ranks hold all parameters, so that their
gradients are summed in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from planner.errors import BadInput, PlannerError
from planner.hardware import Hardware
from planner.model import AttentionShape, Layer, Model
from planner.parallel._base import Axis, AxisFlag, AxisLabels, Communication, Shard
from planner.parallel.mesh import register


@register
@dataclass(frozen=True, slots=True)
class ContextParallel(Axis):
    name: ClassVar[str] = "cp"
    flags: ClassVar[tuple[AxisFlag, ...]] = (
        AxisFlag("context", "degree", "Context-parallel degree, as 2 or 1,2,4."),
    )
    splits_parameters: ClassVar[bool] = False

    @classmethod
    def candidates(
        cls, model: Model, hardware: Hardware, asked: Mapping[str, tuple[int, ...]]
    ) -> Iterator[Self]:
        yield from (cls(degree) for degree in asked.get("context") or (1, 2))

    def infeasibility(
        self, model: Model, hardware: Hardware | None = None, batch: int = 1
    ) -> PlannerError | None:
        if model.sequence_length is None:
            return BadInput(f"{model.name} has no sequences; take --context 1")
        if model.sequence_length % self.degree:
            return BadInput(f"--context {self.degree} does not divide {model.sequence_length} tokens")
        return None

    def shard(self, shard: Shard) -> Shard:
        layers = tuple(self._layer(layer) for layer in shard.model.layers)
        return Shard(replace(shard.model, layers=layers, remake=None), shard.boundary_split * self.degree)

    def _layer(self, layer: Layer) -> Layer:
        if len(layer.output_shape) != 2:
            return layer
        positions, width = layer.output_shape
        return replace(
            layer,
            output_shape=(max(positions // self.degree, 1), width),
            input_elements=layer.input_elements // self.degree,
            macs=layer.macs // self.degree,
        )

    def communications(self, shard: Shard) -> tuple[Communication, ...]:
        parts = []
        for layer in shard.model.layers:
            if isinstance(layer.detail, AttentionShape):
                gathered = 2 * layer.detail.keys * layer.detail.kv_heads * layer.detail.head_size
                parts.append(Communication(layer.name, "all_gather", gathered))
            if trained := sum(tensor.elements for tensor in layer.tensors):
                parts.append(Communication(layer.name, "all_reduce", trained, of_gradients=True))
        return tuple(parts)

    def labels(self) -> AxisLabels:
        return AxisLabels(f"context {self.degree}", role=f"{self.degree} share every sequence")
