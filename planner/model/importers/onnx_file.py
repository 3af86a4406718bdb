"""Imports ONNX files: nodes become layers by their infer_shapes shapes, initializers become tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.files.regular_file import open_regular_file
from planner.model.importers import ImportedModel, build_imported, convert_exceptions
from planner.model.importers.graph import (
    ONNX_ACTIVATIONS,
    ONNX_MOVING,
    ONNX_VIEWS,
    OperatorGraph,
    ParameterValue,
    Shape,
    Value,
    channels_last,
    remove_batch,
)
from planner.model.importers.onnx_shapes import infer_shapes
from planner.model.layers.base import Kind
from planner.model.layers.elementwise import Add, BatchNorm, LayerNorm, Multiply
from planner.model.layers.products import AvgPool, GlobalPool, MaxPool, Product


def import_onnx(path: Path, axes: dict[str, int]) -> ImportedModel:
    """Imports an ONNX file; `axes` are sizes for its open axes."""
    try:
        import onnx
    except ImportError as error:
        raise BadInput("reading ONNX needs onnx: pip install 'dnn-planner[onnx]'") from error
    with open_regular_file(path):
        pass  # reported like every system error
    reading = _OnnxGraph(path, onnx.load_model_from_string(infer_shapes(path, axes)))
    with convert_exceptions(f"{path}: no graph that can be read"):
        graph, given = reading.lower_graph()
    name = "".join(c for c in path.stem if c.isalnum() or c in "-_.")[:80] or "net"
    values = graph.model_file_values(given, "from ONNX", str(path))
    imported = build_imported(path, values, name, [])
    return ImportedModel(values, imported.model, tuple(graph.unknown_operator_notes(imported.model)))


Shapes = dict[str, Shape]
PLAIN = ("Transpose", "Identity", "Cast")


class _OnnxGraph:
    """An ONNX graph during its conversion, with the shape and layer of each value."""

    def __init__(self, path: Path, model: Any) -> None:
        self.path, self.proto = path, model.graph
        self.graph = OperatorGraph()
        self.tensors = {t.name: tuple(int(n) for n in t.dims) for t in self.proto.initializer}
        self.raw: dict[str, Shape] = {}
        for value in (*self.proto.input, *self.proto.value_info, *self.proto.output):
            sizes = tuple(int(axis.dim_value) for axis in value.type.tensor_type.shape.dim)
            if all(size > 0 for size in sizes):
                self.raw[value.name] = sizes
        self.known: dict[str, Value] = {}
        # by value: its parameter, possibly transposed, or the parameters that it is computed from
        self.made_of: dict[str, ParameterValue] = {
            name: ParameterValue({name: size}) for name, size in self.tensors.items()
        }
        self.batch = 1

    def sample_shape(self, name: str) -> Shape:
        """Shape of a value for one sample; raises BadInput if it is unknown."""
        if name not in self.raw:
            raise BadInput(
                f"{self.path}: the shape of {name[:60]!r} is not known, even after shape inference"
            )
        return remove_batch(self.raw[name], self.batch)

    def lower_graph(self) -> tuple[OperatorGraph, dict[str, Any]]:
        """Converts all nodes to layers; returns them and the keys that describe the input in a model file."""
        inputs = [value for value in self.proto.input if value.name not in self.tensors]
        if not inputs or not self.proto.node:
            raise BadInput(f"{self.path}: a graph without inputs or without nodes is no network")
        first = inputs[0]
        sizes = self.raw.get(first.name, ())
        if not 2 <= len(sizes) <= 4:
            raise BadInput(
                f"{self.path}: its input {first.name[:60]!r} has {len(sizes)} axes; 2 to 4 are read"
            )
        self.batch = sizes[0]
        text = first.type.tensor_type.elem_type in (6, 7) and len(sizes) == 2  # 32 and 64 bit integers
        inner = sizes[1:]
        given: dict[str, Any] = {"default_batch": min(self.batch, 10_000)}
        if text:
            given["sequence_length"], value = inner[0], Value("input", inner)
        else:
            flat = channels_last(inner) if len(inner) != 2 else (math.prod(inner),)
            given["input"], value = list(flat), Value("input", flat)
        self.known[first.name] = value
        last = value
        for node in self.proto.node:
            made = self.lower_node(node)
            if made is not None:
                self.known[node.output[0]] = last = made
                for more in node.output[1:]:
                    if more in self.raw:
                        self.known[more] = made
        self.graph.append_loss(last, text=text and len(last.shape) == 2)
        return self.graph, given

    def lower_node(self, node: Any) -> Value | None:
        """Converts a node to a layer and returns its output; None for computations on parameters alone."""
        data = [self.known[name] for name in node.input if name in self.known]
        held = self.parameter_inputs(node)
        if not data:  # computed from masks, lengths and parameters alone
            if held:
                source = next(self.made_of[name] for name in node.input if name in self.made_of)
                plain = len(held) == 1 and source.plain and node.op_type in PLAIN
                turned = source.transposed != (node.op_type == "Transpose")
                self.made_of |= dict.fromkeys(node.output, ParameterValue(held, turned, plain))
            return None
        name = self.layer_name(node, held)
        lower = LOWERED.get(node.op_type)
        if lower is not None:
            made = lower(self, node, data, name)
            if made is not None:
                return made
        if node.op_type in ONNX_ACTIVATIONS:
            return self.graph.add_unary(ONNX_ACTIVATIONS[node.op_type], data[0], name)
        out = self.sample_shape(node.output[0])
        if node.op_type in ONNX_VIEWS:
            return data[0] if channels_last(out) == data[0].shape else self.graph.add_view(data[0], out)
        weights = held if node.op_type not in ("Resize", "Pad") else {}
        trained = {name: size for name, size in weights.items() if size}
        return self.graph.add_other(node.op_type, data, name, out, trained, known=node.op_type in ONNX_MOVING)

    def parameter_inputs(self, node: Any) -> Shapes:
        """Shapes of the parameters that a node's inputs are computed from, by name."""
        sources = (self.made_of[name].tensors for name in node.input if name in self.made_of)
        return {name: size for tensors in sources for name, size in tensors.items()}

    def weight_input(self, node: Any, index: int) -> tuple[str, Shape, bool] | None:
        """Name and shape of the parameter at an input, and whether it is transposed; None without one."""
        held = self.made_of.get(node.input[index]) if len(node.input) > index else None
        if held is None or not held.plain or len(held.tensors) != 1:
            return None
        ((tensor, size),) = held.tensors.items()
        return tensor, size, held.transposed

    def layer_name(self, node: Any, parameters: Shapes) -> str:
        """Name of the module that owns the parameters, or else the node's path, to name a layer."""
        first = next(iter(parameters), "")
        if first.endswith((".weight", ".bias")):
            return first.rpartition(".")[0]
        parts = str(node.name or node.op_type).strip("/").split("/")
        # PyTorch writes /layer1/layer1.0/relu/Relu: drop parts that the next one repeats
        kept = [
            part
            for part, after in zip(parts, [*parts[1:], ""], strict=True)
            if not after.startswith(f"{part}.")
        ]
        return ".".join(kept)

    def uniform_padding(self, node: Any) -> int | None:
        """Padding of a convolution or pooling window; None if its sides differ."""
        pads = self.attribute_value(node, "pads", [0, 0, 0, 0])
        return pads[0] if len(set(pads)) == 1 else None

    def attribute_value(self, node: Any, name: str, default: Any) -> Any:
        """Value of a node's attribute, or the default."""
        for attribute in node.attribute:
            if attribute.name == name:
                return (
                    list(attribute.ints)
                    if attribute.ints
                    else attribute.i
                    if attribute.type == 2
                    else attribute.f
                )
        return default


