"""The work of one device of a sharded replica in a micro-batch: its shard of a pipeline stage.

A replica of t x p devices has p stages of units, each sharded over t devices. All devices of a stage do the
same work, and the slowest stage determines the step. So one device of that stage stands for all: its ops are
the forward and backward passes of its units, the collectives of the mesh's axes between them, recomputation,
and the wait of a whole step for the other stages to fill and to drain (`planner.parallel.pipeline`).
Data-parallel strategies lower it as they lower any computation. There is one op per unit and pass, so a
transformer of a hundred blocks has a few hundred ops, whatever its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial

import numpy as np
import numpy.typing as npt

from planner.device.activations import Recompute, recompute_flags
from planner.device.computation import (
    BACKWARD,
    COMPUTE,
    DEFAULT_STEPS,
    FORWARD,
    OTHER,
    RECOMPUTE,
    SUM,
    WAIT,
    Computation,
    Parameter,
    Variation,
    chain_deps,
)
from planner.device.precision import Precision
from planner.device.rates import Framework
from planner.device.rates.times import (
    DEFAULT_FRAMEWORK,
    ComputationTime,
    computation_s,
    find_framework,
    smooth_max,
)
from planner.hardware import Hardware
from planner.memoize import memoize
from planner.model import Chain, Floats, Ints, Model, group_into_units
from planner.model.layers import layer_class
from planner.parallel._base import TRANSPOSED, Axis, Communication, StageSchedule
from planner.parallel.collectives import Kind
from planner.parallel.collectives.libraries import site_peers
from planner.parallel.data import collective
from planner.parallel.data.joint import JITTER_SPAN_S, slowest_factor, usual_sigma
from planner.parallel.mesh import WHOLE, Mesh, axis_group, stage_hop
from planner.parallel.plan import Site


class TimeRow(IntEnum):
    """Rows of the table of times: a unit's passes, each with its collectives; a stage's waits and sends."""

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
    """Functions that give durations. `times`: of a model's layers for a batch; `collective_s`: of one
    collective among an axis's ranks; `lag`: relative delay of the slowest rank in a pass of the given
    seconds, as the others wait for it at every collective."""

    times: Callable[[Model, int], ComputationTime]
    collective_s: Callable[[Axis, Communication, int, Kind], float]
    lag: Callable[[float], float] = lambda pass_s: 0.0
    send_launch_s: float = 0.0  # of the host, for all sends and receives of a micro-batch


@dataclass(frozen=True, eq=False)
class UnitTimes:
    """Seconds of each unit of a sharded model for one micro-batch, by `TimeRow` (the first six). These are
    the device's; `launch_s` are the host's to launch its passes, `send_launch_s` those for sends and receives
    between stages. `held` are the units as the device holds them, `sent_elements` the elements between units
    per micro-batch, `layers` the times of all layers on one device."""

    chain: Chain
    seconds: Floats
    launch_s: Floats
    held: Chain
    layers: ComputationTime
    sent_elements: float
    send_launch_s: float = 0.0

    def stages_s(self, ends: Sequence[int]) -> Floats:
        """Seconds of one micro-batch per stage, at the pace of its device or host, plus its collectives."""
        busy_s, late_s, sums_s = self._paces(ends)
        return np.asarray(busy_s + late_s + sums_s)

    def unit_seconds_at_pace(self, ends: Sequence[int], stage: int) -> Floats:
        """Seconds of all units, each with its part of a stage's waits for the host."""
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

    def sum_by_unit(forward: Floats, backward: Floats) -> Floats:
        """Rows of sums by unit: forward, backward, and forward times that recompute repeats."""
        return np.array(
            [chain.sum_by_unit(row) for row in (forward, backward, np.where(again, forward, 0.0))]
        )

    launch_s, seconds = sum_by_unit(*layers.launch_s), np.zeros((6, chain.length))
    seconds[PASSES] = sum_by_unit(layers.forward_s, layers.backward_s) - layers.late * launch_s
    slowed_s = seconds[PASSES].copy()
    lag = costs.lag(float(slowed_s[:2].sum()))
    slowed_s[:2] = slowed_s[:2].mean(axis=0)
    seconds[SUMS] = sum_by_unit(*_collective_s(model, batch, mesh, costs)) + lag * slowed_s
    joints = (layer.output_elements for layer in model.layers if layer_class(layer).joins_residual)
    sent = float(max(joints, default=0)) * batch / part.boundary_split  # from one unit to the next
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


