"""The kinds of layers, one class each: shapes, parameter tensors, workload, saved activations, sharding.

A new kind is one class in a module of this package (`base.Kind` defines its interface). Others ask for

- `layer_class(layer)`: the class of a layer;
- `kernel_kind(layer)`: the kernel kind of its arithmetic, by which devices have rates (`KernelKind`);
- `layer_workload(layer)`, `workloads(model)`: FLOPs, elements moved and kernels per sample;
- `layer_activations(layer)`: activations saved for the backward pass besides inputs and outputs.
"""

from __future__ import annotations

from dataclasses import replace

from planner.memoize import memoize
from planner.model import Layer, Model
from planner.model.layers import elementwise, experts, products, sequences
from planner.model.layers.base import (
    ElementCounts,
    KernelKind,
    Kind,
    Pass,
    Workload,
    kind_name,
    weight_elements,
)

# Implementations of the cross-entropy loss, by what its gradient costs in memory.
LOSSES: dict[str, type[Kind]] = {
    "eager": sequences.CrossEntropy,
    "held": sequences.HeldCrossEntropy,
    "in-place": sequences.InPlaceCrossEntropy,
    "fused": sequences.FusedCrossEntropy,
    "chunked": sequences.ChunkedCrossEntropy,
}

KINDS: dict[str, type[Kind]] = {
    kind_name(kind): kind
    for module in (products, elementwise, sequences, experts)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and kind.__module__ == module.__name__ and issubclass(kind, Kind)
    if not name.startswith("_")
}
# The kinds of model files: those with a key of their own name.
FILE_KINDS = {name: kind for name, kind in KINDS.items() if name in kind.__struct_fields__}


class _Unknown(Kind, frozen=True):
    """An unknown kind, assumed to need both input and output in the backward pass."""

    needs_input = True
    needs_output = True


def layer_class(layer: Layer) -> type[Kind]:
    """Class of a layer's kind; `_Unknown` for kinds without a class."""
    return KINDS.get(layer.kind, _Unknown)


@memoize
def replace_loss(model: Model, loss: str) -> Model:
    """Returns the model with its cross-entropy computed by one of `LOSSES`."""
    kinds = {
        layer.name: kind_name(LOSSES[loss])
        for layer in model.layers
        if issubclass(layer_class(layer), sequences.CrossEntropy)
    }
    if loss == "chunked":
        heads = {name for layer in model.layers if layer.name in kinds for name in layer.inputs}
        kinds |= {
            layer.name: kind_name(sequences.ChunkedLinear)
            for layer in model.layers
            if layer.name in heads and layer.kind == kind_name(products.Linear)
        }
    layers = tuple(
        replace(layer, kind=kinds[layer.name]) if layer.name in kinds else layer for layer in model.layers
    )
    return replace(model, layers=layers)


def is_input(layer: Layer) -> bool:
    """Whether a layer is an input of the network."""
    return layer_class(layer) is elementwise.Input


def kernel_kind(layer: Layer) -> KernelKind:
    """Kernel kind of a layer's arithmetic, which selects the device's rate."""
    return layer_class(layer).kernel_of(layer)


def layer_activations(layer: Layer, *, flash: bool | None = None) -> ElementCounts:
    """Elements that a layer saves for the backward pass, besides its inputs and outputs.

    `flash` overrides the attention kernel.
    """
    return layer_class(layer).saved_activations(layer, flash=flash)


def layer_workload(
    layer: Layer,
    *,
    reads_data: bool = False,
    has_gradient: bool = True,
    trained: bool = True,
    flash: bool | None = None,
) -> Workload:
    """Workload of one layer per sample.

    `reads_data`: its input needs no gradient. Without `has_gradient` only the forward pass runs; not
    `trained`: its weights are frozen.
    """
    work = layer_class(layer).work(layer, trained=trained and has_gradient, flash=flash)
    if not has_gradient:
        return Workload(kernel_kind(layer), work.forward)
    if reads_data and work.weight_gradient.matmuls:
        work = replace(work, input_gradient=Pass())
    if not trained:
        work = replace(work, weight_gradient=Pass())
    return Workload(kernel_kind(layer), work.forward, work.backward)


@memoize
def workloads(model: Model, *, flash: bool | None = None, training: bool = True) -> tuple[Workload, ...]:
    """Workload of each layer per sample, in order; without `training` only the forward pass runs.

    `flash` overrides the model's attention kernel.
    """
    data = {layer.name for layer in model.layers if is_input(layer)}
    with_gradient = layers_with_gradient(model)
    memo: dict[tuple[object, ...], Workload] = {}
    out = []
    for layer in model.layers:
        reads = set(layer.inputs)
        reads_data = with_gradient.isdisjoint(reads) if model.has_frozen else reads <= data
        has_gradient, trained = training and layer.name in with_gradient, trains_weights(layer)
        key = (
            *(layer.kind, layer.output_shape, layer.input_elements, layer.macs, layer.detail, layer.kernel),
            *(layer.stride, layer.groups, reads_data, weight_elements(layer), has_gradient, trained),
        )
        if key not in memo:
            memo[key] = layer_workload(
                layer, reads_data=reads_data, has_gradient=has_gradient, trained=trained, flash=flash
            )
        out.append(memo[key])
    return tuple(out)


def trains_weights(layer: Layer) -> bool:
    """Whether a layer is not wholly frozen: it has a trained weight, or no weights at all."""
    weights = (*layer.tensors, *layer.tied)
    return not weights or any(tensor.frozen_bits is None for tensor in weights)


def should_save_input(layer: Layer) -> bool:
    """Whether a layer that needs its input for weight gradients saves it.

    Quantized layers save it though they compute none (bitsandbytes' MatMul4Bit).
    """
    return trains_weights(layer) or any((tensor.frozen_bits or 16) < 16 for tensor in layer.tensors)


@memoize
def layers_with_gradient(model: Model) -> frozenset[str]:
    """Names of layers whose output gets a gradient: a parameter at or before them is trained."""
    if not model.has_frozen:
        return frozenset(layer.name for layer in model.layers)
    names: set[str] = set()
    for layer in model.layers:
        trained = any(tensor.frozen_bits is None for tensor in (*layer.tensors, *layer.tied))
        if trained or not names.isdisjoint(layer.inputs):
            names.add(layer.name)
    return frozenset(names)


@memoize
def modifier_kinds() -> frozenset[str]:
    """Layer kinds whose names are also keys of other kinds, such as `bias` in `conv`."""
    return frozenset(
        name
        for name in FILE_KINDS
        if any(name in kind.__struct_fields__ for other, kind in FILE_KINDS.items() if other != name)
    )
