"""The computation of one device, from whichever source applies: the entry point for plans.

Transformers and sharded networks are computed in units: `planner.parallel.stage` lists the ops of the
device; this module adds times from `planner.device.rates`, and collectives and sends from the site. There
is one op per unit and pass, so a transformer of a hundred blocks has a few hundred ops, whatever its
layers. Other networks are computed layer by layer: by the kernel rates of the hardware file where these
were fitted to published throughputs in single precision (and for CPUs), else by the rates of the device in
the plan's number format.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from planner.device.activations import Recompute
from planner.device.computation import DEFAULT_STEPS, Computation, Variation
from planner.device.memory import WHOLE as ALL
from planner.device.memory import Shares
from planner.device.precision import FP32, Precision
from planner.device.rates import Framework
from planner.device.rates.times import DEFAULT_FRAMEWORK, ComputationTime, computation_s, framework_named
from planner.files.regular_file import shipped_folder
from planner.hardware import Hardware
from planner.memoize import memoize
from planner.model import Model
from planner.parallel._base import Axis, Communication
from planner.parallel.collectives import Kind, Library, Peers
from planner.parallel.collectives.libraries import peers_of
from planner.parallel.data import settings
from planner.parallel.data.joint import JITTER_SPAN_S, slowest_factor, usual_sigma
from planner.parallel.mesh import Mesh, axis_group, crosses_machines
from planner.parallel.plan import Site
from planner.parallel.stage import Costs, StageWork, UnitTimes, stage_work, unit_times

if TYPE_CHECKING:
    from planner.device.rates import Error


OPTIMIZER = "adam"
BRIEF = 1, Variation(0.0, 0.0)  # one step, for bounds


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
    """The computation of one micro-batch on one device of a replica's slowest pipeline stage. It includes
    a whole step's wait for other stages, which `repeat_passes` divides among micro-batches. `batch`
    counts samples; `brief` gives one step without variation."""
    device, (steps, variation) = site.hardware.device, BRIEF if brief else (DEFAULT_STEPS, Variation())
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
    """The slowest stage's work in one micro-batch, and the times of all layers on one device."""
    _, units = _cached_unit_times(model, batch, site, precision, recompute=recompute, framework=framework)
    return stage_work(units, _send_time_function(site, precision), site.mesh), units.layers


def _unit_times_key(model: Model, batch: int, site: Site, precision: Precision, **how: str) -> Hashable:
    """Cache key: the arguments of unit times, without the number of workers and stages."""
    links = (site.market, site.rdma, site.nic_shares, site.round_trip_s, site.burst_bytes)
    return (model, batch, site.mesh.inner, precision, *how.values(), id(site.hardware), links)


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
    """The times of a sharded model's units, with the machine, which keeps its id from reuse."""
    hardware, inner, tier = site.hardware, site.mesh.inner, framework_named(framework)

    def times(of: Model, samples: int) -> ComputationTime:
        return computation_s(of, samples, hardware.device, precision, framework, optimizer=OPTIMIZER)

    costs = Costs(
        times, _collective_time_function(site, precision, tier), lambda pass_s: _straggler_lag(pass_s, inner)
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

    def group_of(axis: Axis) -> tuple[Library, Peers]:
        group = axis_group(site, axis)
        library = settings.library("auto", "auto", group)
        return library, peers_of(group, library)

    def seconds(axis: Axis, communication: Communication, batch: int, kind: Kind) -> float:
        library, peers = group_of(axis)
        size = float(communication.elements) * batch * precision.activation_bytes
        if communication.of_gradients:
            size = float(communication.elements) * precision.gradient_bytes
        alone_s = library.seconds(kind, size, peers)
        return tier.floor_s + tier.exposed_sums * alone_s

    return seconds


def _send_time_function(site: Site, precision: Precision) -> Callable[[float], float]:
    """Returns a function from elements to the seconds of a send to the next stage."""
    if not site.mesh.outer:
        return lambda elements: 0.0
    fabric = site.fabric
    if fabric is None or any(crosses_machines(site, axis) for axis in site.mesh.outer):
        rate = site.between_bytes_per_s / site.devices
    else:
        rate = fabric.bytes_per_s
    return lambda elements: elements * precision.activation_bytes / rate


def device_computation(
    model: Model,
    batch: int,
    site: Site,
    precision: Precision,
    *,
    recompute: Recompute = "none",
    framework: str | None = None,
    brief: bool = False,
    shares: Shares = ALL,
) -> Computation:
    """The computation of one micro-batch on one device of a site. `framework` is one of
    `planner.device.rates` (None: the usual one; CPUs and user-defined rates have none). `brief` gives
    one step without variation, for bounds. `shares` are those of the plan's memory, for offload."""
    if computes_in_units(model, site):
        how = framework or DEFAULT_FRAMEWORK
        made = replica_computation(
            model, batch, site, precision, recompute=recompute, framework=how, brief=brief
        )
    else:
        from planner.device.computation.synthesis import calibrated_computation, computation_for

        if uses_kernel_rates(site.hardware, precision, fitted=framework is None):
            made = computation_for(model, batch, site.hardware, precision)
        else:
            made = calibrated_computation(model, batch, site.hardware, precision, framework)
    if model.training is None:
        return made
    from planner.device.offload import with_memory_settings

    return with_memory_settings(
        made,
        site.mesh.inner.shard(model).model if site.mesh.is_sharded else model,
        site.hardware,
        batch=batch,
        workers=site.workers,
        recompute=recompute,
        shares=shares,
    )


def computes_in_units(model: Model, site: Site) -> bool:
    """Whether a model is computed in units: if sharded, or over sequences on a device with rates."""
    return site.mesh.is_sharded or (
        model.sequence_length is not None and not uses_kernel_rates(site.hardware, FP32, fitted=False)
    )


def uses_kernel_rates(hardware: Hardware, precision: Precision, *, fitted: bool = True) -> bool:
    """Whether the kernel rates of the hardware file are used. They are for CPUs, for a user's own file, and
    (with `fitted`) for catalog rates that were fitted to published throughputs, in single precision."""
    known = hardware.kernels
    if known is None or precision != FP32:
        return False
    if hardware.device.kind == "cpu" or Path(hardware.path).parent != shipped_folder("hardware"):
        return True
    return fitted and known.basis != "estimated"


def computation_error(
    model: Model, hardware: Hardware, precision: Precision, framework: str | None = None
) -> Error | None:
    """The expected error of the computation time, by the basis of its rates; None if unknown."""
    from planner.device.rates import model_error, network_of
    from planner.device.rates.times import computation_s

    if uses_kernel_rates(hardware, precision, fitted=False):
        return None  # a CPU, or rates of the user's own
    if uses_kernel_rates(hardware, precision, fitted=framework is None):
        return model_error("fitted", network_of(model), experts=model.has_experts)
    return computation_s(model, 1, hardware.device, precision).error
