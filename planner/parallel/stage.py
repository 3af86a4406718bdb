"""What one device of a sharded replica computes in a micro-batch: its shard of a pipeline stage.

A replica of t x p devices has p stages of units, each sharded over t devices. All devices of a stage do the
same; a step is as long as the slowest stage makes it. So one device of that stage stands for all: its ops are
the forward and backward passes of its units, the collectives of the mesh's axes between them, what is
recomputed, and the wait for the other stages to fill and to drain (`planner.parallel.pipeline`), that of a
whole step. Data-parallel strategies lower it as they lower any computation.

The other way, a program for every rank, would show which stage waits when; it costs p times the events for a
step that differs by the sends between stages alone, which are a hundredth of it where stages are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from planner.device.activations import Recompute, recomputed_layers
from planner.device.computation import BACKWARD, COMPUTE, FORWARD, OTHER, RECOMPUTE, SUM, WAIT, Parameter
from planner.memoize import memoize
from planner.model import Model
from planner.model.layers import kind_of
from planner.model.units import Chain, Floats, Ints, chain_of
from planner.parallel._base import TRANSPOSED, Axis, Communication, StageSchedule
from planner.parallel.collectives import Kind
from planner.parallel.mesh import WHOLE, Mesh


class LayerTimes(Protocol):
    """Seconds of each layer of a model for a batch, and of the optimizer's pass over its parameters."""

    @property
    def forward_s(self) -> Floats: ...
    @property
    def backward_s(self) -> Floats: ...
    @property
    def optimizer_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Costs:
    """How long things take: a model's layers for a batch; a communication among the ranks of an axis for a
    batch, in the forward pass or as its transpose; and by what share the slowest of them is behind their mean
    in a pass of so many seconds, as the others wait for it at every collective."""

    times: Callable[[Model, int], LayerTimes]
    collective_s: Callable[[Axis, Communication, int, Kind], float]
    lag: Callable[[float], float] = lambda pass_s: 0.0


@dataclass(frozen=True, eq=False)
class UnitTimes:
    """Seconds of each unit of a sharded model for one micro-batch."""

    chain: Chain
    forward_s: Floats
    backward_s: Floats
    recompute_s: Floats
    forward_collective_s: Floats
    backward_collective_s: Floats
    recompute_collective_s: Floats
    held: Chain  # the units as the device holds them
    optimizer_s: float
    sent_elements: float  # between units, a micro-batch

    @property
    def total_s(self) -> Floats:
        """Forward and backward seconds of each unit, all included."""
        collective_s = self.forward_collective_s + self.backward_collective_s
        again_s = self.recompute_s + self.recompute_collective_s
        return np.asarray(self.forward_s + self.backward_s + collective_s + again_s)


@dataclass(frozen=True, eq=False)
class OpPlaces:
    """The ops of one micro-batch on a stage in their order, without their times: names, roles, what they do,
    and where their times stand: in which row (`_ROWS`) and of which unit. One object for all micro-batches
    that have the same, so that what follows from it is derived once."""

    names: tuple[str, ...]
    role: npt.NDArray[np.uint8]
    work: npt.NDArray[np.uint8]
    row: Ints
    unit: Ints
    parameters: tuple[Parameter, ...]
    blocks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StageWork:
    """What the slowest stage does in one micro-batch, and how long each of its ops takes."""

    layout: OpPlaces
    seconds: Floats
    optimizer_s: float
    schedule: StageSchedule


def unit_times(
    model: Model,
    batch: int,
    mesh: Mesh,
    recompute: Recompute,
    costs: Costs,
    *,
    stops_early: bool = False,
) -> UnitTimes:
    """What each unit takes on one rank of a mesh. `stops_early`: of full recompute
    (`planner.device.activations`)."""
    part = mesh.shard(model)
    times = costs.times(part.model, batch)
    chain = chain_of(model)
    forward_s = chain.summed(times.forward_s)
    layer_forward_s, layer_backward_s = _collective_s(model, batch, mesh, costs)
    again = recomputed_layers(model, recompute, stops_early)
    backward_s = chain.summed(times.backward_s)
    recompute_s = chain.summed(np.where(again, times.forward_s, 0.0))
    lag = costs.lag(float(forward_s.sum() + backward_s.sum()))
    lag_s = lag * (forward_s + backward_s) / 2
    return UnitTimes(
        chain,
        forward_s,
        backward_s,
        recompute_s,
        chain.summed(layer_forward_s) + lag_s,
        chain.summed(layer_backward_s) + lag_s,
        chain.summed(np.where(again, layer_forward_s, 0.0)) + lag * recompute_s,
        chain_of(part.model),
        times.optimizer_s,
        float(_widest(model)) * batch / part.boundary_split,
    )


def _collective_s(model: Model, batch: int, mesh: Mesh, costs: Costs) -> tuple[Floats, Floats]:
    """Seconds of collectives after each layer, in the forward and in the backward pass."""
    forward_s, backward_s = np.zeros(len(model.layers)), np.zeros(len(model.layers))
    for axis, each, layers in _collectives(model, mesh):
        if not each.of_gradients:
            forward_s[layers] += costs.collective_s(axis, each, batch, each.kind)
        kind = each.kind if each.of_gradients else TRANSPOSED[each.kind]
        backward_s[layers] += costs.collective_s(axis, each, batch, kind)
    return forward_s, backward_s


