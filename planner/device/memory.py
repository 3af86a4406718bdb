"""What training holds in a device's memory: parameters, gradients, optimizer, activations, the framework's
share.

    holding(model, 8, BF16, optimizer="adam", recompute="full", shares=Shares(optimizer=1 /
    8)).total_bytes

Activations are what the backward pass reads again, by the table of layer kinds (`planner.model.layers`): a
layer's output is kept where its own derivative or that of a layer that reads it needs it, and on top of it
what the layer keeps inside (masks, statistics, probabilities of attention without flash). `selective`
recompute computes the inside of attention again; `full` keeps what enters each block (`Model.blocks`) and
the inside of one block at a time. Gradients of activations are alive a few at a time: those of the layer
where they are largest.

Precision: `parameter_bytes` and `gradient_bytes` of each parameter, and with the optimizer its master copy.
`autocast`, as PyTorch does it, keeps parameters and gradients in single precision and a narrow copy of the
parameters beside them, computes norms in single precision and makes a narrow copy for each layer that reads
one. Where the optimizer's state is spread (ZeRO, FSDP), each device turns its part of narrow gradients into
single precision before the update.

All but the framework's share is scaled: blocks of an allocator are never quite full, and less so where layers
are cut over devices, whose micro-batches come and go. The framework takes its context, and buffers for each
group of devices that it exchanges with (replicas, devices that share layers, stages). These constants come
from published peaks (`benchmarks/accuracy/memory.py`).

Of a sharded model: `planner.parallel.mesh.Mesh.shard` gives the model that one device sees,
and `only` names the layers of a pipeline's stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from planner.device.precision import Precision
from planner.device.recompute import RECOMPUTE_MODES, Recompute
from planner.errors import BadInput
from planner.model import Layer, Model
from planner.model.layers import Kept, is_input, kept, kind_of

Optimizer = Literal["sgd", "momentum", "adam"]

STATE_BYTES: dict[str, int] = {"sgd": 0, "momentum": 4, "adam": 8}  # of a parameter, in single precision
FRAGMENTATION = 1.07
CUT_FRAGMENTATION = 1.15
FRAMEWORK_BYTES = 1.2 * 2**30  # context, kernels and workspaces of one process
COLLECTIVES_BYTES = 1.5 * 2**30  # buffers of a library of collectives for one group of devices
AGAIN = "one block, computed again"
_SINGLE = 4


@dataclass(frozen=True, slots=True)
class Shares:
    """How much of the whole one device holds: parts of parameters, gradients and the optimizer's state that
    an exchange spreads, and of activations that a cut does. `in_flight`: micro-batches of a pipeline that
    wait at once for their backward pass. `buffers_bytes` come on top, whatever the share. `cuts`: ways in
    which layers are cut over devices (tensor, pipeline), each with a group to exchange with."""

    parameters: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0
    activations: float = 1.0
    in_flight: float = 1.0
    buffers_bytes: float = 0.0
    cuts: int = 0


WHOLE = Shares()


@dataclass(frozen=True, slots=True)
class Holding:
    """What one device holds at its peak, in bytes, before fragmentation."""

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float  # its state, the master copy, gradients in single precision where it is spread
    activations_bytes: float
    working_bytes: float  # gradients of activations
    buffers_bytes: float
    framework_bytes: float
    by_kind: Mapping[str, float]  # activations, by the kind of layer that made them
    fragmentation: float = FRAGMENTATION
    single_gradients_bytes: float = 0.0  # of all parameters, should the optimizer's state be spread

    @property
    def states_bytes(self) -> float:
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def fragmentation_bytes(self) -> float:
        held = self.states_bytes + self.buffers_bytes + self.activations_bytes + self.working_bytes
        return held * (self.fragmentation - 1)

    @property
    def fixed_bytes(self) -> float:
        """What does not depend on the batch."""
        return (self.states_bytes + self.buffers_bytes) * self.fragmentation + self.framework_bytes

    @property
    def total_bytes(self) -> float:
        return self.fixed_bytes + (self.activations_bytes + self.working_bytes) * self.fragmentation

    def total_for(self, batch: int, shares: Shares, devices: int = 1) -> float:
        """The total of `scaled`, without what it is made of: a search asks for tens of thousands."""
        states = (
            self.parameters_bytes * shares.parameters
            + self.gradients_bytes * shares.gradients
            + self._spread_optimizer_bytes(shares)
            + shares.buffers_bytes
        )
        once = self.by_kind.get(AGAIN, 0.0)
        kept = (self.activations_bytes - once) * shares.in_flight + once + self.working_bytes
        held = states + kept * batch * shares.activations
        return held * fragmentation(shares) + framework_bytes(devices, shares)

    def scaled(self, batch: int, shares: Shares, devices: int = 1) -> Holding:
        """What a device holds for a micro-batch, if this is what it would hold for one sample alone: all that
        depends on the batch grows with it."""
        samples = batch * shares.activations
        by_kind = {
            kind: size * samples * (1.0 if kind == AGAIN else shares.in_flight)
            for kind, size in self.by_kind.items()
        }
        return Holding(
            parameters_bytes=self.parameters_bytes * shares.parameters,
            gradients_bytes=self.gradients_bytes * shares.gradients,
            optimizer_bytes=self._spread_optimizer_bytes(shares),
            activations_bytes=sum(by_kind.values()),
            working_bytes=self.working_bytes * samples,
            buffers_bytes=shares.buffers_bytes,
            framework_bytes=framework_bytes(devices, shares),
            by_kind=by_kind,
            fragmentation=fragmentation(shares),
        )

    def _spread_optimizer_bytes(self, shares: Shares) -> float:
        spread = shares.optimizer < 1
        whole = self.optimizer_bytes + (self.single_gradients_bytes if spread else 0.0)
        return whole * shares.optimizer


def framework_bytes(devices: int, shares: Shares = WHOLE) -> float:
    """What the framework takes for itself where so many devices train together: buffers for the group of all,
    and for those that layers are cut over."""
    return FRAMEWORK_BYTES + COLLECTIVES_BYTES * (shares.cuts + (devices > 1))


def fragmentation(shares: Shares) -> float:
    """What is held for each byte that is used."""
    return CUT_FRAGMENTATION if shares.cuts else FRAGMENTATION


def holding(
    model: Model,
    batch: int,
    precision: Precision,
    *,
    optimizer: Optimizer = "adam",
    recompute: Recompute = "none",
    shares: Shares = WHOLE,
    devices: int = 1,
    flash: bool | None = None,
    autocast: bool = False,
    gradient_bytes: float | None = None,
    only: frozenset[str] | None = None,
) -> Holding:
    """What a device holds for a micro-batch. `devices`: how many train together. `flash` overrides what the
    model says of attention, `gradient_bytes` what the precision says of gradients while they are summed up;
    `only` are the names of the layers that are held, if not all."""
    if batch < 1:
        raise BadInput(f"batch is {batch}; it must be at least one sample")
    if optimizer not in STATE_BYTES:
        raise BadInput(f"optimizer is {optimizer!r}; allowed: {', '.join(STATE_BYTES)}")
    if recompute not in RECOMPUTE_MODES:
        raise BadInput(f"recompute is {recompute!r}; allowed: {', '.join(RECOMPUTE_MODES)}")
    width = precision.activation_bytes
    narrow = autocast and width < _SINGLE
    stored = activations(model, recompute, flash, narrow, only)
    samples = batch * shares.activations
    by_kind = {kind: part.bytes(width) * samples * shares.in_flight for kind, part in stored.by_kind.items()}
    if stored.recomputed != Kept():
        by_kind[AGAIN] = stored.recomputed.bytes(width) * samples
    parameter, gradient, master = precision.parameter_bytes, precision.gradient_bytes, precision.master_bytes
    if narrow:
        parameter, gradient, master = _SINGLE + width, _SINGLE, 0
    count = parameters(model, only)
    # Gradients that are summed up in single precision need not be turned into it.
    single = _SINGLE if master and gradient < _SINGLE and gradient_bytes is None else 0
    state = STATE_BYTES[optimizer] + master + (single if shares.optimizer < 1 else 0)
    return Holding(
        parameters_bytes=count * parameter * shares.parameters,
        gradients_bytes=count * (gradient if gradient_bytes is None else gradient_bytes) * shares.gradients,
        optimizer_bytes=count * state * shares.optimizer,
        activations_bytes=sum(by_kind.values()),
        working_bytes=stored.working.bytes(width) * samples,
        buffers_bytes=shares.buffers_bytes,
        framework_bytes=framework_bytes(devices, shares),
        by_kind=by_kind,
        fragmentation=fragmentation(shares),
        single_gradients_bytes=float(count * single),
    )


@lru_cache(maxsize=256)
def parameters(model: Model, only: frozenset[str] | None = None) -> int:
    """Parameters of the layers that are held. A tensor that is tied across the cut is held on both sides."""
    if only is None:
        return model.parameters
    found = {
        t.name: t.elements for layer in model for t in (*layer.tensors, *layer.tied) if layer.name in only
    }
    return sum(found.values())


@dataclass(frozen=True, slots=True)
class Activations:
    """Of one sample: what is kept, by the kind of layer that made it; what one block keeps while it is
    computed again; and what the backward pass works on at one time."""

    by_kind: Mapping[str, Kept]
    recomputed: Kept
    working: Kept


@lru_cache(maxsize=256)
def activations(
    model: Model,
    recompute: Recompute = "none",
    flash: bool | None = None,
    autocast: bool = False,
    only: frozenset[str] | None = None,
) -> Activations:
    """What one sample leaves in memory between its forward and its backward pass."""
    layers, size = _by_name(model), _sizes(model)
    held = [layer for layer in model.layers if only is None or layer.name in only]
    needed = _needed(held, autocast, layers)
    stored: dict[str, Kept] = {}
    for layer in held:
        again = recompute == "selective" and kind_of(layer).selective_recompute
        inside = _NOTHING if again else kept(layer, flash=flash)
        stored[layer.name] = inside + needed.copies[layer.name] if layer.name in needed.copies else inside
    for name in needed.elements:  # of layers that are held, and of those that these read
        stored[name] = stored.get(name, _NOTHING) + Kept(elements=size[name])
    recomputed = _NOTHING
    if recompute == "full":
        recomputed = _checkpoint(held, stored, layers, size)
    by_kind: dict[str, Kept] = {}
    for name, part in stored.items():
        if part != _NOTHING:
            kind = layers[name].kind
            by_kind[kind] = by_kind.get(kind, _NOTHING) + part
    return Activations(by_kind, recomputed, _working(held, layers, size))


_NOTHING = Kept()


@lru_cache(maxsize=64)
def _by_name(model: Model) -> dict[str, Layer]:
    return {layer.name: layer for layer in model.layers}


@lru_cache(maxsize=64)
def _sizes(model: Model) -> dict[str, int]:
    """Elements of each layer's output."""
    return {layer.name: layer.output_elements for layer in model.layers}


