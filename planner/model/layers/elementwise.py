"""Layers without windows and weight matrices: activations, norms, sums of elements, inputs and views."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, cast

from msgspec import Meta, defstruct, field

from planner.model import Layer
from planner.model.layers.base import (
    ElementCounts,
    InferredLayer,
    Kind,
    MemoryTraffic,
    Name,
    Names,
    OneInput,
    Shape,
    ShapeMisfit,
    Size,
    Sizes,
    Style,
    Work,
    format_shape,
    position_count,
    read_only_mapping,
    sequence_sizes,
)


class _Activation(OneInput, frozen=True):
    """An element-wise function; its output is sharded like its input."""

    forward = MemoryTraffic(1, 1)
    backward = MemoryTraffic(2, 1)
    passes_shard = True
    fuses = True


def _activation_class(name: str, **attributes: Any) -> type[Kind]:
    """Creates the class of an activation that has no settings in files, with these class attributes."""
    key = (name.lower(), bool)
    made = defstruct(name, [key], bases=(_Activation,), namespace=attributes, module=__name__, frozen=True)
    return cast(type[Kind], made)


Relu = _activation_class("Relu", needs_output=True, in_place=True)
Gelu = _activation_class("Gelu", needs_input=True)
Silu = _activation_class("Silu", needs_input=True)
Sigmoid = _activation_class("Sigmoid", needs_output=True)
Tanh = _activation_class("Tanh", needs_output=True)
Softmax = _activation_class(
    "Softmax", needs_output=True, forward=MemoryTraffic(2, 1), backward=MemoryTraffic(1, 1)
)


class Dropout(_Activation, frozen=True, kw_only=True):
    """Dropout, which saves a mask."""

    dropout: bool

    forward = MemoryTraffic(2, 1)
    in_place = True
    sequence_parallel = True

    @classmethod
    def saved_activations(cls, layer: Layer, *, flash: bool | None = None) -> ElementCounts:
        """Dropout's mask: one entry per output element."""
        return ElementCounts(masks=layer.output_elements)


class Bias(_Activation, frozen=True, kw_only=True):
    """A learned summand per feature."""

    bias: bool

    tensor_names = read_only_mapping(bias=(Name, "{layer}/biases"))
    backward = MemoryTraffic(1, 0)
    in_place = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the input's shape and one bias per feature."""
        return InferredLayer(shapes[0], ((style.names.bias, shapes[0][-1:]),))


class Scale(_Activation, frozen=True, kw_only=True):
    """A learned factor per feature."""

    scale: bool
    weights: Name | None = None

    tensor_names = read_only_mapping(scale=(Name, "{layer}/weights"))
    backward = MemoryTraffic(3, 1)
    kernels = (1, 2)
    needs_input = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the input's shape and one factor per feature."""
        shape = (shapes[0][-1], 1, 1) if style.torch and len(shapes[0]) == 3 else shapes[0][-1:]
        return InferredLayer(shapes[0], ((self.weights or style.names.scale, shape),))


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
    forward = MemoryTraffic(2, 1)
    backward = MemoryTraffic(4, 1)
    needs_input = True
    passes_shard = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the input's shape and the norm's tensors, with one value per channel."""
        return InferredLayer(shapes[0], tuple((name, shapes[0][-1:]) for name in style.names.batch_norm))

    @classmethod
    def work(cls, layer: Layer, *, trained: bool = True, flash: bool | None = None) -> Work:
        """FLOPs and memory traffic; a frozen norm has fixed statistics, so each pass reads its input once."""
        work, size = super().work(layer), layer.output_elements
        if trained:
            return work
        ahead, back = (replace(each, read_elements=size) for each in (work.forward, work.input_gradient))
        return Work(ahead, back)


class Lrn(OneInput, frozen=True, kw_only=True):
    """Local response normalization."""

    lrn: bool

    forward = MemoryTraffic(2, 1)
    backward = MemoryTraffic(4, 1)
    needs_input = True
    needs_output = True
    passes_shard = True


class _PositionNorm(OneInput, frozen=True):
    """Normalization over the features of each position; its weights may cover one head or axis."""

    features: Size | list[Size] | None = None  # shape of the weights, if not all features
    affine: bool = True  # it has weights

    statistics: ClassVar[int]  # saved per position
    forward = MemoryTraffic(1, 1)
    backward = MemoryTraffic(3, 1)
    kernels = (1, 2)
    needs_input = True
    sequence_parallel = True
    autocast = "widen"
    autocast_wide_output = True
    fuses = True

    @classmethod
    def saved_activations(cls, layer: Layer, *, flash: bool | None = None) -> ElementCounts:
        """Saved statistics of the norm, at each position."""
        return ElementCounts(wide=cls.statistics * position_count(layer))

    def infer_norm(self, shape: Shape, names: tuple[str, ...]) -> InferredLayer:
        """Infers a norm: the shape is unchanged and each name is one weight tensor."""
        given = self.features or shape[-1]
        size = (given,) if isinstance(given, int) else tuple(given)
        if shape[-1] % math.prod(size):
            raise ShapeMisfit(f"{shape[-1]:,} features are no multiple of {format_shape(size)}")
        return InferredLayer(shape, tuple((name, size) for name in names if self.affine))


class LayerNorm(_PositionNorm, frozen=True, kw_only=True):
    layer_norm: bool
    bias: bool = True

    statistics = 2
    smallest = read_only_mapping(layer_norm=True)
    tensor_names = read_only_mapping(layer_norm=(tuple[Name, Name], ("{layer}/gamma", "{layer}/beta")))

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the input's shape and the norm's weight, with a bias unless switched off."""
        return self.infer_norm(shapes[0], style.names.layer_norm if self.bias else style.names.layer_norm[:1])


