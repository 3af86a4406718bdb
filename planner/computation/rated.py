"""Synthesis by the rates of a device in a number format: one op a layer and pass (`planner.rates`)."""

from __future__ import annotations

import numpy as np

from planner.computation._computation import BACKWARD, Computation, Variation
from planner.computation.graph import compute_graph
from planner.computation.synthesis import DEFAULT_STEPS
from planner.hardware import Hardware
from planner.model import Model
from planner.precision import Precision
from planner.rates.times import DEFAULT_FRAMEWORK, computation_s


def rated_computation(
    model: Model,
    batch: int,
    hardware: Hardware,
    precision: Precision,
    *,
    framework: str = DEFAULT_FRAMEWORK,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    variation: Variation = Variation(),
) -> Computation:
    """What one device of `hardware` computes in a training step."""
    times = computation_s(model, batch, hardware.device, precision, framework)
    graph = compute_graph(model)
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
        source=(
            f"synthesized for {framework} in {precision.name}; rates of {hardware.device.name}: "
            f"{times.error.basis}, {times.error.source}"
        ),
        once_s=once_s,
        variation=variation,
        seed=seed,
        network=model,
    )
