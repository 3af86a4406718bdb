"""The work of one device of a sharded replica in a micro-batch: its shard of a pipeline stage.

A replica of t x p devices has p stages of units, each sharded over t devices. All devices of a stage do the
same work, and the slowest stage determines the step. So one device of that stage stands for all: its ops are
the forward and backward passes of its units, the collectives of the mesh's axes between them, recomputation,
and the wait of a whole step for the other stages to fill and to drain (`planner.parallel.pipeline`).
Data-parallel strategies lower it as they lower any computation. There is one op per unit and pass, so a
transformer of a hundred blocks has a few hundred ops, whatever its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from planner.device.activations import Recompute
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
)
from planner.hardware import Hardware
from planner.memoize import memoize
from planner.model import Chain, Floats, Ints, Model
from planner.parallel._base import Axis, Communication, StageSchedule
from planner.parallel.collectives import Kind
from planner.parallel.collectives.links import site_peers
from planner.parallel.data import collective
from planner.parallel.data.joint import JITTER_SPAN_S, slowest_factor, usual_sigma
from planner.parallel.mesh import WHOLE, Mesh, axis_group, stage_hop
from planner.parallel.plan import Site
from planner.parallel.unit_times import Costs, TimeRow, UnitTimes, unit_times


@dataclass(frozen=True, eq=False)
class OpPlaces:
    """The ops of one micro-batch on a stage in order: names, roles, work, and the row (`TimeRow`) and unit
    of their times. Micro-batches with equal ops share one object, so that caches hit."""

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
    """Work of the slowest stage in one micro-batch, including a whole step's wait for other stages.
    `send_s` gives the seconds to send that many elements to the next stage; `even` stages have equally
    many blocks."""
    chain, held = times.chain, times.held.elements
    schedule = mesh.schedule(chain, times.stages_s, send_s(times.sent_elements), even=even)
    first, last = schedule.ends[schedule.slowest : schedule.slowest + 2]
    stage = np.full((2, chain.length), [[schedule.wait_s], [schedule.send_s]])
    table = np.vstack([times.paced(schedule.ends, schedule.slowest), stage])
    present = table[:, first:last] != 0
    present[TimeRow.WAITS] = schedule.stages > 1
    layout = _ordered_ops(chain, (first, last), tuple(map(tuple, present.tolist())), times.held)
    share = float(held[first:last].sum() / max(held.sum(), 1))
    return StageWork(layout, table[layout.row, layout.unit], times.layers.optimizer_s * share, schedule)


@memoize
def _ordered_ops(
    chain: Chain, units: tuple[int, int], present: tuple[tuple[bool, ...], ...], held: Chain
) -> OpPlaces:
    """Ops of units `first` to `last` - 1 in running order; `present[row]` marks units with an op."""
    first, last = units
    ops: list[tuple[str, int, int, int, int]] = []  # name, role, work, row, unit
    forward_at, backward_at = {}, {}

    def add(name: str, role: int, work: int, row: TimeRow, unit: int) -> None:
        if present[row][unit - first]:
            ops.append((name, role, work, row, unit))

    add("stages/wait", OTHER, WAIT, TimeRow.WAITS, first)
    add("stages/send", OTHER, SUM, TimeRow.SENDS, first)
    for unit in range(first, last):
        name = chain.names[unit]
        forward_at[unit] = len(ops)
        ops.append((f"{name}/forward", FORWARD, COMPUTE, TimeRow.FORWARD, unit))
        add(f"{name}/forward/sum", FORWARD, SUM, TimeRow.FORWARD_SUMS, unit)
    for unit in reversed(range(first, last)):
        name = chain.names[unit]
        add(f"{name}/recompute", BACKWARD, RECOMPUTE, TimeRow.AGAIN, unit)
        add(f"{name}/recompute/sum", BACKWARD, SUM, TimeRow.AGAIN_SUMS, unit)
        add(f"{name}/backward/sum", BACKWARD, SUM, TimeRow.BACKWARD_SUMS, unit)
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
# Kernels that a host could launch while it exchanges activations and gradients of a micro-batch with other
# stages: where hosts set the pace, pipelines take 2 to 3 ms longer for each micro-batch than their stages
# (layouts of VIA-Research/vTrain, hidden 1,024, two and four stages).
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
    """Computation of one micro-batch on one device of a replica's slowest pipeline stage. It includes a
    whole step's wait for other stages, which `repeat_passes` divides among micro-batches. `batch` counts
    samples; `brief` gives one step without variation."""
    device, steps, variation = site.hardware.device, DEFAULT_STEPS, Variation()
    if brief:
        steps, variation = 1, Variation(0.0, 0.0)
    work, time = slowest_stage(model, batch, site, precision, recompute=recompute, framework=framework)
    once_s, layout = work.seconds, work.layout
    n = len(once_s)
    durations_s = once_s * variation.factors(steps, n, 0)
    durations_s.flags.writeable = False
    return Computation(
        model=model.name,
        batch=batch * site.mesh.samples,
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
    """Times of a sharded model's units, with the machine, which keeps its id from reuse."""
    hardware, inner, tier = site.hardware, site.mesh.inner_mesh, find_framework(framework)

    def times(of: Model, samples: int) -> ComputationTime:
        return computation_s(of, samples, hardware.device, precision, framework, optimizer=OPTIMIZER)

    costs = Costs(
        times,
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

    def seconds(axis: Axis, each: Communication, batch: int, kind: Kind) -> float:
        group = axis_group(site, axis)
        library = collective.library("auto", "auto", group)
        size = float(each.elements) * batch * precision.activation_bytes
        if each.of_gradients:
            size = float(each.elements) * precision.gradient_bytes
        return tier.floor_s + tier.exposed_sums * library.seconds(kind, size, site_peers(group, library))

    return seconds


def _send_s(site: Site, precision: Precision, elements: float) -> float:
    """Seconds to send that many elements to the next pipeline stage."""
    if not site.mesh.stage_axes:
        return 0.0
    hop = stage_hop(site)
    library = collective.library("auto", "auto", hop)
    return library.seconds("send_recv", elements * precision.activation_bytes, site_peers(hop, library))
