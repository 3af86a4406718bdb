"""How much of a device's arithmetic a run uses, and its rate in tokens: what people compare runs by."""

from __future__ import annotations

from planner.hardware import Device
from planner.holding import Checkpointing
from planner.model import Model
from planner.precision import Precision

FLOPS_A_MAC = 2
PASSES = 3  # forward, and twice as much backward; what is computed again does not count


def model_flop_use(
    model: Model, samples_per_s: float, devices: int, device: Device, precision: Precision
) -> float | None:
    """Floating operations that the model needs, over what all devices could do in the precision's format
    (MFU, as PaLM defines it); None where no peak is known."""
    peak = device.flops.get(precision.compute)
    if not peak or not model.macs:
        return None
    return FLOPS_A_MAC * PASSES * model.macs * samples_per_s / (devices * peak)


def hardware_flop_use(
    model: Model,
    samples_per_s: float,
    devices: int,
    device: Device,
    precision: Precision,
    *,
    checkpointing: Checkpointing,
) -> float | None:
    """The same with the operations that checkpointing does twice (HFU)."""
    use = model_flop_use(model, samples_per_s, devices, device, precision)
    return None if use is None else use * (1 + macs_again(model, checkpointing) / (PASSES * model.macs))


def macs_again(model: Model, checkpointing: Checkpointing) -> int:
    """Multiply-adds of a sample's forward pass that are done again: those of blocks, or of attention."""
    if checkpointing == "none":
        return 0
    full = checkpointing == "full"
    return sum(layer.macs for layer in model if (layer.block if full else layer.kind == "attention"))


def tokens_per_s(model: Model, samples_per_s: float) -> float | None:
    """Tokens a second; None for networks that read no sequence."""
    return None if model.sequence_length is None else samples_per_s * model.sequence_length


def usd_per_billion_tokens(model: Model, usd_per_million_samples: float) -> float | None:
    """Of networks over sequences."""
    return None if model.sequence_length is None else usd_per_million_samples * 1e3 / model.sequence_length
