"""The memory footprint of training on one device, for every network.

    footprint(model, BF16, optimizer="adam", recompute="full").peak(8, Shares(optimizer=1 / 8)).total_bytes

A `Footprint` is computed once for a model (or a shard of one), a precision, an optimizer and a recompute
mode. It is affine in the batch: parameters, gradients and optimizer state once, saved activations and
workspace per sample. `Shares` scale it to a plan, so that a search needs one footprint for thousands of
plans.

Saved activations are what the backward pass reads, by the table of layer kinds (`planner.model.layers`): a
layer's output is saved where its own derivative or that of a layer that reads it needs it, and on top of it
what the layer saves inside (masks, statistics, attention probabilities without flash). Recompute
(`planner.device.recompute`) saves instead what crosses into a recomputed region, and pays for the inside of
one region at a time. The workspace are gradients of activations, of the layer where these are largest.

Precision: `parameter_bytes` and `gradient_bytes` of each parameter, and with the optimizer its master copy.
`autocast`, as PyTorch does it, keeps parameters and gradients in fp32 with a narrow copy of the parameters
beside them, computes norms in fp32 and makes a narrow copy for each layer that reads one. Where the optimizer
state is sharded (ZeRO, FSDP), each device converts its shard of narrow gradients to fp32 before the update.

Caching allocators fragment, more so with model parallelism, whose micro-batches come and go. The framework
takes its context and libraries, and NCCL buffers for each process group. These constants come from published
peaks (`planner validate --suite memory`). Convolution workspaces are left out: libraries take what is free
and do with less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from planner.device.optimizers import optimizer_named, state_bytes
from planner.device.precision import Precision
from planner.device.recompute import RECOMPUTE_MODES, Recompute, policy_saved, recompute_region
from planner.errors import BadInput
from planner.hardware import Device
from planner.memoize import memoize
from planner.model import Layer, Model, Tensor
from planner.model.layers import Kept, is_input, kept, kind_of, layers_with_gradient, trains_weights

DeviceKind = Literal["gpu", "cpu"]

FRAGMENTATION = 1.07
MODEL_PARALLEL_FRAGMENTATION = 1.16
FRAMEWORK_BYTES = {"gpu": 1.2 * 2**30, "cpu": 500 * 2**20}  # context, kernels and libraries of one process
COMMUNICATOR_BYTES = 1.5 * 2**30  # NCCL buffers of one process group
# Of what a device has: the rest goes to the driver and other processes, on a CPU to the operating system.
USABLE = {"gpu": 0.97, "cpu": 0.90}
RECOMPUTED = "one recomputed block"
_FP32_BYTES = 4
_NOTHING = Kept()


@dataclass(frozen=True, slots=True)
class Shares:
    """Fractions of a model's footprint that one device stores, as a parallel strategy shards it.

    `in_flight`: micro-batches of a pipeline whose activations are alive at once. `buffers_bytes` of gradient
    buckets or gathered units come on top, whatever the shares. `communicators` are process groups of devices;
    `model_parallel`: tensor or pipeline parallelism."""

    parameters: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0
    activations: float = 1.0
    in_flight: float = 1.0
    buffers_bytes: float = 0.0
    communicators: int = 0
    model_parallel: bool = False


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
    fragmentation: float = FRAGMENTATION

    @property
    def states_bytes(self) -> float:
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def fragmentation_bytes(self) -> float:
        used = self.states_bytes + self.buffers_bytes + self.activations_bytes + self.workspace_bytes
        return used * (self.fragmentation - 1)

    @property
    def total_bytes(self) -> float:
        used = self.states_bytes + self.buffers_bytes + self.activations_bytes + self.workspace_bytes
        return used * self.fragmentation + self.framework_bytes


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of a model before sharding, in bytes: states once, activations and workspace per sample."""

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    fp32_gradients_bytes: float  # beside the optimizer state where that is sharded
    activations_by_kind: Mapping[str, float]
    saved_bytes: float  # the sum of these
    workspace_bytes: float

    def peak(self, batch: int, shares: Shares = WHOLE, device_kind: DeviceKind = "gpu") -> PeakMemory:
        """Peak memory of one device for a micro-batch."""
        if batch < 1:
            raise BadInput(f"batch is {batch}; it must be at least one sample")
        samples = batch * shares.activations
        by_kind = {
            kind: size * samples * (1.0 if kind == RECOMPUTED else shares.in_flight)
            for kind, size in self.activations_by_kind.items()
        }
        fp32 = self.fp32_gradients_bytes if shares.optimizer < 1 else 0.0
        return PeakMemory(
            parameters_bytes=self.parameters_bytes * shares.parameters,
            gradients_bytes=self.gradients_bytes * shares.gradients,
            optimizer_bytes=(self.optimizer_bytes + fp32) * shares.optimizer,
            activations_bytes=sum(by_kind.values()),
            workspace_bytes=self.workspace_bytes * samples,
            buffers_bytes=shares.buffers_bytes,
            framework_bytes=framework_bytes(device_kind, shares.communicators),
            activations_by_kind=by_kind,
            fragmentation=fragmentation(shares),
        )

    def affine(self, shares: Shares = WHOLE, device_kind: DeviceKind = "gpu") -> tuple[float, float]:
        """`peak(batch, ...).total_bytes` as (fixed bytes, bytes per sample), without its parts."""
        fp32 = self.fp32_gradients_bytes if shares.optimizer < 1 else 0.0
        states = (
            self.parameters_bytes * shares.parameters
            + self.gradients_bytes * shares.gradients
            + (self.optimizer_bytes + fp32) * shares.optimizer
            + shares.buffers_bytes
        )
        once = self.activations_by_kind.get(RECOMPUTED, 0.0)
        saved = (self.saved_bytes - once) * shares.in_flight + once + self.workspace_bytes
        waste = fragmentation(shares)
        fixed = states * waste + framework_bytes(device_kind, shares.communicators)
        return fixed, saved * shares.activations * waste

    def largest_batch(self, device: Device, shares: Shares = WHOLE) -> int:
        """The largest micro-batch that fits on a device; 0 if not even one sample does."""
        fixed, per_sample = self.affine(shares, device.kind)
        return max(math.floor((usable_bytes(device) - fixed) / per_sample), 0)


