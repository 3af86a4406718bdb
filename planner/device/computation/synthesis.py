"""Synthesis: the computation of steps that nobody has recorded, from a model and a device.

The graph comes from the model (`graph`), times from the rates of the device (`planner.device.rates.times`),
the variation between steps from what real traces show. docs/compute.md tells where each default comes from.

`forward(l)` waits for the forward ops of the layers it reads; `backward(l)` for the backward ops of all
layers that read it, so branches stay branches. Layers without a kernel (input, flatten) vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np
import numpy.typing as npt

from planner.device.activations import Recompute, recompute_flags
from planner.device.computation import (
    BACKWARD,
    COMPUTE,
    DEFAULT_STEPS,
    FORWARD,
    RECOMPUTE,
    Computation,
    Parameter,
    Variation,
    unit_name,
)
from planner.device.precision import FP32, Precision
from planner.device.rates.times import (
    DEFAULT_FRAMEWORK,
    ScriptSettings,
    StepTimes,
    computation_s,
    find_framework,
    step_times,
)
from planner.errors import BadInput
from planner.hardware import Hardware, KernelRates
from planner.memoize import memoize
from planner.model import Layer, Model, Tensor
from planner.model.layers import layer_class

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ComputeGraph:
    """Fields of a `Computation` that depend on the model alone."""

    names: tuple[str, ...]
    role: npt.NDArray[np.uint8]
    work: npt.NDArray[np.uint8] | None  # of each op; None: all compute
    layer: Ints
    layers: tuple[str, ...]
    deps: tuple[tuple[int, ...], ...]
    parameters: tuple[Parameter, ...]
    blocks: tuple[str, ...]


@memoize
def compute_graph(
    model: Model, *, training: bool = True, recompute: Recompute = "none", stops_early: bool = False
) -> ComputeGraph:
    """Graph of ops and parameters of a training step, or of a forward pass only; cached. A recomputed layer
    runs its forward op again before its backward op (`stops_early`: `planner.device.activations`)."""
    reads = _kernel_inputs(model)
    again = recompute_flags(model, recompute, stops_early)
    place = {layer.name: at for at, layer in enumerate(model)}
    names: list[str] = []
    roles: list[int] = []
    works: list[int] = []
    layers: list[int] = []
    deps: list[tuple[int, ...]] = []

    def add_op(layer: str, role: int, suffix: str, dependencies: tuple[int, ...], work: int = COMPUTE) -> int:
        """Adds an op named `layer/suffix`; returns its index."""
        names.append(f"{layer}/{suffix}")
        roles.append(role)
        works.append(work)
        layers.append(place[layer])
        deps.append(dependencies)
        return len(names) - 1

    forward: dict[str, int] = {}
    for layer in model:
        if layer_class(layer).computes:
            inputs = tuple(forward[read] for read in reads[layer.name])
            forward[layer.name] = add_op(layer.name, FORWARD, "forward", inputs)
    if not forward:
        raise BadInput(f"model {model.name!r} has no layer that computes; a profile needs at least one")
    backward: dict[str, int] = {}
    for name, readers in _gradient_order(model, reads) if training else ():
        waits = tuple(backward[reader] for reader in readers) or (forward[name],)
        if again[place[name]]:
            waits = (add_op(name, BACKWARD, "recompute", waits, RECOMPUTE),)
        backward[name] = add_op(name, BACKWARD, "backward", waits)
    blocks = tuple(dict.fromkeys(unit_name(layer) for layer in model if layer.tensors)) or ("",)
    place_of_block = {name: at for at, name in enumerate(blocks)}
    return ComputeGraph(
        names=tuple(names),
        role=np.array(roles, np.uint8),
        work=np.array(works, np.uint8) if any(works) else None,
        layer=np.array(layers, np.int32),
        layers=tuple(place),
        deps=tuple(deps),
        parameters=tuple(
            Parameter(
                tensor.name,
                tensor.trained_elements,
                (forward[layer.name],),
                backward.get(layer.name) if tensor.frozen_bits is None else None,
                place_of_block[unit_name(layer)],
                (layer.tensors[0].elements,) * 2 if _has_moving_averages_after(layer, tensor) else (),
                frozen_bytes=tensor.frozen_bytes,
            )
            for layer in model
            for tensor in layer.tensors
        ),
        blocks=blocks,
    )


def _has_moving_averages_after(layer: Layer, tensor: Tensor) -> bool:
    """Whether a batch norm's moving averages follow this tensor, the layer's last, in creation order."""
    return layer_class(layer).moving_averages and tensor is layer.tensors[-1]


def _kernel_inputs(model: Model) -> dict[str, tuple[str, ...]]:
    """For each layer by name, the nearest layers with kernels that its inputs come from."""
    computes = {layer.name: layer_class(layer).computes for layer in model}
    reads: dict[str, tuple[str, ...]] = {}
    for layer in model:
        by_name: dict[str, None] = {}
        for name in layer.inputs:
            by_name.update(dict.fromkeys((name,) if computes[name] else reads[name]))
        reads[layer.name] = tuple(by_name)
    return reads


def _gradient_order(model: Model, reads: dict[str, tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    """Layers with a backward op, in backward order, each with the layers that read its output. A layer
    without trained layers up to it has no backward op."""
    readers: dict[str, list[str]] = {layer.name: [] for layer in model}
    trained: set[str] = set()
    for layer in model:
        own = any(tensor.frozen_bits is None for tensor in (*layer.tensors, *layer.tied))
        if own or any(read in trained for read in reads[layer.name]):
            trained.add(layer.name)
        if layer_class(layer).computes:
            for read in reads[layer.name]:
                readers[read].append(layer.name)
    return [
        (layer.name, tuple(readers[layer.name]))
        for layer in reversed(model.layers)
        if layer.name in trained and layer_class(layer).computes
    ]


def synthesize_computation(
    model: Model,
    batch: int,
    hardware: Hardware,
    precision: Precision = FP32,
    *,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    training: bool = True,
    recompute: Recompute = "none",
    variation: Variation = Variation(),
) -> Computation:
    """Computation of one device in a step, from its kernel rates; `training=False`: a forward pass only."""
    for name, value in (("batch", batch), ("steps", steps)):
        if value < 1:
            raise BadInput(f"{name} is {value}; a profile needs at least 1")
    rates = kernel_rates(hardware)
    return _build_computation(
        model,
        batch,
        hardware,
        precision,
        step_times(model, batch, rates, training=training),
        basis="estimated" if rates.basis == "estimated" else "synthesized",
        source=f"synthesized; kernel rates of {hardware.device.name}: {rates.source}",
        steps=steps,
        seed=seed,
        graph=compute_graph(model, training=training, recompute=recompute),
        variation=variation,
    )


def calibrated_computation(
    model: Model,
    batch: int,
    hardware: Hardware,
    precision: Precision,
    framework: str | None = None,
    *,
    recompute: Recompute = "none",
    **settings: Unpack[ScriptSettings],
) -> Computation:
    """Computation of one device in a training step, from calibrated rates under a framework."""
    framework = framework or DEFAULT_FRAMEWORK
    times = computation_s(model, batch, hardware.device, precision, framework, **settings)
    return _build_computation(
        model,
        batch,
        hardware,
        precision,
        times,
        basis=times.basis,
        source=(
            f"synthesized for {framework} in {precision.name}; rates of {hardware.device.name}: "
            f"{times.error.basis}, {times.error.source}"
        ),
        graph=compute_graph(model, recompute=recompute, stops_early=find_framework(framework).stops_early),
    )


def _build_computation(
    model: Model,
    batch: int,
    hardware: Hardware,
    precision: Precision,
    times: StepTimes,
    *,
    basis: str,
    source: str,
    graph: ComputeGraph,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    variation: Variation = Variation(),
) -> Computation:
    """Builds a computation from a model's graph and the times of its layers."""
    is_backward = graph.role == BACKWARD
    if graph.work is not None:
        is_backward &= graph.work == COMPUTE
    once_s = np.where(is_backward, times.backward_s[graph.layer], times.forward_s[graph.layer])
    durations_s = once_s * variation.factors(steps, len(once_s), seed)
    durations_s.flags.writeable = False
    return Computation(
        **vars(graph),
        model=model.name,
        batch=batch,
        durations_s=durations_s,
        optimizer_s=times.optimizer_s,
        precision=precision,
        device=hardware.device.name,
        hardware=hardware.name,
        basis=basis,
        source=source,
        once_s=once_s,
        variation=variation,
        seed=seed,
        network=model,
    )


def kernel_rates(hardware: Hardware) -> KernelRates:
    """Kernel rates of a machine's device; raises BadInput with a remedy if they are missing."""
    if hardware.kernels is None:
        raise BadInput(
            f"hardware {hardware.name!r} has no kernel rates for its device {hardware.device.name!r}: "
            "compute times are unknown. Add a [kernels] table for the device (docs/hardware.md)"
        )
    return hardware.kernels
