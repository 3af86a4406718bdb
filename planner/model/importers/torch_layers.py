"""Lowers operators of PyTorch to layers, one function for each that computes.

A function returns the value of a node, or None where no layer kind matches the operator's use; it then counts
as moving data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from planner.model.importers.graph import Held, OperatorGraph, Shape, Value, channels_last, without_batch
from planner.model.layers import Kind
from planner.model.layers.elementwise import (
    Add,
    AvgPool,
    BatchNorm,
    GlobalPool,
    LayerNorm,
    MaxPool,
    Multiply,
    RmsNorm,
    Scale,
)
from planner.model.layers.experts import GroupedLinear
from planner.model.layers.products import Product
from planner.model.layers.sequences import Attention, ClassToken, CrossEntropy, Positions
from planner.model.layers.views import Concat


def _conv2d(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    weight, out = at.of(node.args[1]), at.shape(node)
    if not isinstance(weight, Held) or not weight.plain or len(out) != 3:
        return None
    tensor, size = next(iter(weight.tensors.items()))
    if len(size) != 4:
        return None
    bias = at.of(node.args[2]) if len(node.args) > 2 else None
    padding = node.args[4] if len(node.args) > 4 else 0
    dilation = _pair(node.args[5] if len(node.args) > 5 else 1)
    around = None if isinstance(padding, str) or dilation != (1, 1) else _pair(padding)
    return at.graph.convolution(
        at.graph.view(data[0], channels_last(at.shape(node.args[0]))),
        (tensor, size),
        channels_last(out),
        stride=_pair(node.args[3] if len(node.args) > 3 else 1),
        padding=around[0] if around and around[0] == around[1] else None,
        groups=next((n for n in node.args[:5:-1] if isinstance(n, int) and not isinstance(n, bool)), 1),
        bias=next(iter(bias.tensors)) if isinstance(bias, Held) else None,
        name=at.name(node, tensor),
    )


def _linear(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    bias = at.of(node.args[2]) if len(node.args) > 2 and node.args[2] is not None else None
    return _matmul_with(at, node, data[0], at.of(node.args[1]), bias, turned=False)


def _addmm(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    bias = at.of(node.args[0])
    if not isinstance(bias, Held):
        return None
    return _matmul_with(at, node, data[0], at.of(node.args[2]), bias, turned=True)


def _matmul(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    first, second = at.of(node.args[0]), at.of(node.args[1])
    if isinstance(first, Value) and isinstance(second, Held):
        return _matmul_with(at, node, first, second, None, turned=True)
    if not isinstance(first, Value) or not isinstance(second, Value):
        return None
    out, left = at.shape(node), at.shape(node.args[0])
    keys = {"shape": list(out), "depth": left[-1]}
    return at.graph.add(Product, [first.layer, second.layer], at.name(node), out, **keys)


def _matmul_with(
    at: Lowering, node: Any, value: Value, weight: Any, bias: Any, *, turned: bool
) -> Value | None:
    if not isinstance(weight, Held) or not weight.plain:
        return None
    tensor, size = next(iter(weight.tensors.items()))
    if len(size) != 2 or (bias is not None and not isinstance(bias, Held)):
        return None
    transposed = turned != weight.transposed  # PyTorch's linear multiplies by the transpose itself
    raw = at.shape(next(n for n in node.all_input_nodes if isinstance(at.of(n), Value)))
    source = at.graph.view(value, raw)
    inputs = size[0] if transposed else size[1]
    if source.shape[-1] != inputs:
        return None
    named = next(iter(bias.tensors)) if bias is not None and bias.plain else None
    if bias is not None and named is None:
        at.keep(bias)
    return at.graph.linear(source, (tensor, size), named, transposed, at.name(node, tensor))


def _grouped(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    """Lower grouped products: rows of tokens sorted by expert, times that expert's weights."""
    rows, weight = at.of(node.args[0]), at.of(node.args[1])
    if not isinstance(rows, Value) or not isinstance(weight, Held) or len(weight.tensors) != 1:
        return None
    (tensor, size), out = next(iter(weight.tensors.items())), at.shape(node)
    if len(size) != 3 or len(out) != 2 or tensor in at.graph.owners or out[1] not in size[1:]:
        return None
    at.graph.owners[tensor] = ""
    source = at.graph.view(rows, at.shape(node.args[0]))
    keys = {"experts": size[0], "transposed": size[2] == out[1] or None, "weights": tensor}
    return at.graph.add(GroupedLinear, out[1], at.name(node, tensor), out, from_=source.layer, **keys)


