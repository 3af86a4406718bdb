"""Which layers a backward pass computes again, because their activations were not kept."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from planner.model import Model
from planner.model.layers import kind_of

Flags = npt.NDArray[np.bool_]
Recompute = Literal["none", "selective", "full"]
RECOMPUTE_MODES: tuple[Recompute, ...] = get_args(Recompute)


@lru_cache(maxsize=256)
def recomputed_layers(model: Model, recompute: Recompute, stops_early: bool = False) -> Flags:
    """A flag for each layer: attention, or all that is in blocks.

    `stops_early`: not what only makes a block's output. A product's derivative reads what went into it, so
    that the last product of a block and the sum behind it are not done again: PyTorch's checkpoints end when
    all that was not kept is there (torch 2.1 on, with use_reentrant=False). A third of the arithmetic of a
    transformer's forward pass is in that product, or a quarter where it is gated."""
    if recompute == "selective":
        again = np.array([kind_of(layer).selective_recompute for layer in model.layers])
    else:
        again = np.array([recompute == "full" and layer.block is not None for layer in model.layers])
    if stops_early and recompute == "full":
        again[_outputs(model)] = False
    again.flags.writeable = False
    return again


def _outputs(model: Model) -> list[int]:
    """The layers that only make the output of their block."""
    found, block, open_ = [], None, False
    for at in reversed(range(len(model.layers))):
        layer = model.layers[at]
        if layer.block != block:
            block, open_ = layer.block, layer.block is not None
        reads = kind_of(layer).backward_reads
        if open_ and reads != "all":
            found.append(at)
        open_ = open_ and reads == "nothing"
    return found
