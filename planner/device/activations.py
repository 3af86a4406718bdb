"""Activations of one sample that are alive during the backward pass, by the table of layer kinds.

Saved activations are what the backward pass reads, by the table of layer kinds (`planner.model.layers`): a
layer's output is saved where its own derivative or that of a layer that reads it needs it, and on top of it
what the layer saves inside (masks, statistics, attention probabilities without flash). Recompute saves
instead what crosses into a recomputed region, and pays for the inside of one region at a time. The workspace
are gradients of activations, of the layer where these are largest. A tensor is freed when the backward pass
is through with the first layer that saved it.

A compiled graph saves no output of a kernel that it fuses into those that read it (norms, activation
functions, products of elements): it saves what that kernel reads, and makes the output again.

A region that is recomputed (activation checkpointing) saves what enters it, and its forward pass runs again
before its backward pass:

- `attention`: the attention core is a region of its own (Korthikanti et al. 2022; Megatron's `selective`).
- `per-op`: every block is a region, whose attention outputs and every second matrix product are saved all the
  same (PyTorch's selective activation checkpointing, as torchtitan sets it up).
- `full`: every block is a region.

`selective` is what the training software means by it: `attention` for Megatron and what builds on it, else
`per-op`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.memoize import memoize
from planner.model import Layer, Model
from planner.model.layers import (
    is_input,
    layer_activations,
    layer_class,
    layers_with_gradient,
    should_save_input,
)
from planner.model.layers.base import ElementCounts

Flags = npt.NDArray[np.bool_]
Recompute = Literal["none", "attention", "per-op", "full"]
RECOMPUTE_MODES: tuple[Recompute, ...] = get_args(Recompute)  # the least first
MEGATRON = ("megatron", "megatron-deepspeed", "transformer-engine", "fused")


NOTHING = ElementCounts()
_Tensors = dict[tuple[str, str], tuple[ElementCounts, int]]  # by producer and part, with the first reader


@dataclass(frozen=True, slots=True)
class AliveActivations:
    """Activations of one sample that are in memory while the backward pass is at one layer. They are saved
    ones not freed yet (by kind of layer), those of the recomputed region, and the workspace. `at_loss`: the
    layer is behind the last block, when few gradients of parameters exist."""

    by_kind: Mapping[str, ElementCounts]
    recomputed: ElementCounts
    workspace: ElementCounts
    at_loss: bool = False


@dataclass(frozen=True, slots=True)
class SavedActivations:
    """Activations of one sample saved between the passes, by kind of layer. `moments` are the peaks of
    memory: one behind the last block, one before."""

    by_kind: Mapping[str, ElementCounts]
    moments: tuple[AliveActivations, ...]
    on_host: ElementCounts = NOTHING  # in host memory


@memoize
def saved_activations(
    model: Model,
    recompute: Recompute = "none",
    flash: bool | None = None,
    autocast: bool = False,
    only: frozenset[str] | None = None,
    *,
    compiled: bool = False,
    offloaded: bool = False,
) -> SavedActivations:
    """Activations of one sample that stay in memory between its forward and its backward pass."""
    layers = {layer.name: layer for layer in model.layers}
    region = {layer.name: recompute_region(layer, recompute) for layer in model.layers}
    stage = [layer for layer in model.layers if only is None or layer.name in only]
    by_policy = policy_saved_layers(model, recompute)
    saved: _Tensors = {}
    inside: dict[str, _Tensors] = {}  # by recomputed region

    def layers_to_save(producer: Layer) -> list[Layer]:
        """Layers whose outputs are saved for a layer's output: itself, or the inputs of fused layers."""
        if not compiled or not layer_class(producer).fuses:
            return [producer]
        return [maker for name in producer.inputs for maker in layers_to_save(layers[name])]

    def save_tensor(at: int, reader: Layer, producer: Layer, part: str, size: ElementCounts) -> None:
        """Saves a tensor that a layer's backward pass reads, inside the layer's recomputed region if any."""
        own = region[reader.name]
        if own is None or region[producer.name] != own or (part == "output" and producer.name in by_policy):
            saved.setdefault((producer.name, part), (size, at))
        else:
            inside.setdefault(own, {}).setdefault((producer.name, part), (size, at))

    with_gradient = layers_with_gradient(model)
    for at, layer in enumerate(stage):
        if layer.name not in with_gradient:
            continue
        kind = layer_class(layer)
        needs_input = kind.needs_input and (should_save_input(layer) or not kind.input_for_weights)
        if kind.needs_output or layer.name in by_policy:
            for maker in layers_to_save(layer):
                save_tensor(at, layer, maker, "output", ElementCounts(elements=maker.output_elements))
        if (extra := layer_activations(layer, flash=flash)) != NOTHING and not (compiled and kind.fuses):
            save_tensor(at, layer, layer, "inside", extra)
        for source in (layers[name] for name in layer.inputs):
            if is_input(source) and kind.reads_indices:
                continue  # tokens: a few bytes
            output = ElementCounts(elements=source.output_elements)
            copy = _autocast_copy(layer, source) if autocast and not compiled else None
            if needs_input and copy is not None:
                save_tensor(at, layer, layer, "copy", copy)
            elif needs_input:
                for maker in layers_to_save(source):
                    save_tensor(at, layer, maker, "output", ElementCounts(elements=maker.output_elements))
            if region[layer.name] not in (None, region[source.name]):
                # recompute starts from it
                saved.setdefault((source.name, "output"), (output, at))
    for tensors in inside.values():
        for key in tensors.keys() & saved.keys():
            del tensors[key]
    on_host = _offloaded_tensors(saved, stage, layers) if offloaded else {}
    saved = {key: size for key, size in saved.items() if key not in on_host}
    return SavedActivations(
        _alive_by_kind(saved, layers, len(stage)),
        _peak_moments(stage, layers, region, saved, inside),
        sum((size for size, _ in on_host.values()), NOTHING),
    )