@dataclass(frozen=True, eq=False)
class OpPlaces:
    """The ops of one micro-batch on a stage in order, with the row (`TimeRow`) and unit of their times.
    Micro-batches with equal ops share one object, so that caches hit."""

    names: tuple[str, ...]
    role: npt.NDArray[np.uint8]
    work: npt.NDArray[np.uint8]
    row: Ints
    unit: Ints
    parameters: tuple[Parameter, ...]
    blocks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StageWork:
    """The ops of the slowest stage in one micro-batch, and the seconds of each."""

    layout: OpPlaces
    seconds: Floats
    optimizer_s: float
    schedule: StageSchedule


def stage_work(
    times: UnitTimes, send_s: Callable[[float], float], mesh: Mesh = WHOLE, *, even: bool = False
) -> StageWork:
    """Work of the slowest stage in one micro-batch, including a whole step's wait for other stages. `send_s`
    gives the seconds to send elements to the next stage; `even` stages have equally many blocks."""
    chain, held = times.chain, times.held.elements
    schedule = mesh.schedule(chain, times.stages_s, send_s(times.sent_elements), even=even)
    first, last = schedule.ends[schedule.slowest : schedule.slowest + 2]
    stage = np.full((2, chain.length), [[schedule.wait_s], [schedule.send_s]])
    table = np.vstack([times.unit_seconds_at_pace(schedule.ends, schedule.slowest), stage])
    present = table[:, first:last] != 0
    present[TimeRow.WAITS] = schedule.stages > 1
    layout = _ordered_ops(chain, (first, last), tuple(map(tuple, present.tolist())), times.held)
    share = float(held[first:last].sum() / max(held.sum(), 1))
    return StageWork(layout, table[layout.row, layout.unit], times.layers.optimizer_s * share, schedule)


@memoize
def _ordered_ops(
    chain: Chain, units: tuple[int, int], present: tuple[tuple[bool, ...], ...], held: Chain
) -> OpPlaces:
    """Ops in running order for a range of units; `present[row]` marks the units that have an op."""
    first, last = units
    ops: list[tuple[str, int, int, int, int]] = []  # name, role, work, row, unit
    forward_at, backward_at = {}, {}

    def add_op(name: str, role: int, work: int, row: TimeRow, unit: int) -> None:
        """Appends an op if its unit has one in this row."""
        if present[row][unit - first]:
            ops.append((name, role, work, row, unit))

    add_op("stages/wait", OTHER, WAIT, TimeRow.WAITS, first)
    add_op("stages/send", OTHER, SUM, TimeRow.SENDS, first)
    for unit in range(first, last):
        name = chain.names[unit]
        forward_at[unit] = len(ops)
        ops.append((f"{name}/forward", FORWARD, COMPUTE, TimeRow.FORWARD, unit))
        add_op(f"{name}/forward/sum", FORWARD, SUM, TimeRow.FORWARD_SUMS, unit)
    for unit in reversed(range(first, last)):
        name = chain.names[unit]
        add_op(f"{name}/recompute", BACKWARD, RECOMPUTE, TimeRow.AGAIN, unit)
        add_op(f"{name}/recompute/sum", BACKWARD, SUM, TimeRow.AGAIN_SUMS, unit)
        add_op(f"{name}/backward/sum", BACKWARD, SUM, TimeRow.BACKWARD_SUMS, unit)
        backward_at[unit] = len(ops)
        ops.append((f"{name}/backward", BACKWARD, COMPUTE, TimeRow.BACKWARD, unit))
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


OPTIMIZER = "adam"
# Kernels that a host could launch while it exchanges a micro-batch with other stages: where hosts set the
# pace, pipelines take 2 to 3 ms longer for each than their stages (layouts of VIA-Research/vTrain).
SEND_LAUNCHES = 40


