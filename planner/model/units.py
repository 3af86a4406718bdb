"""A model as a chain of units: what comes before its blocks, the blocks, what comes after.

Units are the grain of pipelines and of sharding; layers inside one are not told apart any more. A network
without blocks is one unit a layer that has parameters, with what follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.memoize import memoize
from planner.model import Model

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Chain:
    """`unit[l]` is the unit of layer l; units are numbered in order. `repeats[u]`: unit u is one of the
    model's blocks."""

    names: tuple[str, ...]
    unit: Ints
    repeats: npt.NDArray[np.bool_]
    elements: Ints  # trained parameters of each unit
    matrices: tuple[tuple[int, ...], ...]  # of each unit, their elements; vectors are small beside them
    frozen_bytes: Floats  # of parameters of each unit that are not trained

    @property
    def length(self) -> int:
        return len(self.names)

    def summed(self, by_layer: npt.ArrayLike) -> Floats:
        """What the layers of each unit have together."""
        weights = np.asarray(by_layer, np.float64)
        return np.bincount(self.unit, weights=weights, minlength=self.length).astype(np.float64)


@memoize
def chain_of(model: Model) -> Chain:
    """The units of a model, in order."""
    names: list[str] = []
    repeats: list[bool] = []
    unit: list[int] = []
    has_blocks = any(layer.block is not None for layer in model.layers)
    for layer in model.layers:
        name = layer.block if has_blocks else None
        if has_blocks:
            begins = not names or name != (names[-1] if repeats[-1] else None)
        else:
            begins = not names or bool(layer.tensors)
        if begins:
            names.append(name if name is not None else layer.name)
            repeats.append(name is not None)
        unit.append(len(names) - 1)
    elements = np.zeros(len(names), np.intp)
    matrices: list[tuple[int, ...]] = [()] * len(names)
    frozen_bytes = np.zeros(len(names))
    for at, layer in zip(unit, model.layers, strict=True):
        trained = [tensor for tensor in layer.tensors if tensor.frozen_bits is None]
        elements[at] += sum(tensor.elements for tensor in trained)
        matrices[at] += tuple(tensor.elements for tensor in trained if len(tensor.shape) > 1)
        frozen_bytes[at] += sum(tensor.frozen_bytes for tensor in layer.tensors)
    return Chain(
        tuple(names),
        np.array(unit, np.intp),
        np.array(repeats, np.bool_),
        elements,
        tuple(matrices),
        frozen_bytes,
    )
