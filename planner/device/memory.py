"""The memory footprint of training on one device, for every network.

    footprint(model, BF16, optimizer="adam", recompute="full").peak(8, Shares(optimizer=1 / 8)).total_bytes

A `Footprint` is computed once for a model (or a shard of one), a precision, an optimizer and a recompute
mode. It is affine in the batch: parameters, gradients and optimizer state once, saved activations and
workspace per sample. `Shares` scale it to a plan, so that a search needs one footprint for thousands of
plans.

Activations are those of `planner.device.activations`.

What the model's training method offloads (`planner.device.offload`) lives in host memory: optimizer state
with the master copy and fp32 gradients; parameters, of which the units at work are on the device; saved
activations, of which those of two blocks are.

Precision: `parameter_bytes` and `gradient_bytes` of each parameter, and with the optimizer its master copy.
`autocast`, as PyTorch does it, keeps parameters and gradients in fp32 with a narrow copy of the parameters
beside them, computes norms in fp32 and makes a narrow copy for each layer that reads one. Where the optimizer
state is sharded (ZeRO, FSDP), each device converts its shard of narrow gradients to fp32 before the update.

The peak is taken over moments of the backward pass, which frees what it is through with: logits and their
gradients are gone before a block is recomputed; gradients of parameters exist when the loss is differentiated
only where they accumulate; those in fp32 exist while the optimizer steps. FSDP's shards are the master copy.

Caching allocators fragment: `FRAGMENTATION` is what they take of a device with room to spare. Before they
give up they return their cache, so that a run of sequences fits with `LEAST_FRAGMENTATION`; convolutions take
what would be returned as their workspaces. The framework takes its context and libraries, and NCCL buffers
for each process group. These constants come from published peaks and batches, each source judged by what the
others chose (`planner validate --suite memory`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from planner.device.activations import (
    NOTHING,
    RECOMPUTE_MODES,
    AliveActivations,
    Recompute,
    saved_activations,
)
from planner.device.precision import Precision, find_optimizer, optimizer_state_bytes
from planner.errors import BadInput
from planner.hardware import Device, Hardware
from planner.memoize import memoize
from planner.model import MethodSettings, Model, Tensor, group_into_units
from planner.model.layers import replace_loss

DeviceKind = Literal["gpu", "cpu"]

FRAGMENTATION = 1.12
LEAST_FRAGMENTATION = 1.05
FRAMEWORK_BYTES = {"gpu": 1.2 * 2**30, "cpu": 500 * 2**20}  # context, kernels and libraries of one process
COMMUNICATOR_BYTES = 1.5 * 2**30  # NCCL buffers of one process group
# Of what a device has: the rest goes to the driver and other processes, on a CPU to the operating system.
USABLE = {"gpu": 0.97, "cpu": 0.90}
OFFLOADED = ("optimizer", "parameters", "activations")  # parts that may live in host memory
USABLE_HOST = 0.85  # of a machine's memory: the rest is the system's and the input pipeline's
RECOMPUTED = "one recomputed block"
_FP32_BYTES = 4
EIGHT_BIT_BYTES = 1 + 4 / 128  # of an activation saved in eight bits, with a scale for each block of 128


@dataclass(frozen=True, slots=True)
class Shares:
    """Fractions of a model's footprint that one device stores under a parallel strategy. `in_flight`:
    micro-batches of a pipeline whose activations are alive at once. `buffers_bytes` of gradient buckets or
    gathered units come on top, whatever the shares. `communicators` are process groups of devices;
    `accumulates`: gradients of earlier micro-batches exist when a backward pass begins."""

    parameters: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0
    activations: float = 1.0
    in_flight: float = 1.0
    buffers_bytes: float = 0.0
    communicators: int = 0
    accumulates: bool = False


WHOLE = Shares()


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Peak memory of one device, in bytes, before fragmentation."""

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float  # its state, the master copy, fp32 gradients where it is sharded
    activations_bytes: float
    workspace_bytes: float  # gradients of activations
    buffers_bytes: float
    framework_bytes: float
    activations_by_kind: Mapping[str, float]  # by the kind of layer that saves them
    least_fragmentation: float = LEAST_FRAGMENTATION

    @property
    def states_bytes(self) -> float:
        """Bytes of parameters, gradients and optimizer state."""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def allocated_bytes(self) -> float:
        """Bytes of all tensors at the peak, without fragmentation and the framework's own."""
        return self.states_bytes + self.buffers_bytes + self.activations_bytes + self.workspace_bytes

    @property
    def fragmentation_bytes(self) -> float:
        """Bytes lost to fragmentation on a device with room to spare."""
        return self.allocated_bytes * (FRAGMENTATION - 1)

    @property
    def total_bytes(self) -> float:
        """Peak bytes as `nvidia-smi` shows them on a device with room to spare."""
        return self.allocated_bytes * FRAGMENTATION + self.framework_bytes

    @property
    def required_bytes(self) -> float:
        """Bytes of device memory needed to avoid running out."""
        return self.allocated_bytes * self.least_fragmentation + self.framework_bytes