Lowering = Callable[[_OnnxGraph, Any, list[Value], str], Value | None]


def _lower_conv(state: _OnnxGraph, node: Any, data: list[Value], name: str) -> Value | None:
    """Adds a convolution for a Conv node; None if its weight is not a parameter."""
    given, out = state.weight_input(node, 1), state.sample_shape(node.output[0])
    if given is None or given[2] or len(given[1]) != 4 or len(out) != 3:
        return None
    return state.graph.add_convolution(
        state.graph.add_view(data[0], channels_last(state.sample_shape(node.input[0]))),
        given[:2],
        channels_last(out),
        stride=state.attribute_value(node, "strides", [1, 1]),
        padding=state.uniform_padding(node),
        groups=state.attribute_value(node, "group", 1),
        bias=node.input[2] if len(node.input) > 2 else None,
        name=name,
    )


def _lower_gemm(state: _OnnxGraph, node: Any, data: list[Value], name: str) -> Value | None:
    """Adds a linear layer for a Gemm node; None if its weight is not a parameter."""
    given = state.weight_input(node, 1)
    if given is None or len(given[1]) != 2:
        return None
    transposed = given[2] == bool(state.attribute_value(node, "transB", 0))
    source = state.graph.add_view(data[0], state.sample_shape(node.input[0]))
    bias = state.weight_input(node, 2)
    return state.graph.add_linear(source, given[:2], bias and bias[0], transposed, name)


