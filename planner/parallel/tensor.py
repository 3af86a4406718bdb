"""Tensor parallelism: every layer sharded over the ranks of a group, as Megatron does it.

Matrix products come in pairs. The first is sharded by its columns, so that each rank computes some features
of its output from the whole input; what follows element by element, and attention by heads, stays sharded;
the second is sharded by its rows, takes the sharded features as its input, and leaves partial sums that the
group all-reduces. Norms, residual additions and everything else need whole features: each rank computes all
of them or, with sequence parallelism, those of some positions, at no cost of communication.

The part of a rank is a model like any other, so that its compute times, memory and parameters are found as
those of any model. Each all-reduce is one of a layer's output in the forward pass and one of as many elements
in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from planner.errors import BadInput, PlannerError
from planner.memoize import memoize
from planner.parallel._base import Axis, AxisFlag, Communication, Labels, RequestedSettings, Shard

if TYPE_CHECKING:
    from planner.hardware import Hardware
    from planner.model import Layer, Model
    from planner.parallel.plan import Site


@dataclass(frozen=True, slots=True)
class TensorParallel(Axis):
    """Tensor parallelism. With `sequence_parallel`, norms and residual additions are sharded by position."""

    kind: ClassVar[str] = "tp"
    flags: ClassVar[tuple[AxisFlag, ...]] = (
        AxisFlag("tensor", "degree", "Tensor-parallel degree, e.g. 8 or 1,2,4.", "t"),
    )

    sequence_parallel: bool = True

    @classmethod
    def candidates(cls, asked: RequestedSettings, site: Site, model: Model) -> Iterator[Self]:
        """Yields the requested degrees, or powers of two up to the devices of a machine."""
        most = site.hardware.device_count
        powers = (2**k for k in range(most.bit_length()) if 2**k <= most)
        yield from (cls(degree) for degree in asked.settings.get("tensor") or powers)

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        """Error that explains why a model cannot be sharded over these ranks; None if it can."""
        if model is None:
            return None
        reason = _indivisibility_reason(model, self.degree)
        if self.degree > 1 and not reason and model.has_frozen:
            reason = (
                f"tensor parallelism of {model.name} is not modelled; take --pipeline or --exchange sharded"
            )
        if not reason and site is not None:
            reason = _machine_shortfall(model, self.degree, site.hardware)
        return BadInput(reason) if reason else None

    def shard(self, part: Shard) -> Shard:
        """Shards every layer for one rank; returns the shard with its all-reduces."""
        split = self.degree if self.sequence_parallel else 1
        model, reduced = _shard_model(part.model, self.degree, self.sequence_parallel)
        return Shard(model, part.boundary_split * split, reduced)

    def labels(self, site: Site | None = None) -> Labels:
        """Texts on tensor parallelism."""
        return Labels(f"tensor {self.degree}", plan=f"{self.degree} share every layer")


def _indivisibility_reason(model: Model, degree: int) -> str:
    """Explains why `degree` ranks cannot share a model, with the nearest valid degree; else empty string."""
    from planner.model import AttentionShape

    for layer in model.layers:
        part = layer.detail
        if isinstance(part, AttentionShape):
            if part.heads % degree:
                return _indivisible_count_message(f"{part.heads} heads of {model.name}", part.heads, degree)
            if part.kv_heads % degree and degree % part.kv_heads:
                return _indivisible_count_message(
                    f"{part.kv_heads} key heads of {model.name}", part.kv_heads, degree
                )
    if degree > 1 and not any(isinstance(layer.detail, AttentionShape) for layer in model.layers):
        return f"{model.name} has no attention; tensor parallelism is for transformers: take a degree of 1"
    return ""


def _indivisible_count_message(what: str, count: int, degree: int) -> str:
    """Message for a degree that does not divide a count, with the nearest degree that does."""
    works = min((d for d in range(1, count + 1) if count % d == 0), key=lambda d: (abs(d - degree), d))
    return f"a tensor degree of {degree} does not divide the {what}; the nearest that does is {works}"


def _machine_shortfall(model: Model, degree: int, hardware: Hardware) -> str:
    """Explains why `degree` devices of a machine cannot share layers, with the nearest degree that works;
    else empty. All-reduces run in every layer, so the machine's fabric has to join the devices."""
    devices = hardware.device_count * (hardware.fabric.machines if hardware.fabric else 1)
    if devices % degree == 0:
        return ""
    works = max(
        d
        for d in range(1, min(degree, devices) + 1)
        if devices % d == 0 and not _indivisibility_reason(model, d)
    )
    return (
        f"a tensor degree of {degree} does not divide the {devices} devices of {hardware.name}; the nearest "
        f"that does is {works}"
    )


@memoize
def _shard_model(
    model: Model, degree: int, sequence_parallel: bool
) -> tuple[Model, tuple[Communication, ...]]:
    """Shards a model for one of `degree` ranks; returns it with the all-reduces of the group."""
    from planner.model.layers import layer_class

    if reason := _indivisibility_reason(model, degree):
        raise BadInput(reason)
    if degree == 1:
        return model, ()
    may_shard = _shardable_outputs(model)
    is_sharded: dict[str, bool] = {}
    layers: list[Layer] = []
    reduced: list[Communication] = []
    for layer in model.layers:
        sharded = layer_class(layer).shard(
            layer,
            degree,
            input_sharded=any(is_sharded.get(name, False) for name in layer.inputs),
            output_may_shard=may_shard[layer.name],
            sequence=sequence_parallel,
        )
        is_sharded[layer.name] = sharded.output_sharded
        layers.append(sharded.layer)
        if sharded.partial_sum:
            reduced.append(Communication(layer.name, "all_reduce", layer.output_elements))
    return replace(model, layers=tuple(layers), remake=None), tuple(reduced)


def _shardable_outputs(model: Model) -> dict[str, bool]:
    """Whether all consumers of each layer accept a part of its features, by layer name."""
    from planner.model.layers import layer_class

    readers = model.consumers_by_layer()
    kind = {layer.name: layer_class(layer) for layer in model.layers}
    out: dict[str, bool] = {}
    for layer in reversed(model.layers):
        out[layer.name] = bool(readers[layer.name]) and all(
            kind[reader].accepts_shard or (kind[reader].passes_shard and out[reader])
            for reader in readers[layer.name]
        )
    return out
