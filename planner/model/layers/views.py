"""Layers without computation: inputs, views, slices and concatenations."""

from __future__ import annotations

import math
from typing import Literal

from planner.model.layers.base import (
    Inferred,
    Kind,
    Names,
    OneInput,
    Passes,
    Shape,
    ShapeMisfit,
    Size,
    Sizes,
    Style,
    format_shape,
    sequence_sizes,
)

Axis = Literal["features", "sequence"]


def _axis_index(shape: Shape, along: Axis) -> int:
    return len(shape) - 1 if along == "features" else 0


def _replace_axis_size(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


class Input(Kind, frozen=True):
    """An input of the network: an image, features or a text."""

    computes = False


class View(OneInput, frozen=True, kw_only=True):
    """The input, or part of it, in another shape, without computation. Written by importers."""

    view: Sizes

    computes = False
    in_place = True
    passes_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred(tuple(self.view))


class Narrow(OneInput, frozen=True, kw_only=True):
    """Some features of each position, or some positions, as a view."""

    narrow: Size
    along: Axis = "features"

    computes = False
    in_place = True
    passes_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        axis = _axis_index(shapes[0], self.along)
        if self.narrow > shapes[0][axis]:
            raise ShapeMisfit(f"it takes {self.narrow:,} of {shapes[0][axis]:,} {self.along}")
        return Inferred(_replace_axis_size(shapes[0], axis, self.narrow))


class Expand(OneInput, frozen=True, kw_only=True):
    """The features of each position repeated side by side, as a view."""

    expand: Size

    computes = False
    in_place = True
    passes_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred((*shapes[0][:-1], shapes[0][-1] * self.expand))


class Flatten(OneInput, frozen=True, kw_only=True):
    flatten: bool

    computes = False
    in_place = True
    passes_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred((math.prod(shapes[0]),))


class Concat(Kind, frozen=True, kw_only=True):
    """Branches concatenated along features or positions."""

    concat: Names
    along: Axis = "features"

    lists_inputs = True
    forward = Passes(1, 1)
    backward = Passes(1, 1)
    passes_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        axis = _axis_index(shapes[0], self.along)
        if len({_replace_axis_size(shape, axis, 1) for shape in shapes}) > 1:
            given = ", ".join(map(format_shape, dict.fromkeys(shapes)))
            raise ShapeMisfit(f"concat joins channels of equal height and width, not {given}")
        return Inferred(_replace_axis_size(shapes[0], axis, sum(shape[axis] for shape in shapes)))


class Take(OneInput, frozen=True, kw_only=True):
    """The first position of a sequence."""

    take: Literal[1]

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred(sequence_sizes(shapes[0])[1:])
