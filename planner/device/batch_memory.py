"""The memory that training needs, and the largest batch that fits.

A worker holds the parameters, their gradients, the outputs of layers that the backward pass reads again, the
gradients it works on at one time, and what the runtime takes. Which outputs are read again follows from the
derivatives: those of a convolution and of a fully connected layer with respect to the weights need the input,
batch norm needs its input, ReLU and softmax their output, max pooling and LRN both; adding, concatenating,
averaging and biases need neither, and ReLU overwrites what it is given. Only activations depend on the batch,
so that the need is affine in it.

What is left out: scratch space of convolution algorithms, of which libraries take what is free and do with
less (TensorFlow asks for up to 4 GiB and falls back), and fragmentation, for which `USABLE` leaves room.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from planner.device.precision import FP32, Precision
from planner.errors import BadInput
from planner.hardware import Device, Hardware
from planner.model import BYTES_PER_ELEMENT, Layer, Model
from planner.model.layers import kind_of
from planner.units import format_bytes

Optimizer = Literal["sgd", "momentum", "adam"]

STATE_COPIES = {"sgd": 0, "momentum": 1, "adam": 2}  # of the parameters

# Of a GPU's memory a process gets the rest after ECC and driver: 11,441 of 12,288 MiB on a K80, 16,160 of
# 16,384 on a V100. A CPU machine keeps some for the operating system.
USABLE = {"gpu": 0.93, "cpu": 0.90}
# CUDA context and loaded kernels of a process; the framework and its libraries on a CPU. Both estimated.
RUNTIME_BYTES = {"gpu": 400 * 2**20, "cpu": 500 * 2**20}


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What one worker holds at its peak, in bytes."""

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    working_bytes: float
    runtime_bytes: float

    @property
    def total_bytes(self) -> float:
        return self.fixed_bytes + self.activations_bytes + self.working_bytes

    @property
    def fixed_bytes(self) -> float:
        """What does not depend on the batch."""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + self.runtime_bytes


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Whether a batch fits on a device, how close it comes, and why not in words."""

    need: MemoryNeed
    usable_bytes: float
    largest_batch: int
    reason: str  # empty if it fits

    @property
    def fits(self) -> bool:
        return not self.reason

    @property
    def share(self) -> float:
        """Need over what is usable: 1 is full."""
        return self.need.total_bytes / self.usable_bytes


@dataclass(frozen=True, slots=True)
class Held:
    """What one worker keeps between steps, as shares of the whole model's; `buffers_bytes` come on top. The
    optimizer's state holds the master copy of the parameters too, where the precision has one."""

    parameters: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0
    buffers_bytes: float = 0.0


SERVED = Held(optimizer=0.0)  # parameter servers keep the optimizer's state


def worker_memory(
    model: Model,
    batch: int,
    device_kind: Literal["gpu", "cpu"] = "gpu",
    *,
    optimizer: Optimizer = "momentum",
    held: Held = SERVED,
    precision: Precision = FP32,
) -> MemoryNeed:
    """What a worker needs for a batch, if it holds these shares of the model."""
    if batch < 1:
        raise BadInput(f"batch is {batch}; it must be at least one sample")
    if optimizer not in STATE_COPIES:
        raise BadInput(f"optimizer is {optimizer!r}; allowed: {', '.join(STATE_COPIES)}")
    state_bytes = precision.master_bytes + STATE_COPIES[optimizer] * BYTES_PER_ELEMENT
    return MemoryNeed(
        parameters_bytes=model.parameters * precision.parameter_bytes * held.parameters + held.buffers_bytes,
        gradients_bytes=model.parameters * precision.gradient_bytes * held.gradients,
        optimizer_bytes=model.parameters * state_bytes * held.optimizer,
        activations_bytes=batch * precision.activation_bytes * kept_elements(model),
        working_bytes=batch * precision.activation_bytes * working_elements(model),
        runtime_bytes=RUNTIME_BYTES[device_kind],
    )


def server_memory_bytes(parameter_bytes: float, workers: int, optimizer: Optimizer = "momentum") -> float:
    """What a server needs for its share of the parameters: these, the optimizer's state, and at worst a
    gradient from every worker on its way in. What is sent is read from the parameters themselves."""
    if workers < 1:
        raise BadInput(f"workers is {workers}; a server serves at least one")
    return parameter_bytes * (1 + STATE_COPIES[optimizer] + workers) + RUNTIME_BYTES["cpu"]


def server_misfit(hardware: Hardware, parameter_bytes: float, workers: int) -> str:
    """Why a server's share of the parameters does not fit in the memory of a machine of its own; empty if it
    does, or if nobody knows that memory."""
    if hardware.memory_bytes is None:
        return ""
    need, usable = (
        server_memory_bytes(parameter_bytes, workers),
        hardware.memory_bytes * USABLE["cpu"],
    )
    if need <= usable:
        return ""
    return (
        f"a server with {format_bytes(parameter_bytes)} of parameters for {workers} workers needs "
        f"{format_bytes(need)}, and {hardware.name} has {format_bytes(usable)} to use; take a larger machine "
        "or more servers"
    )


def kept_elements(model: Model) -> int:
    """Elements of one sample that stay in memory from the forward to the backward pass."""
    readers: dict[str, list[Layer]] = {layer.name: [] for layer in model.layers}
    for layer in model.layers:
        for name in layer.inputs:
            readers[name].append(layer)
    return sum(
        layer.output_elements
        for layer in model.layers
        if kind_of(layer).needs_output or any(kind_of(reader).needs_input for reader in readers[layer.name])
    )


def working_elements(model: Model) -> int:
    """Elements of one sample of the gradients held at one time in the backward pass: of the output and of the
    inputs of the layer where these are largest."""
    sizes = {layer.name: layer.output_elements for layer in model.layers}
    return max(
        sizes[layer.name] + (0 if kind_of(layer).in_place else sum(sizes[name] for name in layer.inputs))
        for layer in model.layers
    )


def usable_bytes(device: Device) -> float:
    """What a training process gets of a device's memory."""
    return device.memory_bytes * USABLE[device.kind]


def memory_fit(
    model: Model,
    batch: int,
    hardware: Hardware | Device,
    *,
    optimizer: Optimizer = "momentum",
    held: Held = SERVED,
    precision: Precision = FP32,
) -> MemoryFit:
    """Whether a worker's batch fits on the device of this hardware."""
    device = hardware.device if isinstance(hardware, Hardware) else hardware
    need = worker_memory(model, batch, device.kind, optimizer=optimizer, held=held, precision=precision)
    usable = usable_bytes(device)
    per_sample = (need.activations_bytes + need.working_bytes) / batch
    largest = max(0, math.floor((usable - need.fixed_bytes) / per_sample)) if per_sample else batch
    return MemoryFit(need, usable, largest, _reason(model, batch, device, need, largest))


def largest_batch(
    model: Model,
    hardware: Hardware | Device,
    *,
    precision: Precision = FP32,
) -> int:
    """The largest batch of one worker that fits; 0 if not even one sample does."""
    return memory_fit(model, 1, hardware, precision=precision).largest_batch


def _reason(model: Model, batch: int, device: Device, need: MemoryNeed, largest: int) -> str:
    usable = usable_bytes(device)
    if need.total_bytes <= usable:
        return ""
    remedy = f"the largest batch that fits is {largest}" if largest else "not even one sample fits"
    return (
        f"{model.name} at batch {batch} needs {format_bytes(need.total_bytes)} "
        f"({format_bytes(need.activations_bytes)} of it activations) and a {device.name} has "
        f"{format_bytes(usable)} to use; {remedy}"
    )
