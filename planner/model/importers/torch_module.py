"""A PyTorch module as a model file: exported on the meta device, where tensors have shapes and no values.

The graph that `torch.export` gives names every operator, what it reads, and the parameters. A batch of its
own, a prime that hardly any network has as a size, tells the axis of the batch from others. Where a module
cannot be exported, hooks on its modules see layers with parameters, in order, and nothing between them
(`torch_hooks`).
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.model.importers import ImportedModel, built
from planner.model.importers.graph import Shape, image

TRACED_BATCH = 37


def import_module_function(source: str, shape: Shape, *, ids: bool, hooks: bool) -> ImportedModel:
    """The network that `module:function` makes, for inputs of this shape, the batch first."""
    try:
        import torch
    except ImportError as error:
        raise BadInput("reading PyTorch needs torch: pip install 'dnn-planner[torch]'") from error
    module = _made(source, torch)
    if hooks:
        from planner.model.importers.torch_hooks import watched

        graph = watched(module, _example(torch, shape, ids), TRACED_BATCH)
    else:
        from planner.model.importers.torch_graph import lowered

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
        found = importlib.import_module(where)
    except Exception as error:
        raise BadInput(f"{source}: cannot import {where}: {_line(error)}") from error
    make = getattr(found, name, None)
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
