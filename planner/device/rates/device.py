"""How fast a device computes in a number format, and on what basis that is known.

What large matrix products reach (measured, else the share of the dense peak that is usual) times the share
that a kernel kind reaches of it (fitted over all devices) times what the device's family was fitted to beside
the mean, where there are rows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.device.precision import Precision
from planner.device.rates.constants import DeviceFactors, RateConstants
from planner.device.rates.kernels import ATTENTION, MATMUL, MEMORY, Array, Network
from planner.errors import BadInput
from planner.hardware import Device
from planner.model.layers import KERNEL_KINDS

# From the surest on. recorded: a profile of the run itself. fitted: published runs of this device, format and
# kind of network. new kind: of this device and format, but another kind of network. matmul: the device's
# matrix products were measured. peaks: nothing but published peaks is known of it. other vendor: any of the
# four before, but with another vendor's libraries, whose releases differ more than its devices do.
Basis = Literal["recorded", "fitted", "new kind", "matmul", "peaks", "other vendor"]
MOST_FITTED = ("nvidia", "")  # vendors whose libraries the shares are those of; "": not said

CLASS = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half", "fp8": "fp8"}
_UNFITTED = DeviceFactors()
FASTEST_GDDR_BYTES_PER_S = 1.85e12  # of any board so far: what is faster and says no kind is stacked
ON_BOARDS = (MATMUL, ATTENTION)  # kernels of tensor cores that graphics boards do not sustain as well


@dataclass(frozen=True, eq=False)
class DeviceRates:
    """`flops` by kernel kind; `matmul` says where they come from, in words."""

    flops: Array
    memory_bytes_per_s: float
    cache_bytes: float
    fixed: float  # factor on the cost of a kernel whatever its size
    matmul: str


def check_format(device: Device, precision: Precision) -> None:
    """Refuse a precision that the device has no units for."""
    if precision.compute not in device.flops:
        raise BadInput(
            f"{device.name} does not compute in {precision.compute}; it has {', '.join(device.formats)}"
        )


def is_old(device: Device) -> bool:
    """Before Volta: caches of such devices hide less of the memory's latency."""
    return device.year is not None and device.year < 2017


def is_graphics_board(device: Device) -> bool:
    """Boards with the memory of graphics cards: power and on-chip memory hold a long run of products below
    what one large product reaches. Where the kind of memory is not said, its speed tells."""
    if device.memory_kind is not None:
        return device.memory_kind == "gddr"
    return (device.memory_bytes_per_s or 0.0) < FASTEST_GDDR_BYTES_PER_S


def family_of(device: Device, constants: RateConstants) -> str:
    return constants.families.get(device.name, device.name)


def basis_of(device: Device, precision: Precision, network: Network, constants: RateConstants) -> Basis:
    rows = constants.devices.get(family_of(device, constants), _UNFITTED).rows
    return basis_for(device, precision, network, rows.get(CLASS[precision.compute], {}))


def basis_for(device: Device, precision: Precision, network: Network, rows: Mapping[str, int]) -> Basis:
    """`rows`: of the fit, for the device's family and the class of the format, by kind of network."""
    if device.vendor not in MOST_FITTED:
        return "other vendor"
    if rows.get(network):
        return "fitted"
    if rows:
        return "new kind"
    return "matmul" if precision.compute in device.matmul_flops else "peaks"


def device_rates(device: Device, precision: Precision, constants: RateConstants) -> DeviceRates:
    """The rates of a device in a precision."""
    check_format(device, precision)
    if device.memory_bytes_per_s is None:
        raise BadInput(f"the memory bandwidth of {device.name} is unknown; give its memory_gbyte_per_s")
    family = family_of(device, constants)
    factors = constants.devices.get(family, _UNFITTED)
    flops = _flops(device, precision.compute, constants, factors)
    if precision.compute == "fp8":
        rest = "bf16" if "bf16" in device.flops else "fp16"
        wide = _flops(device, rest, constants, factors)
        wide[MATMUL] = flops[MATMUL]  # products alone are of eight bits
        flops = wide
    cache = constants.cache_bytes.get(device.name, constants.cache_bytes.get(family, 0.0))
    return DeviceRates(
        flops,
        _memory_bytes_per_s(device.memory_bytes_per_s, device, constants) * factors.memory,
        cache,
        factors.fixed,
        f"measured: {device.matmul_source}" if precision.compute in device.matmul_flops else "of the peak",
    )


def matmul_flops(device: Device, format: str, constants: RateConstants) -> float:
    """What large matrix products reach. Both kinds of sixteen bits run on the same units: the one that was
    measured stands for the other, unless their peaks differ."""
    measured = device.matmul_flops.get(format)
    other = {"fp16": "bf16", "bf16": "fp16"}.get(format)
    if measured is None and other and device.flops.get(other) == device.flops[format]:
        measured = device.matmul_flops.get(other)
    return measured or device.flops[format] * constants.matmul_share[format]


def _memory_bytes_per_s(published: float, device: Device, constants: RateConstants) -> float:
    """What kernels that only move data reach: the faster a memory, the smaller its share, as so many bytes
    must be on their way at once."""
    share = constants.memory_share * (constants.old_memory_share if is_old(device) else 1.0)
    return published * share / (1 + published / constants.fast_memory_bytes_per_s)


def _flops(device: Device, format: str, constants: RateConstants, factors: DeviceFactors) -> Array:
    # Kernels of a network are short: the faster a device, the more of their time is filling and draining it.
    base = matmul_flops(device, format, constants)
    base = base / (1 + base / constants.fast_flops)
    shares = constants.shares[CLASS[format]]
    own: Mapping[str, float] = factors.shares.get(CLASS[format], {})
    rates = np.array([base * shares.get(kind, 1.0) * own.get(kind, 1.0) for kind in KERNEL_KINDS])
    if CLASS[format] != "fp32" and is_graphics_board(device):
        rates[list(ON_BOARDS)] *= constants.board_share
    rates[MEMORY] = np.inf  # such kernels do no multiplications
    return rates
