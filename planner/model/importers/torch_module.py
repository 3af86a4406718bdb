"""A PyTorch module as a model file: exported on the meta device, where tensors have shapes and no values.

The graph of `torch.export` names every operator, its inputs, and the parameters. The batch is a prime that
hardly any network has as a size, so that its axis is recognized. A value is data (it depends on the batch), a
parameter or computed from parameters, or a constant (positions, masks), whose computation does not count.
Views and copies are followed, not counted.

Where a module cannot be exported, hooks on its submodules see less of it (`torch_hooks`).
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
from planner.model.importers import ImportedModel, build_imported, convert_exceptions
from planner.model.importers.graph import (
    TORCH_ACTIVATIONS,
    TORCH_MOVING,
    TORCH_SAME,
    TORCH_VIEWS,
    OperatorGraph,
    ParameterValue,
    Shape,
    Value,
    channels_last,
)
from planner.model.importers.torch_layers import LOWERED, Lowering
from planner.model.layers.elementwise import Dropout

TRACED_BATCH = 37


def import_module_function(source: str, shape: Shape, *, ids: bool, hooks: bool) -> ImportedModel:
    """Imports the network that `module:function` returns, for inputs of this shape, batch first."""
    try:
        import torch
    except ImportError as error:
        raise BadInput("reading PyTorch needs torch: pip install 'dnn-planner[torch]'") from error
    return _import_module(
        _make_module(source, torch), source.rpartition(":")[2], source, shape, ids=ids, hooks=hooks
    )


def import_architecture(path: Path, values: dict[str, Any], tokens: int) -> ImportedModel | None:
    """Imports a config.json of an unknown family as the module that `transformers` builds.

    None if the library is not installed or does not know the family.
    """
    try:
        import torch
        import transformers
    except ImportError:
        return None
    if values["model_type"] not in transformers.CONFIG_MAPPING:
        return None
    source, architectures = str(path), values.get("architectures") or [""]
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with convert_exceptions(f"{source}: transformers cannot make its network"), torch.device("meta"):
        config = transformers.AutoConfig.from_pretrained(str(path.parent), trust_remote_code=False)
        kind = getattr(transformers, str(architectures[0]), None)
        module = (kind or transformers.AutoModelForCausalLM.from_config)(config)
    inner = getattr(config, "text_config", config)
    size = getattr(config, "image_size", None)
    ids = hasattr(inner, "vocab_size")
    if not ids and not isinstance(size, int):
        raise BadInput(f"{source}: neither vocab_size nor image_size says what it reads")
    length = min(getattr(inner, "max_position_embeddings", None) or tokens, tokens)
    shape: Shape = (1, length) if ids else (1, getattr(config, "num_channels", 3), size or 1, size or 1)
    name = path.resolve().parent.name
    module = _move_to_meta(module, source)
    try:
        return _import_module(module, name, source, shape, ids=ids, hooks=False)
    except BadInput:
        return _import_module(module, name, source, shape, ids=ids, hooks=True)


def _import_module(
    module: Any, name: str, source: str, shape: Shape, *, ids: bool, hooks: bool
) -> ImportedModel:
    """Imports a module that is on the meta device, for inputs of this shape, batch first."""
    import torch

    if hooks:
        from planner.model.importers.torch_hooks import record_modules

        graph = record_modules(module, _example_input(torch, shape, ids), TRACED_BATCH)
    else:
        graph = lower_program(_export_program(module, torch, shape, ids, source), TRACED_BATCH, ids=ids)
    given: dict[str, Any] = {"default_batch": min(shape[0], 10_000)}
    if ids:
        given["sequence_length"] = shape[1]
    else:
        inner = channels_last(shape[1:])
        given["input"] = list(inner) if len(inner) != 2 else [inner[0] * inner[1]]
    values = graph.model_file_values(given, f"{type(module).__name__}, from PyTorch", source)
    imported = build_imported(Path(f"{name}.toml"), values, name, [])
    notes = (*graph.unknown_operator_notes(imported.model), *_unused_parameter_notes(module, imported, hooks))
    return ImportedModel(values, imported.model, notes)


def _unused_parameter_notes(module: Any, imported: ImportedModel, hooks: bool) -> list[str]:
    """Notes on module parameters missing from the imported model and, with `hooks`, on missing layers."""
    ours = {tensor.name for tensor in imported.model.tensors}
    theirs = {name: tensor.numel() for name, tensor in module.named_parameters()}
    left = {name: size for name, size in theirs.items() if name not in ours}
    notes: list[str] = []
    if hooks:
        notes.append("hooks see modules only: additions, products and attention between them are not counted")
    if left:
        first = next(iter(left))
        notes.append(
            f"{len(left):,} parameter tensors ({sum(left.values()):,} values) are not used, as {first}"
        )
    return notes


def _make_module(source: str, torch: Any) -> Any:
    """Creates the module named by `module:name` on the meta device, without memory for parameters."""
    where, _, name = source.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with convert_exceptions(f"{source}: cannot import {where}"):
        namespace = importlib.import_module(where)
    make = getattr(namespace, name, None)
    if make is None:
        raise BadInput(f"{source}: {where} has no {name}")
    module = make if isinstance(make, torch.nn.Module) else _call_factory(source, make, torch)
    if not isinstance(module, torch.nn.Module):
        raise BadInput(f"{source} gives a {type(module).__name__}; it must give a torch.nn.Module")
    return _move_to_meta(module, source)


def _move_to_meta(module: Any, source: str) -> Any:
    """Moves a module to the meta device in training mode; raises BadInput if it fails."""
    config: Any = getattr(module, "config", None)
    if hasattr(config, "use_cache"):
        config.use_cache = False  # keys and values of earlier tokens, which training does not have
    with convert_exceptions(f"{source}: cannot be moved to the meta device"):
        return module.to("meta").train()


def _call_factory(source: str, make: Any, torch: Any) -> Any:
    """Calls the user's function that creates the module; raises BadInput if it fails."""
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
    with convert_exceptions(f"{source}: cannot be made on the meta device"), torch.device("meta"):
        return make()


