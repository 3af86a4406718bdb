"""The kernels inside an op of a PyTorch trace: what each computes and moves, by the shapes of its inputs.

A leaf is the outermost call that is known to multiply (a product, a convolution, attention), with all that it
calls; every other call is a leaf of its own, less what it calls, which moves data. Calls that only change how
a tensor is looked at, and those too short to do anything, are overhead.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import prod
from operator import add
from typing import Any, cast

import msgspec

from planner.device.recorded.importers.events import Event, Id
from planner.hardware import Format
from planner.model.layers.base import ATTENTION, MATMUL, MEMORY
from planner.model.layers.products import conv_kernel_kind
from planner.simulator.step.recorded import OVERHEAD, Kind, OpPart

_CALLS = tomllib.loads((files(__package__) / "torch_calls.toml").read_text("utf-8"))
ITEM_BYTES: dict[str, int] = _CALLS["item_bytes"]
_FORMAT: dict[str, str] = _CALLS["formats"]
PRODUCTS: dict[str, int] = _CALLS["products"]
BATCHED: dict[str, int] = _CALLS["batched_products"]
_VIEWS: frozenset[str] = frozenset(_CALLS["views"])
CONVOLUTION, CONVOLUTION_BACKWARD = "convolution", "convolution_backward"
OVERHEAD_US = {"cpu": 20.0, "gpu": 5.0}  # what a call costs however little it does; others are like GPUs


class Shapes(msgspec.Struct, gc=False):
    """Shapes of a call's arguments, as the profiler notes them."""

    dims: list[Any] = msgspec.field(name="Input Dims", default_factory=list)
    types: list[str] = msgspec.field(name="Input type", default_factory=list)
    values: list[Any] = msgspec.field(name="Concrete Inputs", default_factory=list)


Demand = tuple[float, float, float, float, float, float]
NOTHING: Demand = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
CALL: Demand = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # of a call that computes and moves nothing


@dataclass
class Leaf:
    """One call that is charged for its time and its work, with the calls inside it. `demand` is (launches,
    flops, row_flops, edge_flops, moved_bytes, weight_bytes); `calls` counts it and the traced calls that
    belong to it."""

    kind: str
    format: str
    us: float
    demand: Demand
    calls: int = 1


def multiplying_leaf(name: str, shapes: Shapes, weights: set[tuple[int, ...]], *, tf32: bool) -> Leaf | None:
    """Work of a matrix product, convolution or attention call; None for other calls. `weights`: shapes of
    parameters, which identify products that make weight gradients. `tf32`: whether fp32 products may run in
    tf32."""
    short = name.rpartition("::")[2]
    if short in PRODUCTS:
        return _product_leaf(shapes, PRODUCTS[short], weights, tf32=tf32)
    if short in BATCHED:
        return _batched_leaf(shapes, BATCHED[short], tf32=tf32)
    if short == CONVOLUTION:
        return _convolution_leaf(shapes, 0, backward=False)
    if short == CONVOLUTION_BACKWARD:
        return _convolution_leaf(shapes, 1, backward=True)
    if ATTENTION in short or name.startswith("flash_attn::"):
        return _attention_leaf(name, shapes, tf32=tf32)
    return None


def moving_leaf(name: str, shapes: Shapes) -> Leaf:
    """Work of a call that only moves data: it reads its inputs and writes as much as the largest."""
    short = name.rpartition("::")[2]
    sizes = [
        prod(dims) * ITEM_BYTES.get(kind, 4)
        for dims, kind in zip(shapes.dims, shapes.types, strict=False)
        if _is_shape(dims) and dims
    ]
    if short in _VIEWS or not sizes:
        return Leaf(OVERHEAD, "fp32", 0.0, CALL)
    return Leaf(MEMORY, _float_format(shapes, tf32=False), 0.0, (1, 0, 0, 0, sum(sizes) + max(sizes), 0))


