"""Synthesis: the profile of steps that nobody has recorded, from a model and a kind of hardware.

The graph comes from the model (`step_graph`), compute times from the device's kernel rates (`compute`), the
time of updates from the servers' memory, and the variation between steps from what real traces show.
Transfers have bytes and no duration: bandwidth is the cluster's. Nothing ranks them, as in TensorFlow:
`order` is None, the simulator draws one for each step. docs/synthesis.md tells where each default comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.hardware import Hardware, KernelRates
from planner.model import Model
from planner.profile._profile import Profile
from planner.profile.compute import UPDATE_PASSES, costs_of, work_of
from planner.profile.placement import MXNET_RULES
from planner.profile.step_graph import StepGraph, step_graph

Array = npt.NDArray[np.float64]

DEFAULT_STEPS = 20
SERVER_MEMORY_BYTES_PER_S = 12e9  # 0.25 ns a byte of tensor in an update by one core
UPDATE_OVERHEAD_S = 2e-6


@dataclass(frozen=True, slots=True)
class Parsing:
    """What the receiver pays to turn a message into a tensor: alpha * bytes + beta (Li et al., 3.2.1). For a
    download it is an op of the worker; for an upload it is part of the update that follows on the server."""

    alpha_s_per_byte: float
    beta_s: float

    def __post_init__(self) -> None:
        for name in ("alpha_s_per_byte", "beta_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise BadInput(f"parsing's {name} is {value}; it must be zero or more")

    def __bool__(self) -> bool:
        return self.alpha_s_per_byte > 0 or self.beta_s > 0


@dataclass(frozen=True, slots=True)
class Variation:
    """Log-normal factors of mean 1 on every duration: one for the step, one for each op in each step."""

    step_sigma: float = 0.015
    op_sigma: float = 0.03


NO_PARSING = Parsing(0.0, 0.0)
# TensorFlow over gRPC. alpha: 10% of a transfer at 1 Gbit/s, so 52.6% at 10 Gbit/s, the example of Li et al.,
# 4.3; beta: measured between the last packet and the recorded end, mean of 0.19 to 0.32 ms.
GRPC_PARSING = Parsing(8e-9 / 9, 0.26e-3)
# MXNet's transport has no published figure: the same cost of bytes, nothing for a message.
PS_LITE_PARSING = Parsing(8e-9 / 9, 0.0)
NO_VARIATION = Variation(0.0, 0.0)


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
    variation: Variation = Variation(),
    server_memory_bytes_per_s: float = SERVER_MEMORY_BYTES_PER_S,
) -> Profile:
    """The profile of one worker on one device of `hardware`.

    `compute_factor` multiplies compute times: other frameworks than the one calibrated for, slower clocks.
    `training=False` gives a forward pass only, without gradients and updates. `parsing` is gRPC's unless
    given, or ps-lite's where the placement is MXNet's.
    """
    for name, value in (("batch", batch), ("servers", servers), ("steps", steps)):
        if value < 1:
            raise BadInput(f"{name} is {value}; a profile needs at least 1")
    if not (math.isfinite(compute_factor) and compute_factor > 0):
        raise BadInput(f"compute_factor is {compute_factor}; it must be above zero")
    if parsing is None:
        parsing = PS_LITE_PARSING if placement in MXNET_RULES else GRPC_PARSING
    rates = kernel_rates(hardware)
    graph = step_graph(model, servers, placement, parsing=bool(parsing), training=training)
    once = np.zeros(graph.profile.ops)
    compute_s = _compute_s(model, batch, costs_of(rates) * compute_factor, training)
    for op, layer_s in zip((graph.forward, graph.backward), compute_s, strict=True):
        once[op[op >= 0]] = layer_s[op >= 0]
    _fill_receipt(once, graph, parsing, server_memory_bytes_per_s)
    durations = once * _factors(variation, steps, len(once), seed)
    durations.flags.writeable = False
    return replace(
        graph.profile,
        batch=batch,
        durations_s=durations,
        hardware=hardware.name,
        basis="estimated" if rates.basis == "estimated" else "synthesized",
        source=f"synthesized; kernel rates of {hardware.device.name}: {rates.source}",
    )


def kernel_rates(hardware: Hardware) -> KernelRates:
    """The kernel rates of a machine's device, or an error that says how to give them."""
    if hardware.kernels is None:
        raise BadInput(
            f"hardware {hardware.name!r} has no kernel rates for its device {hardware.device.name!r}: "
            "compute times are unknown. Add a [kernels] table for the device (docs/hardware.md)"
        )
    return hardware.kernels


def _compute_s(model: Model, batch: int, costs: Array, training: bool) -> tuple[Array, Array]:
    """Forward and backward times of all layers."""
    work = work_of(model)
    return work.forward_s(batch, costs, training=training), work.backward_s(batch, costs)


def _fill_receipt(durations_s: Array, graph: StepGraph, parsing: Parsing, memory_bytes_per_s: float) -> None:
    """What follows the receipt of a tensor: parsing on the worker, parsing and updating on the server."""
    parse_s = parsing.alpha_s_per_byte * graph.part_bytes + parsing.beta_s
    if len(graph.parse):
        durations_s[graph.parse] = parse_s
    if len(graph.update):
        update_s = UPDATE_OVERHEAD_S + UPDATE_PASSES * graph.part_bytes / memory_bytes_per_s
        durations_s[graph.update] = parse_s + update_s


def _factors(variation: Variation, steps: int, ops: int, seed: int) -> Array:
    """Steps x ops factors, log-normal with mean 1."""
    random = np.random.default_rng(seed)
    step = random.standard_normal((steps, 1)) * variation.step_sigma - variation.step_sigma**2 / 2
    op = random.standard_normal((steps, ops)) * variation.op_sigma - variation.op_sigma**2 / 2
    return np.asarray(np.exp(step + op))
