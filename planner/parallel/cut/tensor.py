"""The tensor cut: every layer of a model shared by the devices of a group, as Megatron does it.

Matrix products come in pairs. The first is cut by its columns, so that each device computes some features of
its output from the whole input; what follows element by element, and attention by heads, stays cut; the
second is cut by its rows, takes the cut features as its input, and leaves partial sums that the group adds
up. Norms, sums of branches and everything else need whole features: each device does all of them or, with the
sequence cut as well, those of some positions.

`shared(model, degree)` is the model as one device of the group sees it, so that compute times, memory and
parameters of a cut model are found as those of any model; and the sums, each an all-reduce of a layer's
output in the forward pass and one of as many elements in the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from planner.errors import BadInput
from planner.model import AttentionShape, Layer, Model
from planner.model.layers import kind_of


@dataclass(frozen=True, slots=True)
class Sum:
    """The group adds up a layer's output: so many elements of a sample, forward and again backward."""

    layer: str
    elements: int


@dataclass(frozen=True, slots=True)
class SharedModel:
    """A model as one device of a group holds it, and what the group adds up."""

    model: Model
    sums: tuple[Sum, ...]


def degrees(model: Model, most: int) -> tuple[int, ...]:
    """The degrees from 1 to `most`, powers of two, that the model can be shared by."""
    return tuple(2**k for k in range(most.bit_length()) if 2**k <= most and not refusal(model, 2**k))


@lru_cache(maxsize=1024)
def refusal(model: Model, degree: int) -> str:
    """Why a model cannot be shared by so many devices, with the nearest degree that works; else empty."""
    for layer in model.layers:
        part = layer.detail
        if isinstance(part, AttentionShape):
            if part.heads % degree:
                return _nearest(f"{part.heads} heads of {model.name}", part.heads, degree)
            if part.kv_heads % degree and degree % part.kv_heads:
                return _nearest(f"{part.kv_heads} key heads of {model.name}", part.kv_heads, degree)
    if degree > 1 and not any(isinstance(layer.detail, AttentionShape) for layer in model.layers):
        return f"{model.name} has no attention; the tensor cut is for transformers: take a degree of 1"
    return ""


def _nearest(what: str, count: int, degree: int) -> str:
    works = min((d for d in range(1, count + 1) if count % d == 0), key=lambda d: (abs(d - degree), d))
    return f"a tensor degree of {degree} does not divide the {what}; the nearest that does is {works}"


def shared(model: Model, degree: int, *, sequence: bool = True) -> SharedModel:
    """The model as one of `degree` devices sees it. `sequence`: norms and sums of branches are cut along the
    positions too (sequence parallelism), at no cost of communication."""
    return _shared(model, degree, sequence)  # one object, whether the choice is written out or not


@lru_cache(maxsize=256)
def _shared(model: Model, degree: int, sequence: bool) -> SharedModel:
    if degree < 1:
        raise BadInput(f"a tensor degree of {degree}; it is at least 1")
    if reason := refusal(model, degree):
        raise BadInput(reason)
    if degree == 1:
        return SharedModel(model, ())
    may_cut = _may_be_cut(model)
    is_cut: dict[str, bool] = {}
    layers: list[Layer] = []
    sums: list[Sum] = []
    for layer in model.layers:
        sharded = kind_of(layer).shard(
            layer,
            degree,
            input_sharded=any(is_cut.get(name, False) for name in layer.inputs),
            output_may_shard=may_cut[layer.name],
            sequence=sequence,
        )
        is_cut[layer.name] = sharded.output_sharded
        layers.append(sharded.layer)
        if sharded.partial_sum:
            sums.append(Sum(layer.name, layer.output_elements))
    return SharedModel(replace(model, layers=tuple(layers), remake=None), tuple(sums))


def _may_be_cut(model: Model) -> dict[str, bool]:
    """Whether all that read a layer can work on a part of its features."""
    readers = model.consumers()
    kind = {layer.name: kind_of(layer) for layer in model.layers}
    out: dict[str, bool] = {}
    for layer in reversed(model.layers):
        out[layer.name] = bool(readers[layer.name]) and all(
            kind[reader].accepts_shard or (kind[reader].passes_shard and out[reader])
            for reader in readers[layer.name]
        )
    return out
