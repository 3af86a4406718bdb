"""The time of a step's computation: the workload of a model's layers, divided by the rates of a device.

A kernel takes  max(F, B) + overlap min(F, B) + fixed,  where F is its arithmetic over the rate of its kernel
kind, B the bytes that it moves over the memory's, less what the last-level cache still holds of the kernel
before, and fixed what starting and draining it costs the device. Kernels are launched one after the other by
the host: where launching takes longer than computing, the host sets the pace (small batches in eager
frameworks).

Rates come from one table with two kinds of rows. `calibrated_rates` is a device in a precision under a
framework, fitted to published runs (`planner.device.rates`). `fitted_rates` is a row of a hardware
file: CPUs, rates of the user's own, and older devices fitted to convolutional networks in single precision
(docs/compute.md). There arithmetic and traffic add up (overlap 1), and gradient kernels are slower than the
forward kernel of as many multiply-adds: with 1.2, rates fitted to training meet published forward-only
throughputs of AlexNet and VGG, too, and backward takes 2.0 times as long as forward for VGG-16 (published:
2.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypedDict, get_args

import numpy as np

from planner.device.memory import stored_tensors
from planner.device.precision import FP32, Precision, find_optimizer, orthogonalization_flops
from planner.device.rates import (
    ATTENTION,
    CONVOLUTIONS,
    EXPERTS,
    MATMUL,
    MEMORY,
    Array,
    Basis,
    Error,
    Framework,
    Kernels,
    Network,
    constants,
    device_rates,
    model_error,
    model_kernels,
    network_class,
    prediction_basis,
)
from planner.errors import BadInput, unknown_name
from planner.hardware import Device, KernelRates
from planner.memoize import memoize
from planner.model import Model
from planner.model.layers import base
from planner.model.layers.base import KERNEL_KINDS

Input = Literal["dali", "files", "synthetic"]
INPUTS: tuple[Input, ...] = get_args(Input)
DEFAULT_FRAMEWORK = "pytorch"
FULLY_CONNECTED = "fc"
# Kinds of a hardware file's rates, and which stands in for each kind of kernels; None: its traffic alone.
FITTED_KEYS: dict[str, str | None] = {
    base.MATMUL: FULLY_CONNECTED,
    base.ATTENTION: FULLY_CONNECTED,
    base.EXPERTS: FULLY_CONNECTED,
    base.CONV1X1: base.CONV1X1,
    base.CONV3X3: base.CONV3X3,
    base.CONV_LONG: base.CONV,
    base.CONV: base.CONV,
    base.GROUPED: base.CONV3X3,
    base.DEPTHWISE: None,
    base.MEMORY: None,
}
FITTED_KINDS = (base.CONV1X1, base.CONV3X3, base.CONV, FULLY_CONNECTED, base.MEMORY)
GRADIENT_SLOWDOWN = 1.2
LEAST_MOVED = 0.3  # of a kernel's traffic, however large the cache: writes, and what others have evicted
HOST_SHARPNESS = 8  # of the maximum of host and device, as both take turns at waiting


class ScriptSettings(TypedDict, total=False):
    """Settings of a training script: its optimizer, the layout of images, the kind of attention."""

    optimizer: str
    channels_last: bool | None
    flash: bool | None


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Seconds of one step on one device, by layer of the model. `launch_s` are the seconds in which the host
    launches the kernels of each layer, forward and backward; the device waits for the host during the share
    `late` of them, which the passes include."""

    forward_s: Array
    backward_s: Array
    optimizer_s: float
    launch_s: tuple[Array, Array]
    late: float = 0.0

    @property
    def step_s(self) -> float:
        """Seconds of the whole step."""
        return float(self.forward_s.sum() + self.backward_s.sum()) + self.optimizer_s


@dataclass(frozen=True, eq=False)
class ComputationTime(StepTimes):
    """Step times by calibrated rates; `waiting_s` is the wait for input."""

    waiting_s: float = 0.0
    basis: Basis = field(kw_only=True)
    network: Network = field(kw_only=True)
    error: Error = field(kw_only=True)

    @property
    def step_s(self) -> float:
        """Seconds of the whole step, with the wait for input."""
        return super().step_s + self.waiting_s


