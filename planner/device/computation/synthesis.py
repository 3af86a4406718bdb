"""Synthesis: the computation of steps that nobody has recorded, from a model and a device.

The graph comes from the model (`graph`), times from the rates of the device (`planner.device.rates.times`),
the variation between steps from what real traces show. docs/synthesis.md tells where each default comes from.
"""

from __future__ import annotations

import math

import numpy as np

from planner.device.computation import BACKWARD, Computation, Variation
from planner.device.computation.graph import compute_graph
from planner.device.precision import FP32, Precision
from planner.device.rates.times import DEFAULT_FRAMEWORK, StepTimes, computation_s, fitted_times
from planner.errors import BadInput
from planner.hardware import Hardware, KernelRates
from planner.model import Model

DEFAULT_STEPS = 20


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
    """What one device computes in a step, by the rates of its hardware file. `compute_factor` multiplies
    times: other frameworks than the one fitted, slower clocks. `training=False` gives a forward pass only."""
    for name, value in (("batch", batch), ("steps", steps)):
        if value < 1:
            raise BadInput(f"{name} is {value}; a profile needs at least 1")
    if not (math.isfinite(compute_factor) and compute_factor > 0):
        raise BadInput(f"compute_factor is {compute_factor}; it must be above zero")
    rates = kernel_rates(hardware)
    times = fitted_times(model, batch, rates, training=training)
    return _synthesize(
        model,
        batch,
        hardware,
        precision,
        times=StepTimes(
            times.forward_s * compute_factor,
            times.backward_s * compute_factor,
            times.optimizer_s * compute_factor,
        ),
        basis="estimated" if rates.basis == "estimated" else "synthesized",
        source=f"synthesized; kernel rates of {hardware.device.name}: {rates.source}",
        steps=steps,
        seed=seed,
        training=training,
        variation=variation,
    )


def calibrated_computation(
    model: Model, batch: int, hardware: Hardware, precision: Precision, framework: str | None = None
) -> Computation:
    """What one device computes in a training step under a framework (None: the usual one), by the calibrated
    rates of its device."""
    framework = framework or DEFAULT_FRAMEWORK
    times = computation_s(model, batch, hardware.device, precision, framework)
    return _synthesize(
        model,
        batch,
        hardware,
        precision,
        times=times,
        basis=times.basis,
        source=(
            f"synthesized for {framework} in {precision.name}; rates of {hardware.device.name}: "
            f"{times.error.basis}, {times.error.source}"
        ),
    )


def _synthesize(
    model: Model,
    batch: int,
    hardware: Hardware,
    precision: Precision,
    *,
    times: StepTimes,
    basis: str,
    source: str,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    training: bool = True,
    variation: Variation = Variation(),
) -> Computation:
    """Steps of a model's graph with the times of its layers."""
    graph = compute_graph(model, training=training)
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
        basis=basis,
        source=source,
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
