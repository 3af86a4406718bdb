"""Lowers operators of PyTorch to layers, one function for each that computes.

A function returns the value of a node, or None where no layer kind matches the operator's use; it then counts
as moving data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from planner.model.importers.graph import (
    OperatorGraph,
    ParameterValue,
    Shape,
    Value,
    channels_last,
    remove_batch,
)
from planner.model.layers.base import Kind
from planner.model.layers.elementwise import Add, BatchNorm, Concat, LayerNorm, Multiply, RmsNorm, Scale
from planner.model.layers.experts import GroupedLinear
from planner.model.layers.products import AvgPool, GlobalPool, MaxPool, Product
from planner.model.layers.sequences import Attention, ClassToken, CrossEntropy, Positions


def _lower_conv2d(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds a convolution; None if its weight is not an unchanged parameter."""
    weight, out = state.argument_value(node.args[1]), state.sample_shape(node)
    if not isinstance(weight, ParameterValue) or not weight.plain or len(out) != 3:
        return None
    tensor, size = next(iter(weight.tensors.items()))
    if len(size) != 4:
        return None
    bias = state.argument_value(node.args[2]) if len(node.args) > 2 else None
    padding = node.args[4] if len(node.args) > 4 else 0
    dilation = _height_and_width(node.args[5] if len(node.args) > 5 else 1)
    around = None if isinstance(padding, str) or dilation != (1, 1) else _height_and_width(padding)
    return state.graph.add_convolution(
        state.graph.add_view(data[0], channels_last(state.sample_shape(node.args[0]))),
        (tensor, size),
        channels_last(out),
        stride=_height_and_width(node.args[3] if len(node.args) > 3 else 1),
        padding=around[0] if around and around[0] == around[1] else None,
        groups=next((n for n in node.args[:5:-1] if isinstance(n, int) and not isinstance(n, bool)), 1),
        bias=next(iter(bias.tensors)) if isinstance(bias, ParameterValue) else None,
        name=state.layer_name(node, tensor),
    )


