"""Activation recompute (activation checkpointing): what the backward pass computes again.

A recomputed region saves what enters it, and its forward pass runs again before its backward pass:

- `attention`: the attention core is a region of its own (Korthikanti et al. 2022; Megatron's `selective`).
- `per-op`: every block is a region, whose attention outputs and every second matrix product are saved all the
  same (PyTorch's selective activation checkpointing, as torchtitan sets it up).
- `full`: every block is a region.

`selective` is what the training software means by it: `attention` for Megatron and what builds on it, else
`per-op`.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.memoize import memoize
from planner.model import Layer, Model
from planner.model.layers import kind_of

Flags = npt.NDArray[np.bool_]
Recompute = Literal["none", "attention", "per-op", "full"]
RECOMPUTE_MODES: tuple[Recompute, ...] = get_args(Recompute)  # the least first
MEGATRON = ("megatron", "megatron-deepspeed", "transformer-engine", "fused")


def recompute_named(name: str, framework: str | None = None) -> Recompute:
    """The mode of a name; `selective` is that of the training software, by default PyTorch."""
    if name == "selective":
        return "attention" if framework in MEGATRON else "per-op"
    for mode in RECOMPUTE_MODES:
        if name == mode:
            return mode
    raise BadInput(f"recompute is {name!r}; allowed: selective, {', '.join(RECOMPUTE_MODES)}")


def usual_recompute(framework: str | None = None) -> tuple[Recompute, ...]:
    """The modes that users of a training software choose from, the least first."""
    return ("none", recompute_named("selective", framework), "full")


def recompute_region(layer: Layer, recompute: Recompute) -> str | None:
    """The recomputed region of a layer; None where its activations are saved."""
    if recompute in {"full", "per-op"}:
        return layer.block
    return layer.name if recompute == "attention" and kind_of(layer).recompute_policy == "save" else None


@memoize
def policy_saved(model: Model, recompute: Recompute) -> frozenset[str]:
    """Layers of recomputed regions whose output is saved, so that they do not run again."""
    if recompute != "per-op":
        return frozenset()
    saved, products = set(), Counter[str]()
    for layer in model.layers:
        policy = kind_of(layer).recompute_policy
        if layer.block is None or policy == "recompute":
            continue
        if policy == "alternate":
            products[layer.block] += 1
        if policy == "save" or products[layer.block] % 2:
            saved.add(layer.name)
    return frozenset(saved)


def recomputed_layers(model: Model, recompute: Recompute, stops_early: bool = False) -> Flags:
    """Flags of the layers whose forward pass runs twice.

    `stops_early`: not of those that only make a block's output. A matrix product's derivative reads its
    input, so that the last product of a block and the sum behind it need not run again: PyTorch's checkpoints
    stop when all saved tensors are there (torch 2.1 on, with use_reentrant=False). A third of the arithmetic
    of a transformer's forward pass is in that product, or a quarter where it is gated."""
    saved = policy_saved(model, recompute)
    flags = np.array(
        [recompute_region(layer, recompute) is not None and layer.name not in saved for layer in model.layers]
    )
    if stops_early and recompute in {"full", "per-op"}:
        flags[_block_outputs(model)] = False
    flags.flags.writeable = False
    return flags


def _block_outputs(model: Model) -> list[int]:
    """Indices of the layers that only make the output of their block."""
    outputs, block, is_open = [], None, False
    for index in reversed(range(len(model.layers))):
        layer = model.layers[index]
        if layer.block != block:
            block, is_open = layer.block, layer.block is not None
        reads = kind_of(layer).backward_reads
        if is_open and reads != "all":
            outputs.append(index)
        is_open = is_open and reads == "nothing"
    return outputs