@dataclass(frozen=True, eq=False)
class RateRow:
    """A row of the rate table: one device, precision and framework. Arrays are by kernel kind."""

    flops: Array
    bytes_per_s: float
    element_bytes: float  # of activations and weights
    fixed_s: float  # of a kernel, whatever its size
    update_bytes: float  # that the optimizer moves for one parameter
    update_launches: float  # of the optimizer, for one tensor
    traffic: Array | float = 1.0  # factor on the bytes that kernels move
    gradient_slowdown: float = 1.0  # of the arithmetic of backward kernels
    cache_bytes: float = 0.0
    overlap: float = 1.0  # what the smaller of arithmetic and traffic adds to the larger
    small_rows: float = 0.0  # rows that a matrix product pays for beside its own
    small_sides: float = 0.0  # the same for its columns and its depth
    floor_s: float = 0.0  # of the host, to launch a kernel
    summed_bytes: float = 0.0  # of a parameter, to add the gradients of a micro-batch to those before it
    time: float = 1.0  # factor on all


def kernel_s(
    flop_s: Array, move_s: Array, cache_s: Array | float, fixed_s: Array | float, overlap: float
) -> Array:
    """Seconds per kernel, from the seconds of its arithmetic and memory traffic, less what caches save."""
    moved_s = np.maximum(move_s - cache_s, LEAST_MOVED * move_s)
    both = np.maximum(flop_s, moved_s) + overlap * np.minimum(flop_s, moved_s)
    return np.asarray(both + fixed_s)


def smooth_max(device_s: Array | float, host_s: Array | float) -> Array:
    """Seconds of a step, as a smooth maximum of device time and host time."""
    n = HOST_SHARPNESS
    return np.asarray((device_s**n + host_s**n) ** (1 / n))


def update_bytes(precision: Precision, optimizer: str) -> float:
    """Bytes read and written to update one parameter."""
    if optimizer == "none":
        return 0
    copies = precision.parameter_bytes + precision.gradient_bytes if precision.master_bytes else 0
    return find_optimizer(optimizer).update_bytes + copies


def find_framework(name: str | None = None) -> Framework:
    """Factors of the framework of this name, by default of PyTorch."""
    name = name or DEFAULT_FRAMEWORK
    frameworks = constants().frameworks
    if name not in frameworks:
        raise unknown_name("framework", name, frameworks, hint=f"one of {', '.join(sorted(frameworks))}")
    return frameworks[name]


def calibrated_rates(
    device: Device, precision: Precision, framework: str, *, optimizer: str, channels_last: bool | None
) -> RateRow:
    """Rates of a device in a precision under a framework; `channels_last` overrides its image layout."""
    figures, tier = constants(), find_framework(framework)
    rates = device_rates(device, precision, figures)
    kinds = np.arange(len(KERNEL_KINDS))
    last = tier.channels_last if channels_last is None else channels_last
    traffic = np.where(kinds == MEMORY, tier.traffic, 1.0)
    if has_layout_conversion(precision, last):
        traffic = traffic + np.where(np.isin(kinds, CONVOLUTIONS), figures.layout_passes, 0.0)
    flops = rates.flops * np.where(np.isin(kinds, (MATMUL, EXPERTS)), tier.matmul, 1.0)
    return RateRow(
        flops=flops * np.where(kinds == ATTENTION, tier.attention, 1.0),
        bytes_per_s=rates.memory_bytes_per_s,
        element_bytes=precision.activation_bytes,
        fixed_s=tier.fixed_s * rates.fixed,
        update_bytes=update_bytes(precision, optimizer),
        update_launches=0.0 if optimizer == "none" else figures.update_launches,
        traffic=traffic,
        cache_bytes=rates.cache_bytes,
        overlap=figures.overlap,
        small_rows=figures.small_rows,
        small_sides=figures.small_sides,
        floor_s=tier.floor_s,
        summed_bytes=tier.summed_bytes.get(precision.compute, 0.0),
        time=tier.time,
    )


