"""Step breakdown, memory and utilization of a plan.

The step breakdown is read from the simulated case: the simulator measures the share of time that workers are
busy, and the roles of their ops (`planner.simulator.step.OpRole`) divide it into compute, recompute,
optimizer, pipeline bubbles, input waits and blocking communication. An idle worker waits for transfers or for
slower workers, which is exposed communication too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from planner.device.activations import Recompute, recomputed_layers
from planner.device.precision import Precision
from planner.device.rates.times import framework_named
from planner.hardware import Device
from planner.model import Model
from planner.model.layers import layers_with_gradient, trains_weights
from planner.search.cases import Cases
from planner.search.scored import ScoredPlan
from planner.simulator.cluster import COMPUTATION
from planner.simulator.statistics import Prediction
from planner.simulator.step import OpRole, Profile

FLOPS_A_MAC = 2
PASSES = 3  # forward, and twice as much backward; recompute does not count


def model_flops_utilization(
    model: Model, samples_per_s: float, devices: int, device: Device, precision: Precision
) -> float | None:
    """Model FLOPs utilization (MFU as in PaLM), a fraction of the devices' peak; None if that is unknown."""
    peak = device.flops.get(precision.compute)
    if not peak or not model.macs:
        return None
    return FLOPS_A_MAC * training_passes(model) * model.macs * samples_per_s / (devices * peak)


def training_passes(model: Model) -> float:
    """Multiply-adds of a training step divided by those of its forward pass: 3, less with frozen weights."""
    if not model.has_frozen:
        return PASSES
    with_gradient = layers_with_gradient(model)
    macs = 0
    for layer in model.layers:
        gradients = 2 if trains_weights(layer) else 1
        macs += layer.macs * (1 + (gradients if layer.name in with_gradient else 0))
    return macs / max(model.macs, 1)


def hardware_flops_utilization(
    model: Model,
    samples_per_s: float,
    devices: int,
    device: Device,
    precision: Precision,
    *,
    recompute: Recompute,
    stops_early: bool = False,
) -> float | None:
    """Hardware FLOPs utilization (HFU): MFU with recomputed operations counted twice."""
    use = model_flops_utilization(model, samples_per_s, devices, device, precision)
    again = recomputed_macs(model, recompute, stops_early)
    return None if use is None else use * (1 + again / (training_passes(model) * model.macs))


def recomputed_macs(model: Model, recompute: Recompute, stops_early: bool = False) -> int:
    """Multiply-adds per sample that are recomputed in the backward pass."""
    again = recomputed_layers(model, recompute, stops_early)
    return sum(layer.macs for layer, twice in zip(model.layers, again.tolist(), strict=True) if twice)


@dataclass(frozen=True, slots=True)
class StepParts:
    """Seconds of a step by activity; `recompute_s` is part of `compute_s`."""

    compute_s: float
    recompute_s: float
    communication_s: float  # exposed
    bubble_s: float
    input_s: float
    optimizer_s: float

    @property
    def step_s(self) -> float:
        return self.compute_s + self.communication_s + self.bubble_s + self.input_s + self.optimizer_s


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Peak memory of a device by kind, and its usable memory."""

    bytes_by_kind: Mapping[str, float]
    usable_bytes: float

    @property
    def total_bytes(self) -> float:
        return sum(self.bytes_by_kind.values())


@dataclass(frozen=True, slots=True)
class Anatomy:
    """Step breakdown, memory (None with a profile) and utilization (None if the peak is unknown or nothing is
    recomputed)."""

    parts: StepParts
    memory: DeviceMemory | None
    mfu: float | None
    hfu: float | None

    def as_dict(self) -> dict[str, Any]:
        """The `step`, `memory` and utilization keys of the JSON answer."""
        parts, memory = asdict(self.parts), self.memory
        return {
            "step": {"step_s": self.parts.step_s, **parts},
            "memory": None
            if memory is None
            else {
                "by_kind_bytes": dict(memory.bytes_by_kind),
                "total_bytes": memory.total_bytes,
                "usable_bytes": memory.usable_bytes,
            },
            "model_flop_use": self.mfu,
            "hardware_flop_use": self.hfu,
        }


def anatomy_of(scored: ScoredPlan, cases: Cases) -> Anatomy:
    """Step breakdown, peak memory and utilization of a simulated plan."""
    plan, model = scored.plan, cases.model
    mfu = hfu = None
    device = cases.market.find_machine(plan.machine).device
    if cases.request.profile is None and device.kind == "gpu":
        rate, of = scored.samples_per_s, (plan.workers, device, plan.precision)
        mfu = model_flops_utilization(model, rate, *of)
        if plan.recompute != "none":
            hfu = hardware_flops_utilization(
                model,
                rate,
                *of,
                recompute=plan.recompute,
                stops_early=framework_named(cases.request.framework).stops_early,
            )
    parts = step_breakdown(cases.case(plan).profile, scored.prediction)
    return Anatomy(parts, memory_of(scored, cases), mfu, hfu)


def step_breakdown(profile: Profile, prediction: Prediction) -> StepParts:
    """Seconds of a simulated step by activity, from the roles of its ops."""
    by_role = profile.worker_s_by_role()
    busy_s = prediction.step_s * min(prediction.utilisation[COMPUTATION], 1.0)
    scale = busy_s / max(sum(by_role.values()), 1e-12)  # as simulated: slower workers, corrected predictions
    spent_s = {role: seconds * scale for role, seconds in by_role.items()}
    recompute_s = spent_s[OpRole.RECOMPUTE]
    passes_s = spent_s[OpRole.FORWARD] + spent_s[OpRole.BACKWARD] + spent_s[OpRole.OTHER]
    blocking_s = spent_s[OpRole.COMMUNICATION] + spent_s[OpRole.PARSE]
    return StepParts(
        compute_s=passes_s + recompute_s,
        recompute_s=recompute_s,
        communication_s=blocking_s + prediction.step_s - busy_s - prediction.input_s,
        bubble_s=spent_s[OpRole.BUBBLE],
        input_s=spent_s[OpRole.INPUT] + prediction.input_s,
        optimizer_s=spent_s[OpRole.OPTIMIZER],
    )


def memory_of(scored: ScoredPlan, cases: Cases) -> DeviceMemory | None:
    """Peak memory of one of the plan's devices, in bytes by part; None if unknown."""
    result = cases.feasibility.memory(scored.plan)
    return None if result is None else DeviceMemory(*result)
