"""The kinds of layers: one table of what each computes, moves, keeps, and how it can be cut.

A new kind is one row here and one rule of shapes in `planner.model.netlist`. Who needs to know something of
a layer asks

- `KINDS[layer.kind]`: the row of the table (`Kind`), the same for all layers of the kind;
- `kernel_kind(layer)`: the kind of the kernel that does its multiply-adds, by which devices have rates:
  `conv1x1`, `conv3x3`, `conv`, `grouped`, `depthwise`, `fc`, `matmul`, `attention`; `memory` for one that
  only moves data;
- `demand(layer, reads_data=...)`: for one sample, forward and backward, what it asks of a device
  (`planner.device.workload`);
- `kept(layer)`: what it keeps for the backward pass beside inputs and outputs that `Kind` names.

Sizes are in elements: the precision of a run makes bytes of them. Passes of memory-bound kinds are reads and
writes of the whole output. Normalisation in training reads its input twice (statistics, then values); an
`add` pays backward for summing the gradients of the two branches that begin where its shortcut does. A kind
with no passes of its own (pooling) reads its input once and writes its output once, and twice that backward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from planner.model import Attention, Experts, Layer

Axis = Literal["rows", "features", "inputs", "heads", "experts", "vocabulary"]


@dataclass(frozen=True, slots=True)
class Passes:
    """Reads and writes of the whole output."""

    reads: int
    writes: int

    @property
    def both(self) -> int:
        return self.reads + self.writes


@dataclass(frozen=True, slots=True)
class Kind:
    """What is the same for all layers of a kind.

    `needs_input`, `needs_output`: the derivative reads it again. `in_place`: the output overwrites the input.
    `follows`: element by element, so that it is cut as its source is cut. `cut`: the axes along which it can
    be spread over workers; `rows` are rows of an image or positions of a sequence, `inputs` leave partial
    sums.
    """

    name: str
    kernel: str = "memory"
    forward: Passes | None = None
    backward: Passes | None = None
    needs_input: bool = False
    needs_output: bool = False
    in_place: bool = False
    follows: bool = False
    computes: bool = True  # False: nothing is launched, it is a way to look at its input
    cut: tuple[Axis, ...] = ("rows", "features")
    kernels: tuple[int, int] = (1, 1)  # launched forward, backward


def _table(*kinds: Kind) -> dict[str, Kind]:
    return {kind.name: kind for kind in kinds}


def _moving(name: str, forward: tuple[int, int], backward: tuple[int, int], **more: object) -> Kind:
    return Kind(name, forward=Passes(*forward), backward=Passes(*backward), **more)  # type: ignore[arg-type]


KINDS = _table(
    Kind("input", computes=False, cut=("rows",)),
    Kind("view", in_place=True, follows=True, computes=False),
    Kind("flatten", in_place=True, follows=True, computes=False),
    # multiply-adds
    Kind("conv", "conv", needs_input=True, cut=("rows", "features", "inputs"), kernels=(1, 2)),
    Kind("depthwise", "depthwise", needs_input=True),
    Kind("patches", "conv", needs_input=True, cut=("rows", "features", "inputs"), kernels=(1, 2)),
    Kind("fc", "fc", needs_input=True, cut=("features", "inputs"), kernels=(1, 2)),
    Kind("linear", "matmul", needs_input=True, cut=("rows", "features", "inputs"), kernels=(1, 2)),
    Kind(
        "attention", "attention", needs_input=True, needs_output=True, cut=("heads", "rows"), kernels=(1, 2)
    ),
    Kind("product", "matmul", needs_input=True, cut=("rows",), kernels=(1, 2)),
    Kind("moe", "matmul", needs_input=True, cut=("experts", "features", "rows"), kernels=(12, 20)),
    # tables of rows
    _moving("embedding", (1, 1), (2, 1), needs_input=True, cut=("rows", "features", "vocabulary")),
    _moving("positions", (2, 1), (1, 0)),
    _moving("class_token", (1, 1), (1, 1), cut=("features",)),
    # norms
    _moving("batch_norm", (2, 1), (4, 1), needs_input=True, follows=True),
    _moving("layer_norm", (1, 1), (3, 1), needs_input=True, cut=("rows",), kernels=(1, 2)),
    _moving("rms_norm", (1, 1), (3, 1), needs_input=True, cut=("rows",), kernels=(1, 2)),
    _moving("lrn", (2, 1), (4, 1), needs_input=True, needs_output=True, follows=True),
    # element by element
    _moving("relu", (1, 1), (2, 1), needs_output=True, in_place=True, follows=True),
    _moving("gelu", (1, 1), (2, 1), needs_input=True, follows=True),
    _moving("silu", (1, 1), (2, 1), needs_input=True, follows=True),
    _moving("sigmoid", (1, 1), (2, 1), needs_output=True, follows=True),
    _moving("tanh", (1, 1), (2, 1), needs_output=True, follows=True),
    _moving("bias", (1, 1), (1, 0), in_place=True, follows=True),
    _moving("scale", (1, 1), (3, 1), needs_input=True, follows=True, kernels=(1, 2)),
    _moving("dropout", (2, 1), (2, 1), in_place=True, follows=True),
    _moving("rotary", (1, 1), (1, 1), in_place=True, cut=("rows", "heads")),
    _moving("other", (1, 1), (2, 1), needs_input=True, cut=()),
    # several inputs
    _moving("add", (2, 1), (2, 1)),
    _moving("multiply", (2, 1), (3, 2), needs_input=True),
    _moving("concat", (1, 1), (1, 1)),
    # pooling and the loss
    Kind("pool", needs_input=True, needs_output=True),
    Kind("max_pool", needs_input=True, needs_output=True),
    Kind("avg_pool"),
    Kind("global_pool", cut=("features",)),
    Kind("take", cut=("features",)),
    _moving("softmax", (2, 1), (1, 1), needs_output=True, follows=True),
    _moving("cross_entropy", (4, 2), (2, 2), needs_input=True, cut=("rows", "vocabulary"), kernels=(3, 2)),
)
_UNKNOWN = Kind("", needs_input=True, needs_output=True, cut=())


def kind_of(layer: Layer) -> Kind:
    """The row of a layer; one that is not in the table is taken to need both input and output."""
    return KINDS.get(layer.kind, _UNKNOWN)


def kernel_kind(layer: Layer) -> str:
    """The kind of the kernel that does a layer's multiply-adds."""
    kernel = kind_of(layer).kernel
    if kernel != "conv" or layer.kind == "patches":
        return kernel
    if layer.groups > 1:
        return "depthwise" if layer.groups == layer.output_shape[-1] else "grouped"
    if layer.kernel == (1, 1):
        return "conv1x1"
    if layer.kernel in ((3, 3), (5, 5)) and layer.stride == (1, 1):
        return "conv3x3"
    return "conv"