def fragmentation(shares: Shares) -> float:
    """Bytes that the allocator takes for each byte in use."""
    return MODEL_PARALLEL_FRAGMENTATION if shares.model_parallel else FRAGMENTATION


def framework_bytes(device_kind: DeviceKind, communicators: int = 0) -> float:
    """Memory of the framework itself, with the buffers of its process groups on GPUs."""
    return FRAMEWORK_BYTES[device_kind] + (COMMUNICATOR_BYTES * communicators if device_kind == "gpu" else 0)


def usable_bytes(device: Device) -> float:
    """Memory of a device that a training process can have."""
    return device.memory_bytes * USABLE[device.kind]


def usual_optimizer(model: Model) -> str:
    """The one that a training method names, else Adam for networks over sequences, SGD with momentum for the
    rest."""
    if model.training is not None and model.training.optimizer is not None:
        return model.training.optimizer
    return "momentum" if model.sequence_length is None else "adam"


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
    only: frozenset[str] | None = None,
) -> Footprint:
    """The memory footprint of a model, or of the layers in `only`, a pipeline's stage.

    `optimizer` is by default the usual one of the network. `flash` overrides what the model says of
    attention, `gradient_bytes` what the precision says of gradients that are accumulated."""
    row = optimizer_named(optimizer or usual_optimizer(model))
    if recompute not in RECOMPUTE_MODES:
        raise BadInput(f"recompute is {recompute!r}; allowed: {', '.join(RECOMPUTE_MODES)}")
    width = precision.activation_bytes
    narrow = autocast and width < _FP32_BYTES
    saved = saved_activations(model, recompute, flash, narrow, only)
    by_kind = {kind: part.bytes(width) for kind, part in saved.by_kind.items()}
    if saved.recomputed != _NOTHING:
        by_kind[RECOMPUTED] = saved.recomputed.bytes(width)
    parameter, gradient, master = precision.parameter_bytes, precision.gradient_bytes, precision.master_bytes
    if narrow:
        parameter, gradient, master = _FP32_BYTES + width, _FP32_BYTES, 0
    # Gradients that are accumulated in fp32 need not be converted.
    converts = master and gradient < _FP32_BYTES and gradient_bytes is None
    hidden, others = stored_tensors(model, only)
    count = sum(tensor.trained_elements for tensor in (*hidden, *others))
    frozen_bytes = sum(tensor.frozen_bytes for tensor in (*hidden, *others))
    return Footprint(
        parameters_bytes=float(count * parameter) + frozen_bytes,
        gradients_bytes=float(count * (gradient if gradient_bytes is None else gradient_bytes)),
        optimizer_bytes=state_bytes(row, hidden, others) + float(count * master),
        fp32_gradients_bytes=float(count * _FP32_BYTES if converts else 0),
        activations_by_kind=by_kind,
        saved_bytes=sum(by_kind.values()),
        workspace_bytes=saved.workspace.bytes(width),
    )


