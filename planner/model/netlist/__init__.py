"""Netlists: `models/*.toml` as `Model`s. The format is documented in `docs/models.md`.

`_expand.File` and the kinds of `planner.model.layers` define the keys of a file, `_expand.py` unrolls blocks
and branches into layers with names and inputs, `infer_layers` adds shapes, parameter tensors and
multiply-adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from planner.files.tomlfile import TomlSource, check_name, decode, name_fault, read_toml
from planner.model import Layer, Model, Tensor
from planner.model.layers.base import InferredLayer, Shape, ShapeMisfit, Style, format_shape, kind_name
from planner.model.layers.elementwise import Input
from planner.model.netlist._expand import File, PlacedLayer, expand_layers

LONGEST_NAME = 200
OWN_KEYS = ("layers", "base", "description", "source")  # a file inherits all others from its base


def read_model(path: Path | str, find: Callable[[str], Path | None] | None = None) -> Model:
    """Reads a model file. `find` locates the file of its base if it is not in the same folder."""
    source = read_toml(path)
    return build_model(source, _merge_bases(source, find or (lambda name: None)))


def build_model(source: TomlSource, values: dict[str, Any], name: str | None = None) -> Model:
    """Builds the model of a file's merged values; its name is the file's by default."""
    return _build_for_length(source, decode(source, values, File), name or source.path.stem, None)


def _build_for_length(source: TomlSource, file: File, name: str, tokens: int | None) -> Model:
    """Builds the model of a file for samples of `tokens` tokens (None: the file's own length)."""
    check_name(name, f"{source.path}: the file's name is the model's")
    texts = _input_shapes(source, file, tokens)
    try:
        placed = expand_layers(source, file)
    except RecursionError:
        raise source.error("blocks are nested too deeply", ["layers"]) from None
    layers = tuple(infer_layers(source, file, placed, texts))
    length = None if file.sequence_length is None else tokens or file.sequence_length
    samples = file.samples_per_epoch
    if samples is None and file.tokens_per_epoch and length:
        samples = -(-file.tokens_per_epoch // length)
    return Model(
        name=name,
        layers=layers,
        default_batch=file.default_batch,
        samples_per_epoch=samples,
        description=file.description,
        source=file.source,
        default_precision=file.default_precision,
        sequence_length=length,
        tokens_per_epoch=file.tokens_per_epoch,
        remake=None if length is None else partial(_build_for_length, source, file, name),
    )


def _input_shapes(source: TomlSource, file: File, tokens: int | None) -> dict[str, Shape]:
    """Shapes of the network's inputs by name; the length of targets scales with that of the text."""
    more = {name: tuple(shape) for name, shape in file.inputs.items()}
    if file.input is None and file.sequence_length is None:
        raise source.error("the key 'input' is missing; a network over text has 'sequence_length' instead")
    if file.input is not None:
        if file.sequence_length is not None:
            raise source.error("give 'input' or 'sequence_length', not both", ["sequence_length"])
        if file.target_length is not None:
            raise source.error(
                "'target_length' needs 'sequence_length': an image has no targets", ["target_length"]
            )
        if len(file.input) == 2:
            raise source.error("give [height, width, channels] or [features], not two numbers", ["input"])
        return {"input": tuple(file.input)} | more
    given = file.sequence_length or 1
    texts: dict[str, Shape] = {"input": (tokens or given,)}
    if file.target_length:
        texts["targets"] = (-(-file.target_length * (tokens or given) // given),)
    return texts | more


def _merge_bases(source: TomlSource, find: Callable[[str], Path | None]) -> dict[str, Any]:
    """Merges the values of a file with those that it inherits from its bases."""
    values, current, seen = dict(source.data), source, [source.path.stem]
    while isinstance(base := current.data.get("base"), str):
        if base in seen:
            raise source.error(f"bases go round in a circle: {' -> '.join([*seen, base])}", ["base"])
        seen.append(base)
        beside = current.path.parent / f"{base}.toml"
        file = beside if len(base) <= LONGEST_NAME and beside.is_file() else find(base)
        if file is None:
            raise current.error(f"there is no model {base!r} to start from", ["base"])
        current = read_toml(file)
        for key in set(File.__struct_fields__) - set(OWN_KEYS):
            theirs, mine = current.data.get(key), values.get(key)
            if isinstance(theirs, dict) and isinstance(mine, dict):
                values[key] = {**theirs, **mine}
            elif theirs is not None and not (key == "input" and "sequence_length" in source.data):
                values.setdefault(key, theirs)
    return values


LARGEST_ELEMENTS = 2**40  # of one tensor or activation: more is a typing error


def infer_layers(
    source: TomlSource, file: File, placed: list[PlacedLayer], input_shapes: dict[str, Shape]
) -> list[Layer]:
    """Infers shapes, tensors and multiply-adds of all layers from the shapes of the inputs."""
    style = Style(file.tensors, file.layout == "torch")
    naming = _TensorNaming()
    memo: dict[tuple[object, ...], tuple[InferredLayer, int]] = {}
    layers = {name: Layer(name, kind_name(Input), (), shape) for name, shape in input_shapes.items()}
    for entry in placed:
        shapes = [layers[name].output_shape for name in entry.inputs]
        key = (entry.kind, id(entry.spec), *shapes)
        try:
            if fault := name_fault(entry.name):
                raise ShapeMisfit(fault)
            if key not in memo:
                memo[key] = _infer_within_limits(entry, shapes, style)
            made, elements = memo[key]
            tied = naming.tied_tensors(entry, made)
            layers[entry.name] = Layer(
                entry.name,
                made.kind or entry.kind,
                entry.inputs,
                made.shape,
                naming.name_tensors(entry, made),
                made.macs,
                made.kernel,
                made.stride,
                elements,
                made.groups,
                made.detail,
                tied,
                entry.block,
                None if entry.owner == entry.name else entry.owner,
                file.scope or None,
            )
        except ShapeMisfit as error:
            raise entry.position.error(source, f"{entry.name}: {error}") from None
    return list(layers.values())


def _infer_within_limits(layer: PlacedLayer, shapes: list[Shape], style: Style) -> tuple[InferredLayer, int]:
    """Infers one layer and counts its input elements; raises ShapeMisfit for absurd sizes."""
    inferred = layer.spec.infer_shape(shapes, style)
    if math.prod(inferred.shape) > LARGEST_ELEMENTS:
        raise ShapeMisfit(f"an output of {format_shape(inferred.shape)} is absurdly large")
    for _, shape in inferred.tensors:
        if math.prod(shape) > LARGEST_ELEMENTS:
            raise ShapeMisfit(f"a tensor of {format_shape(shape)} is absurdly large (over 2^40 values)")
    return inferred, sum(map(math.prod, shapes))


class _TensorNaming:
    """Names parameter tensors by the file's templates, and finds tensors of tied layers."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.taken: set[str] = set()
        self.owned: dict[str, tuple[Tensor, ...]] = {}  # by layer

    def name_tensors(self, layer: PlacedLayer, inferred: InferredLayer) -> tuple[Tensor, ...]:
        """Returns the named parameter tensors of a layer, and marks the names as taken."""
        if not inferred.tensors:
            return ()
        count = self.counts.get(layer.kind, 0)
        self.counts[layer.kind] = count + 1
        tensors = []
        for template, shape in inferred.tensors:
            name = template.replace("{n}", str(count)).replace("{layer}", layer.owner)
            if name in self.taken:
                raise ShapeMisfit(f"the tensor name {name!r} is taken; names must be unique")
            if fault := name_fault(name):
                raise ShapeMisfit(fault)
            self.taken.add(name)
            tensors.append(Tensor(name, shape))
        self.owned[layer.name] = tuple(tensors)
        return self.owned[layer.name]

    def tied_tensors(self, layer: PlacedLayer, inferred: InferredLayer) -> tuple[Tensor, ...]:
        """Tensor that a layer shares with an earlier one, as a tuple; empty if it shares none."""
        if not inferred.tied:
            return ()
        name = layer.spec.tied
        if name not in self.owned:
            raise ShapeMisfit(f"tied = {name!r}: no earlier layer of this name has a tensor")
        tensor = self.owned[name][0]
        if tensor.elements != math.prod(inferred.tied):
            raise ShapeMisfit(
                f"{tensor.name} of {format_shape(tensor.shape)} cannot be its {format_shape(inferred.tied)}"
            )
        return (tensor,)