@dataclass(frozen=True, slots=True)
class _Needed:
    """Outputs that are kept, by layer, and copies that a layer makes of what it reads."""

    elements: Mapping[str, bool]
    copies: Mapping[str, Kept]


def _needed(held: Iterable[Layer], autocast: bool, layers: Mapping[str, Layer]) -> _Needed:
    elements: dict[str, bool] = {}
    copies: dict[str, Kept] = {}
    for layer in held:
        kind = kind_of(layer)
        if kind.needs_output:
            elements[layer.name] = True
        if not kind.needs_input:
            continue
        for name in layer.inputs:
            source = layers[name]
            if is_input(source) and kind.reads_indices:
                continue  # tokens: a few bytes
            if autocast and kind.autocast == "widen":
                copies[layer.name] = Kept(wide=layer.input_elements)
            elif autocast and kind.autocast == "narrow" and kind_of(source).autocast_wide_output:
                copies[layer.name] = Kept(elements=layer.input_elements)
            else:
                elements[name] = True
    return _Needed(elements, copies)


def _checkpoint(
    held: list[Layer], stored: dict[str, Kept], layers: Mapping[str, Layer], size: Mapping[str, int]
) -> Kept:
    """Leave in `stored` what full recompute keeps: what enters a block. What a block keeps while it is
    computed again, of the largest."""
    inside: dict[str, Kept] = {}
    entering: set[str] = set()
    for layer in held:
        if layer.block is not None:
            inside[layer.block] = inside.get(layer.block, _NOTHING) + stored[layer.name]
            stored[layer.name] = _NOTHING
            entering.update(name for name in layer.inputs if layers[name].block != layer.block)
    for name in sorted(entering):
        stored[name] = Kept(elements=size[name])
    return max(inside.values(), key=lambda part: part.bytes(2), default=_NOTHING)


def _working(held: Iterable[Layer], layers: Mapping[str, Layer], size: Mapping[str, int]) -> Kept:
    """Gradients of the output and the inputs of the layer where these are largest."""
    best, most = _NOTHING, 0.0
    for layer in held:
        read = sum(size[name] for name in layer.inputs if not is_input(layers[name]))
        working = kind_of(layer).working(layer, read)
        if working.bytes(2) > most:
            best, most = working, working.bytes(2)
    return best
