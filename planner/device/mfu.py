"""How much of a device's arithmetic a run uses: what people compare runs by."""

from __future__ import annotations

from planner.device.precision import Precision
from planner.device.recompute import Recompute, recomputed_layers
from planner.hardware import Device
from planner.model import Model
from planner.model.layers import layers_with_gradient, trains_weights

FLOPS_A_MAC = 2
PASSES = 3  # forward, and twice as much backward; recompute does not count


def model_flops_utilization(
    model: Model, samples_per_s: float, devices: int, device: Device, precision: Precision
) -> float | None:
    """Floating operations that the model needs, over what all devices could do in the precision's format
    (MFU, as PaLM defines it); None where no peak is known."""
    peak = device.flops.get(precision.compute)
    if not peak or not model.macs:
        return None
    return FLOPS_A_MAC * passes(model) * model.macs * samples_per_s / (devices * peak)


def passes(model: Model) -> float:
    """Multiply-adds of a training step over those of its forward pass: 3, less where weights are frozen, as
    no gradients of these are computed."""
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
    """The same with the operations that recompute does twice (HFU; `planner.device.recompute`)."""
    use = model_flops_utilization(model, samples_per_s, devices, device, precision)
    again = recomputed_macs(model, recompute, stops_early)
    return None if use is None else use * (1 + again / (passes(model) * model.macs))


def recomputed_macs(model: Model, recompute: Recompute, stops_early: bool = False) -> int:
    """Multiply-adds of a sample's forward pass that are done again."""
    again = recomputed_layers(model, recompute, stops_early)
    return sum(layer.macs for layer, twice in zip(model.layers, again.tolist(), strict=True) if twice)