@dataclass(frozen=True, slots=True)
class Moment:
    """Activations of one micro-batch at one moment of a step, in bytes per sample. The flags tell which
    gradients of parameters exist then: of this step (`gradients`), converted for the optimizer
    (`fp32_gradients`)."""

    activations_by_kind: Mapping[str, float]
    activations_bytes: float  # the sum of these
    workspace_bytes: float
    gradients: bool = True
    fp32_gradients: bool = False


_OPTIMIZER_STEP = Moment({}, 0.0, 0.0, fp32_gradients=True)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of a model before sharding, in bytes: states once, activations per sample. Its peak is the
    largest of a few moments that never coexist: the backward pass of the loss, that of the blocks, the
    optimizer's step."""

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    fp32_gradients_bytes: float  # beside the optimizer state where that is sharded
    saved_by_kind: Mapping[str, float]  # between the forward and the backward pass of a micro-batch
    saved_bytes: float  # the sum of these
    moments: tuple[Moment, ...]
    least_fragmentation: float = LEAST_FRAGMENTATION
    units_bytes: float = 0.0  # parameters at work on the device, where the others are in host memory
    host_optimizer_bytes: float = 0.0
    host_parameters_bytes: float = 0.0
    host_saved_bytes: float = 0.0  # activations per sample

    def host_bytes(self, batch: int, shares: Shares = WHOLE) -> float:
        """Bytes of host memory that one device's offloaded state and activations need."""
        samples = batch * shares.activations * max(shares.in_flight, 1.0)
        optimizer, parameters = self.host_optimizer_bytes, self.host_parameters_bytes
        return optimizer * shares.optimizer + parameters * shares.parameters + self.host_saved_bytes * samples

    def peak(self, batch: int, shares: Shares = WHOLE, device_kind: DeviceKind = "gpu") -> PeakMemory:
        """Peak memory of one device for a micro-batch of `batch` samples."""
        if batch < 1:
            raise BadInput(f"batch is {batch}; it must be at least one sample")
        samples = batch * shares.activations
        totals = [fixed + batch * slope for fixed, slope in self.bytes_by_moment(shares, device_kind)]
        moment = self.moments[totals.index(max(totals))]
        by_kind = {kind: size * samples for kind, size in moment.activations_by_kind.items()}
        if shares.in_flight > 1:
            for kind, size in self.saved_by_kind.items():
                by_kind[kind] = by_kind.get(kind, 0.0) + size * samples * (shares.in_flight - 1)
        gradients, optimizer = self._state_bytes(moment, shares)
        return PeakMemory(
            parameters_bytes=self._parameters_bytes(shares),
            gradients_bytes=gradients,
            optimizer_bytes=optimizer,
            activations_bytes=sum(by_kind.values()),
            workspace_bytes=moment.workspace_bytes * samples,
            buffers_bytes=shares.buffers_bytes,
            framework_bytes=framework_bytes(device_kind, shares.communicators),
            activations_by_kind=by_kind,
            least_fragmentation=self.least_fragmentation,
        )

    def bytes_by_moment(
        self, shares: Shares = WHOLE, device_kind: DeviceKind = "gpu"
    ) -> tuple[tuple[float, float], ...]:
        """(fixed bytes, bytes per sample) for each moment; the largest sum is the peak's `required_bytes`."""
        waste, framework = self.least_fragmentation, framework_bytes(device_kind, shares.communicators)
        states = self._parameters_bytes(shares) + shares.buffers_bytes
        others = self.saved_bytes * (max(shares.in_flight, 1.0) - 1)  # of other micro-batches
        return tuple(
            (
                (states + sum(self._state_bytes(moment, shares))) * waste + framework,
                (others + moment.activations_bytes + moment.workspace_bytes) * shares.activations * waste,
            )
            for moment in self.moments
        )

    def _parameters_bytes(self, shares: Shares) -> float:
        """Bytes of parameters on the device; units gathered from shards count as buffers."""
        units = self.units_bytes if shares.parameters == 1 else 0.0
        return self.parameters_bytes * shares.parameters + units

    def _state_bytes(self, moment: Moment, shares: Shares) -> tuple[float, float]:
        """Bytes of gradients and of optimizer state on the device at a moment."""
        has_gradients = moment.gradients or shares.accumulates
        # FSDP's shards of parameters are the master copy, and those of gradients are in fp32 as they are.
        converts = moment.fp32_gradients and shares.optimizer < 1 and shares.parameters == 1
        fp32 = self.fp32_gradients_bytes if converts else 0.0
        return (
            self.gradients_bytes * shares.gradients if has_gradients else 0.0,
            (self.optimizer_bytes + fp32) * shares.optimizer,
        )

    def largest_batch(self, device: Device, shares: Shares = WHOLE, host_bytes: float = math.inf) -> int:
        """Largest micro-batch that fits in device memory and `host_bytes`; 0 if no sample does."""
        fixed = self.host_bytes(0, shares)
        limits = [(fixed, self.host_bytes(1, shares) - fixed, host_bytes)]
        usable = usable_bytes(device)
        limits += [
            (fixed, per_sample, usable) for fixed, per_sample in self.bytes_by_moment(shares, device.kind)
        ]
        largest = math.inf
        for fixed, per_sample, limit in limits:
            if fixed > limit:
                return 0
            if per_sample:
                largest = min(largest, (limit - fixed) / per_sample)
        return math.floor(largest)