def split_op_time(leaves: Sequence[Iterable[Leaf]], lasts_us: float, device_kind: str) -> tuple[OpPart, ...]:
    """Splits an op's mean time into parts by kernel kind and format. Work comes from the first step, times
    from all steps."""
    steps = len(leaves)
    demands: dict[tuple[str, str], Demand] = {}
    times: dict[tuple[str, str], float] = {}
    for at, entry in enumerate(leaves):
        for leaf in entry:
            short = leaf.kind == MEMORY and leaf.us < OVERHEAD_US.get(device_kind, OVERHEAD_US["gpu"])
            key = (OVERHEAD if short else leaf.kind, "fp32" if short else leaf.format)
            times[key] = times.get(key, 0.0) + leaf.us / steps
            if at == 0:
                one, other = demands.get(key, NOTHING), CALL if short else leaf.demand
                demands[key] = tuple(map(add, one, other))
    if lasts_us <= 0:
        return ()
    whole = max(sum(times.values()), lasts_us)
    return tuple(
        OpPart(
            cast("Kind", kind),
            us / whole,
            *demands.get((kind, format), NOTHING),
            cast("Format", format),
        )
        for (kind, format), us in sorted(times.items())
        if us > 0
    )


MOST_AXES, LARGEST_SIDE = 8, 2**40


def _is_shape(dims: object) -> bool:
    """Whether a value is a tensor shape whose products stay finite."""
    return (
        isinstance(dims, list)
        and len(dims) <= MOST_AXES
        and all(isinstance(side, int) and 0 <= side <= LARGEST_SIDE for side in dims)
    )


def _tensor_shapes(shapes: Shapes, first: int, count: int) -> list[list[int]] | None:
    """Shapes of `count` tensor arguments starting at position `first`; None if any is missing."""
    operands = shapes.dims[first : first + count]
    good = len(operands) == count and all(_is_shape(dims) and dims for dims in operands)
    return operands if good else None


def _float_format(shapes: Shapes, *, tf32: bool) -> str:
    """Format of the first floating-point tensor among a call's inputs."""
    for kind in shapes.types:
        if kind in _FORMAT:
            return _FORMAT[kind]
        if kind in ("float", "double"):
            return "tf32" if tf32 else "fp32"
    return "fp32"


def _item_bytes(shapes: Shapes) -> int:
    """Bytes of an element of the first tensor with a known type; 4 without one."""
    return next((ITEM_BYTES[kind] for kind in shapes.types if kind in ITEM_BYTES), 4)


def _product_leaf(shapes: Shapes, first: int, weights: set[tuple[int, ...]], *, tf32: bool) -> Leaf | None:
    """Work of a matrix product; None unless both arguments are matrices."""
    if (tensors := _tensor_shapes(shapes, first, 2)) is None or any(len(dims) != 2 for dims in tensors):
        return None
    (rows, depth), (_, columns) = tensors
    width, flops = _item_bytes(shapes), 2.0 * rows * depth * columns
    gradient = {(rows, columns), (columns, rows)} & weights and (depth, columns) not in weights
    if gradient:  # of a weight: the depth grows with the batch
        fixed = rows * columns
        edge = flops * (1 / max(columns, 1) + 1 / max(rows, 1))
        moved = depth * (rows + columns)
    else:
        fixed = depth * columns
        edge = flops * (1 / max(columns, 1) + 1 / max(depth, 1))
        moved = rows * (depth + columns)
    demand = (1.0, flops, 2.0 * fixed, edge, float(moved * width), float(fixed * width))
    return Leaf(MATMUL, _float_format(shapes, tf32=tf32), 0.0, demand)


def _batched_leaf(shapes: Shapes, first: int, *, tf32: bool) -> Leaf | None:
    """Work of a batched matmul of two activations, as in attention without fusion."""
    if (tensors := _tensor_shapes(shapes, first, 2)) is None or any(len(dims) != 3 for dims in tensors):
        return None
    (times, rows, depth), (_, _, columns) = tensors
    moved = times * (rows * depth + depth * columns + rows * columns) * _item_bytes(shapes)
    flops = 2.0 * times * rows * depth * columns
    return Leaf(ATTENTION, _float_format(shapes, tf32=tf32), 0.0, (1, flops, 0, 0, float(moved), 0))


