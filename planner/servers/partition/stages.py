"""A model as stages: what the partition search cuts.

A stage is a layer with weights (or a pool or a join where it stands alone) together with the element-wise
layers and the pools that only it feeds: they are cut as it is cut, so nothing moves between them. Stages form
a DAG; a link says which rows of its source a row of a stage needs. Spatial stages are cut into stripes of
rows, dense ones into groups of features; a dense stage needs all of its source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from planner.model import BYTES_PER_ELEMENT, Layer, Model
from planner.model.layers import is_input, kind_of


@dataclass(frozen=True, slots=True)
class Geometry:
    """Which rows of the source a segment needs: of `rows_in` rows, `kernel` rows every `stride` for each of
    `rows_out`; `all_rows` where it needs everything."""

    rows_in: int
    rows_out: int
    kernel: int
    stride: int
    all_rows: bool


@dataclass(frozen=True, slots=True)
class Link:
    """What a stage reads of another: elements a sample."""

    source: int
    elements: int
    geometry: Geometry


@dataclass(frozen=True, slots=True)
class Stage:
    """One unit of the search; figures are for one sample."""

    name: str
    layers: tuple[str, ...]
    dense: bool
    connections: int
    kept_elements: int  # outputs of all its layers
    weight_bytes: int
    tensors: int
    in_elements: int
    out_elements: int
    neurons: int  # the largest output inside it, before any pool: one activation each
    rows: int  # how finely it can be cut
    links: tuple[Link, ...]

    @property
    def signature(self) -> tuple[object, ...]:
        """What its computing time depends on."""
        return (
            self.dense,
            self.connections,
            self.weight_bytes,
            self.in_elements,
            self.neurons,
            self.rows,
            self.first,
        )

    @property
    def first(self) -> bool:
        """Reads the data only: no error goes further down."""
        return not self.links

    def share(self, partitions: int) -> float:
        """The largest segment's share of the stage."""
        return math.ceil(self.rows / partitions) / self.rows

    def read_bytes(self, partitions: int, replications: int) -> float:
        """Weights that the workers of a replica read: stripes share a kernel, so each holds all of it;
        features have weights of their own."""
        copies = replications if self.dense else partitions * replications
        return float(self.weight_bytes * copies)

    def working_set_bytes(self, partitions: int, threads: int) -> float:
        """Weights of a segment, and for each thread its activations and errors."""
        part = self.share(partitions)
        weights = self.weight_bytes * (part if self.dense else 1.0)
        taken = self.in_elements * (1.0 if self.dense else part) + self.neurons * part
        return weights + 2 * threads * taken * BYTES_PER_ELEMENT


def stages_of(model: Model) -> tuple[Stage, ...]:
    """The stages of a model in topological order."""
    consumers = model.consumers()
    stages: list[Stage] = []
    home: dict[str, int | None] = {}  # layer -> its stage; None: the data
    shape: dict[str, Layer] = {layer.name: layer for layer in model}
    for layer in model:
        if is_input(layer):
            home[layer.name] = None
            continue
        source = home[layer.inputs[0]] if len(layer.inputs) == 1 else None
        if source is not None and _joins(layer, consumers):
            stages[source] = _merged(stages[source], layer, shape[layer.inputs[0]])
            home[layer.name] = source
            continue
        home[layer.name] = len(stages)
        stages.append(_stage(layer, home, shape, stages))
    return tuple(stages)


def _rows(layer: Layer) -> int:
    return layer.output_shape[0] if len(layer.output_shape) == 3 else layer.output_elements


def _joins(layer: Layer, consumers: dict[str, list[str]]) -> bool:
    """Element-wise layers live with their source; a pool only if nothing else reads the source."""
    kind = kind_of(layer)
    return kind.passes_shard or (kind.is_window and len(consumers[layer.inputs[0]]) == 1)


def _merged(stage: Stage, layer: Layer, before: Layer) -> Stage:
    links = stage.links
    rows = stage.rows
    if _rows(layer) != _rows(before) and len(layer.output_shape) == 3:
        rows = _rows(layer)
        kernel = layer.kernel[0] if layer.kernel else 1
        stride = layer.stride[0] if layer.stride else 1
        links = tuple(replace(link, geometry=_pooled(link.geometry, rows, kernel, stride)) for link in links)
    return replace(
        stage,
        layers=(*stage.layers, layer.name),
        kept_elements=stage.kept_elements + layer.output_elements,
        connections=stage.connections + layer.macs,
        weight_bytes=stage.weight_bytes + layer.bytes,
        tensors=stage.tensors + len(layer.tensors),
        out_elements=layer.output_elements,
        neurons=max(stage.neurons, layer.output_elements),
        rows=rows,
        links=links,
    )


def _pooled(geometry: Geometry, rows: int, kernel: int, stride: int) -> Geometry:
    """The rows that a row of the pool needs, through the layer before it."""
    if geometry.all_rows:
        return replace(geometry, rows_out=rows)
    return Geometry(
        geometry.rows_in,
        rows,
        geometry.kernel + (kernel - 1) * geometry.stride,
        geometry.stride * stride,
        False,
    )


def _stage(layer: Layer, home: dict[str, int | None], shape: dict[str, Layer], stages: list[Stage]) -> Stage:
    dense = len(layer.output_shape) != 3
    rows = _rows(layer)
    links = []
    for name in layer.inputs:
        source = home[name]
        if source is None:
            continue
        geometry = Geometry(
            stages[source].rows,
            rows,
            layer.kernel[0] if layer.kernel else 1,
            layer.stride[0] if layer.stride else 1,
            kind_of(layer).reads_all_rows,
        )
        links.append(Link(source, shape[name].output_elements, geometry))
    return Stage(
        name=layer.name,
        layers=(layer.name,),
        dense=dense,
        connections=layer.macs,
        kept_elements=layer.output_elements,
        weight_bytes=layer.bytes,
        tensors=len(layer.tensors),
        in_elements=sum(shape[name].output_elements for name in layer.inputs),
        out_elements=layer.output_elements,
        neurons=layer.output_elements,
        rows=rows,
        links=tuple(links),
    )