def framework_bytes(device_kind: DeviceKind, communicators: int = 0) -> float:
    """Bytes used by the framework itself, plus the buffers of process groups on GPUs."""
    return FRAMEWORK_BYTES[device_kind] + (COMMUNICATOR_BYTES * communicators if device_kind == "gpu" else 0)


def usable_bytes(device: Device) -> float:
    """Bytes of device memory available to a training process."""
    return device.memory_bytes * USABLE[device.kind]


def default_optimizer(model: Model) -> str:
    """Name of the default optimizer: the training method's, else Adam for sequences, else momentum SGD."""
    usual = "momentum" if model.sequence_length is None else "adam"
    return training_settings(model).optimizer or usual


@memoize
def footprint(
    model: Model,
    precision: Precision,
    *,
    optimizer: str | None = None,
    recompute: Recompute = "none",
    flash: bool | None = None,
    autocast: bool = False,
    gradient_bytes: float | None = None,
    loss: str = "eager",
    only: frozenset[str] | None = None,
) -> Footprint:
    """Memory footprint of a model, or of the layers in `only` (a pipeline stage). `optimizer` defaults to
    the usual one of the network. `flash` overrides the model's attention, `gradient_bytes` the precision's
    width of accumulated gradients; `loss` is one of `planner.model.layers.LOSSES`."""
    row = find_optimizer(optimizer or default_optimizer(model))
    if recompute not in RECOMPUTE_MODES:
        raise BadInput(f"recompute is {recompute!r}; allowed: {', '.join(RECOMPUTE_MODES)}")
    width = precision.activation_bytes
    narrow = autocast and width < _FP32_BYTES
    if loss != "eager":
        model = replace_loss(model, loss)
    method = training_settings(model)
    offload = method.offload
    saved = saved_activations(
        model, recompute, flash, narrow, only, compiled=method.compiled, offloaded="activations" in offload
    )
    saved_width = EIGHT_BIT_BYTES if method.activations else width
    by_kind = {kind: part.bytes(saved_width) for kind, part in saved.by_kind.items()}
    parameter, gradient, master = precision.parameter_bytes, precision.gradient_bytes, precision.master_bytes
    if narrow:
        parameter, gradient, master = _FP32_BYTES + width, _FP32_BYTES, 0
    # Gradients that are accumulated in fp32 need not be converted.
    converts = master and gradient < _FP32_BYTES and gradient_bytes is None
    hidden, others = stored_tensors(model, only)
    count = sum(tensor.trained_elements for tensor in (*hidden, *others))
    frozen_bytes = sum(tensor.frozen_bytes for tensor in (*hidden, *others))
    parameters_bytes = float(count * parameter) + frozen_bytes
    state = optimizer_state_bytes(row, hidden, others)
    on_host = "optimizer" in offload
    moves_parameters = "parameters" in offload
    return Footprint(
        parameters_bytes=0.0 if moves_parameters else parameters_bytes,
        gradients_bytes=float(count * (gradient if gradient_bytes is None else gradient_bytes)),
        optimizer_bytes=0.0 if on_host else state + float(count * master),
        fp32_gradients_bytes=float(count * _FP32_BYTES if converts and not on_host else 0),
        saved_by_kind=by_kind,
        saved_bytes=sum(by_kind.values()),
        moments=(*(_to_moment(alive, width, saved_width) for alive in saved.moments), _OPTIMIZER_STEP),
        # Convolutions use what the allocator would return for their own workspaces.
        least_fragmentation=FRAGMENTATION if model.sequence_length is None else LEAST_FRAGMENTATION,
        units_bytes=_units_at_work_bytes(model, parameter) if moves_parameters else 0.0,
        # its own master copy, and gradients in fp32
        host_optimizer_bytes=state + 2.0 * count * _FP32_BYTES if on_host else 0.0,
        host_parameters_bytes=parameters_bytes if moves_parameters else 0.0,
        host_saved_bytes=saved.on_host.bytes(saved_width),
    )


