"""Synthesis of whole steps through parameter servers: a computation, lowered.

The names that the world uses for it: `profile_for` is what TensorFlow's servers and one worker do in a step.
"""

from __future__ import annotations

from planner.device.computation import Variation
from planner.device.computation.synthesis import DEFAULT_STEPS, computation_for, kernel_rates
from planner.hardware import Hardware
from planner.model import Model
from planner.servers.served_step import (
    GRPC_PARSING,
    NO_PARSING,
    PS_LITE_PARSING,
    SERVER_MEMORY_BYTES_PER_S,
    Parsing,
    served,
)
from planner.simulator.step._profile import Profile

NO_VARIATION = Variation(0.0, 0.0)

__all__ = [
    "GRPC_PARSING",
    "NO_PARSING",
    "NO_VARIATION",
    "PS_LITE_PARSING",
    "Parsing",
    "Variation",
    "kernel_rates",
    "profile_for",
]


def profile_for(
    model: Model,
    batch: int,
    hardware: Hardware,
    servers: int = 1,
    placement: str = "greedy",
    *,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    training: bool = True,
    compute_factor: float = 1.0,
    parsing: Parsing | None = None,
    on_host: bool = False,
    variation: Variation = Variation(),
    server_memory_bytes_per_s: float = SERVER_MEMORY_BYTES_PER_S,
) -> Profile:
    """The profile of one worker on one device of `hardware`.

    `compute_factor` multiplies compute times: other frameworks than the one calibrated for, slower clocks.
    `training=False` gives a forward pass only, without gradients and updates. `parsing` is gRPC's unless
    given, or ps-lite's where the placement is MXNet's; the worker does it, as the papers have it, or the host
    beside its accelerator (`on_host`), as plans have it.
    """
    computation = computation_for(
        model,
        batch,
        hardware,
        steps=steps,
        seed=seed,
        training=training,
        compute_factor=compute_factor,
        variation=variation,
    )
    return served(
        computation,
        servers,
        placement,
        parsing=parsing,
        on_host=on_host,
        server_memory_bytes_per_s=server_memory_bytes_per_s,
    )
