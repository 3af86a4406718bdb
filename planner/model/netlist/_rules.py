"""What follows from the keys of a layer and the shapes it reads: its output, its tensors, its multiply-adds.

One function for each kind that is not just element by element. Sizes are for one sample: (height, width,
channels), (sequence, features) or (features,); a text itself is (sequence,).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planner.model import Attention, Experts
from planner.model.netlist._format import Tensors
from planner.model.netlist._keys import Padding, Pair

Shape = tuple[int, ...]
Window = tuple[int, int]
Named = tuple[str, Shape]  # the template of a tensor's name, and its shape


class ShapeMisfit(Exception):
    """A layer that cannot read what it is given."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a rule works out, the same for every layer with these keys and inputs."""

    shape: Shape
    tensors: tuple[Named, ...] = ()
    macs: int = 0
    kernel: Window | None = None
    stride: Window | None = None
    groups: int = 1
    detail: Attention | Experts | None = None
    tied: Shape = ()  # of the tensor that it reads and another layer owns
    kind: str | None = None  # if not that of the file


@dataclass(frozen=True, slots=True)
class Style:
    """How a file names its tensors and lays out weights."""

    names: Tensors
    torch: bool

    def weights(self, inputs: int, outputs: int) -> Shape:
        return (outputs, inputs) if self.torch else (inputs, outputs)

    def filters(self, kernel: Window, inputs: int, outputs: int) -> Shape:
        return (outputs, inputs, *kernel) if self.torch else (*kernel, inputs, outputs)


def make(kind: str, spec: Any, shapes: list[Shape], style: Style) -> Made:
    """What a layer of this kind makes of inputs of these shapes."""
    rule = RULES.get(kind)
    return rule(spec, shapes, style) if rule else Made(shapes[0])


def _conv(spec: Any, shapes: list[Shape], style: Style) -> Made:
    kernel, stride = _window(spec.kernel), _window(spec.stride)
    height, width = _slide(shapes[0], kernel, stride, spec.padding)
    inputs = _channels(shapes[0][2], spec.groups, spec.conv)
    filters = style.filters(kernel, inputs, spec.conv)
    tensors = _with_bias(spec, spec.weights or style.names.conv, filters, spec.conv, style)
    macs = math.prod(filters) * height * width
    return Made((height, width, spec.conv), tensors, macs, kernel, stride, spec.groups)


def _depthwise(spec: Any, shapes: list[Shape], style: Style) -> Made:
    kernel, stride = _window(spec.kernel), _window(spec.stride)
    height, width = _slide(shapes[0], kernel, stride, spec.padding)
    inputs = shapes[0][2]
    channels = inputs * spec.depthwise
    filters = (channels, 1, *kernel) if style.torch else (*kernel, inputs, spec.depthwise)
    tensors = _with_bias(spec, spec.weights or style.names.depthwise, filters, channels, style)
    macs = math.prod(filters) * height * width
    return Made((height, width, channels), tensors, macs, kernel, stride, inputs)


def _patches(spec: Any, shapes: list[Shape], style: Style) -> Made:
    size = _window(spec.size)
    height, width = _slide(shapes[0], size, size, "valid")
    filters = style.filters(size, shapes[0][2], spec.patches)
    tensors = _with_bias(spec, spec.weights or style.names.patches, filters, spec.patches, style)
    macs = math.prod(filters) * height * width
    return Made((height * width, spec.patches), tensors, macs, size, size)


def _with_bias(spec: Any, name: str, weights: Shape, outputs: int, style: Style) -> tuple[Named, ...]:
    bias = ((style.names.bias, (outputs,)),) if spec.bias else ()
    return ((name, weights), *bias)


def _fc(spec: Any, shapes: list[Shape], style: Style) -> Made:
    elements = sum(map(math.prod, shapes))
    weights = style.weights(elements, spec.fc)
    return Made((spec.fc,), ((spec.weights or style.names.fc, weights),), elements * spec.fc)


def _linear(spec: Any, shapes: list[Shape], style: Style) -> Made:
    *outer, inputs = shapes[0]
    weights = (inputs, spec.linear) if spec.transposed else style.weights(inputs, spec.linear)
    tensors: list[Named] = [] if spec.tied else [(spec.weights or style.names.linear, weights)]
    if spec.bias:
        tensors.append((spec.biases or style.names.bias, (spec.linear,)))
    macs = math.prod(outer) * inputs * spec.linear
    return Made((*outer, spec.linear), tuple(tensors), macs, tied=weights if spec.tied else ())


def _pool(spec: Any, shapes: list[Shape], style: Style) -> Made:
    kernel = _window(spec.max_pool if hasattr(spec, "max_pool") else spec.avg_pool)
    stride = kernel if spec.stride is None else _window(spec.stride)
    shape = (*_slide(shapes[0], kernel, stride, spec.padding), shapes[0][2])
    return Made(shape, kernel=kernel, stride=stride, kind="pool")


