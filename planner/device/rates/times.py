"""The time of a step's computation: kernels of a model at the rates of a device under a framework.

A kernel takes  max(F, B) + overlap min(F, B) + fixed,  where F are its multiply-adds over the rate of its
kind, B the bytes that it moves over the memory's, less what the last-level cache still holds of the kernel
before, and fixed is what starting and draining it costs the device. Kernels are launched one after the other
by the host: where launching takes longer than computing, the host sets the pace (small batches in eager
frameworks).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from planner.device.precision import Precision
from planner.device.rates.constants import Framework, constants
from planner.device.rates.device import Basis, basis_of, device_rates
from planner.device.rates.error import Error, error_of
from planner.device.rates.kernels import (
    ATTENTION,
    CONVOLUTIONS,
    MATMUL,
    MEMORY,
    Array,
    Flags,
    Ints,
    Network,
    kernels_of,
    network_of,
)
from planner.errors import BadInput, unknown_name
from planner.files.byte_cache import cached_by_bytes
from planner.hardware import Device
from planner.model import Model

Input = Literal["dali", "files", "synthetic"]
INPUTS: tuple[Input, ...] = get_args(Input)
Optimizer = Literal["none", "sgd", "momentum", "adam"]
DEFAULT_FRAMEWORK = "pytorch"
# Bytes that updating one parameter reads and writes in single precision: weights and gradients, each state.
_UPDATE_BYTES = {"none": 0, "sgd": 12, "momentum": 20, "adam": 28}
LEAST_MOVED = 0.3  # of a kernel's traffic, however large the cache: writes, and what others have evicted
HOST_SHARPNESS = 8  # of the maximum of host and device, as both take turns at waiting


@dataclass(frozen=True, eq=False)
class ComputationTime:
    """Seconds of one step on one device, by layer of the model; `waiting_s` is what the input adds."""

    forward_s: Array
    backward_s: Array
    optimizer_s: float
    waiting_s: float
    basis: Basis
    network: Network
    error: Error

    @property
    def step_s(self) -> float:
        return float(self.forward_s.sum() + self.backward_s.sum()) + self.optimizer_s + self.waiting_s


def kernel_s(
    flop_s: Array, move_s: Array, cache_s: Array | float, fixed_s: Array | float, overlap: float
) -> Array:
    """Seconds of kernels. `flop_s`: arithmetic alone; `move_s`: traffic alone; `cache_s`: as much of it as
    the cache holds."""
    moved_s = np.maximum(move_s - cache_s, LEAST_MOVED * move_s)
    both = np.maximum(flop_s, moved_s) + overlap * np.minimum(flop_s, moved_s)
    return np.asarray(both + fixed_s)


def step_of(device_s: Array | float, host_s: Array | float) -> Array:
    """Kernels that take the device, and whose launches take the host, so long."""
    n = HOST_SHARPNESS
    return np.asarray((device_s**n + host_s**n) ** (1 / n))


def update_bytes(precision: Precision, optimizer: str) -> float:
    """Bytes that the update of one parameter moves."""
    if optimizer not in _UPDATE_BYTES:
        raise unknown_name("optimizer", optimizer, _UPDATE_BYTES)
    copies = precision.parameter_bytes + precision.gradient_bytes if precision.master_bytes else 0
    return _UPDATE_BYTES[optimizer] + (copies if optimizer != "none" else 0)


def framework_named(name: str | None = None) -> Framework:
    """By its name; without one the usual."""
    name = name or DEFAULT_FRAMEWORK
    frameworks = constants().frameworks
    if name not in frameworks:
        raise unknown_name("framework", name, frameworks, hint=f"one of {', '.join(sorted(frameworks))}")
    return frameworks[name]


@dataclass(frozen=True, eq=False)
class _Coefficients:
    """All that does not depend on the batch: seconds a sample, and a step, of each kernel."""

    layers: int
    layer: Ints
    backward: Flags
    flop_s: Array
    flop_step_s: Array
    move_s: Array
    move_step_s: Array
    cache_s: float
    fixed_s: float
    launches: Array
    floor_s: float
    update_s: float
    update_launches: float
    summed_s: Array  # of each layer
    time: float
    basis: Basis
    network: Network
    error: Error


def _coefficients_bytes(of: _Coefficients) -> int:
    return 7 * of.flop_s.nbytes  # as many arrays of that length


@cached_by_bytes(16 << 20, _coefficients_bytes)
def _coefficients(
    model: Model,
    device: Device,
    precision: Precision,
    framework: str,
    *,
    optimizer: str,
    channels_last: bool | None,
    flash: bool | None,
) -> _Coefficients:
    figures = constants()
    tier, kernels = framework_named(framework), kernels_of(model, flash)
    rates = device_rates(device, precision, figures)
    last = tier.channels_last if channels_last is None else channels_last
    traffic = np.where(kernels.kind == MEMORY, tier.traffic, 1.0)
    if needs_conversion(precision, last):
        traffic = traffic + np.where(np.isin(kernels.kind, CONVOLUTIONS), figures.layout_passes, 0.0)
    flops = rates.flops[kernels.kind]
    flops = flops * np.where(kernels.kind == MATMUL, tier.matmul, 1.0)
    flops = flops * np.where(kernels.kind == ATTENTION, tier.attention, 1.0)
    second_a_byte = precision.activation_bytes / rates.memory_bytes_per_s
    fixed_s = tier.fixed_s * rates.fixed
    update_launches = 0.0 if optimizer == "none" else kernels.tensors * figures.update_launches
    network = network_of(model)
    return _Coefficients(
        kernels.layers,
        kernels.layer,
        kernels.backward,
        (kernels.flops + figures.small_sides * kernels.edge_flops) / flops,
        kernels.row_flops * figures.small_rows / flops,
        kernels.moved * traffic * second_a_byte,
        kernels.weights * traffic * second_a_byte,
        rates.cache_bytes / rates.memory_bytes_per_s,
        fixed_s,
        kernels.launches,
        tier.floor_s,
        kernels.parameters * update_bytes(precision, optimizer) / rates.memory_bytes_per_s
        + update_launches * fixed_s,
        update_launches,
        _elements(model) * tier.summed_bytes.get(precision.compute, 0.0) / rates.memory_bytes_per_s,
        tier.time,
        basis_of(device, precision, network, figures),
        network,
        error_of(basis_of(device, precision, network, figures), network),
    )


@lru_cache(maxsize=256)
def _elements(model: Model) -> Array:
    """Parameters of each layer."""
    return np.array([sum(tensor.elements for tensor in layer.tensors) for layer in model.layers], np.float64)


def needs_conversion(precision: Precision, channels_last: bool) -> bool:
    """Whether convolutions convert their operands: tensor cores of sixteen bits read images with channels
    last, kernels of single precision read them with channels first."""
    return channels_last != (precision.compute not in ("fp32", "tf32")) and precision.compute != "tf32"


def _time_bytes(of: ComputationTime) -> int:
    return of.forward_s.nbytes + of.backward_s.nbytes


@cached_by_bytes(16 << 20, _time_bytes)
def computation_s(
    model: Model,
    batch: int,
    device: Device,
    precision: Precision,
    framework: str = DEFAULT_FRAMEWORK,
    *,
    optimizer: str = "momentum",
    input: Input = "dali",
    channels_last: bool | None = None,
    flash: bool | None = None,
) -> ComputationTime:
    """Forward and backward seconds of each layer, the optimizer's, and how far off they may be; cached by
    value. `input`: `dali` and `synthetic` never make the device wait, `files` are decoded by eight processes
    of the host. `channels_last`: the layout of images; what the framework does by default if not given.
    `flash` overrides what the model says of attention."""
    if batch < 1:
        raise BadInput(f"batch is {batch}; a step needs at least 1")
    if input not in INPUTS:
        raise unknown_name("input", input, INPUTS)
    of = _coefficients(
        model, device, precision, framework, optimizer=optimizer, channels_last=channels_last, flash=flash
    )
    busy_s = of.launches * kernel_s(
        of.flop_s * batch + of.flop_step_s,
        of.move_s * batch + of.move_step_s,
        of.cache_s,
        of.fixed_s,
        constants().overlap,
    )
    # Passes and the update wait for their own launches each: shards divide the update alone, and a faster
    # device never makes a step longer.
    device_s, launches = busy_s.sum(), of.launches.sum()
    late_s = (step_of(device_s, launches * of.floor_s) - device_s) / max(launches, 1.0)  # a launch
    times_s = (busy_s + late_s * of.launches) * of.time
    split = np.where(of.backward, of.layers, 0) + of.layer
    by_layer: Array = np.asarray(np.bincount(split, times_s, 2 * of.layers), np.float64)
    optimizer_s = float(step_of(of.update_s, of.update_launches * of.floor_s)) * of.time
    waiting_s = 0.0
    if input == "files" and of.network == "cnn":
        computed_s = float(times_s.sum()) + optimizer_s
        waiting_s = _with_loader(computed_s, batch / constants().loader_images_per_s) - computed_s
    forward_s, backward_s = by_layer[: of.layers], by_layer[of.layers :] + of.summed_s * of.time
    forward_s.flags.writeable = backward_s.flags.writeable = False
    return ComputationTime(forward_s, backward_s, optimizer_s, waiting_s, of.basis, of.network, of.error)


def _with_loader(computed_s: float, loaded_s: float) -> float:
    """Both run beside each other and seldom keep the same pace: a little more than the longer of the two."""
    return float((computed_s**3 + loaded_s**3) ** (1 / 3))