def replica_computation(
    model: Model,
    batch: int,
    site: Site,
    precision: Precision,
    *,
    recompute: Recompute = "none",
    framework: str = DEFAULT_FRAMEWORK,
    brief: bool = False,
) -> Computation:
    """Computation of one micro-batch on a device of a replica's slowest stage. It includes a whole step's
    wait for others (`repeat_passes`). `batch` counts samples; `brief` gives one step without variation."""
    device = site.hardware.device
    steps, variation = (1, Variation(0.0, 0.0)) if brief else (DEFAULT_STEPS, Variation())
    work, time = slowest_stage(model, batch, site, precision, recompute=recompute, framework=framework)
    once_s, layout = work.seconds, work.layout
    n = len(once_s)
    durations_s = once_s * variation.factors(steps, n, 0)
    durations_s.flags.writeable = False
    return Computation(
        model=model.name,
        batch=batch * site.mesh.concurrent_micro_batches,
        names=layout.names,
        role=layout.role,
        work=layout.work,
        layer=np.full(n, -1, np.int32),
        layers=(),
        deps=chain_deps(n),
        durations_s=durations_s,
        parameters=layout.parameters,
        optimizer_s=work.optimizer_s,
        blocks=layout.blocks,
        layout=layout,
        precision=precision,
        device=device.name,
        hardware=site.hardware.name,
        basis=time.basis,
        source=(
            f"synthesized for {framework} in {precision.name}; rates of {device.name}: "
            f"{time.error.basis}, {time.error.source}"
        ),
        once_s=once_s,
        variation=variation,
    )


def slowest_stage(
    model: Model,
    batch: int,
    site: Site,
    precision: Precision,
    *,
    recompute: Recompute = "none",
    framework: str = DEFAULT_FRAMEWORK,
) -> tuple[StageWork, ComputationTime]:
    """Work of the slowest stage in one micro-batch, and the times of all layers on one device."""
    _, units = _cached_unit_times(model, batch, site, precision, recompute=recompute, framework=framework)
    even = find_framework(framework).even_stages
    return stage_work(units, partial(_send_s, site, precision), site.mesh, even=even), units.layers


def _unit_times_key(model: Model, batch: int, site: Site, precision: Precision, **how: str) -> Hashable:
    """Cache key: the arguments of unit times, without the number of workers and stages."""
    links = (site.market, site.rdma, site.nic_shares, site.round_trip_s, site.burst_bytes)
    return (model, batch, site.mesh.inner_mesh, precision, *how.values(), id(site.hardware), links)


@memoize(most_bytes=16 << 20, bytes_of=lambda known: known[1].seconds.nbytes, key=_unit_times_key)
def _cached_unit_times(
    model: Model,
    batch: int,
    site: Site,
    precision: Precision,
    *,
    recompute: Recompute,
    framework: str,
) -> tuple[Hardware, UnitTimes]:
    """Times of a sharded model's units, and the machine, kept alive so that its `id` is not reused."""
    hardware, inner, tier = site.hardware, site.mesh.inner_mesh, find_framework(framework)

    def device_times(of: Model, samples: int) -> ComputationTime:
        return computation_s(of, samples, hardware.device, precision, framework, optimizer=OPTIMIZER)

    costs = Costs(
        device_times,
        _collective_time_function(site, precision, tier),
        lambda pass_s: _straggler_lag(pass_s, inner),
        SEND_LAUNCHES * tier.floor_s,
    )
    return hardware, unit_times(model, batch, inner, recompute, costs, stops_early=tier.stops_early)


def _straggler_lag(pass_s: float, mesh: Mesh) -> float:
    """Relative delay of the slowest rank of a layer-sharing group behind its mean rank."""
    if mesh.lockstep == 1:
        return 0.0
    return slowest_factor(usual_sigma(min(pass_s, JITTER_SPAN_S), 1), mesh.lockstep) - 1


def _collective_time_function(
    site: Site, precision: Precision, tier: Framework
) -> Callable[[Axis, Communication, int, Kind], float]:
    """Returns a function for the seconds of a collective among an axis's ranks, launch included."""

    def collective_s(axis: Axis, each: Communication, batch: int, kind: Kind) -> float:
        """Seconds of one collective for `batch` samples among the ranks of an axis."""
        group = axis_group(site, axis)
        library = collective.library("auto", "auto", group)
        size = float(each.elements) * batch * precision.activation_bytes
        if each.of_gradients:
            size = float(each.elements) * precision.gradient_bytes
        return tier.floor_s + tier.exposed_sums * library.seconds(kind, size, site_peers(group, library))

    return collective_s


def _send_s(site: Site, precision: Precision, elements: float) -> float:
    """Seconds to send that many elements to the next pipeline stage."""
    if not site.mesh.stage_axes:
        return 0.0
    hop = stage_hop(site)
    library = collective.library("auto", "auto", hop)
    return library.seconds("send_recv", elements * precision.activation_bytes, site_peers(hop, library))
