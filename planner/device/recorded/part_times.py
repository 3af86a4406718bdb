"""How long the parts of a recorded op take on a device, by the rates of its kind, size and number format.

Only ratios of these times are used: of two devices, or of two batches on one. Kernels shorter than `KERNEL_S`
are overhead (`planner.device.recorded.importers.leaves`), so that is what a kernel costs whatever it does.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np

from planner.device.precision import PRECISIONS
from planner.device.rates.constants import constants
from planner.device.rates.device import DeviceRates, device_rates
from planner.device.rates.times import kernel_s
from planner.hardware import Device
from planner.model.layers import KERNEL_KINDS
from planner.simulator.step.recorded import OVERHEAD, OpPart

KERNEL_S = 5e-6


@lru_cache(maxsize=256)
def _rates(device: Device, format: str, own: bool) -> DeviceRates:
    known = "fp32" if format == "tf32" and "tf32" not in device.flops else format
    figures = constants() if own else msgspec.structs.replace(constants(), devices={})
    return device_rates(device, PRECISIONS[known], figures)


def part_s(part: OpPart, device: Device, grown: float = 1.0, *, own: bool = True) -> float:
    """Seconds of a part on a device, with the batch `grown` times. Not `own`: as the mean of all devices
    would do it, without what published runs of this one have shown beside that."""
    if part.kind == OVERHEAD:
        return KERNEL_S
    figures, rates, launches = constants(), _rates(device, part.format, own), max(part.launches, 1.0)
    flops = (part.flops + figures.small_sides * part.edge_flops) * grown
    flops += part.row_flops * figures.small_rows
    flop_s = flops / launches / float(rates.flops[KERNEL_KINDS.index(part.kind)])
    move_s = (part.moved_bytes * grown + part.weight_bytes) / launches / rates.memory_bytes_per_s
    cache_s = rates.cache_bytes / rates.memory_bytes_per_s
    one = kernel_s(np.array([flop_s]), np.array([move_s]), cache_s, KERNEL_S * rates.fixed, figures.overlap)
    return float(one[0]) * launches