def stored_parameters(model: Model, only: frozenset[str] | None = None) -> int:
    """Parameters of these layers. Both ends of a pipeline store a tensor that they share (tied
    embeddings)."""
    return sum(tensor.elements for part in stored_tensors(model, only) for tensor in part)


def stored_tensors(
    model: Model, only: frozenset[str] | None = None
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Tensors of these layers, inside the model's blocks and outside of them."""
    places: dict[str, tuple[Tensor, str | None]] = {}
    for layer in model:
        if only is None or layer.name in only:
            for tensor in layer.tensors if only is None else (*layer.tensors, *layer.tied):
                places[tensor.name] = tensor, layer.block
    hidden = tuple(tensor for tensor, block in places.values() if block is not None)
    return hidden, tuple(tensor for tensor, block in places.values() if block is None)


@dataclass(frozen=True, slots=True)
class SavedActivations:
    """Activations of one sample: saved, by the kind of layer; of the largest recomputed region; workspace."""

    by_kind: Mapping[str, Kept]
    recomputed: Kept
    workspace: Kept


@memoize
def saved_activations(
    model: Model,
    recompute: Recompute = "none",
    flash: bool | None = None,
    autocast: bool = False,
    only: frozenset[str] | None = None,
) -> SavedActivations:
    """Activations of one sample that live between its forward and its backward pass.

    A tensor is saved where a layer outside the recomputed region of its producer reads it, to differentiate
    or to recompute; what only the region itself needs comes back one region at a time."""
    layers = {layer.name: layer for layer in model.layers}
    region = {layer.name: recompute_region(layer, recompute) for layer in model.layers}
    stage = [layer for layer in model.layers if only is None or layer.name in only]
    by_policy = policy_saved(model, recompute)
    saved: dict[tuple[str, str], Kept] = {}  # by producer and part
    inside: dict[str, dict[tuple[str, str], Kept]] = {}  # the same by recomputed region

    def save(reader: Layer, producer: Layer, part: str, size: Kept) -> None:
        own = region[reader.name]
        if own is None or region[producer.name] != own or (part == "output" and producer.name in by_policy):
            saved[producer.name, part] = size
        else:
            inside.setdefault(own, {})[producer.name, part] = size

    with_gradient = layers_with_gradient(model)
    for layer in stage:
        if layer.name not in with_gradient:
            continue
        kind = kind_of(layer)
        needs_input = kind.needs_input and (trains_weights(layer) or not kind.input_for_weights)
        if kind.needs_output or layer.name in by_policy:
            save(layer, layer, "output", Kept(elements=layer.output_elements))
        if (extra := kept(layer, flash=flash)) != _NOTHING:
            save(layer, layer, "inside", extra)
        for source in (layers[name] for name in layer.inputs):
            if is_input(source) and kind.reads_indices:
                continue  # tokens: a few bytes
            output = Kept(elements=source.output_elements)
            copy = _autocast_copy(layer, source) if autocast else None
            if needs_input and copy is not None:
                save(layer, layer, "copy", copy)
            elif needs_input:
                save(layer, source, "output", output)
            if region[layer.name] not in (None, region[source.name]):
                saved[source.name, "output"] = output  # recompute starts from it
    by_kind: dict[str, Kept] = {}
    for (name, _), size in saved.items():
        by_kind[layers[name].kind] = by_kind.get(layers[name].kind, _NOTHING) + size
    totals = (
        sum((size for key, size in tensors.items() if key not in saved), _NOTHING)
        for tensors in inside.values()
    )
    recomputed = max(totals, key=lambda size: size.bytes(2), default=_NOTHING)
    return SavedActivations(by_kind, recomputed, _workspace(stage, layers))


def _autocast_copy(layer: Layer, source: Layer) -> Kept | None:
    """The copy of its input that a layer saves under autocast, None where it saves the input itself."""
    kind = kind_of(layer)
    if kind.autocast == "widen":
        return Kept(wide=layer.input_elements)
    if kind.autocast == "narrow" and kind_of(source).autocast_wide_output:
        return Kept(elements=layer.input_elements)
    return None


def _workspace(stage: Iterable[Layer], layers: Mapping[str, Layer]) -> Kept:
    """Gradients of the output and the inputs of the layer where these are largest."""
    sizes = (
        kind_of(layer).working(
            layer, sum(layers[name].output_elements for name in layer.inputs if not is_input(layers[name]))
        )
        for layer in stage
    )
    return max(sizes, key=lambda size: size.bytes(2), default=_NOTHING)
