"""What each unit of a sharded model takes in a micro-batch, on one rank of a mesh.

Device and host are told apart: kernels are launched by the host, one after the other, so that a stage goes at
the pace of whichever is slower. Collectives come on top: also where hosts set the pace, ranks wait for each
other at every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from planner.device.activations import Recompute, recompute_flags
from planner.device.rates.times import ComputationTime, smooth_max
from planner.memoize import memoize
from planner.model import Chain, Floats, Ints, Model, group_into_units
from planner.model.layers import layer_class
from planner.parallel._base import TRANSPOSED, Axis, Communication
from planner.parallel.collectives import Kind
from planner.parallel.mesh import Mesh


class TimeRow(IntEnum):
    """Rows of the table of times: passes of a unit, `SUMS` for the collectives after each, then waits and
    sends of a stage."""

    FORWARD = 0
    FORWARD_SUMS = 1
    BACKWARD = 2
    BACKWARD_SUMS = 3
    AGAIN = 4
    AGAIN_SUMS = 5
    WAITS = 6
    SENDS = 7


PASSES, SUMS = slice(0, 6, 2), slice(1, 6, 2)  # rows of units' passes, and of the collectives after them


@dataclass(frozen=True, slots=True)
class Costs:
    """Functions that give durations. `times` gives those of a model's layers for a batch, `collective_s`
    the seconds of one collective among the ranks of an axis. `lag` gives the relative delay of the
    slowest rank in a pass of the given seconds, as the others wait for it at every collective."""

    times: Callable[[Model, int], ComputationTime]
    collective_s: Callable[[Axis, Communication, int, Kind], float]
    lag: Callable[[float], float] = lambda pass_s: 0.0
    send_launch_s: float = 0.0  # of the host, for all sends and receives of a micro-batch


@dataclass(frozen=True, eq=False)
class UnitTimes:
    """Seconds of each unit of a sharded model for one micro-batch, by `TimeRow` (the first six): what the
    device computes, and the host's launches of it (`launch_s`, of passes) and of sends and receives between
    stages (`send_launch_s`). `held` are the units as the device holds
    them, `sent_elements` the elements between units per micro-batch, `layers` the times of all layers on
    one device."""

    chain: Chain
    seconds: Floats
    launch_s: Floats
    held: Chain
    layers: ComputationTime
    sent_elements: float
    send_launch_s: float = 0.0

    def stages_s(self, ends: Sequence[int]) -> Floats:
        """Seconds of one micro-batch in stages with these boundaries, each at the pace of device or host.
        Collectives come on top: also where hosts set the pace, their ranks wait for each other."""
        busy_s, late_s, sums_s = self._paces(ends)
        return np.asarray(busy_s + late_s + sums_s)

    def paced(self, ends: Sequence[int], stage: int) -> Floats:
        """Seconds of all units, each with its part of the time for which the device waits for the host in a
        stage."""
        late_s, units = float(self._paces(ends)[1][stage]), slice(*ends[stage : stage + 2])
        seconds = self.seconds.copy()
        seconds[PASSES] += late_s * self.launch_s / max(self.launch_s[:, units].sum(), 1e-12)
        return seconds

    def _paces(self, ends: Sequence[int]) -> tuple[Floats, Floats, Floats]:
        """Seconds per stage in which the device computes, waits for the host, and communicates."""
        busy_s, host_s, sums_s = (
            np.add.reduceat(of.sum(axis=0), ends[:-1])
            for of in (self.seconds[PASSES], self.launch_s, self.seconds[SUMS])
        )
        if len(ends) == 2:
            return busy_s, self.layers.late * host_s, sums_s
        return busy_s, smooth_max(busy_s, host_s + self.send_launch_s) - busy_s, sums_s


def unit_times(
    model: Model,
    batch: int,
    mesh: Mesh,
    recompute: Recompute,
    costs: Costs,
    *,
    stops_early: bool = False,
) -> UnitTimes:
    """Times of each unit on one rank of a mesh. `stops_early`: see `planner.device.activations`."""
    part, chain = mesh.shard(model), group_into_units(model)
    layers = costs.times(part.model, batch)
    again = recompute_flags(model, recompute, stops_early)

    def by_unit(forward: Floats, backward: Floats) -> Floats:
        return np.array(
            [chain.sum_by_unit(row) for row in (forward, backward, np.where(again, forward, 0.0))]
        )

    passes_s = (layers.forward_s, layers.backward_s)
    launch_s = by_unit(*layers.launch_s)
    seconds = np.zeros((6, chain.length))
    seconds[PASSES] = by_unit(*passes_s) - layers.late * launch_s
    lag = costs.lag(float(seconds[PASSES][:2].sum()))
    slowed = seconds[PASSES].copy()
    slowed[:2] = slowed[:2].mean(axis=0)
    seconds[SUMS] = by_unit(*_collective_s(model, batch, mesh, costs)) + lag * slowed
    sent = float(_boundary_elements(model)) * batch / part.boundary_split
    return UnitTimes(
        chain, seconds, launch_s, group_into_units(part.model), layers, sent, costs.send_launch_s
    )


def _collective_s(model: Model, batch: int, mesh: Mesh, costs: Costs) -> tuple[Floats, Floats]:
    """Seconds of the collectives after each layer, in the forward pass and in the backward pass."""
    forward_s, backward_s = np.zeros(len(model.layers)), np.zeros(len(model.layers))
    for axis, each, layers in _merged_collectives(model, mesh):
        if not each.of_gradients:
            forward_s[layers] += costs.collective_s(axis, each, batch, each.kind)
        kind = each.kind if each.of_gradients else TRANSPOSED[each.kind]
        backward_s[layers] += costs.collective_s(axis, each, batch, kind)
    return forward_s, backward_s


@memoize
def _merged_collectives(model: Model, mesh: Mesh) -> list[tuple[Axis, Communication, Ints]]:
    """Distinct collectives of a mesh, with their axes and the indices of the layers before them."""
    places = {layer.name: place for place, layer in enumerate(model.layers)}
    layers_of: dict[tuple[Axis, Communication], list[int]] = {}
    for axis, each in mesh.communications(model):
        layers_of.setdefault((axis, replace(each, layer="")), []).append(places[each.layer])
    return [(axis, each, np.array(layers, np.intp)) for (axis, each), layers in layers_of.items()]


def _boundary_elements(model: Model) -> int:
    """Elements per sample that one unit passes to the next."""
    return max(
        (layer.output_elements for layer in model.layers if layer_class(layer).joins_residual), default=0
    )
