"""A model as stages, which the partition search cuts, and what crosses machines between two of them.

A stage is a layer with weights (or a pool or a join where it stands alone) together with the element-wise
layers and the pools that only it feeds: they are cut as it is cut, so nothing moves between them. Stages form
a DAG; a link says which rows of its source a row of a stage needs. Spatial stages are cut into stripes of
rows, dense ones into groups of features; a dense stage needs all of its source.

Segments are mapped to workers as in Yan et al. (KDD 2015), section 5. A stage with P partitions and R
replications has P R segments, each on a worker of its own (constraint C3); copy r of a stage trains every
R-th sample. A segment goes to the worker that already holds most of what it needs. The greedy choice is best
unless two segments want the same worker; then the assignment problem is solved (`linear_sum_assignment`).
Workers are alike, so the source's segment (p, r) may stand on worker p R + r without loss: for a chain of
stages every pair of neighbours reaches its best mapping.

Samples meet copy r0 of the source and copy r1 of the stage when r0 = r1 modulo gcd(R0, R1), each such pair
equally often. For one sample the slowest segment counts: the most elements received by any segment (A), and
on the way back the most errors received by any segment of the source (E): for each activation that was sent,
a partial error returns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import permutations
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.memoize import memoize
from planner.model import BYTES_PER_ELEMENT, Layer, Model
from planner.model.layers import is_input, layer_class


@dataclass(frozen=True, slots=True)
class Geometry:
    """Source rows that each row of a stage depends on: `kernel` rows every `stride`, or all."""

    rows_in: int
    rows_out: int
    kernel: int
    stride: int
    all_rows: bool


@dataclass(frozen=True, slots=True)
class Link:
    """Connection of a stage to one of its sources: elements per sample, and the rows that each row reads."""

    source: int
    elements: int
    geometry: Geometry


_SIGNATURE = attrgetter("dense", "connections", "weight_bytes", "in_elements", "neurons", "rows", "is_first")


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers that are partitioned together, the unit of the partition search; figures are per sample."""

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
        """Cache key of the stage's compute time."""
        values: tuple[object, ...] = _SIGNATURE(self)
        return values

    @property
    def is_first(self) -> bool:
        """Whether the stage reads only training data, so it sends no errors back."""
        return not self.links

    def largest_share(self, partitions: int) -> float:
        """Fraction of the stage in its largest segment, if it is cut into this many partitions."""
        return math.ceil(self.rows / partitions) / self.rows

    def read_bytes(self, partitions: int, replications: int) -> float:
        """Weight bytes that a replica reads: row partitions read all, feature partitions their part."""
        copies = replications if self.dense else partitions * replications
        return float(self.weight_bytes * copies)

    def working_set_bytes(self, partitions: int, threads: int) -> float:
        """Bytes that a segment touches: its weights, and the activations and errors of each thread."""
        part = self.largest_share(partitions)
        weights = self.weight_bytes * (part if self.dense else 1.0)
        taken = self.in_elements * (1.0 if self.dense else part) + self.neurons * part
        return weights + 2 * threads * taken * BYTES_PER_ELEMENT


def stages_of(model: Model) -> tuple[Stage, ...]:
    """Stages of a model in topological order."""
    consumers = model.consumers_by_layer()
    stages: list[Stage] = []
    home: dict[str, int | None] = {}  # layer -> its stage; None: the data
    shape: dict[str, Layer] = {layer.name: layer for layer in model}
    for layer in model:
        if is_input(layer):
            home[layer.name] = None
            continue
        source = home[layer.inputs[0]] if len(layer.inputs) == 1 else None
        if source is not None and _is_part_of_source(layer, consumers):
            stages[source] = _merge_layer(stages[source], layer, shape[layer.inputs[0]])
            home[layer.name] = source
            continue
        home[layer.name] = len(stages)
        stages.append(_new_stage(layer, home, shape, stages))
    return tuple(stages)


def _row_count(layer: Layer) -> int:
    """Number of rows that a layer can be cut into: its image rows, or its features without an image."""
    return layer.output_shape[0] if len(layer.output_shape) == 3 else layer.output_elements


def _is_part_of_source(layer: Layer, consumers: dict[str, list[str]]) -> bool:
    """Whether a layer joins its source's stage: element-wise layers do, and pools without siblings."""
    kind = layer_class(layer)
    return kind.passes_shard or (kind.is_window and len(consumers[layer.inputs[0]]) == 1)


def _merge_layer(stage: Stage, layer: Layer, source: Layer) -> Stage:
    """Copy of a stage with an element-wise layer or a pool added."""
    links = stage.links
    rows = stage.rows
    if _row_count(layer) != _row_count(source) and len(layer.output_shape) == 3:
        rows = _row_count(layer)
        kernel = layer.kernel[0] if layer.kernel else 1
        stride = layer.stride[0] if layer.stride else 1
        links = tuple(
            replace(link, geometry=_pooled_geometry(link.geometry, rows, kernel, stride)) for link in links
        )
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


def _pooled_geometry(geometry: Geometry, rows: int, kernel: int, stride: int) -> Geometry:
    """Row geometry of a layer and the pool that follows it."""
    if geometry.all_rows:
        return replace(geometry, rows_out=rows)
    return Geometry(
        geometry.rows_in,
        rows,
        geometry.kernel + (kernel - 1) * geometry.stride,
        geometry.stride * stride,
        False,
    )


