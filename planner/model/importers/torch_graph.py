"""The graph of `torch.export` as layers.

A value is data (it depends on the batch), a parameter or made of parameters alone, or a constant (positions,
masks), which nothing is computed for. Views and copies are followed, not counted.
"""

from __future__ import annotations

import math
from typing import Any

from planner.model.importers.graph import OperatorGraph, Shape, Value, image
from planner.model.importers.operators import (
    TORCH_ACTIVATIONS,
    TORCH_MOVING,
    TORCH_SAME,
    TORCH_VIEWS,
)
from planner.model.importers.torch_layers import LOWERED
from planner.model.importers.torch_values import HeldValue, Lowering


def lowered(program: Any, batch: int, *, ids: bool) -> OperatorGraph:
    """The layers of an exported program."""
    at = Lowering(OperatorGraph(), batch)
    signature = program.graph_signature
    parameters = dict(signature.inputs_to_parameters)
    same = _shared(program, parameters)
    last: Value | None = None
    for node in program.graph.nodes:
        if node.op == "placeholder":
            at.known[node] = _placeholder(at, node, parameters, same, set(signature.user_inputs), ids)
        elif node.op == "call_function":
            found = _lower(at, node)
            at.known[node] = found
            if isinstance(found, Value):
                last = found
        elif node.op == "output":
            outputs = [one for one in map(at.of, node.all_input_nodes) if isinstance(one, Value)]
            last = outputs[-1] if outputs else last
    if last is None:
        at.graph.closed(Value("input", (1,)), text=False)
    else:
        at.graph.closed(last, text=ids and len(last.shape) == 2)
    return at.graph


def _shared(program: Any, parameters: dict[str, str]) -> dict[str, str]:
    """Names of parameters that are one tensor under several names, by the first."""
    first: dict[int, str] = {}
    found = {}
    for name in parameters.values():
        tensor = program.state_dict.get(name)
        found[name] = first.setdefault(id(tensor), name) if tensor is not None else name
    return found


def _placeholder(  # noqa: PLR0917
    at: Lowering, node: Any, parameters: dict[str, str], same: dict[str, str], inputs: set[str], ids: bool
) -> Value | HeldValue | None:
    if node.name in parameters:
        name = same[parameters[node.name]]
        return HeldValue({name: tuple(int(n) for n in node.meta["val"].shape)})
    if node.name not in inputs or node.meta.get("val") is None:
        return None
    shape = at.shape(node)
    if ids:
        return Value("input", shape)
    inner = image(shape)
    return Value("input", inner if len(inner) != 2 else (inner[0] * inner[1],))


def _lower(at: Lowering, node: Any) -> Value | HeldValue | None:
    """The value of one operator."""
    operator = str(getattr(node.target, "_overloadpacket", node.target))
    name = operator.rpartition(".")[2].rpartition("::")[2]
    data, held = at.data(node), at.held(node)
    if name == "getitem" or "getitem" in operator:
        name = "getitem"
    if not data:
        if not held:
            return None
        turned = name in ("t", "transpose", "permute", "numpy_T") and len(next(iter(held.values()))) == 2
        one = at.of(node.all_input_nodes[0])
        was = isinstance(one, HeldValue) and one.transposed
        plain = (
            len(held) == 1
            and (name in TORCH_VIEWS or name in TORCH_SAME)
            and name not in ("expand", "select", "slice")
        )
        return HeldValue(held, was != turned, plain)
    if name in LOWERED:
        found = LOWERED[name](at, node, data)
        if found is not None:
            return found
    if name in TORCH_ACTIVATIONS:
        return at.graph.unary(TORCH_ACTIVATIONS[name], data[0], at.name(node))
    if name in TORCH_SAME or (name == "dropout" and (node.args[1] == 0 or not node.args[2])):
        return data[0]
    if name == "dropout":
        return at.graph.unary("dropout", data[0], at.name(node))
    if name in TORCH_VIEWS:
        return at.graph.viewed(data[0], _viewed_shape(at, node, data[0]))
    return at.graph.other(operator, data, at.name(node), at.shape(node), held, known=name in TORCH_MOVING)


def _viewed_shape(at: Lowering, node: Any, source: Value) -> Shape:
    """The shape of a view; an image that only loses axes of one stays as it is."""
    shape = at.shape(node)
    if math.prod(shape) == math.prod(source.shape) and image(shape) == source.shape:
        return source.shape
    return shape