def _global_pool(spec: Any, shapes: list[Shape], style: Style) -> Made:
    if len(shapes[0]) != 3:
        raise ShapeMisfit(f"it reads (height, width, channels), but its input is {written(shapes[0])}")
    return Made((1, 1, shapes[0][2]) if spec.keep else shapes[0][2:])


def _flatten(spec: Any, shapes: list[Shape], style: Style) -> Made:
    return Made((math.prod(shapes[0]),))


def _concat(spec: Any, shapes: list[Shape], style: Style) -> Made:
    if len({shape[:-1] for shape in shapes}) > 1:
        found = ", ".join(map(written, dict.fromkeys(shapes)))
        raise ShapeMisfit(f"concat joins channels of equal height and width, not {found}")
    return Made((*shapes[0][:-1], sum(shape[-1] for shape in shapes)))


def _add(spec: Any, shapes: list[Shape], style: Style) -> Made:
    if len(set(shapes)) > 1:
        raise ShapeMisfit(
            f"add needs inputs of one shape, not {', '.join(map(written, dict.fromkeys(shapes)))}"
        )
    return Made(shapes[0])


def _multiply(spec: Any, shapes: list[Shape], style: Style) -> Made:
    largest = max(shapes, key=math.prod)
    for shape in shapes:
        padded = (1,) * (len(largest) - len(shape)) + shape
        if len(shape) > len(largest) or any(a not in (1, b) for a, b in zip(padded, largest, strict=True)):
            raise ShapeMisfit(
                f"multiply needs shapes that spread to one, not {', '.join(map(written, shapes))}"
            )
    return Made(largest)


def _bias(spec: Any, shapes: list[Shape], style: Style) -> Made:
    return Made(shapes[0], ((style.names.bias, shapes[0][-1:]),))


def _batch_norm(spec: Any, shapes: list[Shape], style: Style) -> Made:
    return Made(shapes[0], tuple((name, shapes[0][-1:]) for name in style.names.batch_norm))


def _layer_norm(spec: Any, shapes: list[Shape], style: Style) -> Made:
    names = style.names.layer_norm if spec.bias else style.names.layer_norm[:1]
    return Made(shapes[0], tuple((name, shapes[0][-1:]) for name in names))


def _rms_norm(spec: Any, shapes: list[Shape], style: Style) -> Made:
    return Made(shapes[0], ((style.names.rms_norm, shapes[0][-1:]),))


def _scale(spec: Any, shapes: list[Shape], style: Style) -> Made:
    shape = (shapes[0][-1], 1, 1) if style.torch and len(shapes[0]) == 3 else shapes[0][-1:]
    return Made(shapes[0], ((spec.weights or style.names.scale, shape),))


def _embedding(spec: Any, shapes: list[Shape], style: Style) -> Made:
    if len(shapes[0]) != 1:
        raise ShapeMisfit(f"it reads a text, (sequence,), but its input is {written(shapes[0])}")
    shape, table = (*shapes[0], spec.features), (spec.embedding, spec.features)
    if spec.tied:
        return Made(shape, tied=table)
    return Made(shape, ((spec.weights or style.names.embedding, table),))


def _positions(spec: Any, shapes: list[Shape], style: Style) -> Made:
    length, features = _sequence(shapes[0])
    if length > spec.positions:
        raise ShapeMisfit(
            f"a sequence of {length:,} is longer than its {spec.positions:,} positions; take a shorter one"
        )
    shape = (spec.positions, features)
    return Made(shapes[0], ((spec.weights or style.names.positions, (1, *shape) if spec.batched else shape),))


def _class_token(spec: Any, shapes: list[Shape], style: Style) -> Made:
    length, features = _sequence(shapes[0])
    return Made((length + 1, features), ((spec.weights or style.names.class_token, (1, 1, features)),))


def _take(spec: Any, shapes: list[Shape], style: Style) -> Made:
    return Made(_sequence(shapes[0])[1:])


def _attention(spec: Any, shapes: list[Shape], style: Style) -> Made:
    heads, kv_heads = spec.heads, spec.kv_heads or spec.heads
    length, width = _sequence(shapes[0])
    keys = length
    if heads % kv_heads:
        raise ShapeMisfit(f"heads = {heads} must be a multiple of kv_heads = {kv_heads}")
    parts = heads + 2 * kv_heads if len(shapes) == 1 else heads
    size = spec.head_size or width // parts
    if len(shapes) == 2:
        raise ShapeMisfit("it reads queries, keys and values: three layers, or one that gives all three")
    if width != parts * size:
        raise ShapeMisfit(f"{parts} heads of {size} features are not the {width} that it reads")
    if len(shapes) == 3:
        keys = _sequence(shapes[1])[0]
        wrong = [shape for shape in shapes[1:] if shape != (keys, kv_heads * size)]
        if wrong:
            raise ShapeMisfit(
                f"keys and values are {written(wrong[0])}, not {written((keys, kv_heads * size))}"
            )
    detail = Attention(heads, kv_heads, size, keys, spec.causal, spec.window, spec.flash, spec.dropout)
    seen = min(keys, spec.window or keys)
    bias = ((style.names.attention, (spec.buckets, heads)),) if spec.buckets else ()
    return Made((length, heads * size), bias, 2 * length * seen * heads * size, detail=detail)