def _example_input(torch: Any, shape: Shape, ids: bool) -> Any:
    """Zeros of the input shape on the meta device, with the traced batch size."""
    sizes = (TRACED_BATCH, *shape[1:])
    return torch.zeros(sizes, dtype=torch.long if ids else torch.float32, device="meta")


def _export_program(module: Any, torch: Any, shape: Shape, ids: bool, source: str) -> Any:
    """Exports the module's graph by torch.export; raises BadInput if it fails."""
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    said, remedy = f"{source}: its graph cannot be exported", "; --hooks watches its modules instead"
    with convert_exceptions(said, remedy), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module, (_example_input(torch, shape, ids),), strict=False)


def lower_program(program: Any, batch: int, *, ids: bool) -> OperatorGraph:
    """Converts a program of torch.export to a graph of layers."""
    state = Lowering(OperatorGraph(), batch)
    signature = program.graph_signature
    parameters = dict(signature.inputs_to_parameters)
    same = _shared_parameter_names(program, parameters)
    last: Value | None = None
    for node in program.graph.nodes:
        if node.op == "placeholder":
            state.known[node] = _placeholder_value(
                state, node, parameters, same, set(signature.user_inputs), ids
            )
        elif node.op == "call_function":
            made = _lower_operator(state, node)
            state.known[node] = made
            if isinstance(made, Value):
                last = made
        elif node.op == "output":
            outputs = [
                value for value in map(state.argument_value, node.all_input_nodes) if isinstance(value, Value)
            ]
            last = outputs[-1] if outputs else last
    if last is None:
        state.graph.append_loss(Value("input", (1,)), text=False)
    else:
        state.graph.append_loss(last, text=ids and len(last.shape) == 2)
    return state.graph


def _shared_parameter_names(program: Any, parameters: dict[str, str]) -> dict[str, str]:
    """Maps every parameter name to the first name of that parameter, as modules may share parameters."""
    first: dict[int, str] = {}
    owners = {}
    for name in parameters.values():
        tensor = program.state_dict.get(name)
        owners[name] = first.setdefault(id(tensor), name) if tensor is not None else name
    return owners


def _placeholder_value(  # noqa: PLR0917
    state: Lowering,
    node: Any,
    parameters: dict[str, str],
    first_names: dict[str, str],
    inputs: set[str],
    ids: bool,
) -> Value | ParameterValue | None:
    """Value of a graph input: a parameter, a sample, or None for a constant."""
    if node.name in parameters:
        name = first_names[parameters[node.name]]
        return ParameterValue({name: tuple(int(n) for n in node.meta["val"].shape)})
    if node.name not in inputs or node.meta.get("val") is None:
        return None
    shape = state.sample_shape(node)
    if ids:
        return Value("input", shape)
    inner = channels_last(shape)
    return Value("input", inner if len(inner) != 2 else (inner[0] * inner[1],))


def _lower_operator(state: Lowering, node: Any) -> Value | ParameterValue | None:
    """Converts one operator to a layer and returns its value; None if it is a constant."""
    if 0 in state.sample_shape(node):
        return None  # a part without elements
    operator = str(getattr(node.target, "_overloadpacket", node.target))
    name = operator.rpartition(".")[2].rpartition("::")[2]
    inputs, held = map(state.argument_value, node.all_input_nodes), state.parameter_inputs(node)
    data = [value for value in inputs if isinstance(value, Value)]  # what depends on the batch
    if name == "getitem" or "getitem" in operator:
        name = "getitem"
    if not data:
        if not held:
            return None
        turned = name in ("t", "transpose", "permute", "numpy_T") and len(next(iter(held.values()))) == 2
        result = state.argument_value(node.all_input_nodes[0])
        was = isinstance(result, ParameterValue) and result.transposed
        plain = (
            len(held) == 1
            and (name in TORCH_VIEWS or name in TORCH_SAME)
            and name not in ("expand", "select", "slice")
        )
        return ParameterValue(held, was != turned, plain)
    if name in LOWERED:
        value = LOWERED[name](state, node, data)
        if value is not None:
            return value
    if name in TORCH_ACTIVATIONS:
        return state.graph.add_unary(TORCH_ACTIVATIONS[name], data[0], state.layer_name(node))
    if name in TORCH_SAME or (name == "dropout" and (node.args[1] == 0 or not node.args[2])):
        return data[0]
    if name == "dropout":
        return state.graph.add_unary(Dropout, data[0], state.layer_name(node))
    if name in TORCH_VIEWS:
        shape = state.sample_shape(node)
        # an image that only loses axes of size one stays an image
        return data[0] if channels_last(shape) == data[0].shape else state.graph.add_view(data[0], shape)
    return state.graph.add_other(
        operator, data, state.layer_name(node), state.sample_shape(node), held, known=name in TORCH_MOVING
    )