def _lower_matmul(state: _OnnxGraph, node: Any, data: list[Value], name: str) -> Value | None:
    """Adds a linear layer, or a product of two values, for a MatMul node."""
    out = state.sample_shape(node.output[0])
    if len(data) == 2:
        depth = state.sample_shape(node.input[0])[-1]
        keys = {"shape": list(out), "depth": depth}
        return state.graph.add_layer(Product, [value.layer for value in data], name, out, **keys)
    given = state.weight_input(node, 1)
    if given is None or len(given[1]) != 2:
        return None
    source = state.graph.add_view(data[0], state.sample_shape(node.input[0]))
    return state.graph.add_linear(source, given[:2], None, not given[2], name)


def _lower_norm(kind: type[Kind], state: _OnnxGraph, node: Any, data: list[Value], name: str) -> Value | None:
    """Adds a norm of this kind for a node that scales its features; None for other uses."""
    held = state.parameter_inputs(node)
    size = held.get(node.input[1]) if len(node.input) > 1 else None
    if size is None or data[0].shape[-1:] != size or node.input[1] in state.graph.owners:
        return None
    if node.input[1] != f"{name}.weight":
        return None
    state.graph.owners |= dict.fromkeys(held, "")  # its bias, and its statistics, which are not trained
    return state.graph.add_layer(kind, True, name, data[0].shape, from_=data[0].layer)


def _lower_add(state: _OnnxGraph, node: Any, data: list[Value], name: str) -> Value | None:
    """Adds a sum of two values of equal size; None for other sums."""
    if len(data) != 2 or math.prod(data[0].shape) != math.prod(data[1].shape):
        return None
    second = state.graph.add_view(data[1], data[0].shape)
    return state.graph.add_layer(Add, [data[0].layer, second.layer], name, data[0].shape)


def _lower_mul(state: _OnnxGraph, node: Any, data: list[Value], name: str) -> Value | None:
    """Adds a product of two values of equal shape; None for other products."""
    if len(data) != 2 or data[0].shape != data[1].shape:
        return None
    return state.graph.add_layer(Multiply, [value.layer for value in data], name, data[0].shape)


def _lower_pool(kind: type[Kind], state: _OnnxGraph, node: Any, data: list[Value], name: str) -> Value | None:
    """Adds a pooling layer of this kind; None unless its input is an image."""
    out = state.sample_shape(node.output[0])
    window = state.attribute_value(node, "kernel_shape", None)
    if len(out) != 3 or not window:
        return None
    return state.graph.add_pool(
        kind,
        state.graph.add_view(data[0], channels_last(state.sample_shape(node.input[0]))),
        channels_last(out),
        kernel=window,
        stride=state.attribute_value(node, "strides", [1, 1]),
        padding=state.uniform_padding(node),
        name=name,
    )


def _lower_global_pool(state: _OnnxGraph, node: Any, data: list[Value], name: str) -> Value | None:
    """Adds global pooling; None unless its input is an image."""
    out = state.sample_shape(node.output[0])
    if len(out) != 3 or len(data[0].shape) != 3:
        return None
    return state.graph.add_layer(GlobalPool, True, name, channels_last(out), keep=True, from_=data[0].layer)


def _lower_gather(state: _OnnxGraph, node: Any, data: list[Value], name: str) -> Value | None:
    """Adds an embedding for a Gather node that reads a two-dimensional parameter."""
    table, held = node.input[0], state.parameter_inputs(node)
    if len(held.get(table, ())) != 2:
        return None
    return state.graph.add_embedding(data[0], (table, held[table]), name)


LOWERED: dict[str, Lowering] = {
    "Conv": _lower_conv,
    "Gemm": _lower_gemm,
    "MatMul": _lower_matmul,
    "BatchNormalization": partial(_lower_norm, BatchNorm),
    "LayerNormalization": partial(_lower_norm, LayerNorm),
    "Add": _lower_add,
    "Mul": _lower_mul,
    "MaxPool": partial(_lower_pool, MaxPool),
    "AveragePool": partial(_lower_pool, AvgPool),
    "GlobalAveragePool": _lower_global_pool,
    "Gather": _lower_gather,
}