def _offloaded_tensors(saved: _Tensors, stage: Sequence[Layer], layers: Mapping[str, Layer]) -> _Tensors:
    """Saved tensors offloaded to host memory: those of all blocks but the last two, which are read first."""
    blocks = list(dict.fromkeys(layer.block for layer in stage if layer.block is not None))
    resident = {None, *blocks[-2:]}
    return {key: size for key, size in saved.items() if layers[key[0]].block not in resident}


def _alive_by_kind(saved: _Tensors, layers: Mapping[str, Layer], at: int) -> dict[str, ElementCounts]:
    """Activations in memory while the backward pass is at layer `at`, by kind of their layer."""
    by_name: dict[str, ElementCounts] = {}
    for (name, _), (size, first) in saved.items():
        if first <= at:
            by_name[layers[name].kind] = by_name.get(layers[name].kind, NOTHING) + size
    return by_name


def _peak_moments(
    stage: Sequence[Layer],
    layers: Mapping[str, Layer],
    region: Mapping[str, str | None],
    saved: _Tensors,
    inside: Mapping[str, _Tensors],
) -> tuple[AliveActivations, ...]:
    """Moments at which the backward pass may need most memory: one at the loss, one inside the blocks."""
    freed_at = _alive_by_layer(saved, len(stage))
    regions = {name: _alive_by_layer(tensors, len(stage)) for name, tensors in inside.items()}
    blocks = [at for at, layer in enumerate(stage) if layer.block is not None]
    last = max(blocks, default=len(stage) - 1)
    worst: dict[bool, tuple[float, int, ElementCounts, ElementCounts]] = {}
    for at, layer in enumerate(stage):
        own, workspace = region[layer.name], _workspace(layer, layers)
        recomputed = regions[own][at] if own in regions else NOTHING
        size = (freed_at[at] + workspace + recomputed).bytes(2)
        if size >= worst.get(at > last, (-1.0,))[0]:
            worst[at > last] = size, at, recomputed, workspace
    return tuple(
        AliveActivations(_alive_by_kind(saved, layers, at), recomputed, workspace, at_loss)
        for at_loss, (_, at, recomputed, workspace) in worst.items()
    )


