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
from planner.model import Attention, Experts, Layer, Model, Tensor
from planner.model.layers import KINDS, Kind

PRODUCTS = ("linear", "fc")
TAKES_CUT = ("linear", "fc", "attention", "cross_entropy")  # whatever follows them
PASSES_CUT = ("multiply", "rotary", "concat")  # beside what follows element by element
BY_POSITION = ("layer_norm", "rms_norm", "add", "dropout")  # cut along the sequence, where that is cut


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
        if isinstance(part, Attention):
            if part.heads % degree:
                return _nearest(f"{part.heads} heads of {model.name}", part.heads, degree)
            if part.kv_heads % degree and degree % part.kv_heads:
                return _nearest(f"{part.kv_heads} key heads of {model.name}", part.kv_heads, degree)
    if degree > 1 and not any(isinstance(layer.detail, Attention) for layer in model.layers):
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
        made, cut, summed = _share(layer, degree, may_cut, is_cut, sequence)
        is_cut[layer.name] = cut
        layers.append(made)
        if summed:
            sums.append(Sum(layer.name, layer.output_elements))
    return SharedModel(replace(model, layers=tuple(layers), remake=None), tuple(sums))


def _may_be_cut(model: Model) -> dict[str, bool]:
    """Whether all that read a layer can work on a part of its features."""
    readers = model.consumers()
    kind = {layer.name: layer.kind for layer in model.layers}
    out: dict[str, bool] = {}
    for layer in reversed(model.layers):
        out[layer.name] = bool(readers[layer.name]) and all(
            kind[reader] in TAKES_CUT or (_passes(kind[reader]) and out[reader])
            for reader in readers[layer.name]
        )
    return out


def _passes(kind: str) -> bool:
    return kind in PASSES_CUT or KINDS.get(kind, Kind("")).follows


def _share(
    layer: Layer, degree: int, may_cut: dict[str, bool], is_cut: dict[str, bool], sequence: bool
) -> tuple[Layer, bool, bool]:
    """A layer as one device does it; whether its output is cut; whether the group adds it up."""
    takes_cut = any(is_cut.get(name, False) for name in layer.inputs)
    if layer.kind == "embedding":
        return replace(layer, tensors=_part(layer.tensors, degree)), False, True
    if isinstance(layer.detail, Experts):
        inner = replace(layer.detail, inner=layer.detail.inner // degree)
        tensors = _part(layer.tensors, degree)
        return replace(layer, detail=inner, tensors=tensors, macs=layer.macs // degree), False, True
    if isinstance(layer.detail, Attention) and takes_cut:
        part = layer.detail
        heads = replace(part, heads=part.heads // degree, kv_heads=max(part.kv_heads // degree, 1))
        return replace(_narrowed(layer, degree), detail=heads), True, False
    if layer.kind in PRODUCTS and takes_cut:
        inputs = layer.input_elements // degree
        tensors = _part(layer.tensors, degree)
        return replace(layer, input_elements=inputs, macs=layer.macs // degree, tensors=tensors), False, True
    if layer.kind in PRODUCTS and may_cut[layer.name]:
        made = replace(_narrowed(layer, degree), input_elements=layer.input_elements)
        return replace(made, tied=_part(layer.tied, degree)), True, False
    if takes_cut and (_passes(layer.kind) or layer.kind == "cross_entropy"):
        return _narrowed(layer, degree), True, False
    if sequence and layer.kind in BY_POSITION and len(layer.output_shape) == 2:
        positions = (max(layer.output_shape[0] // degree, 1), layer.output_shape[1])
        return (
            replace(layer, output_shape=positions, input_elements=layer.input_elements // degree),
            False,
            False,
        )
    return layer, False, False


def _narrowed(layer: Layer, degree: int) -> Layer:
    """A layer with its share of the features of its input and output, and of its parameters."""
    width = max(layer.output_shape[-1] // degree, 1)
    return replace(
        layer,
        output_shape=(*layer.output_shape[:-1], width),
        input_elements=layer.input_elements // degree,
        macs=layer.macs // degree,
        tensors=_part(layer.tensors, degree),
    )


def _part(tensors: tuple[Tensor, ...], degree: int) -> tuple[Tensor, ...]:
    """Tensors of which a device holds its share, along the first side that can be divided."""
    out = []
    for tensor in tensors:
        side = next((at for at, size in enumerate(tensor.shape) if size % degree == 0), None)
        if side is None:
            out.append(tensor)
            continue
        shape = (*tensor.shape[:side], tensor.shape[side] // degree, *tensor.shape[side + 1 :])
        out.append(Tensor(tensor.name, shape))
    return tuple(out)
