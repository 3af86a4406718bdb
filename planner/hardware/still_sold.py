"""What to rent instead of hardware that is no longer sold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from planner.hardware import Hardware, devices_of


@dataclass(frozen=True, slots=True)
class Nearest:
    """A machine still sold, and how it compares with the one that is not."""

    hardware: Hardware
    reason: str


def nearest_current(hardware: Hardware, candidates: Iterable[Hardware] | None = None) -> Nearest | None:
    """The machine still sold that is most like `hardware` and not less: its devices are of the same kind,
    each has at least as much memory, and together they have at least the peak and the memory.

    Most alike is the least sum of |log ratio| over peak, memory and memory bandwidth of a device, the number
    of devices and of vCPUs; a higher price counts too, a lower one does not (nobody minds). A figure that
    either machine lacks does not count. Another provider's machine is named only where its own has none. None
    if nothing sold is as large.
    """
    if candidates is None:
        from planner.hardware.catalog import hardware_names, load_hardware

        candidates = (load_hardware(name) for name in hardware_names())
    best = min(
        (other for other in candidates if _can_replace(other, hardware)),
        key=lambda other: (other.provider != hardware.provider, _distance(hardware, other), other.name),
        default=None,
    )
    return Nearest(best, _reason(hardware, best)) if best else None


def _can_replace(other: Hardware, hardware: Hardware) -> bool:
    return (
        other.standing == "rentable"
        and other.price.on_demand_usd_per_hour is not None
        and other.name != hardware.name
        and other.device.kind == hardware.device.kind
        and other.device.memory_bytes >= hardware.device.memory_bytes
        and other.devices_memory_bytes >= hardware.devices_memory_bytes
        and other.device_count * other.device.fp32_flops >= hardware.device_count * hardware.device.fp32_flops
    )


def _ratios(hardware: Hardware, other: Hardware) -> dict[str, float]:
    """What the other has for each unit that this one has, of the figures that both have."""
    pairs = {
        "FP32 peak": (hardware.device.fp32_flops, other.device.fp32_flops),
        "memory": (hardware.device.memory_bytes, other.device.memory_bytes),
        "memory bandwidth": (hardware.device.memory_bytes_per_s, other.device.memory_bytes_per_s),
        "devices": (hardware.device_count, other.device_count),
        "vCPUs": (hardware.vcpus, other.vcpus),
        "price": (hardware.price.on_demand_usd_per_hour, other.price.on_demand_usd_per_hour),
    }
    return {name: theirs / ours for name, (ours, theirs) in pairs.items() if ours and theirs}


def _distance(hardware: Hardware, other: Hardware) -> float:
    ratios = _ratios(hardware, other)
    costlier = max(0.0, math.log(ratios.pop("price", 1.0)))
    return costlier + sum(abs(math.log(ratio)) for ratio in ratios.values())


def _reason(hardware: Hardware, other: Hardware) -> str:
    ratios = _ratios(hardware, other)
    price = ratios.get("price")
    device = ("FP32 peak", "memory", "memory bandwidth")
    told = [f"{ratios[name]:.2g}x the {name}" for name in device if abs(ratios.get(name, 1) - 1) > 0.02]
    each = f": each with {', '.join(told)}" if told else ""
    return f"{devices_of(other)} for {devices_of(hardware)}{each}" + (
        f"; {price:.2g}x the price" if price else ""
    )