def _new_stage(
    layer: Layer, stage_by_layer: dict[str, int | None], layers: dict[str, Layer], stages: list[Stage]
) -> Stage:
    """Stage that starts with this layer."""
    dense = len(layer.output_shape) != 3
    rows = _row_count(layer)
    links = []
    for name in layer.inputs:
        source = stage_by_layer[name]
        if source is None:
            continue
        geometry = Geometry(
            stages[source].rows,
            rows,
            layer.kernel[0] if layer.kernel else 1,
            layer.stride[0] if layer.stride else 1,
            layer_class(layer).reads_all_rows,
        )
        links.append(Link(source, layers[name].output_elements, geometry))
    return Stage(
        name=layer.name,
        layers=(layer.name,),
        dense=dense,
        connections=layer.macs,
        kept_elements=layer.output_elements,
        weight_bytes=layer.bytes,
        tensors=len(layer.tensors),
        in_elements=sum(layers[name].output_elements for name in layer.inputs),
        out_elements=layer.output_elements,
        neurons=layer.output_elements,
        rows=rows,
        links=tuple(links),
    )


_FEW = 4
Placement = npt.NDArray[np.intp]  # [p, r] -> worker


class Traffic(NamedTuple):
    """Fraction of elements sent and messages per sample at the busiest segment, by direction."""

    forward: float
    forward_messages: float
    backward: float
    backward_messages: float


def _row_bounds(rows: int, partitions: int) -> npt.NDArray[np.float64]:
    """First row of each partition; the last entry is the number of rows."""
    return np.floor(np.arange(partitions + 1) * rows / partitions)


@memoize(most_bytes=64 << 20)
def overlap_matrix(geometry: Geometry, source_parts: int, parts: int) -> npt.NDArray[np.float64]:
    """Fraction of the source's rows that segment p needs from the source's segment q, as matrix [p, q]."""
    g = geometry
    held = _row_bounds(g.rows_in, source_parts)
    if g.all_rows:
        low, high = np.zeros(parts), np.full(parts, float(g.rows_in))
    else:
        out = _row_bounds(g.rows_out, parts)
        pad = max(0, (g.rows_out - 1) * g.stride + g.kernel - g.rows_in) // 2
        low = np.clip(out[:-1] * g.stride - pad, 0, g.rows_in)
        high = np.clip((out[1:] - 1) * g.stride - pad + g.kernel, low, g.rows_in)
    rows = np.minimum(high[:, None], held[None, 1:]) - np.maximum(low[:, None], held[None, :-1])
    return np.asarray(np.maximum(rows, 0.0) / g.rows_in)


def default_placement(parts: int, copies: int) -> Placement:
    """Placement of segments on workers 0, 1, 2, ... in order."""
    return np.arange(parts * copies, dtype=np.intp).reshape(parts, copies)


def best_placement(
    workers: int, parts: int, copies: int, sources: list[tuple[npt.NDArray[np.float64], Placement]]
) -> Placement:
    """Placement of a stage's segments on the workers that hold most of their inputs.

    `sources` holds, for each source, its overlap matrix times its elements, and its placement.
    """
    gain = np.zeros((parts, copies, workers))
    for overlap, place in sources:
        r0, r1 = _copies_sharing_samples(place.shape[1], copies)
        gain[:, r1[None, :], place[:, r0]] += overlap[:, :, None]
    flat = gain.reshape(parts * copies, workers)
    wanted = flat.argmax(axis=1)
    if len(set(wanted.tolist())) < len(wanted):
        wanted = _assign_columns(flat)
    return np.asarray(wanted, np.intp).reshape(parts, copies)


def _assign_columns(gain: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Solves a linear assignment problem: a different column for each row, with the largest total gain.

    Small cases are tried exhaustively, which is faster than loading scipy.
    """
    rows, columns = gain.shape
    if columns <= _FEW:
        every = np.array(list(permutations(range(columns), rows)), np.intp)
        return np.asarray(every[gain[np.arange(rows), every].sum(axis=1).argmax()])
    from scipy.optimize import linear_sum_assignment

    return np.asarray(linear_sum_assignment(gain, maximize=True)[1], np.intp)


def traffic_between(overlap: npt.NDArray[np.float64], source: Placement, stage: Placement) -> Traffic:
    """Traffic from a source to a stage, both placed on workers."""
    r0, r1 = _copies_sharing_samples(source.shape[1], stage.shape[1])
    together = stage[:, None, r1] == source[None, :, r0]  # segments p, q, meetings
    away = np.where(together, 0.0, overlap[:, :, None])
    received, sent = away.sum(axis=1).max(axis=0), away.sum(axis=0).max(axis=0)
    n = len(r0)
    return Traffic(
        float(received.sum()) / n,
        np.count_nonzero(received) / n,
        float(sent.sum()) / n,
        np.count_nonzero(sent) / n,
    )


@memoize(most_bytes=64 << 20)
def _copies_sharing_samples(
    source_copies: int, copies: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Pairs of source copy and stage copy that process the same sample, as two parallel arrays."""
    every = math.lcm(source_copies, copies)
    samples = np.arange(every)
    return samples % source_copies, samples % copies


@memoize(most_bytes=64 << 20)
def best_traffic(geometry: Geometry, source: tuple[int, int], stage: tuple[int, int]) -> Traffic:
    """Traffic between two neighbouring stages with degrees (P, R), at the best placement of segments."""
    overlap = overlap_matrix(geometry, source[0], stage[0])
    workers = max(math.prod(source), math.prod(stage))
    before = default_placement(*source)
    if source == stage:  # each segment's own stripe is the largest part of what it needs
        return traffic_between(overlap, before, before)
    return traffic_between(overlap, before, best_placement(workers, *stage, [(overlap, before)]))