class RmsNorm(_PositionNorm, frozen=True, kw_only=True):
    rms_norm: bool

    statistics = 1
    tensor_names = read_only_mapping(rms_norm=(Name, "{layer}/gamma"))

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the input's shape and the norm's weight."""
        return self.infer_norm(shapes[0], (style.names.rms_norm,))


class Add(Kind, frozen=True, kw_only=True):
    """Sum of branches; the backward pass sums gradients where its shortcut branches off."""

    add: Names

    lists_inputs = True
    forward = MemoryTraffic(2, 1)
    backward = MemoryTraffic(2, 1)
    backward_reads = "nothing"
    joins_residual = True
    sequence_parallel = True
    autocast_wide_output = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the shape that all inputs share; raises `ShapeMisfit` if they differ."""
        if len(set(shapes)) > 1:
            raise ShapeMisfit(
                f"add needs inputs of one shape, not {', '.join(map(format_shape, dict.fromkeys(shapes)))}"
            )
        return InferredLayer(shapes[0])


class Multiply(Kind, frozen=True, kw_only=True):
    """An element-wise product of branches."""

    multiply: Names

    lists_inputs = True
    fuses = True
    forward = MemoryTraffic(2, 1)
    backward = MemoryTraffic(3, 2)
    needs_input = True
    passes_shard = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the largest input shape; raises `ShapeMisfit` unless the others broadcast to it."""
        largest = max(shapes, key=math.prod)
        for shape in shapes:
            padded = (1,) * (len(largest) - len(shape)) + shape
            if len(shape) > len(largest) or any(
                a not in (1, b) for a, b in zip(padded, largest, strict=True)
            ):
                raise ShapeMisfit(
                    f"multiply needs shapes that spread to one, not {', '.join(map(format_shape, shapes))}"
                )
        return InferredLayer(largest)


class Other(Kind, frozen=True, kw_only=True):
    """Any other operator, by name, with its inputs, output shape and tensors. Written by importers."""

    other: Name
    reads: Annotated[list[Name], Meta(min_length=1, max_length=10_000)]
    shape: Sizes
    tensors: dict[Name, Annotated[list[Size], Meta(max_length=6)]] = field(default_factory=dict)

    lists_inputs = True
    forward = MemoryTraffic(1, 1)
    backward = MemoryTraffic(2, 1)
    needs_input = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the output shape and tensors that the file gives."""
        return InferredLayer(
            tuple(self.shape), tuple((name, tuple(shape)) for name, shape in self.tensors.items())
        )


Axis = Literal["features", "sequence"]


def _axis_index(shape: Shape, along: Axis) -> int:
    """Index of the features or sequence axis of a shape."""
    return len(shape) - 1 if along == "features" else 0


def _replace_axis_size(shape: Shape, axis: int, size: int) -> Shape:
    """Shape with one axis resized."""
    return (*shape[:axis], size, *shape[axis + 1 :])


class Input(Kind, frozen=True):
    """An input of the network: an image, features or a text."""

    computes = False


class _View(OneInput, frozen=True):
    """The input, or part of it, seen in another shape without computation."""

    computes = False
    in_place = True
    passes_shard = True


class View(_View, frozen=True, kw_only=True):
    """The input, or part of it, in a given shape. Written by importers."""

    view: Sizes

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the shape that the file gives."""
        return InferredLayer(tuple(self.view))


class Narrow(_View, frozen=True, kw_only=True):
    """Some features of each position, or some positions."""

    narrow: Size
    along: Axis = "features"

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the shape with fewer features or positions; raises `ShapeMisfit` if it has too few."""
        axis = _axis_index(shapes[0], self.along)
        if self.narrow > shapes[0][axis]:
            raise ShapeMisfit(f"it takes {self.narrow:,} of {shapes[0][axis]:,} {self.along}")
        return InferredLayer(_replace_axis_size(shapes[0], axis, self.narrow))


class Expand(_View, frozen=True, kw_only=True):
    """The features of each position repeated side by side."""

    expand: Size

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the input's shape with its features multiplied."""
        return InferredLayer((*shapes[0][:-1], shapes[0][-1] * self.expand))


class Flatten(_View, frozen=True, kw_only=True):
    flatten: bool

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns a shape with one axis for all elements."""
        return InferredLayer((math.prod(shapes[0]),))


class Concat(Kind, frozen=True, kw_only=True):
    """Branches concatenated along features or positions."""

    concat: Names
    along: Axis = "features"

    lists_inputs = True
    forward = MemoryTraffic(1, 1)
    backward = MemoryTraffic(1, 1)
    passes_shard = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the shape of the joined inputs; raises `ShapeMisfit` if they differ on another axis."""
        axis = _axis_index(shapes[0], self.along)
        if len({_replace_axis_size(shape, axis, 1) for shape in shapes}) > 1:
            given = ", ".join(map(format_shape, dict.fromkeys(shapes)))
            raise ShapeMisfit(f"concat joins channels of equal height and width, not {given}")
        return InferredLayer(_replace_axis_size(shapes[0], axis, sum(shape[axis] for shape in shapes)))


class Take(OneInput, frozen=True, kw_only=True):
    """The first position of a sequence."""

    take: Literal[1]

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the shape of one position: its features."""
        return InferredLayer(sequence_sizes(shapes[0])[1:])
