"""The interface of a layer kind, with the defaults of a kernel that only moves data.

A subclass of `Kind` is both the schema of the kind in a model file (its fields are the keys; the first one
names the kind) and everything the planner knows about such layers. Class attributes hold what is the same for
all layers of the kind; methods derive the rest:

- `infer_shape(shapes, style)`: output shape, parameter tensors and multiply-adds, by keys and input shapes;
- `work(layer, ...)`: FLOPs, elements and kernels of the forward pass and of both gradients;
- `saved_activations(layer, ...)`: activations kept for the backward pass beside inputs and outputs;
- `shard(layer, ...)`: the layer as one rank of a tensor-parallel group computes it.

A `Workload` counts arithmetic, matrix shapes, elements moved and kernels launched for one sample, except
`weight_elements`: parameters read, or gradients written, once per step. Sizes are in elements: the precision
of a run makes bytes of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, get_args

from msgspec import Meta, Struct, field

from planner.model import AttentionShape, Experts, Layer, Tensor

# Kinds of kernels by which devices have rates. matmul: linear and fully connected layers; attention: scores
# and values; experts: products of a mixture of experts, grouped by expert; conv1x1: effectively matrix
# products; conv3x3: stride 1, for which libraries have Winograd kernels in single precision; conv_long: other
# filters with stride 1, along one axis or unrolled from volumes; conv: filters with a larger stride; grouped,
# depthwise: few channels per filter; memory: no multiplication worth counting.
KernelKind = Literal[
    "matmul",
    "attention",
    "experts",
    "conv1x1",
    "conv3x3",
    "conv_long",
    "conv",
    "grouped",
    "depthwise",
    "memory",
]
KERNEL_KINDS: tuple[KernelKind, ...] = get_args(KernelKind)
MATMUL, ATTENTION, EXPERTS, CONV1X1, CONV3X3, CONV_LONG, CONV, GROUPED, DEPTHWISE, MEMORY = KERNEL_KINDS

Grows = Literal["rows", "depth", "times"]


@dataclass(frozen=True, slots=True)
class Matmul:
    """`times` products of (rows x depth) by (depth x columns) per sample."""

    rows: float
    columns: float
    depth: float
    times: float = 1
    grows: Grows = "rows"  # dimension that is multiplied by the batch

    @property
    def flops(self) -> float:
        """Forward FLOPs per sample, two per multiply-add."""
        return 2.0 * self.rows * self.columns * self.depth * self.times

    def backward_products(self) -> tuple[Matmul, Matmul]:
        """The products of the backward pass: weight gradient, then input gradient."""
        rows, columns, depth, times = self.rows, self.columns, self.depth, self.times
        if self.grows == "times":
            return Matmul(depth, columns, rows, times, "times"), Matmul(rows, depth, columns, times, "times")
        return Matmul(depth, columns, rows, times, "depth"), Matmul(rows, depth, columns, times)


@dataclass(frozen=True, slots=True)
class Pass:
    """FLOPs and memory traffic in one direction; `nominal_flops` count masked pairs, `flops` do not."""

    flops: float = 0.0
    nominal_flops: float = 0.0
    read_elements: float = 0.0
    written_elements: float = 0.0
    weight_elements: float = 0.0
    kernels: int = 0
    matmuls: tuple[Matmul, ...] = ()

    @property
    def moved_elements(self) -> float:
        """Elements read and written."""
        return self.read_elements + self.written_elements


@dataclass(frozen=True, slots=True)
class Workload:
    """Forward and backward pass of a layer, and the kernel kind that sets its rate."""

    kernel: KernelKind
    forward: Pass = Pass()
    backward: Pass = Pass()


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs and memory traffic of a layer per sample: forward, input gradients and weight gradients."""

    forward: Pass = Pass()
    input_gradient: Pass = Pass()
    weight_gradient: Pass = Pass()

    @property
    def backward(self) -> Pass:
        """Merges both gradients into one pass whose matrix products alternate, weight gradient first."""
        if self.weight_gradient == Pass():
            return self.input_gradient
        weights, inputs = self.weight_gradient, self.input_gradient
        pairs = zip_longest(weights.matmuls, inputs.matmuls)
        matmuls = tuple(product for pair in pairs for product in pair if product is not None)
        counts = {name: getattr(weights, name) + getattr(inputs, name) for name in Pass.__slots__[:-1]}
        return Pass(**counts, matmuls=matmuls)


