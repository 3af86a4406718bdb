"""Activation recompute (activation checkpointing): what the backward pass computes again.

A recomputed region saves what enters it, and its forward pass runs again before its backward pass:

- `full`: every block is a region.
- `selective`: the attention core is a region of its own (Korthikanti et al. 2022, Megatron-LM).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from planner.model import Layer, Model
from planner.model.layers import kind_of

Flags = npt.NDArray[np.bool_]
Recompute = Literal["none", "selective", "full"]
RECOMPUTE_MODES: tuple[Recompute, ...] = get_args(Recompute)


def recompute_region(layer: Layer, recompute: Recompute) -> str | None:
    """The recomputed region of a layer; None where its activations are saved."""
    if recompute == "full":
        return layer.block
    return layer.name if recompute == "selective" and kind_of(layer).selective_recompute else None


@lru_cache(maxsize=256)
def recomputed_layers(model: Model, recompute: Recompute, stops_early: bool = False) -> Flags:
    """Flags of the layers whose forward pass runs twice.

    `stops_early`: not of those that only make a block's output. A matrix product's derivative reads its
    input, so that the last product of a block and the sum behind it need not run again: PyTorch's checkpoints
    stop when all saved tensors are there (torch 2.1 on, with use_reentrant=False). A third of the arithmetic
    of a transformer's forward pass is in that product, or a quarter where it is gated."""
    flags = np.array([recompute_region(layer, recompute) is not None for layer in model.layers])
    if stops_early and recompute == "full":
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