def fitted_rates(kernels: KernelRates, *, training: bool = True) -> RateRow:
    """Single-precision rates of a device, from the kernel rates of a hardware file."""
    missing = [kind for kind in FITTED_KINDS if kind not in kernels.rates]
    if missing:
        raise BadInput(f"kernel rates lack {', '.join(missing)}; they need {', '.join(FITTED_KINDS)}")
    flops = [2 * kernels.rates[key] if (key := FITTED_KEYS[kind]) else np.inf for kind in KERNEL_KINDS]
    return RateRow(
        flops=np.array(flops),
        bytes_per_s=kernels.rates[base.MEMORY],
        element_bytes=FP32.activation_bytes,
        fixed_s=kernels.overhead_s,
        update_bytes=update_bytes(FP32, "sgd") if training else 0.0,
        update_launches=1.0 if training else 0.0,
        gradient_slowdown=GRADIENT_SLOWDOWN,
    )


@dataclass(frozen=True, eq=False)
class _Coefficients:
    """A model at one row of rates, without the batch."""

    kernels: Kernels
    rates: RateRow
    flop_s: Array  # of a sample, by kernel
    flop_step_s: Array
    move_s: Array
    move_step_s: Array
    update_s: float
    summed_s: Array  # of each layer
    dequantize_s: Array  # of each layer and pass
    network: Network


def _coefficients(
    model: Model, rates: RateRow, flash: bool | None = None, training: bool = True
) -> _Coefficients:
    """Seconds of each kernel per sample and per step: its work divided by the rate of its kernel kind."""
    kernels = model_kernels(model, flash, training)
    flops, traffic = rates.flops[kernels.kind], rates.traffic
    factor = traffic if isinstance(traffic, float) else traffic[kernels.kind]
    slowdown = np.where(kernels.backward, rates.gradient_slowdown, 1.0)
    second_a_byte = rates.element_bytes / rates.bytes_per_s
    launches = kernels.tensors * rates.update_launches
    update_s = kernels.parameters * rates.update_bytes / rates.bytes_per_s + launches * rates.fixed_s
    if model.training is not None and model.training.optimizer is not None:
        hidden, _ = stored_tensors(model)
        row = find_optimizer(model.training.optimizer)
        update_s += orthogonalization_flops(row, hidden) / rates.flops[MATMUL]
    return _Coefficients(
        kernels,
        rates,
        flop_s=(kernels.flops + rates.small_sides * kernels.edge_flops) / flops * slowdown,
        flop_step_s=kernels.row_flops * rates.small_rows / flops,
        move_s=kernels.moved * factor * second_a_byte,
        move_step_s=kernels.weights * factor * second_a_byte,
        update_s=update_s,
        summed_s=_trained_parameters(model) * rates.summed_bytes / rates.bytes_per_s,
        dequantize_s=_dequantized_bytes(model) / rates.bytes_per_s,
        network=network_class(model),
    )


@memoize(most_bytes=16 << 20, bytes_of=lambda of: 4 * of.flop_s.nbytes + of.summed_s.nbytes)
def _calibrated_coefficients(
    model: Model,
    device: Device,
    precision: Precision,
    framework: str,
    *,
    optimizer: str,
    channels_last: bool | None,
    flash: bool | None,
) -> _Coefficients:
    """Coefficients by calibrated rates; cached."""
    rates = calibrated_rates(device, precision, framework, optimizer=optimizer, channels_last=channels_last)
    return _coefficients(model, rates, flash)


