"""Inputs, views and pooling: layers that change shapes."""

from __future__ import annotations

import math

from planner.model.layers.base import (
    Inferred,
    Kind,
    OneInput,
    Padding,
    Pair,
    Shape,
    Sizes,
    Style,
    check_image,
    keys,
    kind_name,
    slide,
    window_of,
)


class Input(Kind, frozen=True):
    """What is given from outside: an image, features, a text."""

    computes = False


class View(OneInput, frozen=True, kw_only=True):
    """What is read, or a part of it, in another shape: nothing is computed. Importers write it."""

    view: Sizes

    computes = False
    in_place = True
    passes_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred(tuple(self.view))


class Flatten(OneInput, frozen=True, kw_only=True):
    flatten: bool

    computes = False
    in_place = True
    passes_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred((math.prod(shapes[0]),))


class Pool(OneInput, frozen=True, kw_only=True):
    """A window that slides over an image; layers of this kind come from `max_pool` and `avg_pool`."""

    stride: Pair | None = None  # the window itself
    padding: Padding = "valid"

    is_window = True
    needs_input = True
    needs_output = True

    def slide_window(self, window: Pair, shape: Shape) -> Inferred:
        """The output of a window over an image."""
        kernel = window_of(window)
        stride = kernel if self.stride is None else window_of(self.stride)
        shape = (*slide(shape, kernel, stride, self.padding), shape[2])
        return Inferred(shape, kernel=kernel, stride=stride, kind=kind_name(Pool))


class MaxPool(Pool, frozen=True, kw_only=True):
    max_pool: Pair

    smallest = keys(max_pool=1)

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return self.slide_window(self.max_pool, shapes[0])


class AvgPool(Pool, frozen=True, kw_only=True):
    avg_pool: Pair

    smallest = keys(avg_pool=1)

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return self.slide_window(self.avg_pool, shapes[0])


class GlobalPool(OneInput, frozen=True, kw_only=True):
    """The mean of each channel."""

    global_pool: bool
    keep: bool = False  # one pixel is left instead of a vector

    reads_all_rows = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        check_image(shapes[0])
        return Inferred((1, 1, shapes[0][2]) if self.keep else shapes[0][2:])