@dataclass(frozen=True, slots=True)
class ElementCounts:
    """Elements per sample: in the run's precision, 4-byte `wide` values, and 1-byte `masks`."""

    elements: int = 0
    wide: int = 0
    masks: int = 0

    def __add__(self, other: ElementCounts) -> ElementCounts:
        return ElementCounts(self.elements + other.elements, self.wide + other.wide, self.masks + other.masks)

    def __mul__(self, count: int) -> ElementCounts:
        return ElementCounts(self.elements * count, self.wide * count, self.masks * count)

    def bytes(self, element_bytes: float) -> float:
        """Bytes per sample, where an element in the run's precision takes `element_bytes`."""
        return self.elements * element_bytes + self.wide * 4 + self.masks


Size = Annotated[int, Meta(ge=1, le=10_000_000)]
SizeOrZero = Annotated[int, Meta(ge=0, le=10_000_000)]
Window = Annotated[int, Meta(ge=1, le=10_000)]
Pair = Window | Annotated[list[Window], Meta(min_length=2, max_length=2)]
Padding = Literal["same", "valid"] | Annotated[int, Meta(ge=0, le=10_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Names = Annotated[list[Name], Meta(min_length=2)]
Sizes = Annotated[list[Size], Meta(min_length=1, max_length=6)]
Join = Literal["concat", "add"]
After = Literal["bias", "batch_norm", "relu", "gelu", "silu", "sigmoid", "tanh", "lrn", "dropout"]

Shape = tuple[int, ...]
Square = tuple[int, int]
NamedShape = tuple[str, Shape]  # the template of a tensor's name, and its shape


class ShapeMisfit(Exception):
    """A layer cannot read inputs of these shapes."""


@dataclass(frozen=True, slots=True)
class MemoryTraffic:
    """Number of times that a kernel without arithmetic reads and writes the whole output."""

    reads: int
    writes: int

    def to_pass(self, size: int, kernels: int) -> Pass:
        """Pass of `kernels` kernels in which each of the reads and writes moves `size` elements."""
        return Pass(0, 0, self.reads * size, self.writes * size, 0, kernels)


@dataclass(frozen=True, slots=True)
class InferredLayer:
    """Figures inferred for a layer: output shape, tensors, multiply-adds, kernel and stride."""

    shape: Shape
    tensors: tuple[NamedShape, ...] = ()
    macs: int = 0
    kernel: Square | None = None
    stride: Square | None = None
    groups: int = 1
    detail: AttentionShape | Experts | None = None
    tied: Shape = ()  # of the tensor that it reads and another layer owns
    kind: str | None = None  # of the layer, if not that of the file


@dataclass(frozen=True, slots=True)
class Style:
    """Conventions of a model file: names of tensors, and layout of weights."""

    names: Any  # templates by key, as the file's table `tensors` has them
    torch: bool

    def weight_shape(self, inputs: int, outputs: int) -> Shape:
        """Shape of a weight matrix in the file's layout."""
        return (outputs, inputs) if self.torch else (inputs, outputs)

    def filter_shape(self, kernel: Square, inputs: int, outputs: int) -> Shape:
        """Shape of convolution filters in the file's layout."""
        return (outputs, inputs, *kernel) if self.torch else (*kernel, inputs, outputs)


@dataclass(frozen=True, slots=True)
class LayerShard:
    """A layer on one tensor-parallel rank.

    `output_sharded`: the rank holds some features of the output; `partial_sum`: the group all-reduces the
    output.
    """

    layer: Layer
    output_sharded: bool = False
    partial_sum: bool = False


class Kind(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of layer."""

    name: Name | None = None
    unit: Name | None = None  # the repeated unit that it is part of, where no block says so
    then: list[After] = []

    # Schema of model files
    lists_inputs: ClassVar[bool] = False  # a key lists its inputs; else `from` names one
    smallest: ClassVar[Mapping[str, Any] | None] = None  # its least keys, where all have defaults
    moving_averages: ClassVar[bool] = False  # it has untrained means and variances
    # key in the table `tensors`: type, default template
    tensor_names: ClassVar[Mapping[str, tuple[Any, Any]]] = MappingProxyType({})
    is_window: ClassVar[bool] = False  # slides over an image without weights
    # Workload: kernel kind of its rate; passes over the output by kernels that only move data, None: reads
    # its input once and writes its output once, and twice that backward; kernels launched per direction.
    kernel_kind: ClassVar[KernelKind] = MEMORY
    computes: ClassVar[bool] = True  # False: a view, without a kernel
    forward: ClassVar[MemoryTraffic | None] = None
    backward: ClassVar[MemoryTraffic | None] = None
    kernels: ClassVar[tuple[int, int]] = (1, 1)

    # Saved activations: what the derivative reads again, and whether the output overwrites the input
    needs_input: ClassVar[bool] = False
    needs_output: ClassVar[bool] = False
    in_place: ClassVar[bool] = False
    input_for_weights: ClassVar[bool] = False  # it saves its input for weight gradients alone
    reads_indices: ClassVar[bool] = False  # its inputs are token ids, a few bytes each
    # A compiled graph fuses it into the kernels that read it
    fuses: ClassVar[bool] = False
    autocast: ClassVar[Literal["follow", "widen", "narrow"]] = "follow"  # inputs to fp32, to 16 bits
    autocast_wide_output: ClassVar[bool] = False  # in single precision under autocast
    # Its output under per-op activation recompute: recomputed, saved, or every second one of a block saved
    recompute_policy: ClassVar[Literal["recompute", "save", "alternate"]] = "recompute"
    # What an early-stopping checkpoint needs of it in the backward pass: all, its input alone, nothing
    backward_reads: ClassVar[Literal["all", "input", "nothing"]] = "all"

    # Tensor parallelism: works on some features of its input; its output is then sharded as its input is;
    # splits along the sequence where whole features are needed
    accepts_shard: ClassVar[bool] = False
    passes_shard: ClassVar[bool] = False
    sequence_parallel: ClassVar[bool] = False
    joins_residual: ClassVar[bool] = False  # its output is the residual stream
    reads_all_rows: ClassVar[bool] = False  # each output row needs all rows of the input

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Infers output shape, tensors and multiply-adds from the keys and the input shapes."""
        return InferredLayer(shapes[0])

    @classmethod
    def kernel_of(cls, layer: Layer) -> KernelKind:
        """Kernel kind of the layer's arithmetic, which selects the device's rate."""
        return cls.kernel_kind

    @classmethod
    def work(cls, layer: Layer, *, trained: bool = True, flash: bool | None = None) -> Work:
        """FLOPs and memory traffic per sample; `flash` overrides the attention kernel."""
        if not cls.computes:
            return Work()
        forward, backward = cls.kernels
        if cls.forward is None or cls.backward is None:
            read, out = layer.input_elements, layer.output_elements
            return Work(
                Pass(read_elements=read, written_elements=out, kernels=forward),
                Pass(read_elements=read + 2 * out, written_elements=read, kernels=backward),
            )
        size = cls.pass_elements(layer)
        return Work(cls.forward.to_pass(size, forward), cls.backward.to_pass(size, backward))

    @classmethod
    def pass_elements(cls, layer: Layer) -> int:
        """Elements that one read or write of `MemoryTraffic` moves."""
        return layer.output_elements

    @classmethod
    def saved_activations(cls, layer: Layer, *, flash: bool | None = None) -> ElementCounts:
        """Elements saved per sample besides those implied by `needs_input` and `needs_output`."""
        return ElementCounts()

    @classmethod
    def live_gradients(cls, layer: Layer, read_elements: int) -> ElementCounts:
        """Gradient elements held at once in backward; `read_elements` counts inputs that need a gradient."""
        return ElementCounts(layer.output_elements + (0 if cls.in_place else read_elements))

    @classmethod
    def shard(
        cls, layer: Layer, degree: int, *, input_sharded: bool, output_may_shard: bool, sequence: bool
    ) -> LayerShard:
        """Returns the layer as one of `degree` tensor-parallel ranks computes it.

        `output_may_shard`: all readers accept shards; `sequence`: norms and residual sums are sharded along
        the positions.
        """
        if input_sharded and (cls.passes_shard or cls.accepts_shard):
            return LayerShard(shard_features(layer, degree), output_sharded=True)
        if sequence and cls.sequence_parallel and len(layer.output_shape) == 2:
            positions = (max(layer.output_shape[0] // degree, 1), layer.output_shape[1])
            return LayerShard(
                replace(layer, output_shape=positions, input_elements=layer.input_elements // degree)
            )
        return LayerShard(layer)


class OneInput(Kind, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A kind with one input: the layer before it, or the one named by `from`."""

    from_: Name | None = field(name="from", default=None)


class Weighted(OneInput, frozen=True):
    """A kind with a weight tensor, which has its own key in the table `tensors`."""

    weights: Name | None = None  # name of the tensor, if not by the template

    def weights_name(self, style: Style) -> str:
        """Template of the weight tensor's name."""
        template: str = self.weights or getattr(style.names, kind_name(type(self)))
        return template


def weight_elements(layer: Layer) -> int:
    """Number of parameters that a layer reads, tied ones included."""
    return sum(tensor.elements for tensor in (*layer.tensors, *layer.tied))


def shard_features(layer: Layer, degree: int) -> Layer:
    """Returns the layer with its input, output features and parameters divided by `degree`."""
    width = max(layer.output_shape[-1] // degree, 1)
    return replace(
        layer,
        output_shape=(*layer.output_shape[:-1], width),
        input_elements=layer.input_elements // degree,
        macs=layer.macs // degree,
        tensors=shard_tensors(layer.tensors, degree),
    )


def shard_tensors(tensors: tuple[Tensor, ...], degree: int) -> tuple[Tensor, ...]:
    """Shards each tensor along its first dimension that the degree divides."""
    out = []
    for tensor in tensors:
        side = next((axis for axis, size in enumerate(tensor.shape) if size % degree == 0), None)
        if side is None:
            out.append(tensor)
            continue
        shape = (*tensor.shape[:side], tensor.shape[side] // degree, *tensor.shape[side + 1 :])
        out.append(replace(tensor, shape=shape))
    return tuple(out)


def position_count(layer: Layer) -> int:
    """Number of sequence positions or pixels: the product of all output axes but the last."""
    return math.prod(layer.output_shape[:-1])


def sequence_sizes(shape: Shape) -> Square:
    """Length and features of a sequence shape; raises `ShapeMisfit` for other shapes."""
    if len(shape) != 2:
        raise ShapeMisfit(f"it reads (sequence, features), but its input is {format_shape(shape)}")
    return shape[0], shape[1]


def format_shape(shape: Any) -> str:
    """Formats a shape as text such as `56x56x64`."""
    return "x".join(map(str, shape))


def read_only_mapping(**values: Any) -> Mapping[str, Any]:
    """Read-only mapping of the keyword arguments."""
    return MappingProxyType(values)


def inputs_key(kind: type[Kind]) -> str | None:
    """Key of a layer's list of inputs in files: `reads` or the kind's name; None for kinds without list."""
    if not kind.lists_inputs:
        return None
    return "reads" if "reads" in kind.__struct_fields__ else kind_name(kind)


def kind_name(kind: type[Kind]) -> str:
    """Name of a kind in files: its class name in lower case with underscores."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