def _layer_times(coefficients: _Coefficients, batch: int) -> StepTimes:
    """Seconds of both passes by layer, and of the optimizer, for a batch."""
    kernels, rates = coefficients.kernels, coefficients.rates
    busy_s = kernels.launches * kernel_s(
        coefficients.flop_s * batch + coefficients.flop_step_s,
        coefficients.move_s * batch + coefficients.move_step_s,
        rates.cache_bytes / rates.bytes_per_s,
        rates.fixed_s * kernels.fixed,
        rates.overlap,
    )
    # Passes and the update wait for their own launches each: shards divide the update alone, and a faster
    # device never makes a step longer.
    optimizer_s, late = coefficients.update_s, 0.0
    launch_s = kernels.launches * kernels.host * rates.floor_s
    if rates.floor_s:
        device_s, host_s = busy_s.sum(), launch_s.sum()
        late = float((smooth_max(device_s, host_s) - device_s) / max(host_s, rates.floor_s))
        busy_s = busy_s + late * launch_s
        updates = kernels.tensors * rates.update_launches
        optimizer_s = float(smooth_max(coefficients.update_s, updates * rates.floor_s))
    layers = kernels.layers
    split = np.where(kernels.backward, layers, 0) + kernels.layer

    def by_pass(seconds: Array) -> tuple[Array, Array]:
        """Sums of kernel seconds by layer, for the forward and for the backward pass."""
        both = np.bincount(split, seconds * rates.time, 2 * layers).astype(np.float64)
        return both[:layers], both[layers:]

    forward_s, backward_s = by_pass(busy_s)
    backward_s = backward_s + coefficients.summed_s * rates.time
    if coefficients.dequantize_s.any():
        forward_s = forward_s + coefficients.dequantize_s
        backward_s = backward_s + np.where(backward_s > 0, coefficients.dequantize_s, 0.0)
    forward_s.flags.writeable = backward_s.flags.writeable = False
    return StepTimes(forward_s, backward_s, optimizer_s * rates.time, by_pass(launch_s), late)


def step_times(model: Model, batch: int, kernels: KernelRates, *, training: bool = True) -> StepTimes:
    """Seconds of a step's passes by layer and of its optimizer, from a hardware file's kernel rates."""
    rates = fitted_rates(kernels, training=training)
    return _layer_times(_coefficients(model, rates, training=training), batch)


def _trained_parameters(model: Model) -> Array:
    """Number of trained parameters in each layer."""
    return np.array(
        [sum(tensor.trained_elements for tensor in layer.tensors) for layer in model.layers], float
    )


def _dequantized_bytes(model: Model) -> Array:
    """Memory traffic in bytes, per pass, for dequantizing each layer's weights once."""
    each = 0.0 if model.training is None else model.training.dequantize_bytes
    narrow = [
        sum(tensor.elements for tensor in layer.tensors if (tensor.frozen_bits or 16) < 16)
        for layer in model.layers
    ]
    return each * np.array(narrow, np.float64)


def has_layout_conversion(precision: Precision, channels_last: bool) -> bool:
    """Whether convolutions convert the layout of their operands. 16-bit tensor cores read images with
    channels last, fp32 kernels with channels first."""
    return channels_last != (precision.compute not in ("fp32", "tf32")) and precision.compute != "tf32"


@memoize(most_bytes=16 << 20, bytes_of=lambda of: of.forward_s.nbytes + of.backward_s.nbytes)
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
    """Seconds per layer of the forward and backward pass, seconds of the optimizer, and their error;
    cached. `input`: `dali` and `synthetic` never make the device wait; eight processes of the host
    decode `files`. `channels_last`: the layout of images, by default the framework's. `flash` overrides
    the model's kind of attention."""
    if batch < 1:
        raise BadInput(f"batch is {batch}; a step needs at least 1")
    if model.training is not None and model.training.optimizer is not None:
        optimizer = model.training.optimizer
    if input not in INPUTS:
        raise unknown_name("input", input, INPUTS)
    of = _calibrated_coefficients(
        model, device, precision, framework, optimizer=optimizer, channels_last=channels_last, flash=flash
    )
    times = _layer_times(of, batch)
    decodes = input == "files" and model.sequence_length is None
    waiting_s = max(batch / constants().loader_images_per_s - times.step_s, 0.0) if decodes else 0.0
    basis = prediction_basis(device, precision, of.network, constants())
    return ComputationTime(
        times.forward_s,
        times.backward_s,
        times.optimizer_s,
        times.launch_s,
        times.late,
        waiting_s,
        basis=basis,
        network=of.network,
        error=model_error(basis, of.network, experts=model.has_experts),
    )
