"""What is known of the nodes of an exported graph: data, parameters, constants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planner.model.importers.graph import OperatorGraph, Shape, Value, without_batch


@dataclass(frozen=True, slots=True)
class HeldValue:
    """A parameter, or what is made of parameters alone."""

    tensors: dict[str, Shape]
    transposed: bool = False
    plain: bool = True  # one parameter, as it is or transposed


@dataclass
class Lowering:
    """What is known of the nodes so far."""

    graph: OperatorGraph
    batch: int
    modules: dict[Any, str] = field(default_factory=dict)
    known: dict[Any, Value | HeldValue | None] = field(default_factory=dict)

    def shape(self, node: Any) -> Shape:
        found = node.meta.get("val")
        if isinstance(found, list | tuple):
            found = found[0] if found else None
        return without_batch(tuple(int(n) for n in getattr(found, "shape", ())), self.batch)

    def of(self, argument: Any) -> Value | HeldValue | None:
        return self.known.get(argument) if hasattr(argument, "meta") else None

    def data(self, node: Any) -> list[Value]:
        return [one for one in map(self.of, node.all_input_nodes) if isinstance(one, Value)]

    def held(self, node: Any) -> dict[str, Shape]:
        found: dict[str, Shape] = {}
        for one in map(self.of, node.all_input_nodes):
            if isinstance(one, HeldValue):
                found |= one.tensors
        return found

    def name(self, node: Any, *tensors: str) -> str:
        """The module that a layer is: by its parameter, else by where the node came from."""
        for tensor in tensors:
            if tensor.endswith((".weight", ".bias")):
                return tensor.rpartition(".")[0]
        if tensors:
            return tensors[0].removesuffix("_weight").removesuffix("_bias")
        stack = node.meta.get("nn_module_stack") or {}
        path = next((str(entry[0]) for entry in reversed(list(stack.values())) if entry and entry[0]), "")
        return f"{path}.{node.name}" if path else str(node.name)
