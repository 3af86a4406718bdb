"""What one layer asks of a device for one sample: arithmetic, matrix shapes, elements moved and kernels
launched.

    for layer, asked in zip(model.layers, demands(model)):
        asked.kernel            # "matmul", "attention", "conv3x3", ..., "memory":
        planner.model.layers.kernel_kind asked.forward.flops     # done by the kernels; `nominal_flops` as
        torch counts them asked.backward.matmuls  # (rows, columns, depth), how many, and which of these grows
        with the batch

All is for one sample but `weight_elements`: parameters read or gradients written once, whatever the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from planner.model import Attention, Experts, Layer, Model
from planner.model.layers import kernel_kind, kind_of, score_pairs

Grows = Literal["rows", "depth", "times"]


@dataclass(frozen=True, slots=True)
class Matmul:
    """`times` products of a (rows x depth) by a (depth x columns) matrix, for one sample; `grows` is the
    number that is multiplied by the batch."""

    rows: float
    columns: float
    depth: float
    times: float = 1
    grows: Grows = "rows"

    @property
    def flops(self) -> float:
        return 2.0 * self.rows * self.columns * self.depth * self.times


@dataclass(frozen=True, slots=True)
class Pass:
    """One direction of one layer. Where attention has a causal mask, `flops` leave out what is masked and
    `nominal_flops` do not."""

    flops: float = 0.0
    nominal_flops: float = 0.0
    read_elements: float = 0.0
    written_elements: float = 0.0
    weight_elements: float = 0.0
    kernels: int = 0
    matmuls: tuple[Matmul, ...] = ()

    @property
    def moved_elements(self) -> float:
        return self.read_elements + self.written_elements


@dataclass(frozen=True, slots=True)
class Demand:
    """What a layer asks of a device."""

    kernel: str
    forward: Pass = Pass()
    backward: Pass = Pass()


NOTHING = Demand("memory")


@lru_cache(maxsize=64)
def demands(model: Model, *, flash: bool | None = None) -> tuple[Demand, ...]:
    """What each layer of a model asks, in their order. `flash` overrides what the model says of attention."""
    data = {layer.name for layer in model.layers if layer.kind == "input"}
    memo: dict[tuple[object, ...], Demand] = {}
    out = []
    for layer in model.layers:
        reads_data = set(layer.inputs) <= data
        key = (
            *(layer.kind, layer.output_shape, layer.input_elements, layer.macs, layer.detail, layer.kernel),
            *(layer.stride, layer.groups, reads_data, sum(t.elements for t in layer.tensors + layer.tied)),
        )
        if key not in memo:
            memo[key] = demand(layer, reads_data=reads_data, flash=flash)
        out.append(memo[key])
    return tuple(out)


def demand(layer: Layer, *, reads_data: bool = False, flash: bool | None = None) -> Demand:
    """What one layer asks. `reads_data`: it reads the training data itself, which needs no gradient."""
    kind, kernel = kind_of(layer), kernel_kind(layer)
    if not kind.computes:
        return NOTHING
    if isinstance(layer.detail, Attention):
        whole = layer.detail.flash if flash is None else flash
        return _flash(layer, layer.detail) if whole else _scores(layer, layer.detail)
    if isinstance(layer.detail, Experts):
        return _experts(layer, layer.detail)
    out = layer.output_elements
    weights = sum(tensor.elements for tensor in (*layer.tensors, *layer.tied))
    if layer.macs:
        gradients = 1 if reads_data else 2  # of the weights, and of the input
        flops, moved = 2.0 * layer.macs, layer.input_elements + out
        product = _product(layer)
        return Demand(
            kernel,
            Pass(flops, flops, layer.input_elements, out, weights, 1, (product,)),
            Pass(
                gradients * flops,
                gradients * flops,
                gradients * moved - (0 if reads_data else layer.input_elements),
                0 if reads_data else layer.input_elements,
                gradients * weights,
                gradients,
                _gradients(product)[:gradients],
            ),
        )
    launched = kind.kernels
    if kind.forward is None or kind.backward is None:  # pooling, and anything that reads and writes once
        forward = Pass(0, 0, layer.input_elements, out, 0, launched[0])
        return Demand(
            kernel, forward, Pass(0, 0, layer.input_elements + 2 * out, layer.input_elements, 0, launched[1])
        )
    size = layer.input_elements if layer.kind == "cross_entropy" else out
    table = weights if layer.kind == "embedding" else 0  # its gradient is as large as the table
    return Demand(
        kernel,
        Pass(0, 0, kind.forward.reads * size, kind.forward.writes * size, 0, launched[0]),
        Pass(0, 0, kind.backward.reads * size, kind.backward.writes * size, table, launched[1]),
    )


def _product(layer: Layer) -> Matmul:
    """The matrix product that a convolution or a fully connected layer amounts to."""
    if layer.kind == "product":  # of matrices, as many as there are outer axes
        shape = (1, 1, *layer.output_shape)
        height, width, count = shape[-2], shape[-1], math.prod(shape[:-2])
        return Matmul(height, width, layer.macs / (height * width * count), count, "times")
    rows = 1 if layer.kind == "fc" else math.prod(layer.output_shape[:-1])
    groups = layer.groups if layer.kind != "depthwise" else layer.output_shape[-1]
    columns = layer.output_shape[-1] / groups
    return Matmul(rows, columns, layer.macs / (rows * columns * groups), groups)


def _gradients(product: Matmul) -> tuple[Matmul, Matmul]:
    """Products of the backward pass: the gradient of the weights, then that of the input."""
    rows, columns, depth, times = product.rows, product.columns, product.depth, product.times
    if product.grows == "times":
        return Matmul(depth, columns, rows, times, "times"), Matmul(rows, depth, columns, times, "times")
    return Matmul(depth, columns, rows, times, "depth"), Matmul(rows, depth, columns, times)


def _flash(layer: Layer, part: Attention) -> Demand:
    """Attention in one kernel: backward computes the scores a second time, so that it has five products to
    two."""
    queries, out = layer.output_shape[0], layer.output_elements
    pairs = score_pairs(part, queries) * part.heads
    nominal = 2.0 * layer.macs
    flops = 4.0 * pairs * part.head_size
    scores = Matmul(queries, pairs / (queries * part.heads), part.head_size, part.heads, "times")
    values = Matmul(queries, part.head_size, scores.columns, part.heads, "times")
    return Demand(
        "attention",
        Pass(flops, nominal, layer.input_elements, out, 0, 1, (scores, values)),
        Pass(
            2.5 * flops,
            2.5 * nominal,
            layer.input_elements + 2 * out,
            layer.input_elements,
            0,
            2,
            (scores, scores, values, values, values),
        ),
    )


def _scores(layer: Layer, part: Attention) -> Demand:
    """Attention whose scores are written to memory: products, softmax with its mask, dropout, each a
    kernel."""
    queries, out = layer.output_shape[0], layer.output_elements
    square = queries * part.keys * part.heads
    flops = 2.0 * layer.macs
    scores = Matmul(queries, part.keys, part.head_size, part.heads, "times")
    values = Matmul(queries, part.head_size, part.keys, part.heads, "times")
    dropped = 1 if part.dropout else 0
    return Demand(
        "attention",
        Pass(
            flops,
            flops,
            layer.input_elements + (2 + dropped) * square,
            out + (2 + dropped) * square,
            0,
            3 + dropped,
            (scores, values),
        ),
        Pass(
            2 * flops,
            2 * flops,
            layer.input_elements + 2 * out + (5 + 2 * dropped) * square,
            layer.input_elements + (2 + dropped) * square,
            0,
            5 + dropped,
            (scores, scores, values, values),
        ),
    )


def _experts(layer: Layer, part: Experts) -> Demand:
    """A router, the positions sorted by expert, two or three products for each expert, the weighted sum."""
    positions, width = math.prod(layer.output_shape[:-1]), layer.output_shape[-1]
    kernels = kind_of(layer).kernels
    sent = positions * part.top_k
    share = sent / part.experts  # positions of one expert, if they are sent evenly
    ways = 2 if part.gated else 1
    products = [
        Matmul(positions, part.experts, width),
        Matmul(share, part.inner * ways, width, part.experts),
        Matmul(share, width, part.inner, part.experts),
    ]
    if part.shared_inner:
        products += [
            Matmul(positions, part.shared_inner * ways, width),
            Matmul(positions, width, part.shared_inner),
        ]
    inner = sent * part.inner + positions * part.shared_inner
    # sorted in, read by the products, activated, written out, weighted and summed
    read = positions * width + 3 * sent * width + inner * (ways + 1) + positions * part.experts * 2
    written = 2 * sent * width + inner * (ways + 1) + positions * (width + part.experts * 2)
    weights = sum(tensor.elements for tensor in layer.tensors)
    flops = sum(product.flops for product in products)
    backward = tuple(gradient for product in products for gradient in _gradients(product))
    return Demand(
        "matmul",
        Pass(flops, flops, read, written, weights, kernels[0], tuple(products)),
        Pass(2 * flops, 2 * flops, 2 * read, 2 * written, 2 * weights, kernels[1], backward),
    )