@dataclass(frozen=True, slots=True)
class Kept:
    """What a layer keeps from the forward to the backward pass, in elements of a sample by their width:
    activations of the run's precision, 4 bytes (statistics, logarithms), 1 byte (masks)."""

    elements: int = 0
    wide: int = 0
    masks: int = 0

    def __add__(self, other: Kept) -> Kept:
        return Kept(self.elements + other.elements, self.wide + other.wide, self.masks + other.masks)

    def bytes(self, element_bytes: float) -> float:
        return self.elements * element_bytes + self.wide * 4 + self.masks


def kept(layer: Layer, *, flash: bool | None = None) -> Kept:
    """What a layer keeps beside the inputs and the output that its kind names. `flash` overrides what the
    model says of attention: without it the probabilities are kept, with it one number for each position and
    head."""
    positions = math.prod(layer.output_shape[:-1])
    if layer.kind in ("layer_norm", "rms_norm"):
        return Kept(wide=positions * (2 if layer.kind == "layer_norm" else 1))
    if layer.kind == "dropout":
        return Kept(masks=layer.output_elements)
    if layer.kind == "cross_entropy":
        return Kept(wide=layer.input_elements)
    if isinstance(layer.detail, Attention):
        part = layer.detail
        if part.flash if flash is None else flash:
            return Kept(wide=part.heads * positions)
        scores = part.heads * positions * part.keys
        return Kept(elements=scores * (2 if part.dropout else 1), masks=scores if part.dropout else 0)
    if isinstance(layer.detail, Experts):
        return _kept_by_experts(layer.detail, positions, layer.output_shape[-1])
    return Kept()


def _kept_by_experts(part: Experts, positions: int, width: int) -> Kept:
    inner = part.top_k * part.inner + part.shared_inner
    sent = part.top_k * 2 * width  # what the experts read, and what they say before it is weighted
    activated = inner * (3 if part.gated else 2)
    return Kept(elements=positions * (sent + activated), wide=positions * part.experts)


def score_pairs(part: Attention, queries: int) -> float:
    """Pairs of positions that one head of flash attention works on: what a mask hides is skipped."""
    keys = min(part.keys, part.window or part.keys)
    if not part.causal:
        return queries * keys
    return queries * keys - keys * (keys - 1) / 2 if queries >= keys else queries * (keys - queries / 2)