def _units_at_work_bytes(model: Model, parameter_bytes: float) -> float:
    """Parameter bytes of the two largest neighbouring units: one in use, the next one prefetched."""
    chain = group_into_units(model)
    sizes = chain.elements * parameter_bytes + chain.frozen_bytes
    return float((sizes[:-1] + sizes[1:]).max()) if chain.length > 1 else float(sizes.sum())


def _to_moment(alive: AliveActivations, width: float, saved_width: float) -> Moment:
    """Converts the activations alive at one moment of the backward pass to a `Moment` in bytes per sample."""
    by_kind = {kind: part.bytes(saved_width) for kind, part in alive.by_kind.items()}
    if alive.recomputed != NOTHING:
        by_kind[RECOMPUTED] = alive.recomputed.bytes(width)
    return Moment(by_kind, sum(by_kind.values()), alive.workspace.bytes(width), gradients=not alive.at_loss)


def stored_tensors(
    model: Model, only: frozenset[str] | None = None
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Parameter tensors in two tuples: those inside the model's blocks, and the others."""
    places: dict[str, tuple[Tensor, str | None]] = {}
    for layer in model:
        if only is None or layer.name in only:
            for tensor in layer.tensors if only is None else (*layer.tensors, *layer.tied):
                places[tensor.name] = tensor, layer.block
    hidden = tuple(tensor for tensor, block in places.values() if block is not None)
    return hidden, tuple(tensor for tensor, block in places.values() if block is None)


def host_memory_bytes(model: Model, hardware: Hardware, workers: int) -> float:
    """Host memory in bytes for each worker's offload; infinite if unlimited or unknown, 0 on CPU devices."""
    if not training_settings(model).offload or hardware.memory_bytes is None:
        return math.inf
    if hardware.device.kind == "cpu":
        return 0.0
    return hardware.memory_bytes * USABLE_HOST / min(workers, hardware.device_count)


def set_offload(model: Model, parts: tuple[str, ...]) -> Model:
    """Returns the model with these parts of its training state offloaded to host memory."""
    return replace(model, training=replace(training_settings(model), offload=parts))


def training_settings(model: Model) -> MethodSettings:
    """Settings of the model's training method; those of full training by default."""
    return model.training or MethodSettings()
