"""A third axis as a plug-in: context parallelism, in one class and one line.

Each rank computes some positions of every sequence. Before attention it gathers the keys and values of the
others (and scatters their gradients after its backward pass). All ranks hold all parameters, so that their
gradients are summed in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from planner.errors import BadInput, PlannerError
from planner.model import AttentionShape, Layer, Model
from planner.parallel._base import Axis, AxisFlag, Communication, Divisible, Labels, RequestedSettings, Shard
from planner.parallel.mesh import register
from planner.parallel.plan import Site


@register
@dataclass(frozen=True, slots=True)
class ContextParallel(Axis):
    kind: ClassVar[str] = "cp"
    flags: ClassVar[tuple[AxisFlag, ...]] = (
        AxisFlag("context", "degree", "Context-parallel degree, as 2 or 1,2,4.", "cp"),
    )
    splits: ClassVar[frozenset[Divisible]] = frozenset()

    @classmethod
    def candidates(cls, asked: RequestedSettings, site: Site, model: Model) -> Iterator[Self]:
        yield from (cls(degree) for degree in asked.settings.get("context") or (1, 2))

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        if model is None:
            return None
        if model.sequence_length is None:
            return BadInput(f"{model.name} has no sequences; take --context 1")
        if model.sequence_length % self.degree:
            return BadInput(f"--context {self.degree} does not divide {model.sequence_length} tokens")
        return None

    def shard(self, part: Shard) -> Shard:
        model = replace(part.model, layers=tuple(map(self._layer, part.model.layers)), remake=None)
        return Shard(model, part.boundary_split * self.degree, self._communications(part.model))

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

    def _communications(self, model: Model) -> tuple[Communication, ...]:
        parts = []
        for layer in model.layers:
            if isinstance(layer.detail, AttentionShape):
                gathered = 2 * layer.detail.keys * layer.detail.kv_heads * layer.detail.head_size
                parts.append(Communication(layer.name, "all_gather", gathered))
            if trained := sum(tensor.elements for tensor in layer.tensors):
                parts.append(Communication(layer.name, "all_reduce", trained, of_gradients=True))
        return tuple(parts)

    def labels(self, site: Site | None = None) -> Labels:
        return Labels(f"context {self.degree}", plan=f"{self.degree} share every sequence")
