"""Synthesis: the computation of steps that nobody has recorded, from a model and a device.

The graph comes from the model (`graph`), times from kernel rates of the device
(`planner.device.computation.work`), the variation between steps from what real traces show. docs/synthesis.md
tells where each default comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.device.computation._computation import BACKWARD, Computation, Variation
from planner.device.computation.graph import ComputeGraph, compute_graph
from planner.device.computation.work import costs_of, work_of
from planner.device.precision import FP32, Precision
from planner.errors import BadInput
from planner.hardware import Hardware, KernelRates
from planner.model import Model

DEFAULT_STEPS = 20


@dataclass(frozen=True, eq=False)
class SynthesizedTimes:
    """Seconds of each layer and of the optimizer, and what they rest on."""

    forward_s: npt.NDArray[np.float64]
    backward_s: npt.NDArray[np.float64]
    optimizer_s: float
    basis: str
    source: str


def computation_for(
    model: Model,
    batch: int,
    hardware: Hardware,
    precision: Precision = FP32,
    *,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    training: bool = True,
    compute_factor: float = 1.0,
    variation: Variation = Variation(),
) -> Computation:
    """What one device of `hardware` computes in a step. `compute_factor` multiplies times: other frameworks
    than the one calibrated for, slower clocks. `training=False` gives a forward pass only."""
    for name, value in (("batch", batch), ("steps", steps)):
        if value < 1:
            raise BadInput(f"{name} is {value}; a profile needs at least 1")
    if not (math.isfinite(compute_factor) and compute_factor > 0):
        raise BadInput(f"compute_factor is {compute_factor}; it must be above zero")
    rates = kernel_rates(hardware)
    graph, work = compute_graph(model, training=training), work_of(model)
    costs = costs_of(rates) * compute_factor
    forward_s, backward_s = work.forward_s(batch, costs, training=training), work.backward_s(batch, costs)
    return synthesized(
        model,
        batch,
        hardware,
        precision,
        graph=graph,
        times=SynthesizedTimes(
            forward_s=forward_s,
            backward_s=backward_s,
            optimizer_s=float(work.update @ costs),
            basis="estimated" if rates.basis == "estimated" else "synthesized",
            source=f"synthesized; kernel rates of {hardware.device.name}: {rates.source}",
        ),
        steps=steps,
        seed=seed,
        variation=variation,
    )


def synthesized(
    model: Model,
    batch: int,
    hardware: Hardware,
    precision: Precision,
    *,
    graph: ComputeGraph,
    times: SynthesizedTimes,
    steps: int,
    seed: int,
    variation: Variation,
) -> Computation:
    """Steps of a model's graph, with times of its layers from whichever rates and what steps differ by."""
    once_s = np.where(graph.role == BACKWARD, times.backward_s[graph.layer], times.forward_s[graph.layer])
    durations_s = once_s * variation.factors(steps, len(once_s), seed)
    durations_s.flags.writeable = False
    return Computation(
        model=model.name,
        batch=batch,
        names=graph.names,
        role=graph.role,
        layer=graph.layer,
        layers=tuple(layer.name for layer in model),
        dep_start=graph.dep_start,
        dep_index=graph.dep_index,
        durations_s=durations_s,
        parameters=graph.parameters,
        optimizer_s=times.optimizer_s,
        blocks=graph.blocks,
        precision=precision,
        device=hardware.device.name,
        hardware=hardware.name,
        basis=times.basis,
        source=times.source,
        once_s=once_s,
        variation=variation,
        seed=seed,
        network=model,
    )


def kernel_rates(hardware: Hardware) -> KernelRates:
    """The kernel rates of a machine's device, or an error that says how to give them."""
    if hardware.kernels is None:
        raise BadInput(
            f"hardware {hardware.name!r} has no kernel rates for its device {hardware.device.name!r}: "
            "compute times are unknown. Add a [kernels] table for the device (docs/hardware.md)"
        )
    return hardware.kernels
