"""Shapes, parameter tensors and multiply-adds, layer by layer in order of creation.

A rule is applied once for equal keys and inputs: the blocks of a transformer differ in their names only.
"""

from __future__ import annotations

import math

from planner.files.tomlfile import TomlSource
from planner.model import Layer, Tensor
from planner.model.layers.base import Inferred, Shape, ShapeMisfit, Style, kind_name, written
from planner.model.layers.shapes import Input
from planner.model.netlist._expand import Placed
from planner.model.netlist._format import File

LARGEST_ELEMENTS = 2**40  # of one tensor or one activation: terabytes are a slip of the pen


def infer(source: TomlSource, file: File, placed: list[Placed], texts: dict[str, Shape]) -> list[Layer]:
    """Layers with all that follows from the shapes of the inputs, `texts`."""
    style = Style(file.tensors, file.layout == "torch")
    naming = _Naming()
    memo: dict[tuple[object, ...], tuple[Inferred, int]] = {}
    layers = {name: Layer(name, kind_name(Input), (), shape) for name, shape in texts.items()}
    for one in placed:
        shapes = [layers[name].output_shape for name in one.inputs]
        key = (one.kind, id(one.spec), *shapes)
        try:
            if key not in memo:
                memo[key] = _made(one, shapes, style)
            made, elements = memo[key]
            tied = naming.tied(one, made)
            layers[one.name] = Layer(
                one.name,
                made.kind or one.kind,
                one.inputs,
                made.shape,
                naming.tensors(one, made),
                made.macs,
                made.kernel,
                made.stride,
                elements,
                made.groups,
                made.detail,
                tied,
                one.block,
                None if one.owner == one.name else one.owner,
                file.scope or None,
            )
        except ShapeMisfit as error:
            raise one.spot.error(source, f"{one.name}: {error}") from None
    return list(layers.values())


def _made(one: Placed, shapes: list[Shape], style: Style) -> tuple[Inferred, int]:
    made = one.spec.infer(shapes, style)
    if math.prod(made.shape) > LARGEST_ELEMENTS:
        raise ShapeMisfit(f"an output of {written(made.shape)} is absurdly large")
    for _, shape in made.tensors:
        if math.prod(shape) > LARGEST_ELEMENTS:
            raise ShapeMisfit(f"a tensor of {written(shape)} is absurdly large (over 2^40 values)")
    return made, sum(map(math.prod, shapes))


class _Naming:
    """Names of parameter tensors, by the templates of the file."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.taken: set[str] = set()
        self.owned: dict[str, tuple[Tensor, ...]] = {}  # by layer

    def tensors(self, one: Placed, made: Inferred) -> tuple[Tensor, ...]:
        if not made.tensors:
            return ()
        count = self.counts.get(one.kind, 0)
        self.counts[one.kind] = count + 1
        tensors = []
        for template, shape in made.tensors:
            name = template.replace("{n}", str(count)).replace("{layer}", one.owner)
            if name in self.taken:
                raise ShapeMisfit(f"the tensor name {name!r} is taken; names must be unique")
            self.taken.add(name)
            tensors.append(Tensor(name, shape))
        self.owned[one.name] = found = tuple(tensors)
        return found

    def tied(self, one: Placed, made: Inferred) -> tuple[Tensor, ...]:
        """The tensor of the earlier layer that this one names, if it has no weights of its own."""
        if not made.tied:
            return ()
        name = one.spec.tied
        if name not in self.owned:
            raise ShapeMisfit(f"tied = {name!r}: no earlier layer of this name has a tensor")
        tensor = self.owned[name][0]
        if tensor.elements != math.prod(made.tied):
            raise ShapeMisfit(f"{tensor.name} of {written(tensor.shape)} cannot be its {written(made.tied)}")
        return (tensor,)
