"""Layers with windows or weight matrices: convolutions, pooling and fully connected layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from planner.model import Layer
from planner.model.layers.base import (
    CONV,
    CONV1X1,
    CONV3X3,
    CONV_LONG,
    DEPTHWISE,
    GROUPED,
    MATMUL,
    InferredLayer,
    KernelKind,
    Kind,
    LayerShard,
    Matmul,
    Name,
    NamedShape,
    OneInput,
    Padding,
    Pair,
    Pass,
    Shape,
    ShapeMisfit,
    Size,
    Sizes,
    Square,
    Style,
    Weighted,
    Window,
    Work,
    format_shape,
    kind_name,
    position_count,
    read_only_mapping,
    sequence_sizes,
    shard_features,
    shard_tensors,
    weight_elements,
)


class _MatmulKind(Weighted, frozen=True):
    """One matrix product forward, and one each for weight and input gradients backward."""

    needs_input = True
    input_for_weights = True
    kernels = (1, 2)

    @classmethod
    def work(cls, layer: Layer, *, trained: bool = True, flash: bool | None = None) -> Work:
        """FLOPs and memory traffic of the equivalent matrix product."""
        return product_work(cls.matmul(layer), layer)

    @classmethod
    def matmul(cls, layer: Layer) -> Matmul:
        """The matrix product that is equivalent to the layer, per sample."""
        rows, columns = position_count(layer), layer.output_shape[-1] / layer.groups
        return Matmul(rows, columns, layer.macs / (rows * columns * layer.groups), layer.groups)


def product_work(product: Matmul, layer: Layer) -> Work:
    """FLOPs and memory traffic per sample of a layer that is one matrix product."""
    read, out, weights = layer.input_elements, layer.output_elements, weight_elements(layer)
    flops = 2.0 * layer.macs
    for_weights, for_inputs = product.backward_products()
    return Work(
        Pass(flops, flops, read, out, weights, 1, (product,)),
        Pass(flops, flops, out, read, weights, 1, (for_inputs,)),
        Pass(flops, flops, read + out, 0, weights, 1, (for_weights,)),
    )


class _ConvolutionKind(_MatmulKind, frozen=True):
    """A kind whose filters slide over an image or a sequence."""

    bias: bool = False  # added by the same kernel; a bias that is a layer of its own stands in `then`

    kernel_kind = CONV

    def filter_tensors_and_macs(
        self, filters: Shape, output: Shape, style: Style
    ) -> tuple[tuple[NamedShape, ...], int]:
        """Tensors and multiply-adds of filters that slide over an image."""
        bias = ((style.names.bias, output[-1:]),) if self.bias else ()
        macs = math.prod(filters) * math.prod(output[:-1])
        return ((self.weights_name(style), filters), *bias), macs


class Conv(_ConvolutionKind, frozen=True, kw_only=True):
    """A convolution over (height, width, channels)."""

    conv: Size  # output channels
    kernel: Pair = 1
    stride: Pair = 1
    padding: Padding = "same"
    groups: Size = 1

    smallest = read_only_mapping(conv=1)

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns output shape, filters and multiply-adds; raises `ShapeMisfit` if groups do not fit."""
        kernel, stride = window_sizes(self.kernel), window_sizes(self.stride)
        height, width = window_output_sizes(shapes[0], kernel, stride, self.padding)
        channels = shapes[0][2]
        if channels % self.groups or self.conv % self.groups:
            raise ShapeMisfit(
                f"groups = {self.groups} must divide both {channels} input and {self.conv} output channels"
            )
        shape = (height, width, self.conv)
        filters = style.filter_shape(kernel, channels // self.groups, self.conv)
        tensors, macs = self.filter_tensors_and_macs(filters, shape, style)
        return InferredLayer(shape, tensors, macs, kernel, stride, self.groups)

    @classmethod
    def kernel_of(cls, layer: Layer) -> KernelKind:
        """Kernel kind by kernel size, stride and groups."""
        return conv_kernel_kind(layer.kernel or (), layer.stride or (), layer.groups, layer.output_shape[-1])


class Depthwise(_ConvolutionKind, frozen=True, kw_only=True):
    """A convolution of each channel by itself."""

    depthwise: Size  # output channels for each input channel
    kernel: Pair = 3
    stride: Pair = 1
    padding: Padding = "same"

    smallest = read_only_mapping(depthwise=1)
    kernel_kind = DEPTHWISE

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns output shape, filters and multiply-adds, with one group per input channel."""
        kernel, stride = window_sizes(self.kernel), window_sizes(self.stride)
        height, width = window_output_sizes(shapes[0], kernel, stride, self.padding)
        inputs = shapes[0][2]
        channels = inputs * self.depthwise
        filters = (channels, 1, *kernel) if style.torch else (*kernel, inputs, self.depthwise)
        shape = (height, width, channels)
        tensors, macs = self.filter_tensors_and_macs(filters, shape, style)
        return InferredLayer(shape, tensors, macs, kernel, stride, inputs)

    @classmethod
    def matmul(cls, layer: Layer) -> Matmul:
        """Grouped matrix product with one group per output channel, equivalent to the layer."""
        return super().matmul(replace(layer, groups=layer.output_shape[-1]))


class Conv1d(_ConvolutionKind, frozen=True, kw_only=True):
    """A convolution along a sequence."""

    conv1d: Size  # output features
    kernel: Window = 3
    stride: Window = 1
    padding: Annotated[int, Meta(ge=0, le=10_000)] = 0
    bias: bool = True

    smallest = read_only_mapping(conv1d=1)

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns output shape, filters and multiply-adds; raises `ShapeMisfit` for too short a sequence."""
        length, inputs = sequence_sizes(shapes[0])
        positions = (length + 2 * self.padding - self.kernel) // self.stride + 1
        if positions < 1:
            raise ShapeMisfit(f"a window of {self.kernel} does not fit into {length} positions")
        shape, size = (positions, self.conv1d), (self.kernel, 1)
        filters = style.filter_shape(size, inputs, self.conv1d)
        filters = filters[:-1] if style.torch else (self.kernel, *filters[2:])
        tensors, macs = self.filter_tensors_and_macs(filters, shape, style)
        return InferredLayer(shape, tensors, macs, size, (self.stride, 1))

    @classmethod
    def kernel_of(cls, layer: Layer) -> KernelKind:
        """Kernel kind by kernel size and stride."""
        return conv_kernel_kind(layer.kernel or (), layer.stride or (), 1, layer.output_shape[-1])


class Patches(_ConvolutionKind, frozen=True, kw_only=True):
    """Patch embedding: each square of an image becomes one position of a sequence."""

    patches: Size  # features
    size: Pair
    bias: bool = True

    smallest = read_only_mapping(patches=1, size=1)

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the sequence of patches, their filters and multiply-adds."""
        size = window_sizes(self.size)
        height, width = window_output_sizes(shapes[0], size, size, "valid")
        shape = (height * width, self.patches)
        filters = style.filter_shape(size, shapes[0][2], self.patches)
        tensors, macs = self.filter_tensors_and_macs(filters, shape, style)
        return InferredLayer(shape, tensors, macs, size, size)


class _FullyConnected(_MatmulKind, frozen=True):
    """A fully connected layer, row-parallel after a sharded layer, else column-parallel if possible."""

    backward_reads = "input"
    recompute_policy = "alternate"
    accepts_shard = True

    @classmethod
    def shard(
        cls, layer: Layer, degree: int, *, input_sharded: bool, output_may_shard: bool, sequence: bool
    ) -> LayerShard:
        """Row-parallel shard of a layer with sharded input, else column-parallel if possible."""
        tensors = shard_tensors(layer.tensors, degree)
        if input_sharded:
            inputs, macs = layer.input_elements // degree, layer.macs // degree
            return LayerShard(
                replace(layer, input_elements=inputs, macs=macs, tensors=tensors), partial_sum=True
            )
        if output_may_shard:
            tied = shard_tensors(layer.tied, degree)
            columns = replace(shard_features(layer, degree), input_elements=layer.input_elements, tied=tied)
            return LayerShard(columns, output_sharded=True)
        return LayerShard(layer)


class Fc(_FullyConnected, frozen=True, kw_only=True):
    """A fully connected layer over its whole input."""

    fc: Size  # output features

    smallest = read_only_mapping(fc=1)
    kernel_kind = MATMUL
    reads_all_rows = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns output features, weights and multiply-adds, over all elements of all inputs."""
        elements = sum(map(math.prod, shapes))
        weights = self.weights_name(style), style.weight_shape(elements, self.fc)
        return InferredLayer((self.fc,), (weights,), elements * self.fc)

    @classmethod
    def matmul(cls, layer: Layer) -> Matmul:
        """The matrix product of the flattened input with the weights."""
        columns = layer.output_shape[-1]
        return Matmul(1, columns, layer.macs / columns)


class Linear(_FullyConnected, frozen=True, kw_only=True):
    """A fully connected layer over the last axis, applied to each position or pixel."""

    linear: Size  # output features
    bias: bool = True
    transposed: bool = False  # weights are (inputs, outputs) whatever the layout
    tied: Name | None = None  # the layer whose tensor it reads as its weights
    biases: Name | None = None

    smallest = read_only_mapping(linear=1)
    kernel_kind = MATMUL
    autocast = "narrow"

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns output shape, weights (new or tied), bias and multiply-adds."""
        *outer, inputs = shapes[0]
        weights = (inputs, self.linear) if self.transposed else style.weight_shape(inputs, self.linear)
        tensors = [] if self.tied else [(self.weights_name(style), weights)]
        if self.bias:
            tensors.append((self.biases or style.names.bias, (self.linear,)))
        macs = math.prod(outer) * inputs * self.linear
        return InferredLayer((*outer, self.linear), tuple(tensors), macs, tied=weights if self.tied else ())


class Product(Kind, frozen=True, kw_only=True):
    """Matrix products of two layers' outputs, where attention is not recognized. Written by importers."""

    product: Annotated[list[Name], Meta(min_length=2, max_length=2)]
    shape: Sizes
    depth: Size  # that is summed over

    lists_inputs = True
    kernel_kind = MATMUL
    needs_input = True
    kernels = (1, 2)

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the output shape that the file gives, and the multiply-adds."""
        return InferredLayer(tuple(self.shape), macs=math.prod(self.shape) * self.depth)

    @classmethod
    def work(cls, layer: Layer, *, trained: bool = True, flash: bool | None = None) -> Work:
        """FLOPs and memory traffic of the products, forward and backward."""
        shape = (1, 1, *layer.output_shape)
        height, width, count = shape[-2], shape[-1], math.prod(shape[:-2])
        product = Matmul(height, width, layer.macs / (height * width * count), count, "times")
        return product_work(product, layer)


class Pool(OneInput, frozen=True, kw_only=True):
    """A pooling window; files name it `max_pool` or `avg_pool`."""

    stride: Pair | None = None  # the window itself
    padding: Padding = "valid"

    is_window = True
    needs_input = True
    needs_output = True

    def infer_pooled(self, window: Pair, shape: Shape) -> InferredLayer:
        """Infers the output shape of pooling with this window."""
        kernel = window_sizes(window)
        stride = kernel if self.stride is None else window_sizes(self.stride)
        shape = (*window_output_sizes(shape, kernel, stride, self.padding), shape[2])
        return InferredLayer(shape, kernel=kernel, stride=stride, kind=kind_name(Pool))


class MaxPool(Pool, frozen=True, kw_only=True):
    max_pool: Pair

    smallest = read_only_mapping(max_pool=1)

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the output shape of pooling."""
        return self.infer_pooled(self.max_pool, shapes[0])


class AvgPool(Pool, frozen=True, kw_only=True):
    avg_pool: Pair

    smallest = read_only_mapping(avg_pool=1)

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the output shape of pooling."""
        return self.infer_pooled(self.avg_pool, shapes[0])


class GlobalPool(OneInput, frozen=True, kw_only=True):
    """The mean of each channel."""

    global_pool: bool
    keep: bool = False  # one pixel is left instead of a vector

    reads_all_rows = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns one value per channel, with `keep` as an image of one pixel."""
        check_image(shapes[0])
        return InferredLayer((1, 1, shapes[0][2]) if self.keep else shapes[0][2:])


def window_sizes(pair: Pair) -> Square:
    """Height and width of a window that is given as one number or two."""
    return (pair, pair) if isinstance(pair, int) else (pair[0], pair[1])


def window_output_sizes(shape: Shape, kernel: Square, stride: Square, padding: Padding) -> Square:
    """Height and width of the output of a sliding window with this padding."""
    check_image(shape)
    if padding == "same":
        return -(-shape[0] // stride[0]), -(-shape[1] // stride[1])
    around = 2 * padding if isinstance(padding, int) else 0
    room = shape[0] + around - kernel[0], shape[1] + around - kernel[1]
    if min(room) < 0:
        raise ShapeMisfit(
            f"a window of {format_shape(kernel)} does not fit into its input of {format_shape(shape)}"
            ' (use a smaller one, or padding = "same")'
        )
    return room[0] // stride[0] + 1, room[1] // stride[1] + 1


def check_image(shape: Shape) -> None:
    """Raises `ShapeMisfit` unless the shape is (height, width, channels)."""
    if len(shape) != 3:
        raise ShapeMisfit(f"it reads (height, width, channels), but its input is {format_shape(shape)}")


def conv_kernel_kind(kernel: Sequence[int], stride: Sequence[int], groups: int, channels: int) -> KernelKind:
    """Kernel kind of a convolution with these filters and output channels."""
    if groups > 1:
        return DEPTHWISE if groups == channels else GROUPED
    if all(side == 1 for side in kernel):
        return CONV1X1
    if any(step > 1 for step in stride):
        return CONV
    return CONV3X3 if tuple(kernel) in ((3, 3), (5, 5)) else CONV_LONG
