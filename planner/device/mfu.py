"""How much of a device's arithmetic a run uses: what people compare runs by."""

from __future__ import annotations

from planner.device.precision import Precision
from planner.device.recompute import Recompute, recomputed_layers
from planner.hardware import Device
from planner.model import Model

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
    return FLOPS_A_MAC * PASSES * model.macs * samples_per_s / (devices * peak)


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
    return None if use is None else use * (1 + again / (PASSES * model.macs))


def recomputed_macs(model: Model, recompute: Recompute, stops_early: bool = False) -> int:
    """Multiply-adds of a sample's forward pass that are done again."""
    again = recomputed_layers(model, recompute, stops_early)
    return sum(layer.macs for layer, twice in zip(model.layers, again.tolist(), strict=True) if twice)
