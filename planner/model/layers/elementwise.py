"""Layers without matrix products: pooling, activations, norms, sums and products of elements."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, field

from planner.model import Layer
from planner.model.layers.base import (
    Inferred,
    Kept,
    Kind,
    Name,
    Names,
    OneInput,
    Padding,
    Pair,
    Passes,
    Shape,
    ShapeMisfit,
    Size,
    Sizes,
    Style,
    Workload,
    check_image,
    format_shape,
    kind_name,
    position_count,
    read_only_mapping,
    window_output_sizes,
    window_sizes,
)


class Pool(OneInput, frozen=True, kw_only=True):
    """A pooling window; files name it `max_pool` or `avg_pool`."""

    stride: Pair | None = None  # the window itself
    padding: Padding = "valid"

    is_window = True
    needs_input = True
    needs_output = True

    def infer_pooled(self, window: Pair, shape: Shape) -> Inferred:
        """Infers the output shape of pooling with this window."""
        kernel = window_sizes(window)
        stride = kernel if self.stride is None else window_sizes(self.stride)
        shape = (*window_output_sizes(shape, kernel, stride, self.padding), shape[2])
        return Inferred(shape, kernel=kernel, stride=stride, kind=kind_name(Pool))


class MaxPool(Pool, frozen=True, kw_only=True):
    max_pool: Pair

    smallest = read_only_mapping(max_pool=1)

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return self.infer_pooled(self.max_pool, shapes[0])


class AvgPool(Pool, frozen=True, kw_only=True):
    avg_pool: Pair

    smallest = read_only_mapping(avg_pool=1)

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return self.infer_pooled(self.avg_pool, shapes[0])


class GlobalPool(OneInput, frozen=True, kw_only=True):
    """The mean of each channel."""

    global_pool: bool
    keep: bool = False  # one pixel is left instead of a vector

    reads_all_rows = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        check_image(shapes[0])
        return Inferred((1, 1, shapes[0][2]) if self.keep else shapes[0][2:])


class _Activation(OneInput, frozen=True):
    """An element-wise function; its output is sharded like its input."""

    forward = Passes(1, 1)
    backward = Passes(2, 1)
    passes_shard = True
    fuses = True


class Relu(_Activation, frozen=True, kw_only=True):
    relu: bool

    needs_output = True
    in_place = True


class Gelu(_Activation, frozen=True, kw_only=True):
    gelu: bool

    needs_input = True


class Silu(_Activation, frozen=True, kw_only=True):
    silu: bool

    needs_input = True


class Sigmoid(_Activation, frozen=True, kw_only=True):
    sigmoid: bool

    needs_output = True


class Tanh(_Activation, frozen=True, kw_only=True):
    tanh: bool

    needs_output = True


class Softmax(_Activation, frozen=True, kw_only=True):
    softmax: bool

    forward = Passes(2, 1)
    backward = Passes(1, 1)
    needs_output = True


class Dropout(_Activation, frozen=True, kw_only=True):
    dropout: bool

    forward = Passes(2, 1)
    in_place = True
    sequence_parallel = True

    @classmethod
    def saved(cls, layer: Layer, *, flash: bool | None = None) -> Kept:
        return Kept(masks=layer.output_elements)


class Bias(_Activation, frozen=True, kw_only=True):
    bias: bool

    tensor_names = read_only_mapping(bias=(Name, "{layer}/biases"))
    backward = Passes(1, 0)
    in_place = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred(shapes[0], ((style.names.bias, shapes[0][-1:]),))


class Scale(_Activation, frozen=True, kw_only=True):
    """A learned factor per feature."""

    scale: bool
    weights: Name | None = None

    tensor_names = read_only_mapping(scale=(Name, "{layer}/weights"))
    backward = Passes(3, 1)
    kernels = (1, 2)
    needs_input = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        shape = (shapes[0][-1], 1, 1) if style.torch and len(shapes[0]) == 3 else shapes[0][-1:]
        return Inferred(shapes[0], ((self.weights or style.names.scale, shape),))


class BatchNorm(OneInput, frozen=True, kw_only=True):
    """Batch normalization; in training it reads its input twice: for statistics, then for values."""

    batch_norm: bool

    tensor_names = read_only_mapping(
        batch_norm=(
            Annotated[tuple[Name, ...], Meta(min_length=1, max_length=2)],
            ("{layer}/gamma", "{layer}/beta"),
        )
    )
    moving_averages = True
    forward = Passes(2, 1)
    backward = Passes(4, 1)
    needs_input = True
    passes_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred(shapes[0], tuple((name, shapes[0][-1:]) for name in style.names.batch_norm))

    @classmethod
    def inference_workload(cls, layer: Layer, training: Workload) -> Workload:
        """Work of inference: statistics are known, so that the input is read once."""
        size = layer.output_elements
        return Workload(training.kernel, replace(training.forward, read_elements=size))

    @classmethod
    def frozen_workload(cls, layer: Layer, training: Workload) -> Workload:
        """Work with frozen statistics: one factor per feature in both passes."""
        size = layer.output_elements
        back = replace(training.backward, read_elements=size, written_elements=size, weight_elements=0)
        return replace(cls.inference_workload(layer, training), backward=back)


class Lrn(OneInput, frozen=True, kw_only=True):
    """Local response normalization."""

    lrn: bool

    forward = Passes(2, 1)
    backward = Passes(4, 1)
    needs_input = True
    needs_output = True
    passes_shard = True


class _PositionNorm(OneInput, frozen=True):
    """Normalization over the features of each position; its weights may cover one head or axis."""

    features: Size | list[Size] | None = None  # shape of the weights, if not all features
    affine: bool = True  # it has weights

    forward = Passes(1, 1)
    backward = Passes(3, 1)
    kernels = (1, 2)
    needs_input = True
    sequence_parallel = True
    autocast = "widen"
    autocast_wide_output = True
    fuses = True

    def infer_norm(self, shape: Shape, names: tuple[str, ...]) -> Inferred:
        """Infers a norm: the shape is unchanged and each name is one weight tensor."""
        given = self.features or shape[-1]
        size = (given,) if isinstance(given, int) else tuple(given)
        if shape[-1] % math.prod(size):
            raise ShapeMisfit(f"{shape[-1]:,} features are no multiple of {format_shape(size)}")
        return Inferred(shape, tuple((name, size) for name in names if self.affine))


class LayerNorm(_PositionNorm, frozen=True, kw_only=True):
    layer_norm: bool
    bias: bool = True

    smallest = read_only_mapping(layer_norm=True)
    tensor_names = read_only_mapping(layer_norm=(tuple[Name, Name], ("{layer}/gamma", "{layer}/beta")))

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return self.infer_norm(shapes[0], style.names.layer_norm if self.bias else style.names.layer_norm[:1])

    @classmethod
    def saved(cls, layer: Layer, *, flash: bool | None = None) -> Kept:
        return Kept(wide=2 * position_count(layer))


class RmsNorm(_PositionNorm, frozen=True, kw_only=True):
    rms_norm: bool

    tensor_names = read_only_mapping(rms_norm=(Name, "{layer}/gamma"))

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return self.infer_norm(shapes[0], (style.names.rms_norm,))

    @classmethod
    def saved(cls, layer: Layer, *, flash: bool | None = None) -> Kept:
        return Kept(wide=position_count(layer))


class Add(Kind, frozen=True, kw_only=True):
    """A sum of branches; backward it sums gradients where its shortcut branches off."""

    add: Names

    lists_inputs = True
    forward = Passes(2, 1)
    backward = Passes(2, 1)
    backward_reads = "nothing"
    joins_residual = True
    sequence_parallel = True
    autocast_wide_output = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        if len(set(shapes)) > 1:
            raise ShapeMisfit(
                f"add needs inputs of one shape, not {', '.join(map(format_shape, dict.fromkeys(shapes)))}"
            )
        return Inferred(shapes[0])


class Multiply(Kind, frozen=True, kw_only=True):
    """An element-wise product of branches."""

    multiply: Names

    lists_inputs = True
    fuses = True
    forward = Passes(2, 1)
    backward = Passes(3, 2)
    needs_input = True
    passes_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        largest = max(shapes, key=math.prod)
        for shape in shapes:
            padded = (1,) * (len(largest) - len(shape)) + shape
            if len(shape) > len(largest) or any(
                a not in (1, b) for a, b in zip(padded, largest, strict=True)
            ):
                raise ShapeMisfit(
                    f"multiply needs shapes that spread to one, not {', '.join(map(format_shape, shapes))}"
                )
        return Inferred(largest)


class Other(Kind, frozen=True, kw_only=True):
    """Any other operator, by name, with its inputs, output shape and tensors. Written by importers."""

    other: Name
    reads: Annotated[list[Name], Meta(min_length=1, max_length=10_000)]
    shape: Sizes
    tensors: dict[Name, Annotated[list[Size], Meta(max_length=6)]] = field(default_factory=dict)

    lists_inputs = True
    forward = Passes(1, 1)
    backward = Passes(2, 1)
    needs_input = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred(
            tuple(self.shape), tuple((name, tuple(shape)) for name, shape in self.tensors.items())
        )