def _lower_linear(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds a linear layer for value x weight^T + bias."""
    bias = state.argument_value(node.args[2]) if len(node.args) > 2 and node.args[2] is not None else None
    return _lower_weight_product(
        state, node, data[0], state.argument_value(node.args[1]), bias, is_transposed=False
    )


def _lower_addmm(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds a linear layer for bias + value x weight."""
    bias = state.argument_value(node.args[0])
    if not isinstance(bias, ParameterValue):
        return None
    return _lower_weight_product(
        state, node, data[0], state.argument_value(node.args[2]), bias, is_transposed=True
    )


def _lower_matmul(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds a linear layer for a product with a parameter, or a product of two values."""
    first, second = state.argument_value(node.args[0]), state.argument_value(node.args[1])
    if isinstance(first, Value) and isinstance(second, ParameterValue):
        return _lower_weight_product(state, node, first, second, None, is_transposed=True)
    if not isinstance(first, Value) or not isinstance(second, Value):
        return None
    out, left = state.sample_shape(node), state.sample_shape(node.args[0])
    keys = {"shape": list(out), "depth": left[-1]}
    return state.graph.add_layer(Product, [first.layer, second.layer], state.layer_name(node), out, **keys)


def _lower_weight_product(
    state: Lowering, node: Any, value: Value, weight: Any, bias: Any, *, is_transposed: bool
) -> Value | None:
    """Adds a linear layer for a product with a parameter; None if no layer matches."""
    if not isinstance(weight, ParameterValue) or not weight.plain:
        return None
    tensor, size = next(iter(weight.tensors.items()))
    if len(size) != 2 or (bias is not None and not isinstance(bias, ParameterValue)):
        return None
    transposed = is_transposed != weight.transposed  # PyTorch's linear multiplies by the transpose itself
    raw = state.sample_shape(
        next(n for n in node.all_input_nodes if isinstance(state.argument_value(n), Value))
    )
    source = state.graph.add_view(value, raw)
    inputs = size[0] if transposed else size[1]
    if source.shape[-1] != inputs:
        return None
    named = next(iter(bias.tensors)) if bias is not None and bias.plain else None
    if bias is not None and named is None:
        state.add_missing_parameters(bias)
    return state.graph.add_linear(source, (tensor, size), named, transposed, state.layer_name(node, tensor))


def _lower_grouped_product(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds the expert layer for a grouped product: token rows sorted by expert, times its weights."""
    rows, weight = state.argument_value(node.args[0]), state.argument_value(node.args[1])
    if not isinstance(rows, Value) or not isinstance(weight, ParameterValue) or len(weight.tensors) != 1:
        return None
    (tensor, size), out = next(iter(weight.tensors.items())), state.sample_shape(node)
    if len(size) != 3 or len(out) != 2 or tensor in state.graph.owners or out[1] not in size[1:]:
        return None
    state.graph.owners[tensor] = ""
    source = state.graph.add_view(rows, state.sample_shape(node.args[0]))
    keys = {"experts": size[0], "transposed": size[2] == out[1] or None, "weights": tensor}
    return state.graph.add_layer(
        GroupedLinear, out[1], state.layer_name(node, tensor), out, from_=source.layer, **keys
    )


def _lower_embedding(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds an embedding; None if its table is not a parameter."""
    weight = state.argument_value(node.args[0])
    if not isinstance(weight, ParameterValue):
        return None
    table = next(iter(weight.tensors.items()))
    return state.graph.add_embedding(data[0], table, state.layer_name(node, table[0]))


def _lower_norm(
    kind: type[Kind], weight_index: int, state: Lowering, node: Any, data: list[Value]
) -> Value | None:
    """Adds a norm layer, or one of kind `other` for a norm without weights; None if no layer matches."""
    weight = state.argument_value(node.args[weight_index]) if len(node.args) > weight_index else None
    if not isinstance(weight, ParameterValue):
        return state.graph.add_other(
            str(node.target), data, state.layer_name(node), data[0].shape, {}, known=True
        )
    tensor, size = next(iter(weight.tensors.items()))
    bias = (
        state.argument_value(node.args[weight_index + 1])
        if len(node.args) > weight_index + 1 and kind is not RmsNorm
        else None
    )
    raw = state.sample_shape(node)
    last = channels_last(raw)
    wanted = data[0].shape if data[0].shape[-1:] == size else last if last[-1:] == size else raw
    if wanted[-1:] != size or tensor in state.graph.owners:
        return None
    source = state.graph.add_view(data[0], wanted)
    state.graph.owners |= dict.fromkeys(state.parameter_inputs(node), "")
    name = state.layer_name(node, tensor)
    without = {"bias": False} if kind is LayerNorm and bias is None else {}
    return state.graph.add_layer(kind, True, name, wanted, from_=source.layer, **without)


def _lower_attention(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds an attention layer over query, key and value; None if their shapes do not match one."""
    shapes = [state.sample_shape(argument) for argument in node.args[:3]]
    if any(len(shape) < 3 for shape in shapes) or len(data) < 3:
        return None
    # windows of an image are as many more heads
    shapes = [(math.prod(shape[:-2]), *shape[-2:]) for shape in shapes]
    (heads, length, size), (kv_heads, _, _), values = shapes
    if heads % kv_heads:
        return None
    for argument in node.args[3:4]:
        if isinstance(mask := state.argument_value(argument), ParameterValue):
            state.add_missing_parameters(mask)
    reads = [
        state.graph.add_view(value, (shape[1], shape[0] * shape[2]))
        for value, shape in zip(
            (state.argument_value(argument) for argument in node.args[:3]), shapes, strict=True
        )
        if isinstance(value, Value)
    ]
    if len(reads) != 3:
        return None
    causal = node.kwargs.get("is_causal", node.args[5] if len(node.args) > 5 else False)
    dropout = node.kwargs.get("dropout_p", node.args[4] if len(node.args) > 4 else 0.0)
    keys = {"heads": heads, "kv_heads": kv_heads if kv_heads != heads else None}
    keys |= {"causal": bool(causal) or None, "dropout": bool(dropout) or None}
    if values[2] != size:
        keys |= {"head_size": size, "value_size": values[2]}
    made = state.graph.add_layer(
        Attention, [read.layer for read in reads], state.layer_name(node), (length, heads * values[2]), **keys
    )
    return state.graph.add_view(made, state.sample_shape(node))


def _lower_add(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds a layer that sums two values, or one that adds learned positions to its input."""
    held = state.parameter_inputs(node)
    fresh = {name: size for name, size in held.items() if name not in state.graph.owners}
    if len(data) == 2 and math.prod(data[0].shape) == math.prod(data[1].shape):
        other = state.graph.add_view(data[1], data[0].shape)
        return state.graph.add_layer(Add, [data[0].layer, other.layer], state.layer_name(node), data[0].shape)
    if len(data) == 1 and len(fresh) == 1 and len(data[0].shape) == 2:
        name, size = next(iter(fresh.items()))
        rows = size[-2] if len(size) > 1 else 0
        if size[-1] == data[0].shape[1] and rows >= data[0].shape[0] and math.prod(size[:-2]) == 1:
            state.graph.owners[name] = ""
            keys = {"batched": True if len(size) == 3 else None, "from_": data[0].layer, "weights": name}
            return state.graph.add_layer(Positions, rows, state.layer_name(node, name), data[0].shape, **keys)
    return None


def _lower_mul(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds a layer that multiplies two values, or one that scales its input by a learned factor."""
    if len(data) == 2:
        first, second = data
        if first.shape == second.shape or {1} == set(second.shape[:-1]) or {1} == set(first.shape[:-1]):
            large = max(data, key=lambda entry: math.prod(entry.shape))
            return state.graph.add_layer(
                Multiply, [first.layer, second.layer], state.layer_name(node), large.shape
            )
    held = state.parameter_inputs(node)
    if len(data) == 1 and len(held) == 1:
        name, size = next(iter(held.items()))
        each = math.prod(size) == max(size) == data[0].shape[-1] and len(size) in (1, 3)
        if name not in state.graph.owners and each and (len(size) == 3) == (len(data[0].shape) == 3):
            state.graph.owners[name] = ""
            keys = {"from_": data[0].layer, "weights": name}
            return state.graph.add_layer(Scale, True, state.layer_name(node, name), data[0].shape, **keys)
    return None


def _lower_pool(kind: type[Kind], state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds a pooling layer of this kind; None unless its output is an image."""
    out, window = state.sample_shape(node), _height_and_width(node.args[1])
    if len(out) != 3:
        return None
    padding = _height_and_width(node.args[3]) if len(node.args) > 3 else (0, 0)
    return state.graph.add_pool(
        kind,
        state.graph.add_view(data[0], channels_last(state.sample_shape(node.args[0]))),
        channels_last(out),
        kernel=window,
        stride=_height_and_width(node.args[2]) if len(node.args) > 2 and node.args[2] else window,
        padding=padding[0] if padding[0] == padding[1] else None,
        name=state.layer_name(node),
    )


def _lower_adaptive_pool(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds global pooling; None unless its output is one pixel."""
    out = state.sample_shape(node)
    if len(out) != 3 or out[1:] != (1, 1):
        return None
    source = state.graph.add_view(data[0], channels_last(state.sample_shape(node.args[0])))
    return state.graph.add_layer(
        GlobalPool, True, state.layer_name(node), channels_last(out), keep=True, from_=source.layer
    )


def _lower_cat(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds a layer that concatenates values, or one that puts a class token before a sequence."""
    out, held = state.sample_shape(node), state.parameter_inputs(node)
    if len(data) == 1 and data[0].shape == out:
        return data[0]  # joined with nothing
    if len(data) == 1 and len(held) == 1:
        name, size = next(iter(held.items()))
        result = data[0].shape
        if (
            name not in state.graph.owners
            and len(result) == 2
            and out == (result[0] + 1, result[1])
            and size == (1, 1, result[1])
        ):
            state.graph.owners[name] = ""
            return state.graph.add_layer(
                ClassToken, True, state.layer_name(node, name), out, weights=name, from_=data[0].layer
            )
        return None
    wanted = channels_last(out)
    joined = len(data) > 1 and sum(value.shape[-1] for value in data) == wanted[-1]
    if not joined or any(value.shape[:-1] != wanted[:-1] for value in data):
        return None
    return state.graph.add_layer(Concat, [value.layer for value in data], state.layer_name(node), wanted)


def _lower_loss(state: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Adds a cross-entropy loss."""
    return state.graph.add_unary(CrossEntropy, data[0], state.layer_name(node))


def _height_and_width(value: Any) -> tuple[int, int]:
    """Height and width from one number or a sequence."""
    if isinstance(value, int):
        return value, value
    sizes = [int(n) for n in value]
    return (sizes[0], sizes[-1]) if sizes else (1, 1)


LOWERED: dict[str, Callable[[Lowering, Any, list[Value]], Value | None]] = {
    "conv2d": _lower_conv2d,
    "convolution": _lower_conv2d,
    "linear": _lower_linear,
    "addmm": _lower_addmm,
    "mm": _lower_matmul,
    "matmul": _lower_matmul,
    "bmm": _lower_matmul,
    "grouped_mm": _lower_grouped_product,
    "_grouped_mm": _lower_grouped_product,
    "grouped_mm_fallback": _lower_grouped_product,
    "embedding": _lower_embedding,
    "batch_norm": partial(_lower_norm, BatchNorm, 1),
    "layer_norm": partial(_lower_norm, LayerNorm, 2),
    "rms_norm": partial(_lower_norm, RmsNorm, 2),
    "group_norm": partial(_lower_norm, LayerNorm, 2),
    "scaled_dot_product_attention": _lower_attention,
    "add": _lower_add,
    "add_": _lower_add,
    "mul": _lower_mul,
    "mul_": _lower_mul,
    "max_pool2d": partial(_lower_pool, MaxPool),
    "avg_pool2d": partial(_lower_pool, AvgPool),
    "adaptive_avg_pool2d": _lower_adaptive_pool,
    "cat": _lower_cat,
    "cross_entropy_loss": _lower_loss,
}


@dataclass
class Lowering:
    """State of the lowering: the graph so far and the value of each node."""

    graph: OperatorGraph
    batch: int
    modules: dict[Any, str] = field(default_factory=dict)
    known: dict[Any, Value | ParameterValue | None] = field(default_factory=dict)

    def sample_shape(self, node: Any) -> Shape:
        """Shape of a node's output for one sample."""
        meta = node.meta.get("val")
        if isinstance(meta, list | tuple):
            meta = meta[0] if meta else None
        return remove_batch(tuple(int(n) for n in getattr(meta, "shape", ())), self.batch)

    def argument_value(self, argument: Any) -> Value | ParameterValue | None:
        """Lowered value of an argument that is a graph node; None for constants."""
        return self.known.get(argument) if hasattr(argument, "meta") else None

    def parameter_inputs(self, node: Any) -> dict[str, Shape]:
        """Shapes of the parameters that a node's inputs are computed from, by name."""
        by_name: dict[str, Shape] = {}
        for value in map(self.argument_value, node.all_input_nodes):
            if isinstance(value, ParameterValue):
                by_name |= value.tensors
        return by_name

    def add_missing_parameters(self, value: ParameterValue) -> None:
        """Adds a layer for each parameter that no layer has yet, such as tables of relative positions."""
        for name, size in value.tensors.items():
            if name not in self.graph.owners:
                self.graph.add_other("parameter", [], name, size, {name: size}, known=True)

    def layer_name(self, node: Any, *tensors: str) -> str:
        """Name of the module that owns the parameter, or else the node's path, to name a layer."""
        for tensor in tensors:
            if tensor.endswith((".weight", ".bias")):
                return tensor.rpartition(".")[0]
        if tensors:
            return tensors[0].removesuffix("_weight").removesuffix("_bias")
        stack = node.meta.get("nn_module_stack") or {}
        path = next((str(entry[0]) for entry in reversed(list(stack.values())) if entry and entry[0]), "")
        return f"{path}.{node.name}" if path else str(node.name)
