"""Workload of a layer for one sample: arithmetic, matrix shapes, elements moved and kernels launched.

All figures are for one sample except `weight_elements`: parameters read, or gradients written, once per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from planner.model import AttentionShape

# Kinds of kernels by which devices have rates. matmul: linear and fully connected layers; attention: scores
# and values; experts: products of a mixture of experts, grouped by expert; conv1x1: effectively matrix
# products; conv3x3: stride 1, for which libraries have Winograd kernels in single precision; conv: other
# filters; grouped, depthwise: few channels per filter; memory: no multiplication worth counting.
KernelKind = Literal[
    "matmul", "attention", "experts", "conv1x1", "conv3x3", "conv", "grouped", "depthwise", "memory"
]
KERNEL_KINDS: tuple[KernelKind, ...] = get_args(KernelKind)
MATMUL, ATTENTION, EXPERTS, CONV1X1, CONV3X3, CONV, GROUPED, DEPTHWISE, MEMORY = KERNEL_KINDS

Grows = Literal["rows", "depth", "times"]


@dataclass(frozen=True, slots=True)
class Matmul:
    """`times` matrix products of (rows x depth) by (depth x columns) per sample. `grows`: the dimension that
    is multiplied by the batch."""

    rows: float
    columns: float
    depth: float
    times: float = 1
    grows: Grows = "rows"

    @property
    def flops(self) -> float:
        return 2.0 * self.rows * self.columns * self.depth * self.times

    def backward_products(self) -> tuple[Matmul, Matmul]:
        """The products of the backward pass: weight gradient, then input gradient."""
        rows, columns, depth, times = self.rows, self.columns, self.depth, self.times
        if self.grows == "times":
            return Matmul(depth, columns, rows, times, "times"), Matmul(rows, depth, columns, times, "times")
        return Matmul(depth, columns, rows, times, "depth"), Matmul(rows, depth, columns, times)


@dataclass(frozen=True, slots=True)
class Pass:
    """Work of one layer in one direction. `flops` leave masked pairs out, `nominal_flops` count them."""

    flops: float = 0.0
    nominal_flops: float = 0.0
    read_elements: float = 0.0
    written_elements: float = 0.0
    weight_elements: float = 0.0
    kernels: int = 0
    matmuls: tuple[Matmul, ...] = ()

    @property
    def moved_elements(self) -> float:
        return self.read_elements + self.written_elements


@dataclass(frozen=True, slots=True)
class Workload:
    """Forward and backward work of a layer, and the kernel kind that sets its rate."""

    kernel: KernelKind
    forward: Pass = Pass()
    backward: Pass = Pass()


NO_WORK = Workload(MEMORY)


@dataclass(frozen=True, slots=True)
class Kept:
    """Saved activations per sample, by width: elements in the run's precision, 4-byte values (statistics,
    logarithms) and 1-byte masks."""

    elements: int = 0
    wide: int = 0
    masks: int = 0

    def __add__(self, other: Kept) -> Kept:
        return Kept(self.elements + other.elements, self.wide + other.wide, self.masks + other.masks)

    def bytes(self, element_bytes: float) -> float:
        return self.elements * element_bytes + self.wide * 4 + self.masks


def conv_kernel_kind(kernel: Sequence[int], stride: Sequence[int], groups: int, channels: int) -> KernelKind:
    """Kernel kind of a convolution with these filters and output channels."""
    if groups > 1:
        return DEPTHWISE if groups == channels else GROUPED
    if all(side == 1 for side in kernel):
        return CONV1X1
    square = tuple(kernel) in ((3, 3), (5, 5))
    return CONV3X3 if square and all(step == 1 for step in stride) else CONV


def score_pairs(part: AttentionShape, queries: int) -> float:
    """Number of query-key pairs that one head of flash attention computes, masked ones excluded."""
    keys = min(part.keys, part.window or part.keys)
    if not part.causal:
        return queries * keys
    return queries * keys - keys * (keys - 1) / 2 if queries >= keys else queries * (keys - queries / 2)
