"""Records a module's layers with hooks, where its graph cannot be exported.

Hooks see modules with parameters and activations, in the order of their calls, but not what happens between
them (sums, products, attention in Python). A layer therefore reads the module whose output it gets, or else
the one before it. Where a module branches on the value of a tensor, that value is zero.
"""

from __future__ import annotations

import math
from typing import Any

from planner.errors import BadInput
from planner.model.importers import convert_exceptions
from planner.model.importers.graph import (
    MODULE_ACTIVATIONS,
    OperatorGraph,
    Shape,
    Value,
    channels_last,
    remove_batch,
)
from planner.model.layers.elementwise import BatchNorm, LayerNorm, RmsNorm
from planner.model.layers.sequences import Positions


class _Recorder:
    """Records the calls of a module's submodules as layers of a graph."""

    def __init__(self, batch: int, first: Value, names: dict[int, str]) -> None:
        self.graph, self.batch, self.last = OperatorGraph(), batch, first
        self.names = names  # of parameters, by identity: one that two modules share has one name
        self.known: dict[int, Value] = {}
        self.alive: list[Any] = []  # so that no two tensors have one identity

    def record_call(self, name: str, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Forward hook that records a module's call as a layer."""
        if not hasattr(output, "shape"):
            return
        given = next((tensor for tensor in inputs if hasattr(tensor, "shape")), None)
        source = self.known.get(id(given), self.last)
        out = remove_batch(tuple(output.shape), self.batch)
        reads = remove_batch(tuple(given.shape), self.batch) if given is not None else source.shape
        self.last = self.known[id(output)] = self.lower_call(name, module, source, reads, out)
        self.alive += [given, output]

    def lower_call(self, name: str, module: Any, source: Value, reads: Shape, out: Shape) -> Value:
        """Adds the layer for a module's call, of kind `other` if no kind matches; returns its output."""
        graph, kind = self.graph, type(module).__name__
        held = {key: (self.names[id(one)], one) for key, one in module.named_parameters(recurse=False)}
        tensors = {tensor: tuple(one.shape) for tensor, one in held.values()}
        own = held["weight"][0] if "weight" in held else f"{name}.weight"
        weight = tensors.get(own)
        first = weight is not None and own not in graph.owners
        if kind in ("Linear", "Conv1D", "NonDynamicallyQuantizableLinear") and weight:
            bias = held["bias"][0] if "bias" in held else None
            value = graph.add_view(source, reads)
            return graph.add_linear(value, (own, weight), bias, kind == "Conv1D", name)
        if kind == "Conv2d" and first and weight and len(out) == 3:
            around = module.padding
            made = graph.add_convolution(
                graph.add_view(source, channels_last(reads)),
                (own, weight),
                channels_last(out),
                stride=module.stride,
                padding=None if isinstance(around, str) else around[0],
                groups=module.groups,
                bias=held["bias"][0] if "bias" in held else None,
                name=name,
            )
            if made is not None:
                return made
        if kind == "Embedding" and first and len(reads) == 1 and weight:
            made = graph.add_embedding(graph.add_view(source, reads), (own, weight), name)
            if made is not None:
                return made
        if kind == "Embedding" and first and weight and out == (1, *source.shape):  # the same for all samples
            graph.owners[own] = ""
            return graph.add_layer(Positions, weight[0], name, source.shape, from_=source.layer, weights=own)
        if "Norm" in kind and first and weight:
            shape = channels_last(out) if channels_last(out)[-1:] == weight else out
            if shape[-1:] == weight:
                graph.owners[own] = ""
                norm = BatchNorm if "Batch" in kind else RmsNorm if "RMS" in kind else LayerNorm
                keys = {"bias": False} if norm is LayerNorm and len(tensors) == 1 else {}
                return graph.add_layer(
                    norm, True, name, shape, from_=graph.add_view(source, shape).layer, **keys
                )
        if kind in MODULE_ACTIVATIONS:
            shape = source.shape if math.prod(source.shape) == math.prod(out) else out
            return graph.add_unary(MODULE_ACTIVATIONS[kind], graph.add_view(source, shape), name)
        return graph.add_other(kind, [source], name, out, tensors, known=False)


def _read_scalars_as_zero(torch: Any) -> Any:
    """Context in which reading a number from a meta tensor gives zero.

    transformers reads its masks like that.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    asked = torch.ops.aten._local_scalar_dense.default

    class Zeros(TorchDispatchMode):  # type: ignore[misc]
        """Dispatch mode that answers `aten._local_scalar_dense` with zero."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is asked:
                return 0.0 if args[0].dtype.is_floating_point else 0
            return func(*args, **(kwargs or {}))

    return Zeros()


def record_modules(module: Any, example: Any, batch: int) -> OperatorGraph:
    """Runs a module on the meta device and records the layers that it calls, by forward hooks."""
    import torch

    shape = remove_batch(tuple(example.shape), batch)
    text = not example.is_floating_point()
    first = shape if text else channels_last(shape)
    names = {id(one): name for name, one in module.named_parameters()}
    watch = _Recorder(batch, Value("input", first if len(first) != 2 else (first[0] * first[1],)), names)
    handles = [
        one.register_forward_hook(lambda m, i, o, name=name: watch.record_call(name, m, i, o))
        for name, one in module.named_modules()
        if name and not any(True for _ in one.children())
    ]
    failure = convert_exceptions("the module cannot be run on the meta device")
    with failure, torch.no_grad(), _read_scalars_as_zero(torch):
        module(example)
    for handle in handles:
        handle.remove()
    if not watch.graph.layers:
        raise BadInput("the module calls no module of its own; there is nothing to watch")
    watch.graph.append_loss(watch.last, text=text and len(watch.last.shape) == 2)
    return watch.graph