def _convolution_leaf(shapes: Shapes, first: int, *, backward: bool) -> Leaf | None:
    """Work of a convolution, forward or backward; None for unexpected shapes."""
    operands = _tensor_shapes(shapes, first, 2)
    if operands is None or len(operands[0]) < 3 or len(operands[0]) != len(operands[1]):
        return None
    image, weight = operands
    values = shapes.values
    stride = _parse_numbers(values, 4 if backward else 3) or [1] * (len(image) - 2)
    if backward and _is_shape(shapes.dims[0]) and len(shapes.dims[0]) == len(image):
        output = shapes.dims[0]
    else:
        padding = _parse_numbers(values, 4) or [side // 2 for side in weight[2:]]
        dilation = _parse_numbers(values, 5) or [1] * (len(image) - 2)
        output = [image[0], weight[0]] + [
            max((side + 2 * pad - far * (edge - 1) - 1) // max(step, 1) + 1, 1)
            for side, edge, step, pad, far in zip(
                image[2:], weight[2:], stride, padding, dilation, strict=False
            )
        ]
    groups = max(image[1] // max(weight[1], 1), 1)
    passes = 1
    if backward:
        mask = values[10] if len(values) > 10 and isinstance(values[10], str) else "[True, True"
        passes = max(sum(word.strip(" []") == "True" for word in mask.split(",")[:2]), 1)
    width, fixed = _item_bytes(shapes), prod(weight)
    flops = 2.0 * prod(output) * prod(weight[1:])
    moved = (prod(image) + prod(output)) * width
    demand: Demand = (1, flops, 2.0 * fixed, 0, float(moved), float(fixed * width))
    kind = conv_kernel_kind(weight[2:], stride, groups, weight[0])
    all_passes = cast("Demand", tuple(passes * each for each in demand))
    return Leaf(kind, _float_format(shapes, tf32=True), 0.0, all_passes)


def _parse_numbers(values: Sequence[Any], at: int) -> list[int]:
    """Numbers of a list as the profiler writes it ("[2, 2]"), from position `at`; empty if malformed."""
    words = values[at] if at < len(values) else ""
    try:
        numbers = [int(word) for word in str(words).strip("[]").split(",")]
    except ValueError:
        return []
    return numbers if all(abs(number) <= LARGEST_SIDE for number in numbers) else []


def _attention_leaf(name: str, shapes: Shapes, *, tf32: bool) -> Leaf | None:
    """Work of a fused attention call; None for unexpected shapes."""
    backward = "backward" in name
    operands = _tensor_shapes(shapes, 1 if backward else 0, 3)
    if operands is None or any(len(dims) != 4 for dims in operands):
        return None
    query, key, _ = operands
    keys = key[1] if name.startswith("flash_attn::") else key[2]
    flops = 4.0 * prod(query) * keys * (2.5 if backward else 1.0)
    if "True" in [str(value) for value in shapes.values]:
        flops /= 2  # a causal mask: what lies behind it is not computed
    moved = (3 if backward else 1) * sum(map(prod, (query, *operands))) * _item_bytes(shapes)
    demand = (1.0, flops, 0.0, 0.0, float(moved), 0.0)
    return Leaf(ATTENTION, _float_format(shapes, tf32=tf32), 0.0, demand)


COMMUNICATION = "communication"
COLLECTIVE_CALL = "c10d::"


@dataclass
class _OpenCall:
    """A call that has begun and not ended, with its leaf."""

    end: float
    leaf: Leaf
    whole: bool  # what it calls belongs to it


def find_leaves(
    calls: Sequence[tuple[Event, int]], weights: set[tuple[int, ...]], *, tf32: bool = False
) -> list[Leaf]:
    """For each call in order, the leaf that its time and work count to. Calls come in order of their start,
    longer ones first; a leaf's time excludes calls that are leaves themselves."""
    decoder = msgspec.json.Decoder(Shapes)
    stacks: dict[tuple[Id, Id], list[_OpenCall]] = {}
    out = []
    for call, _ in calls:
        stack = stacks.setdefault((call.pid, call.tid), [])
        while stack and stack[-1].end <= call.ts:
            stack.pop()
        if stack and stack[-1].whole:
            stack[-1].leaf.calls += 1
            out.append(stack[-1].leaf)
            continue
        if stack:
            stack[-1].leaf.us -= call.dur
        leaf, whole = _leaf_of_call(call, decoder, weights, tf32=tf32)
        leaf.us = call.dur
        stack.append(_OpenCall(call.end, leaf, whole))
        out.append(leaf)
    return out


def _leaf_of_call(
    call: Event, decoder: msgspec.json.Decoder[Shapes], weights: set[tuple[int, ...]], *, tf32: bool
) -> tuple[Leaf, bool]:
    """Leaf of one call, and whether it includes the calls inside."""
    if call.name.startswith(COLLECTIVE_CALL):
        return Leaf(COMMUNICATION, "fp32", 0.0, NOTHING), True
    shapes = decoder.decode(call.args) if call.args else Shapes()
    known = multiplying_leaf(call.name, shapes, weights, tf32=tf32)
    return (known, True) if known is not None else (moving_leaf(call.name, shapes), False)
