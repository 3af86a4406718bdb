"""Synthesis by the rates of a device in a number format: one op a layer and pass (`planner.device.rates`)."""

from __future__ import annotations

from planner.device.computation._computation import Computation, Variation
from planner.device.computation.graph import compute_graph
from planner.device.computation.synthesis import DEFAULT_STEPS, SynthesizedTimes, synthesized
from planner.device.precision import Precision
from planner.device.rates.times import DEFAULT_FRAMEWORK, computation_s
from planner.hardware import Hardware
from planner.model import Model


def rated_computation(
    model: Model,
    batch: int,
    hardware: Hardware,
    precision: Precision,
    framework: str | None = None,
) -> Computation:
    """What one device of `hardware` computes in a training step under a framework (None: the usual one)."""
    framework = framework or DEFAULT_FRAMEWORK
    times = computation_s(model, batch, hardware.device, precision, framework)
    source = (
        f"synthesized for {framework} in {precision.name}; rates of {hardware.device.name}: "
        f"{times.error.basis}, {times.error.source}"
    )
    return synthesized(
        model,
        batch,
        hardware,
        precision,
        graph=compute_graph(model),
        times=SynthesizedTimes(times.forward_s, times.backward_s, times.optimizer_s, times.basis, source),
        steps=DEFAULT_STEPS,
        seed=0,
        variation=Variation(),
    )
