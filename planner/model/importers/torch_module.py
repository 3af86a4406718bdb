"""A PyTorch module as a model file: exported on the meta device, where tensors have shapes and no values.

The graph that `torch.export` gives names every operator, what it reads, and the parameters. A batch of its
own, a prime that hardly any network has as a size, tells the axis of the batch from others. A value is data
(it depends on the batch), a parameter or made of parameters alone, or a constant (positions, masks), which
nothing is computed for. Views and copies are followed, not counted.

Where a module cannot be exported, hooks on its modules see layers with parameters and activations, in the
order of their calls. What modules do between one another (additions, products, attention written out) is not
seen, so that a layer reads the module whose output it is given, or else the one before it. Where a module
branches on a value of a tensor, it is taken for zero.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import math
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.model.importers import ImportedModel, built
from planner.model.importers.graph import (
    MODULE_ACTIVATIONS,
    TORCH_ACTIVATIONS,
    TORCH_MOVING,
    TORCH_SAME,
    TORCH_VIEWS,
    OperatorGraph,
    Shape,
    Value,
    image,
    without_batch,
)
from planner.model.importers.torch_layers import LOWERED, HeldValue, Lowering
from planner.model.layers.elementwise import BatchNorm, Dropout, LayerNorm, RmsNorm
from planner.model.layers.products import Conv
from planner.model.layers.sequences import Embedding, Positions

TRACED_BATCH = 37


def import_module_function(source: str, shape: Shape, *, ids: bool, hooks: bool) -> ImportedModel:
    """The network that `module:function` makes, for inputs of this shape, the batch first."""
    try:
        import torch
    except ImportError as error:
        raise BadInput("reading PyTorch needs torch: pip install 'dnn-planner[torch]'") from error
    module = _made(source, torch)
    if hooks:
        from planner.model.importers.torch_module import watched

        graph = watched(module, _example(torch, shape, ids), TRACED_BATCH)
    else:
        from planner.model.importers.torch_module import lowered

        graph = lowered(_exported(module, torch, shape, ids, source), TRACED_BATCH, ids=ids)
    given: dict[str, Any] = {"default_batch": min(shape[0], 10_000)}
    if ids:
        given["sequence_length"] = shape[1]
    else:
        inner = image(shape[1:])
        given["input"] = list(inner) if len(inner) != 2 else [inner[0] * inner[1]]
    name = source.rpartition(":")[2]
    notes: list[str] = []
    values = graph.values(given, f"{type(module).__name__}, from PyTorch", source)
    imported = built(Path(f"{name}.toml"), values, name, notes)
    return ImportedModel(
        values, imported.model, (*graph.said(imported.model), *_missing(module, imported, hooks))
    )


def _missing(module: Any, imported: ImportedModel, hooks: bool) -> list[str]:
    """What the module has and the model does not."""
    ours = {tensor.name for tensor in imported.model.tensors}
    theirs = {name: tensor.numel() for name, tensor in module.named_parameters()}
    left = {name: size for name, size in theirs.items() if name not in ours}
    notes = (
        ["hooks see modules only: additions, products and attention between them are not counted"]
        if hooks
        else []
    )
    if left:
        first = next(iter(left))
        notes.append(
            f"{len(left):,} parameter tensors ({sum(left.values()):,} values) are not used, as {first}"
        )
    return notes


def _made(source: str, torch: Any) -> Any:
    """The module, without memory for its parameters."""
    where, _, name = source.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        namespace = importlib.import_module(where)
    except Exception as error:
        raise BadInput(f"{source}: cannot import {where}: {_line(error)}") from error
    make = getattr(namespace, name, None)
    if make is None:
        raise BadInput(f"{source}: {where} has no {name}")
    module = make if isinstance(make, torch.nn.Module) else _called(source, make, torch)
    if not isinstance(module, torch.nn.Module):
        raise BadInput(f"{source} gives a {type(module).__name__}; it must give a torch.nn.Module")
    config: Any = getattr(module, "config", None)
    if hasattr(config, "use_cache"):
        config.use_cache = False  # of keys and values of earlier tokens: nothing that training has
    try:
        return module.to("meta").train()
    except Exception as error:
        raise BadInput(f"{source}: cannot be moved to the meta device: {_line(error)}") from error


def _called(source: str, make: Any, torch: Any) -> Any:
    if not callable(make):
        raise BadInput(
            f"{source} is a {type(make).__name__}; it must be a function that makes a torch.nn.Module"
        )
    try:
        needs = [
            p.name
            for p in inspect.signature(make).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
    except (TypeError, ValueError):
        needs = []
    if needs:
        raise BadInput(f"{source} needs arguments ({', '.join(needs)}); name a function that needs none")
    try:
        with torch.device("meta"):
            return make()
    except Exception as error:
        raise BadInput(f"{source}: cannot be made on the meta device: {_line(error)}") from error


def _example(torch: Any, shape: Shape, ids: bool) -> Any:
    sizes = (TRACED_BATCH, *shape[1:])
    return torch.zeros(sizes, dtype=torch.long if ids else torch.float32, device="meta")


def _exported(module: Any, torch: Any, shape: Shape, ids: bool, source: str) -> Any:
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(module, (_example(torch, shape, ids),), strict=False)
    except Exception as error:
        said = f"{source}: its graph cannot be exported: {_line(error)}"
        raise BadInput(f"{said}; --hooks watches its modules instead") from error


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


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
            made = _lower(at, node)
            at.known[node] = made
            if isinstance(made, Value):
                last = made
        elif node.op == "output":
            outputs = [value for value in map(at.of, node.all_input_nodes) if isinstance(value, Value)]
            last = outputs[-1] if outputs else last
    if last is None:
        at.graph.closed(Value("input", (1,)), text=False)
    else:
        at.graph.closed(last, text=ids and len(last.shape) == 2)
    return at.graph


def _shared(program: Any, parameters: dict[str, str]) -> dict[str, str]:
    """Names of parameters that are one tensor under several names, by the first."""
    first: dict[int, str] = {}
    owners = {}
    for name in parameters.values():
        tensor = program.state_dict.get(name)
        owners[name] = first.setdefault(id(tensor), name) if tensor is not None else name
    return owners


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
    if 0 in at.shape(node):
        return None  # a part without elements
    operator = str(getattr(node.target, "_overloadpacket", node.target))
    name = operator.rpartition(".")[2].rpartition("::")[2]
    data, held = at.data(node), at.held(node)
    if name == "getitem" or "getitem" in operator:
        name = "getitem"
    if not data:
        if not held:
            return None
        turned = name in ("t", "transpose", "permute", "numpy_T") and len(next(iter(held.values()))) == 2
        result = at.of(node.all_input_nodes[0])
        was = isinstance(result, HeldValue) and result.transposed
        plain = (
            len(held) == 1
            and (name in TORCH_VIEWS or name in TORCH_SAME)
            and name not in ("expand", "select", "slice")
        )
        return HeldValue(held, was != turned, plain)
    if name in LOWERED:
        value = LOWERED[name](at, node, data)
        if value is not None:
            return value
    if name in TORCH_ACTIVATIONS:
        return at.graph.unary(TORCH_ACTIVATIONS[name], data[0], at.name(node))
    if name in TORCH_SAME or (name == "dropout" and (node.args[1] == 0 or not node.args[2])):
        return data[0]
    if name == "dropout":
        return at.graph.unary(Dropout, data[0], at.name(node))
    if name in TORCH_VIEWS:
        return at.graph.viewed(data[0], _viewed_shape(at, node, data[0]))
    return at.graph.other(operator, data, at.name(node), at.shape(node), held, known=name in TORCH_MOVING)


def _viewed_shape(at: Lowering, node: Any, source: Value) -> Shape:
    """The shape of a view; an image that only loses axes of one stays as it is."""
    shape = at.shape(node)
    if math.prod(shape) == math.prod(source.shape) and image(shape) == source.shape:
        return source.shape
    return shape


class _Watch:
    def __init__(self, batch: int, first: Value, names: dict[int, str]) -> None:
        self.graph, self.batch, self.last = OperatorGraph(), batch, first
        self.names = names  # of parameters, by identity: one that two modules share has one name
        self.known: dict[int, Value] = {}
        self.alive: list[Any] = []  # so that no two tensors have one identity

    def called(self, name: str, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if not hasattr(output, "shape"):
            return
        given = next((tensor for tensor in inputs if hasattr(tensor, "shape")), None)
        source = self.known.get(id(given), self.last)
        out = without_batch(tuple(output.shape), self.batch)
        reads = without_batch(tuple(given.shape), self.batch) if given is not None else source.shape
        self.last = self.known[id(output)] = self.lower(name, module, source, reads, out)
        self.alive += [given, output]

    def lower(self, name: str, module: Any, source: Value, reads: Shape, out: Shape) -> Value:
        graph, kind = self.graph, type(module).__name__
        held = {key: (self.names[id(one)], one) for key, one in module.named_parameters(recurse=False)}
        tensors = {tensor: tuple(one.shape) for tensor, one in held.values()}
        own = held["weight"][0] if "weight" in held else f"{name}.weight"
        weight = tensors.get(own)
        first = weight is not None and own not in graph.owners
        if kind in ("Linear", "Conv1D", "NonDynamicallyQuantizableLinear") and weight:
            bias = held["bias"][0] if "bias" in held else None
            value = graph.viewed(source, reads)
            return graph.linear(value, (own, weight), bias, kind == "Conv1D", name)
        if kind == "Conv2d" and first and len(out) == 3:
            return self.convolution(name, module, graph.viewed(source, image(reads)), image(out))
        if kind == "Embedding" and first and len(reads) == 1 and weight:
            graph.owners[own] = name
            value = graph.viewed(source, reads)
            return graph.add(
                Embedding, weight[0], name, (*reads, weight[1]), features=weight[1], from_=value.layer
            )
        if kind == "Embedding" and first and weight and out == (1, *source.shape):  # the same for all samples
            graph.owners[own] = ""
            return graph.add(Positions, weight[0], name, source.shape, from_=source.layer, weights=own)
        if "Norm" in kind and first and weight:
            shape = image(out) if image(out)[-1:] == weight else out
            if shape[-1:] == weight:
                graph.owners[own] = ""
                norm = BatchNorm if "Batch" in kind else RmsNorm if "RMS" in kind else LayerNorm
                keys = {"bias": False} if norm is LayerNorm and len(tensors) == 1 else {}
                return graph.add(norm, True, name, shape, from_=graph.viewed(source, shape).layer, **keys)
        if kind in MODULE_ACTIVATIONS:
            shape = source.shape if math.prod(source.shape) == math.prod(out) else out
            return graph.unary(MODULE_ACTIVATIONS[kind], graph.viewed(source, shape), name)
        return graph.other(kind, [source], name, out, tensors, known=False)

    def convolution(self, name: str, module: Any, source: Value, out: Shape) -> Value:
        self.graph.owners[f"{name}.weight"] = ""
        kernel, stride = list(module.kernel_size), list(module.stride)
        around = module.padding if isinstance(module.padding, str) else module.padding[0]
        fits = not isinstance(around, str) and all(
            (size + 2 * around - wide) // step + 1 == got
            for size, wide, step, got in zip(source.shape[:2], kernel, stride, out[:2], strict=True)
        )
        keys = {
            "kernel": kernel,
            "stride": stride,
            "padding": around if fits else "same",
            "from_": source.layer,
        }
        keys["bias"] = True if module.bias is not None else None
        groups = module.groups if module.groups > 1 else None
        return self.graph.add(Conv, out[-1], name, out, groups=groups, **keys)


def _zeros(torch: Any) -> Any:
    """Makes every number that is asked of a tensor a zero: transformers look into masks."""
    from torch.utils._python_dispatch import TorchDispatchMode

    asked = torch.ops.aten._local_scalar_dense.default

    class Zeros(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is asked:
                return 0.0 if args[0].dtype.is_floating_point else 0
            return func(*args, **(kwargs or {}))

    return Zeros()


def watched(module: Any, example: Any, batch: int) -> OperatorGraph:
    """The layers that a module calls for an example on the meta device."""
    import torch

    shape = without_batch(tuple(example.shape), batch)
    text = not example.is_floating_point()
    first = shape if text else image(shape)
    names = {id(one): name for name, one in module.named_parameters()}
    watch = _Watch(batch, Value("input", first if len(first) != 2 else (first[0] * first[1],)), names)
    handles = [
        one.register_forward_hook(lambda m, i, o, name=name: watch.called(name, m, i, o))
        for name, one in module.named_modules()
        if name and not any(True for _ in one.children())
    ]
    try:
        with torch.no_grad(), _zeros(torch):
            module(example)
    except Exception as error:
        text_of = " ".join(str(error).split())[:200]
        raise BadInput(
            f"the module cannot be run on the meta device: {type(error).__name__}: {text_of}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    if not watch.graph.layers:
        raise BadInput("the module calls no module of its own; there is nothing to watch")
    watch.graph.closed(watch.last, text=text and len(watch.last.shape) == 2)
    return watch.graph