@memoize
def _collectives(model: Model, mesh: Mesh) -> list[tuple[Axis, Communication, Ints]]:
    """The communications of a mesh, and after which layers each is; equal ones stand together."""
    places = {layer.name: place for place, layer in enumerate(model.layers)}
    layers_of: dict[tuple[Axis, Communication], list[int]] = {}
    for axis, each in mesh.communications(model):
        layers_of.setdefault((axis, replace(each, layer="")), []).append(places[each.layer])
    return [(axis, each, np.array(layers, np.intp)) for (axis, each), layers in layers_of.items()]


def _widest(model: Model) -> int:
    """Elements of a sample that go from one unit to the next."""
    return max((layer.output_elements for layer in model.layers if kind_of(layer).joins_residual), default=0)


def stage_work(times: UnitTimes, send_s: Callable[[float], float], mesh: Mesh = WHOLE) -> StageWork:
    """One micro-batch on the slowest stage, with the wait of a step. `send_s`: seconds in which so many
    elements are sent to the next stage."""
    chain = times.chain
    schedule = mesh.schedule(times.total_s, send_s(times.sent_elements))
    first, last = schedule.ends[schedule.slowest : schedule.slowest + 2]
    layout = _layout(
        chain,
        (first, last),
        (schedule.stages > 1, schedule.send_s > 0),
        tuple((times.forward_collective_s[first:last] != 0).tolist()),
        tuple((times.backward_collective_s[first:last] != 0).tolist()),
        tuple((times.recompute_s[first:last] != 0).tolist()),
        tuple((times.recompute_collective_s[first:last] != 0).tolist()),
        times.held,
    )
    table = np.empty((8, chain.length))
    for row, seconds in (
        (_FORWARD, times.forward_s),
        (_FORWARD_COLLECTIVE, times.forward_collective_s),
        (_BACKWARD_COLLECTIVE, times.backward_collective_s),
        (_RECOMPUTE_COLLECTIVE, times.recompute_collective_s),
        (_RECOMPUTE, times.recompute_s),
        (_BACKWARD, times.backward_s),
        (_WAIT, schedule.wait_s),
        (_SEND, schedule.send_s),
    ):
        table[row] = seconds
    held = times.held.elements
    share = float(held[first:last].sum() / max(held.sum(), 1))
    return StageWork(layout, table[layout.row, layout.unit], times.optimizer_s * share, schedule)


# rows of the table of times
(
    _FORWARD,
    _FORWARD_COLLECTIVE,
    _RECOMPUTE,
    _RECOMPUTE_COLLECTIVE,
    _BACKWARD,
    _BACKWARD_COLLECTIVE,
    _WAIT,
    _SEND,
) = range(8)


@memoize
def _layout(  # noqa: PLR0917
    chain: Chain,
    units: tuple[int, int],
    waits: tuple[bool, bool],
    forward_collectives: tuple[bool, ...],
    backward_collectives: tuple[bool, ...],
    again: tuple[bool, ...],
    again_collectives: tuple[bool, ...],
    held: Chain,
) -> OpPlaces:
    """Of units from the first to before the last: which communicate, are recomputed and then communicate
    again, and as the device holds them. `waits`: for other stages in a step, and for what it sends them in a
    micro-batch."""
    first, last = units
    ops: list[tuple[str, int, int, int, int]] = []  # name, role, work, row, unit
    if waits[0]:
        ops.append(("stages/wait", OTHER, WAIT, _WAIT, first))
    if waits[1]:
        ops.append(("stages/send", OTHER, SUM, _SEND, first))
    forward_at, backward_at = {}, {}
    for unit in range(first, last):
        name = chain.names[unit]
        forward_at[unit] = len(ops)
        ops.append((f"{name}/forward", FORWARD, COMPUTE, _FORWARD, unit))
        if forward_collectives[unit - first]:
            ops.append((f"{name}/forward/sum", FORWARD, SUM, _FORWARD_COLLECTIVE, unit))
    for unit in reversed(range(first, last)):
        name = chain.names[unit]
        if again[unit - first]:
            ops.append((f"{name}/recompute", BACKWARD, RECOMPUTE, _RECOMPUTE, unit))
            if again_collectives[unit - first]:
                ops.append((f"{name}/recompute/sum", BACKWARD, SUM, _RECOMPUTE_COLLECTIVE, unit))
        if backward_collectives[unit - first]:
            ops.append((f"{name}/backward/sum", BACKWARD, SUM, _BACKWARD_COLLECTIVE, unit))
        backward_at[unit] = len(ops)
        ops.append((f"{name}/backward", BACKWARD, COMPUTE, _BACKWARD, unit))
    names, role, work, row, at = zip(*ops, strict=True)
    parameters = tuple(
        Parameter(
            chain.names[unit],
            elements,
            (forward_at[unit],) if elements else (forward_at[unit], backward_at[unit]),
            backward_at[unit] if elements else None,
            unit - first,
            matrices=held.matrices[unit],
            frozen_bytes=float(held.frozen_bytes[unit]),
        )
        for unit, elements in enumerate(held.elements[first:last].tolist(), first)
        if elements or held.frozen_bytes[unit]
    )
    return OpPlaces(
        names,
        np.array(role, np.uint8),
        np.array(work, np.uint8),
        np.array(row, np.intp),
        np.array(at, np.intp),
        parameters,
        tuple(chain.names[first:last]),
    )