def _alive_by_layer(tensors: _Tensors, length: int) -> list[ElementCounts]:
    """Activations in memory, summed, while the backward pass is at each layer, by the layer's index."""
    first_read = [NOTHING] * length
    for size, first in tensors.values():
        first_read[first] += size
    return list(accumulate(first_read))


def _autocast_copy(layer: Layer, source: Layer) -> ElementCounts | None:
    """Copy of its input that a layer saves under autocast; None if it saves the input itself."""
    kind = layer_class(layer)
    if kind.autocast == "widen":
        return ElementCounts(wide=layer.input_elements)
    if kind.autocast == "narrow" and layer_class(source).autocast_wide_output:
        return ElementCounts(elements=layer.input_elements)
    return None


def _workspace(layer: Layer, layers: Mapping[str, Layer]) -> ElementCounts:
    """Temporary memory of a layer's backward pass: gradients of its output and of its inputs."""
    read = sum(layers[name].output_elements for name in layer.inputs if not is_input(layers[name]))
    return layer_class(layer).live_gradients(layer, read)


def find_recompute_mode(name: str, framework: str | None = None) -> Recompute:
    """Recompute mode of this name; `selective` depends on the training framework, PyTorch by default."""
    if name == "selective":
        return "attention" if framework in MEGATRON else "per-op"
    for mode in RECOMPUTE_MODES:
        if name == mode:
            return mode
    raise BadInput(f"recompute is {name!r}; allowed: selective, {', '.join(RECOMPUTE_MODES)}")


def framework_recompute_modes(framework: str | None = None) -> tuple[Recompute, ...]:
    """Recompute modes that a training framework offers, from the one that recomputes least."""
    return ("none", find_recompute_mode("selective", framework), "full")


def recompute_region(layer: Layer, recompute: Recompute) -> str | None:
    """Name of the region in which a layer is recomputed; None if its activations are saved."""
    if recompute in {"full", "per-op"}:
        return layer.block
    return layer.name if recompute == "attention" and layer_class(layer).recompute_policy == "save" else None


@memoize
def policy_saved_layers(model: Model, recompute: Recompute) -> frozenset[str]:
    """Layers inside blocks whose outputs `per-op` recompute saves, by name; empty for other modes."""
    if recompute != "per-op":
        return frozenset()
    saved, products = set(), Counter[str]()
    for layer in model.layers:
        policy = layer_class(layer).recompute_policy
        if layer.block is None or policy == "recompute":
            continue
        if policy == "alternate":
            products[layer.block] += 1
        if policy == "save" or products[layer.block] % 2:
            saved.add(layer.name)
    return frozenset(saved)


def recompute_flags(model: Model, recompute: Recompute, stops_early: bool = False) -> Flags:
    """Boolean flag for each layer: whether its forward pass runs twice."""
    saved = policy_saved_layers(model, recompute)
    flags = np.array(
        [recompute_region(layer, recompute) is not None and layer.name not in saved for layer in model.layers]
    )
    if stops_early and recompute in {"full", "per-op"}:
        flags[_block_outputs(model)] = False
    flags.flags.writeable = False
    return flags


def _block_outputs(model: Model) -> list[int]:
    """Indices of the last layers of each block whose outputs no backward op in the block reads."""
    outputs, block, is_open = [], None, False
    for index in reversed(range(len(model.layers))):
        layer = model.layers[index]
        if layer.block != block:
            block, is_open = layer.block, layer.block is not None
        reads = layer_class(layer).backward_reads
        if is_open and reads != "all":
            outputs.append(index)
        is_open = is_open and reads == "nothing"
    return outputs