def _embedding(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    weight = at.of(node.args[0])
    if not isinstance(weight, Held):
        return None
    table = next(iter(weight.tensors.items()))
    return at.graph.embedding(data[0], table, at.name(node, table[0]))


def _norm(kind: type[Kind], weight_at: int) -> Callable[[Lowering, Any, list[Value]], Value | None]:
    def lower(at: Lowering, node: Any, data: list[Value]) -> Value | None:
        weight = at.of(node.args[weight_at]) if len(node.args) > weight_at else None
        if not isinstance(weight, Held):
            return at.graph.other(str(node.target), data, at.name(node), data[0].shape, {}, known=True)
        tensor, size = next(iter(weight.tensors.items()))
        bias = (
            at.of(node.args[weight_at + 1])
            if len(node.args) > weight_at + 1 and kind is not RmsNorm
            else None
        )
        raw = at.shape(node)
        last = channels_last(raw)
        wanted = data[0].shape if data[0].shape[-1:] == size else last if last[-1:] == size else raw
        if wanted[-1:] != size or tensor in at.graph.owners:
            return None
        source = at.graph.view(data[0], wanted)
        at.graph.owners |= dict.fromkeys(at.held(node), "")
        name = at.name(node, tensor)
        without = {"bias": False} if kind is LayerNorm and bias is None else {}
        return at.graph.add(kind, True, name, wanted, from_=source.layer, **without)

    return lower


def _attention(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    shapes = [at.shape(argument) for argument in node.args[:3]]
    if any(len(shape) < 3 for shape in shapes) or len(data) < 3:
        return None
    # windows of an image are as many more heads
    shapes = [(math.prod(shape[:-2]), *shape[-2:]) for shape in shapes]
    (heads, length, size), (kv_heads, _, _), values = shapes
    if heads % kv_heads:
        return None
    for argument in node.args[3:4]:
        if isinstance(mask := at.of(argument), Held):
            at.keep(mask)
    reads = [
        at.graph.view(value, (shape[1], shape[0] * shape[2]))
        for value, shape in zip((at.of(argument) for argument in node.args[:3]), shapes, strict=True)
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
    made = at.graph.add(
        Attention, [read.layer for read in reads], at.name(node), (length, heads * values[2]), **keys
    )
    return at.graph.view(made, at.shape(node))


def _add(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    held = at.held(node)
    fresh = {name: size for name, size in held.items() if name not in at.graph.owners}
    if len(data) == 2 and math.prod(data[0].shape) == math.prod(data[1].shape):
        other = at.graph.view(data[1], data[0].shape)
        return at.graph.add(Add, [data[0].layer, other.layer], at.name(node), data[0].shape)
    if len(data) == 1 and len(fresh) == 1 and len(data[0].shape) == 2:
        name, size = next(iter(fresh.items()))
        rows = size[-2] if len(size) > 1 else 0
        if size[-1] == data[0].shape[1] and rows >= data[0].shape[0] and math.prod(size[:-2]) == 1:
            at.graph.owners[name] = ""
            keys = {"batched": True if len(size) == 3 else None, "from_": data[0].layer, "weights": name}
            return at.graph.add(Positions, rows, at.name(node, name), data[0].shape, **keys)
    return None


def _mul(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    if len(data) == 2:
        first, second = data
        if first.shape == second.shape or {1} == set(second.shape[:-1]) or {1} == set(first.shape[:-1]):
            large = max(data, key=lambda entry: math.prod(entry.shape))
            return at.graph.add(Multiply, [first.layer, second.layer], at.name(node), large.shape)
    held = at.held(node)
    if len(data) == 1 and len(held) == 1:
        name, size = next(iter(held.items()))
        each = math.prod(size) == max(size) == data[0].shape[-1] and len(size) in (1, 3)
        if name not in at.graph.owners and each and (len(size) == 3) == (len(data[0].shape) == 3):
            at.graph.owners[name] = ""
            keys = {"from_": data[0].layer, "weights": name}
            return at.graph.add(Scale, True, at.name(node, name), data[0].shape, **keys)
    return None


def _pool(kind: type[Kind]) -> Callable[[Lowering, Any, list[Value]], Value | None]:
    def lower(at: Lowering, node: Any, data: list[Value]) -> Value | None:
        out, window = at.shape(node), _pair(node.args[1])
        if len(out) != 3:
            return None
        padding = _pair(node.args[3]) if len(node.args) > 3 else (0, 0)
        return at.graph.pool(
            kind,
            at.graph.view(data[0], channels_last(at.shape(node.args[0]))),
            channels_last(out),
            kernel=window,
            stride=_pair(node.args[2]) if len(node.args) > 2 and node.args[2] else window,
            padding=padding[0] if padding[0] == padding[1] else None,
            name=at.name(node),
        )

    return lower


def _adaptive(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    out = at.shape(node)
    if len(out) != 3 or out[1:] != (1, 1):
        return None
    source = at.graph.view(data[0], channels_last(at.shape(node.args[0])))
    return at.graph.add(GlobalPool, True, at.name(node), channels_last(out), keep=True, from_=source.layer)


def _cat(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    out, held = at.shape(node), at.held(node)
    if len(data) == 1 and data[0].shape == out:
        return data[0]  # joined with nothing
    if len(data) == 1 and len(held) == 1:
        name, size = next(iter(held.items()))
        result = data[0].shape
        if (
            name not in at.graph.owners
            and len(result) == 2
            and out == (result[0] + 1, result[1])
            and size == (1, 1, result[1])
        ):
            at.graph.owners[name] = ""
            return at.graph.add(ClassToken, True, at.name(node, name), out, weights=name, from_=data[0].layer)
        return None
    wanted = channels_last(out)
    joined = len(data) > 1 and sum(value.shape[-1] for value in data) == wanted[-1]
    if not joined or any(value.shape[:-1] != wanted[:-1] for value in data):
        return None
    return at.graph.add(Concat, [value.layer for value in data], at.name(node), wanted)


def _loss(at: Lowering, node: Any, data: list[Value]) -> Value | None:
    return at.graph.unary(CrossEntropy, data[0], at.name(node))


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    sizes = [int(n) for n in value]
    return (sizes[0], sizes[-1]) if sizes else (1, 1)


LOWERED: dict[str, Callable[[Lowering, Any, list[Value]], Value | None]] = {
    "conv2d": _conv2d,
    "convolution": _conv2d,
    "linear": _linear,
    "addmm": _addmm,
    "mm": _matmul,
    "matmul": _matmul,
    "bmm": _matmul,
    "grouped_mm": _grouped,
    "_grouped_mm": _grouped,
    "grouped_mm_fallback": _grouped,
    "embedding": _embedding,
    "batch_norm": _norm(BatchNorm, 1),
    "layer_norm": _norm(LayerNorm, 2),
    "rms_norm": _norm(RmsNorm, 2),
    "group_norm": _norm(LayerNorm, 2),
    "scaled_dot_product_attention": _attention,
    "add": _add,
    "add_": _add,
    "mul": _mul,
    "mul_": _mul,
    "max_pool2d": _pool(MaxPool),
    "avg_pool2d": _pool(AvgPool),
    "adaptive_avg_pool2d": _adaptive,
    "cat": _cat,
    "cross_entropy_loss": _loss,
}


@dataclass
class Lowering:
    """State of the lowering: the graph and the values of the nodes so far."""

    graph: OperatorGraph
    batch: int
    modules: dict[Any, str] = field(default_factory=dict)
    known: dict[Any, Value | Held | None] = field(default_factory=dict)

    def shape(self, node: Any) -> Shape:
        meta = node.meta.get("val")
        if isinstance(meta, list | tuple):
            meta = meta[0] if meta else None
        return without_batch(tuple(int(n) for n in getattr(meta, "shape", ())), self.batch)

    def of(self, argument: Any) -> Value | Held | None:
        return self.known.get(argument) if hasattr(argument, "meta") else None

    def data(self, node: Any) -> list[Value]:
        return [value for value in map(self.of, node.all_input_nodes) if isinstance(value, Value)]

    def held(self, node: Any) -> dict[str, Shape]:
        by_name: dict[str, Shape] = {}
        for value in map(self.of, node.all_input_nodes):
            if isinstance(value, Held):
                by_name |= value.tensors
        return by_name

    def keep(self, value: Held) -> None:
        """Count parameters that a layer reads besides its own, such as tables of relative positions."""
        for name, size in value.tensors.items():
            if name not in self.graph.owners:
                self.graph.other("parameter", [], name, size, {name: size}, known=True)

    def name(self, node: Any, *tensors: str) -> str:
        """Name a layer by the module of its parameter, or else by its node."""
        for tensor in tensors:
            if tensor.endswith((".weight", ".bias")):
                return tensor.rpartition(".")[0]
        if tensors:
            return tensors[0].removesuffix("_weight").removesuffix("_bias")
        stack = node.meta.get("nn_module_stack") or {}
        path = next((str(entry[0]) for entry in reversed(list(stack.values())) if entry and entry[0]), "")
        return f"{path}.{node.name}" if path else str(node.name)
