"""Builds the values of a model file from a graph of PyTorch or ONNX operators.

Frameworks order images as (channels, height, width), model files as (height, width, channels). A value has
the shape of its layer here, and a `view` adapts it to readers of another shape. Sizes are per sample. An
unknown operator becomes a layer of kind `other`, which moves what it reads and writes and counts its tensors.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from planner.model import Model
from planner.model.importers import TORCH_NAMES
from planner.model.layers import KINDS, workloads
from planner.model.layers.base import Kind, kind_name
from planner.model.layers.elementwise import BatchNorm, Other, Scale, Softmax, View
from planner.model.layers.products import Conv, Depthwise, Linear, Product
from planner.model.layers.sequences import CrossEntropy, Embedding

Shape = tuple[int, ...]
Item = dict[str, Any]
LONGEST_NAME = 180
_UNIT = re.compile(r"^((?:[^.]+\.)*?[^.]+\.\d+)\.")


@dataclass(frozen=True, slots=True)
class Value:
    """The output of an operator: the layer that computes it, and its shape."""

    layer: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class ParameterValue:
    """A value computed from parameters alone.

    `plain`: it is one parameter, unchanged or transposed.
    """

    tensors: dict[str, Shape]
    transposed: bool = False
    plain: bool = True


@dataclass
class OperatorGraph:
    """The layers of a network in order; most methods add one layer and return its output."""

    layers: list[Item] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    hidden_flops: float = 0.0  # forward FLOPs that unknown operators may hide
    taken: set[str] = field(default_factory=lambda: {"input"})
    counts: dict[str, int] = field(default_factory=dict)  # by name, the last number behind it
    owners: dict[str, str] = field(default_factory=dict)  # by tensor, the layer whose first tensor it is

    def add_layer(self, kind: type[Kind], value: Any, name: str, shape: Shape, /, **keys: Any) -> Value:
        """Adds a layer of this kind under a unique name and returns its output."""
        name = self.reserve_name(name)
        unit = _UNIT.match(f"{name}.")
        given = {key.rstrip("_"): one for key, one in keys.items() if one is not None}
        self.layers.append(
            {kind_name(kind): value, **given, "name": name, **({"unit": unit[1]} if unit else {})}
        )
        return Value(name, shape)

    def reserve_name(self, name: str) -> str:
        """Reserves a printable layer name, numbered if another layer has it, and returns it."""
        name = (
            "".join(c if c.isprintable() else "_" for c in name)[:LONGEST_NAME].replace("/", ".") or "layer"
        )
        unique, count = name, self.counts.get(name, 1)
        while unique in self.taken:
            count += 1
            unique = f"{name}_{count}"
        self.counts[name] = count
        self.taken.add(unique)
        return unique

    def add_view(self, value: Value, shape: Shape) -> Value:
        """Reshapes a value, by a layer of kind `view` if the shapes differ."""
        if value.shape == shape:
            return value
        return self.add_layer(View, list(shape), f"{value.layer}.view", shape, from_=value.layer)

    def add_unary(self, kind: type[Kind], value: Value, name: str) -> Value:
        """Adds a layer whose output has its input's shape."""
        return self.add_layer(kind, True, name, value.shape, from_=value.layer)

    def add_other(
        self,
        operator: str,
        reads: list[Value],
        name: str,
        shape: Shape,
        tensors: dict[str, Shape],
        *,
        known: bool = False,
    ) -> Value:
        """Adds an operator that has no layer kind of its own, as a layer that only moves data.

        `known`: it does nothing else.
        """
        if not known:
            self.unknown[operator] += 1
            self.hidden_flops += _matmul_flops_bound(
                [*(value.shape for value in reads), *tensors.values()], shape
            )
        fresh = {name: list(size) for name, size in tensors.items() if name not in self.owners}
        for tensor in fresh:
            self.owners[tensor] = ""
        sources = [value.layer for value in reads] or ["input"]
        size = list(shape) or [1]
        return self.add_layer(
            Other, operator[:100], name, tuple(size), reads=sources, shape=size, tensors=fresh or None
        )

    def add_linear(
        self, value: Value, weight: tuple[str, Shape], bias: str | None, transposed: bool, name: str
    ) -> Value:
        """Adds a linear layer over the last axis, with its own weights or tied to another layer's."""
        tensor, size = weight
        outputs = size[1] if transposed else size[0]
        owner = self.owners.get(tensor)
        if owner == "":
            return self.add_product(value, (*value.shape[:-1], outputs), value.shape[-1], name)
        if bias is not None and self.owners.setdefault(bias, name) != name:
            bias = None  # added there, too, but counted once
        made = self.add_layer(
            Linear,
            outputs,
            name,
            (*value.shape[:-1], outputs),
            from_=value.layer,
            transposed=transposed or None,
            tied=owner,
            weights=None if owner else self.name_template(tensor, name),
            biases=None if bias is None else self.name_template(bias, name),
            bias=None if bias else False,
        )
        self.owners.setdefault(tensor, made.layer)
        return made

    def add_product(self, value: Value, shape: Shape, depth: int, name: str) -> Value:
        """Adds a matrix product with weights that another layer owns and cannot share."""
        return self.add_layer(
            Product, [value.layer, value.layer], name, shape, shape=list(shape), depth=depth
        )

    def add_convolution(
        self,
        source: Value,
        weight: tuple[str, Shape],
        out: Shape,
        *,
        stride: Sequence[int],
        padding: int | None,
        groups: int,
        bias: str | None,
        name: str,
    ) -> Value | None:
        """Adds a convolution; None if no padding gives its output. `padding` is None if its sides differ."""
        tensor, (channels, depth, *kernel) = weight
        if tensor in self.owners:
            return self.add_product(source, out, depth * math.prod(kernel), name)
        around = fitting_padding(source.shape, out, kernel, stride, padding)
        if around is None:
            return None
        self.owners |= dict.fromkeys((tensor, bias) if bias else (tensor,), "")
        keys: dict[str, Any] = {
            "kernel": collapse_pair(kernel),
            "stride": collapse_pair(stride),
            "padding": around,
        }
        keys |= {"bias": True if bias else None, "from_": source.layer}
        keys["weights"] = self.name_template(tensor, name)
        if groups == source.shape[2] > 1 and channels % groups == 0:
            return self.add_layer(Depthwise, channels // groups, name, out, **keys)
        return self.add_layer(Conv, channels, name, out, groups=groups if groups > 1 else None, **keys)

    def add_pool(
        self,
        kind: type[Kind],
        source: Value,
        out: Shape,
        *,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: int | None,
        name: str,
    ) -> Value | None:
        """Adds a pooling layer; None if no padding gives its output."""
        if not isinstance(fitting_padding(source.shape, out, kernel, stride, padding), int):
            return None
        keys = {"stride": collapse_pair(stride), "padding": padding, "from_": source.layer}
        return self.add_layer(kind, collapse_pair(kernel), name, out, **keys)

    def add_embedding(self, tokens: Value, table: tuple[str, Shape], name: str) -> Value | None:
        """Adds an embedding of tokens; None if a layer of another kind owns its table."""
        tensor, (rows, features) = table
        owner = self.owners.get(tensor)
        if owner == "" or len(tokens.shape) != 1:
            return None
        keys = {"features": features, "from_": tokens.layer, "tied": owner}
        keys["weights"] = None if owner else self.name_template(tensor, name)
        made = self.add_layer(Embedding, rows, name, (*tokens.shape, features), **keys)
        self.owners.setdefault(tensor, made.layer)
        return made

    def name_template(self, tensor: str, name: str) -> str | None:
        """Template of a tensor's name for the model file; None for a default name."""
        return None if tensor in (f"{name}.weight", f"{name}.bias") else tensor

    def append_loss(self, value: Value, *, text: bool) -> None:
        """Appends a loss layer unless the network already ends with one."""
        losses = {kind_name(CrossEntropy), kind_name(Softmax)}
        if not any(losses & layer.keys() for layer in self.layers[-2:]):
            self.add_unary(CrossEntropy if text else Softmax, value, "loss")

    def model_file_values(self, inputs: dict[str, Any], description: str, source: str) -> dict[str, Any]:
        """Values of a model file for this graph."""
        return {
            "description": description,
            "source": source,
            "layout": "torch",
            "separator": ".",
            **inputs,
            "layers": self.layers,
            "tensors": TORCH_NAMES
            | {
                kind_name(BatchNorm): ["{layer}.weight", "{layer}.bias"],
                kind_name(Depthwise): "{layer}.weight",
                kind_name(Scale): "{layer}",
            },
        }

    def unknown_operator_notes(self, model: Model) -> list[str]:
        """Notes that list unknown operators and their share of the data moved."""
        if not self.unknown:
            return ["every operator is known"]
        moved = [work.forward.moved_elements + work.backward.moved_elements for work in workloads(model)]
        strange = {item["name"] for item in self.layers if item.get("other") in self.unknown}
        share = sum(m for m, layer in zip(moved, model.layers, strict=True) if layer.name in strange)
        listed = ", ".join(f"{name} x {count}" for name, count in self.unknown.most_common(8))
        more = f" and {len(self.unknown) - 8} more" if len(self.unknown) > 8 else ""
        part = f"{share / max(1.0, sum(moved)):.1%} of what is moved"
        notes = [f"not known and counted as moving data only ({part}): {listed}{more}"]
        if self.hidden_flops:
            flops = sum(work.forward.nominal_flops for work in workloads(model))
            part = f"; {flops / 1e9:,.3f} are counted"
            notes.append(f"they may hide up to {self.hidden_flops / 1e9:,.3f} GFLOPs forward{part}")
        return notes


def _matmul_flops_bound(operands: list[Shape], output: Shape) -> float:
    """FLOPs of an operator if it were the matrix product of its two largest operands.

    With A of m x k, B of k x n and C of m x n these are 2 m k n = 2 sqrt(|A| |B| |C|).
    """
    sizes = sorted(map(math.prod, operands))[-2:]
    return 2.0 * math.sqrt(math.prod(sizes) * math.prod(output)) if len(sizes) == 2 else 0.0


def fitting_padding(
    source: Shape, out: Shape, kernel: Sequence[int], stride: Sequence[int], padding: int | None
) -> int | str | None:
    """Padding of a window that gives this output: the stated one, "same", or None if neither does."""
    axes = list(zip(source[:2], kernel, stride, out[:2], strict=True))
    if padding is not None and all(
        (size + 2 * padding - wide) // step + 1 == got for size, wide, step, got in axes
    ):
        return padding
    return "same" if all(-(-size // step) == got for size, _, step, got in axes) else None


def collapse_pair(pair: Sequence[int]) -> int | list[int]:
    """Returns one number for a pair of equal numbers, else the pair as a list."""
    return pair[0] if pair[0] == pair[1] else list(pair)


def remove_batch(shape: Shape, batch: int) -> Shape:
    """Shape of one sample: removes the batch axis, or divides the axis that it is folded into."""
    sizes = [int(size) for size in shape]
    for at, size in enumerate(sizes):
        if size == batch:
            rest = sizes[:at] + sizes[at + 1 :]
            return tuple(rest) or (1,)
    for at, size in enumerate(sizes):
        if size % batch == 0 and size:
            sizes[at] = size // batch
            return tuple(sizes)
    return tuple(sizes) or (1,)


def channels_last(shape: Shape) -> Shape:
    """Converts (channels, height, width) to (height, width, channels); other shapes stay."""
    return (shape[1], shape[2], shape[0]) if len(shape) == 3 else shape


_OPERATORS = tomllib.loads((files("planner.model.importers") / "operators.toml").read_text("utf-8"))


def _operator_names(framework: str, group: str) -> frozenset[str]:
    """Operators of a framework in one group of operators.toml."""
    return frozenset(_OPERATORS[framework][group].split())


def _activation_kinds(framework: str) -> dict[str, type[Kind]]:
    """Layer kind of each activation operator of a framework."""
    groups = _OPERATORS[framework]["activations"].items()
    return {name: KINDS[kind] for kind, names in groups for name in names.split()}


TORCH_VIEWS, TORCH_SAME = _operator_names("torch", "views"), _operator_names("torch", "same")
TORCH_MOVING, TORCH_ACTIVATIONS = _operator_names("torch", "moving"), _activation_kinds("torch")
ONNX_VIEWS, ONNX_MOVING = _operator_names("onnx", "views"), _operator_names("onnx", "moving")
ONNX_ACTIVATIONS, MODULE_ACTIVATIONS = _activation_kinds("onnx"), _activation_kinds("modules")