def _moe(spec: Any, shapes: list[Shape], style: Style) -> Made:
    length, width = _sequence(shapes[0])
    if spec.top_k > spec.moe:
        raise ShapeMisfit(f"top_k = {spec.top_k} is more than its {spec.moe} experts")
    tensors: list[Named] = [(style.names.router, style.weights(width, spec.moe))]
    for name, shape in _feed_forward(style.names.experts, spec.gated, width, spec.features, style):
        if "{e}" in name:
            tensors += [(name.replace("{e}", str(expert)), shape) for expert in range(spec.moe)]
        else:
            tensors.append((name, (spec.moe, *shape)))
    if spec.shared_features:
        tensors += _feed_forward(style.names.shared, spec.gated, width, spec.shared_features, style)
    ways = 3 if spec.gated else 2
    inner = spec.top_k * spec.features + spec.shared_features
    detail = Experts(spec.moe, spec.top_k, spec.features, spec.shared_features, spec.gated)
    return Made(shapes[0], tuple(tensors), length * width * (spec.moe + ways * inner), detail=detail)


def _feed_forward(names: tuple[str, ...], gated: bool, width: int, inner: int, style: Style) -> list[Named]:
    """The weights of one expert: gate and up (apart, or as one), and down; without a gate, up and down."""
    up, down = style.weights(width, inner), style.weights(inner, width)
    if not gated:
        return [(names[-2], up), (names[-1], down)]
    if len(names) == 2:
        return [(names[0], style.weights(width, 2 * inner)), (names[1], down)]
    return [(names[0], up), (names[1], up), (names[2], down)]


def _view(spec: Any, shapes: list[Shape], style: Style) -> Made:
    return Made(tuple(spec.view))


def _product(spec: Any, shapes: list[Shape], style: Style) -> Made:
    return Made(tuple(spec.shape), macs=math.prod(spec.shape) * spec.depth)


def _other(spec: Any, shapes: list[Shape], style: Style) -> Made:
    return Made(tuple(spec.shape), tuple((name, tuple(shape)) for name, shape in spec.tensors.items()))


def _cross_entropy(spec: Any, shapes: list[Shape], style: Style) -> Made:
    return Made((1,))


def _sequence(shape: Shape) -> Window:
    if len(shape) != 2:
        raise ShapeMisfit(f"it reads (sequence, features), but its input is {written(shape)}")
    return shape[0], shape[1]


def _window(pair: Pair) -> Window:
    return (pair, pair) if isinstance(pair, int) else (pair[0], pair[1])


def _slide(shape: Shape, kernel: Window, stride: Window, padding: Padding) -> Window:
    """Height and width after a sliding window: TensorFlow's SAME and VALID, or a padding on both sides."""
    if len(shape) != 3:
        raise ShapeMisfit(f"it reads (height, width, channels), but its input is {written(shape)}")
    if padding == "same":
        return -(-shape[0] // stride[0]), -(-shape[1] // stride[1])
    around = 2 * padding if isinstance(padding, int) else 0
    room = shape[0] + around - kernel[0], shape[1] + around - kernel[1]
    if min(room) < 0:
        raise ShapeMisfit(
            f"a window of {written(kernel)} does not fit into its input of {written(shape)}"
            ' (use a smaller one, or padding = "same")'
        )
    return room[0] // stride[0] + 1, room[1] // stride[1] + 1


def _channels(channels: int, groups: int, filters: int) -> int:
    if channels % groups or filters % groups:
        raise ShapeMisfit(
            f"groups = {groups} must divide both {channels} input and {filters} output channels"
        )
    return channels // groups


def written(shape: Any) -> str:
    """`56x56x64`."""
    return "x".join(map(str, shape))


RULES: dict[str, Callable[[Any, list[Shape], Style], Made]] = {
    "conv": _conv,
    "depthwise": _depthwise,
    "patches": _patches,
    "fc": _fc,
    "linear": _linear,
    "max_pool": _pool,
    "avg_pool": _pool,
    "global_pool": _global_pool,
    "flatten": _flatten,
    "concat": _concat,
    "add": _add,
    "multiply": _multiply,
    "bias": _bias,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "scale": _scale,
    "embedding": _embedding,
    "positions": _positions,
    "class_token": _class_token,
    "take": _take,
    "attention": _attention,
    "moe": _moe,
    "cross_entropy": _cross_entropy,
    "view": _view,
    "product": _product,
    "other": _other,
}
