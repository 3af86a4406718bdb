"""The kernels of a model as arrays: what each asks of a device, for one sample and for a step.

`planner.model.layers.workloads` gives the work of each layer, forward and backward; here the kernels of one
pass of a layer are one row, taken to be alike. Everything is a property of the network alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from planner.memoize import memoize
from planner.model import Model
from planner.model.layers import KERNEL_KINDS, Matmul, Pass, workload, workloads

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Network = Literal["cnn", "transformer"]

_PLACE = {kind: place for place, kind in enumerate(KERNEL_KINDS)}
MATMUL, ATTENTION, MEMORY = (_PLACE[kind] for kind in (workload.MATMUL, workload.ATTENTION, workload.MEMORY))
CONVOLUTIONS = tuple(range(_PLACE[workload.CONV1X1], MEMORY))


@dataclass(frozen=True, eq=False)
class Kernels:
    """One row for the kernels that a layer launches in one direction; figures are those of one of them.

    `layer`: its place in the model. `launches`: how many kernels; `fixed`: the share of a usual kernel's
    fixed time that each takes. `flops` and `moved` (elements) are for a sample, `weights` (elements) for a
    step. Small products pay for tiles that they do not fill: `row_flops` are those of one row, `edge_flops`
    those of a sample times (1 / columns + 1 / depth).
    """

    layers: int
    layer: Ints
    backward: Flags
    kind: Ints
    launches: Array
    fixed: Array
    flops: Array
    row_flops: Array
    edge_flops: Array
    moved: Array
    weights: Array
    parameters: int
    tensors: int


@memoize
def kernels_of(model: Model, flash: bool | None = None, training: bool = True) -> Kernels:
    """The kernels of a model; cached. `flash` overrides what the model says of attention; without `training`
    only those of a forward pass."""
    rows = []
    for at, asked in enumerate(workloads(model, flash=flash, training=training)):
        kind = _PLACE[asked.kernel]
        share = model.layers[at].launch_share
        for back, entry in enumerate((asked.forward, asked.backward)):
            rows += [
                (*_row(at, of, part, back), share) for of, part in _parts(kind, entry, back) if part.kernels
            ]
    table = np.array(rows or np.zeros((0, 10)))
    launches, flops, row_flops, edge_flops, moved, weights, fixed = table[:, 3:].T
    return Kernels(
        len(model.layers),
        table[:, 0].astype(np.int64),
        table[:, 1].astype(np.bool_),
        table[:, 2].astype(np.int64),
        launches,
        fixed,
        flops,
        row_flops,
        edge_flops,
        moved,
        weights,
        model.trained_parameters,
        len(model.trained_tensors),
    )


def _parts(kind: int, one: Pass, backward: int) -> tuple[tuple[int, Pass], ...]:
    """Kernels of one kind each: attention that writes its scores is products, and passes over the scores
    (softmax with its mask, dropout), which read and write them; backward the gradient too."""
    passes = one.kernels - len(one.matmuls)
    if kind != ATTENTION or passes <= 0 or one.kernels < len(one.matmuls):
        return ((kind, one),)
    scores = one.matmuls[0]
    moved = passes * (2 + backward) * scores.rows * scores.columns * scores.times
    products = replace(one, read_elements=one.read_elements - moved, kernels=len(one.matmuls))
    return (kind, products), (MEMORY, Pass(0, 0, moved, 0, 0, passes))


def _row(at: int, kind: int, one: Pass, backward: int) -> tuple[float, ...]:
    n, row_flops, edge_flops = one.kernels, 0.0, 0.0
    if kind not in (MEMORY, ATTENTION):
        row_flops = 2 * one.weight_elements / n
    if kind == MATMUL:
        edge_flops = sum(_edge(product) for product in one.matmuls) / n
    moved, weights = one.moved_elements / n, one.weight_elements / n
    return at, backward, kind, n, one.flops / n, row_flops, edge_flops, moved, weights


def _edge(product: Matmul) -> float:
    """Of the two sides that do not grow with the batch."""
    sides = (product.columns, product.depth if product.grows == "rows" else product.rows)
    return product.flops * sum(1 / max(side, 1.0) for side in sides)


@memoize
def network_of(model: Model) -> Network:
    """The kind of a network, by what most of its arithmetic is."""
    kernels = kernels_of(model, None, True)  # as `planner.device.rates.times` asks, so that it is found once
    flops, images = kernels.flops * kernels.launches, np.isin(kernels.kind, CONVOLUTIONS)
    return "cnn" if flops[images].sum() > flops.sum() / 2 else "transformer"
