"""Shapes, parameter tensors and multiply-adds, layer by layer in order of creation.

Sizes are for one sample: (height, width, channels) or (features,).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from planner.model import Layer, Tensor
from planner.netlist._expand import Placed
from planner.netlist._format import File, Padding, Pair
from planner.tomlfile import Source

Shape = tuple[int, ...]
Window = tuple[int, int]
LARGEST_ELEMENTS = 2**40  # of one tensor or one activation: terabytes are a slip of the pen


class Misfit(Exception):
    """A layer that cannot read what it is given."""


def infer(source: Source, file: File, placed: list[Placed]) -> list[Layer]:
    """Layers with all that follows from the shape of the input."""
    naming = _Naming(file)
    layers = {"input": Layer("input", "input", (), tuple(file.input))}
    for one in placed:
        shapes = [layers[name].output_shape for name in one.inputs]
        try:
            layer = _layer(one, shapes, naming)
            if math.prod(layer.output_shape) > LARGEST_ELEMENTS:
                raise Misfit(f"an output of {_written(layer.output_shape)} is absurdly large")
        except Misfit as error:
            raise one.spot.error(source, f"{one.name}: {error}") from None
        layers[one.name] = layer
    return list(layers.values())


class _Naming:
    """Names of parameter tensors, by the templates of the file."""

    def __init__(self, file: File) -> None:
        self.templates = file.tensors
        self.counts: dict[str, int] = {}
        self.taken: set[str] = set()

    def tensors(self, one: Placed, shape: Shape) -> tuple[Tensor, ...]:
        own = one.spec.weights if one.kind in ("conv", "depthwise", "fc") else None
        templates = own or getattr(self.templates, one.kind)
        count = self.counts.get(one.kind, 0)
        self.counts[one.kind] = count + 1
        tensors = []
        for template in (templates,) if isinstance(templates, str) else templates:
            name = template.replace("{n}", str(count)).replace("{layer}", one.owner)
            if name in self.taken:
                raise Misfit(f"the tensor name {name!r} is taken; names must be unique")
            self.taken.add(name)
            tensors.append(Tensor(name, shape))
        if math.prod(shape) > LARGEST_ELEMENTS:
            raise Misfit(f"a tensor of {_written(shape)} is absurdly large (over 2^40 values)")
        return tuple(tensors)


def _layer(one: Placed, shapes: list[Shape], naming: _Naming) -> Layer:
    spec, kind, shape = one.spec, one.kind, shapes[0]
    elements = sum(map(math.prod, shapes))
    if kind in ("conv", "depthwise"):
        kernel, stride = _window(spec.kernel), _window(spec.stride)
        height, width = _slide(shape, kernel, stride, spec.padding)
        if kind == "conv":
            channels, weights = spec.conv, (*kernel, _channels(shape[2], spec.groups, spec.conv), spec.conv)
        else:
            channels, weights = shape[2] * spec.depthwise, (*kernel, shape[2], spec.depthwise)
        macs = math.prod(weights) * height * width
        tensors = naming.tensors(one, weights)
        return Layer(
            one.name, kind, one.inputs, (height, width, channels), tensors, macs, kernel, stride, elements
        )
    if kind == "fc":
        tensors = naming.tensors(one, (elements, spec.fc))
        return Layer(
            one.name, kind, one.inputs, (spec.fc,), tensors, elements * spec.fc, None, None, elements
        )
    if kind in ("max_pool", "avg_pool"):
        kernel = _window(getattr(spec, kind))
        stride = kernel if spec.stride is None else _window(spec.stride)
        out = (*_slide(shape, kernel, stride, spec.padding), shape[2])
        return Layer(one.name, "pool", one.inputs, out, (), 0, kernel, stride, elements)
    if kind in _REST:
        shape = _REST[kind](shapes)
    tensors = naming.tensors(one, shape[-1:]) if kind in ("bias", "batch_norm") else ()
    return Layer(one.name, kind, one.inputs, shape, tensors, input_elements=elements)


def _window(pair: Pair) -> Window:
    return (pair, pair) if isinstance(pair, int) else (pair[0], pair[1])


def _slide(shape: Shape, kernel: Window, stride: Window, padding: Padding) -> Window:
    """Height and width after a sliding window: TensorFlow's SAME and VALID, or a padding on both sides."""
    if len(shape) != 3:
        raise Misfit(f"it reads (height, width, channels), but its input is {_written(shape)}")
    if padding == "same":
        return -(-shape[0] // stride[0]), -(-shape[1] // stride[1])
    around = 2 * padding if isinstance(padding, int) else 0
    room = shape[0] + around - kernel[0], shape[1] + around - kernel[1]
    if min(room) < 0:
        raise Misfit(
            f"a window of {_written(kernel)} does not fit into its input of {_written(shape)}"
            ' (use a smaller one, or padding = "same")'
        )
    return room[0] // stride[0] + 1, room[1] // stride[1] + 1


def _channels(channels: int, groups: int, filters: int) -> int:
    if channels % groups or filters % groups:
        raise Misfit(f"groups = {groups} must divide both {channels} input and {filters} output channels")
    return channels // groups


def _global_pool(shapes: list[Shape]) -> Shape:
    if len(shapes[0]) != 3:
        raise Misfit(f"it reads (height, width, channels), but its input is {_written(shapes[0])}")
    return shapes[0][2:]


def _concat(shapes: list[Shape]) -> Shape:
    if len({shape[:-1] for shape in shapes}) > 1:
        found = ", ".join(map(_written, dict.fromkeys(shapes)))
        raise Misfit(f"concat joins channels of equal height and width, not {found}")
    return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))


def _add(shapes: list[Shape]) -> Shape:
    if len(set(shapes)) > 1:
        raise Misfit(f"add needs inputs of one shape, not {', '.join(map(_written, dict.fromkeys(shapes)))}")
    return shapes[0]


_REST: dict[str, Callable[[list[Shape]], Shape]] = {
    "global_pool": _global_pool,
    "flatten": lambda shapes: (math.prod(shapes[0]),),
    "concat": _concat,
    "add": _add,
}


def _written(shape: Any) -> str:
    """`56x56x64`."""
    return "x".join(map(str, shape))
