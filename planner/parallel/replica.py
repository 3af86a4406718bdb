"""The computation of one device of a replica that is cut by layers, or of a whole one in units.

`planner.parallel.cut.replica` says what the device does; here it becomes a `Computation`, with times from
`planner.device.rates` and sums and sends from the collectives of the site. One op a unit and pass: a
transformer of a hundred blocks has a few hundred ops, whatever its layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from planner.device.computation._computation import Computation, Variation
from planner.device.computation.synthesis import DEFAULT_STEPS
from planner.device.precision import Precision
from planner.device.rates.constants import Framework
from planner.device.rates.times import DEFAULT_FRAMEWORK, ComputationTime, computation_s, framework_named
from planner.device.recompute import Recompute
from planner.files.byte_cache import ByteCache
from planner.hardware import Hardware
from planner.model import Model
from planner.parallel.collectives.peers import peers_of
from planner.parallel.cut.replica import Costs, StageWork, UnitTimes, stage_work, unit_times
from planner.parallel.data import settings
from planner.parallel.data.joint import JITTER_SPAN_S, slowest_factor, usual_sigma
from planner.parallel.groups import sharing_site, stages_cross_machines
from planner.parallel.site import Site

OPTIMIZER = "adam"


def replica_computation(
    model: Model,
    batch: int,
    site: Site,
    precision: Precision,
    *,
    recompute: Recompute = "none",
    framework: str = DEFAULT_FRAMEWORK,
    optimizer: str = OPTIMIZER,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    variation: Variation = Variation(),
    sequence: bool = True,
) -> Computation:
    """One micro-batch of `batch` samples on one device of the slowest stage of a replica, with the wait for
    other stages of a whole step, which `accumulated` deals out to its micro-batches. `sequence`: devices that
    share layers cut positions too (`planner.parallel.cut.tensor`)."""
    device = site.hardware.device
    work, time = stage_of(
        model,
        batch,
        site,
        precision,
        recompute=recompute,
        framework=framework,
        optimizer=optimizer,
        sequence=sequence,
    )
    once_s, layout = work.seconds, work.layout
    n = len(once_s)
    durations_s = once_s * variation.factors(steps, n, seed)
    durations_s.flags.writeable = False
    return Computation(
        model=model.name,
        batch=batch,
        names=layout.names,
        role=layout.role,
        work=layout.work,
        layer=np.full(n, -1, np.int32),
        layers=(),
        dep_start=np.maximum(np.arange(n + 1, dtype=np.int32) - 1, 0),
        dep_index=np.arange(n - 1, dtype=np.int32),
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
        seed=seed,
    )


def stage_of(
    model: Model,
    batch: int,
    site: Site,
    precision: Precision,
    *,
    recompute: Recompute = "none",
    framework: str = DEFAULT_FRAMEWORK,
    optimizer: str = OPTIMIZER,
    sequence: bool = True,
) -> tuple[StageWork, ComputationTime]:
    """What the slowest stage does in one micro-batch, and how long the layers of a device that had all stages
    would take."""
    cut, hardware = site.cut, site.hardware
    links = (site.market, site.rdma, site.nic_shares, site.round_trip_s, site.burst_bytes)
    key = (model, batch, cut.tensor, precision, recompute, framework, optimizer, sequence)

    def make() -> _Units:
        found: list[ComputationTime] = []

        def times(of: Model, samples: int) -> ComputationTime:
            made = computation_s(of, samples, hardware.device, precision, framework, optimizer=optimizer)
            found.append(made)
            return made

        tier = framework_named(framework)
        costs = Costs(times, _sum_s(site, precision, tier), lambda pass_s: _lag(pass_s, cut.tensor))
        units = unit_times(
            model,
            batch,
            cut.tensor,
            recompute,
            costs,
            sequence=sequence,
            stops_early=tier.stops_early,
        )
        return _Units(hardware, units, found[0])

    known = _UNITS.get((*key, id(hardware), links), make)
    work = stage_work(
        known.units,
        _send_s(site, precision),
        pipeline=cut.pipeline,
        interleave=cut.interleave,
    )
    return work, known.time


@dataclass(frozen=True, slots=True)
class _Units:
    """What units of a shared model take on a machine, however many stages there are of them; the machine is
    kept so that no other has its identity."""

    hardware: Hardware
    units: UnitTimes
    time: ComputationTime


_UNITS: ByteCache[_Units] = ByteCache(16 << 20, lambda one: 6 * one.units.forward_s.nbytes)


def _lag(pass_s: float, tensor: int) -> float:
    """By what share the slowest of devices that share layers is behind their mean. They meet at every sum, so
    that what disturbs them in a long pass does not cancel."""
    return slowest_factor(usual_sigma(min(pass_s, JITTER_SPAN_S), 1), tensor) - 1 if tensor > 1 else 0.0


def _sum_s(site: Site, precision: Precision, tier: Framework) -> Callable[[float], float]:
    """Seconds that devices which share layers take to add up so many elements, beside the products that they
    compute meanwhile; all of them launch it first."""
    if site.cut.tensor == 1:
        return lambda elements: 0.0
    group = sharing_site(site)
    library = settings.library("auto", "auto", group)
    peers = peers_of(group, library)
    rates = {level.name: level.bytes_per_s for level in (peers.inside, peers.between) if level}

    @lru_cache(maxsize=256)
    def seconds(elements: float) -> float:
        phases = library.phases("all_reduce", elements * precision.activation_bytes, peers)
        summed_s = sum(phase.seconds(rates[phase.level]) for phase in phases)
        return tier.floor_s + tier.exposed_sums * summed_s

    return seconds


def _send_s(site: Site, precision: Precision) -> Callable[[float], float]:
    """Seconds in which a device sends so many elements to the next stage: its part of the machine's NICs, or
    the fabric where the next stage is in the same machine."""
    if site.cut.pipeline == 1:
        return lambda elements: 0.0
    fabric = site.fabric
    if stages_cross_machines(site) or fabric is None:
        rate = site.between_bytes_per_s / site.devices
    else:
        rate = fabric.bytes_per_s
    return lambda elements: elements * precision.activation_bytes / rate
