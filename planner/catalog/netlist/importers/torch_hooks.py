"""A PyTorch module watched while it runs: its modules with parameters, and activations, in the order of their
calls.

What modules do between one another (additions, products, attention written out) is not seen, so that a layer
reads the module whose output it is given, or else the one before it.
"""

from __future__ import annotations

import math
from typing import Any

from planner.catalog.netlist.importers.graph import OperatorGraph, Shape, Value, image, without_batch
from planner.catalog.netlist.importers.operators import MODULE_ACTIVATIONS
from planner.errors import BadInput


class _Watch:
    def __init__(self, batch: int, first: Value) -> None:
        self.graph, self.batch, self.last = OperatorGraph(), batch, first
        self.known: dict[int, Value] = {}
        self.alive: list[Any] = []  # so that no two tensors have one identity

    def called(self, name: str, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if not hasattr(output, "shape"):
            return
        given = next((one for one in inputs if hasattr(one, "shape")), None)
        source = self.known.get(id(given), self.last)
        out = without_batch(tuple(output.shape), self.batch)
        reads = without_batch(tuple(given.shape), self.batch) if given is not None else source.shape
        self.last = self.known[id(output)] = self.lower(name, module, source, reads, out)
        self.alive += [given, output]

    def lower(self, name: str, module: Any, source: Value, reads: Shape, out: Shape) -> Value:
        graph, kind = self.graph, type(module).__name__
        tensors = {f"{name}.{key}": tuple(one.shape) for key, one in module.named_parameters(recurse=False)}
        weight = tensors.get(f"{name}.weight")
        first = weight is not None and f"{name}.weight" not in graph.owners
        if kind in ("Linear", "Conv1D", "NonDynamicallyQuantizableLinear") and weight:
            bias = f"{name}.bias" if f"{name}.bias" in tensors else None
            value = graph.viewed(source, reads)
            return graph.linear(value, (f"{name}.weight", weight), bias, kind == "Conv1D", name)
        if kind == "Conv2d" and first and len(out) == 3:
            return self.convolution(name, module, graph.viewed(source, image(reads)), image(out))
        if kind == "Embedding" and first and len(reads) == 1 and weight:
            graph.owners[f"{name}.weight"] = name
            value = graph.viewed(source, reads)
            return graph.add(
                "embedding", weight[0], name, (*reads, weight[1]), features=weight[1], from_=value.layer
            )
        if "Norm" in kind and first and weight:
            shape = image(out) if image(out)[-1:] == weight else out
            if shape[-1:] == weight:
                graph.owners[f"{name}.weight"] = ""
                norm = "batch_norm" if "Batch" in kind else "rms_norm" if "RMS" in kind else "layer_norm"
                keys = {"bias": False} if norm == "layer_norm" and len(tensors) == 1 else {}
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
        return self.graph.add("conv", out[-1], name, out, groups=groups, **keys)


def watched(module: Any, example: Any, batch: int) -> OperatorGraph:
    """The layers that a module calls for an example on the meta device."""
    import torch

    shape = without_batch(tuple(example.shape), batch)
    text = not example.is_floating_point()
    first = shape if text else image(shape)
    watch = _Watch(batch, Value("input", first if len(first) != 2 else (first[0] * first[1],)))
    handles = [
        one.register_forward_hook(lambda m, i, o, name=name: watch.called(name, m, i, o))
        for name, one in module.named_modules()
        if name and not any(True for _ in one.children())
    ]
    try:
        with torch.no_grad():
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
