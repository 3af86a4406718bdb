"""Workload of a layer for one sample: arithmetic, matrix shapes, elements moved and kernels launched.

All figures are for one sample except `weight_elements`: parameters read, or gradients written, once per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.model import AttentionShape

Grows = Literal["rows", "depth", "times"]


@dataclass(frozen=True, slots=True)
class Matmul:
    """`times` products of a (rows x depth) by a (depth x columns) matrix for one sample; `grows` is the
    dimension that is multiplied by the batch."""

    rows: float
    columns: float
    depth: float
    times: float = 1
    grows: Grows = "rows"

    @property
    def flops(self) -> float:
        return 2.0 * self.rows * self.columns * self.depth * self.times

    def gradients(self) -> tuple[Matmul, Matmul]:
        """Products of the backward pass: the weight gradient, then the input gradient."""
        rows, columns, depth, times = self.rows, self.columns, self.depth, self.times
        if self.grows == "times":
            return Matmul(depth, columns, rows, times, "times"), Matmul(rows, depth, columns, times, "times")
        return Matmul(depth, columns, rows, times, "depth"), Matmul(rows, depth, columns, times)


@dataclass(frozen=True, slots=True)
class Pass:
    """One direction of one layer. Under a causal mask `flops` leave out masked pairs, `nominal_flops` do
    not."""

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
    """Forward and backward work of a layer, and the kernel kind whose rate it runs at."""

    kernel: str
    forward: Pass = Pass()
    backward: Pass = Pass()


NO_WORK = Workload("memory")


@dataclass(frozen=True, slots=True)
class Kept:
    """Saved activations of one sample by width: elements in the run's precision, 4-byte values (statistics,
    logarithms), 1-byte masks."""

    elements: int = 0
    wide: int = 0
    masks: int = 0

    def __add__(self, other: Kept) -> Kept:
        return Kept(self.elements + other.elements, self.wide + other.wide, self.masks + other.masks)

    def bytes(self, element_bytes: float) -> float:
        return self.elements * element_bytes + self.wide * 4 + self.masks


def score_pairs(part: AttentionShape, queries: int) -> float:
    """Query-key pairs that one head of flash attention computes; masked pairs are skipped."""
    keys = min(part.keys, part.window or part.keys)
    if not part.causal:
        return queries * keys
    return queries * keys - keys * (keys - 1) / 2 if queries >= keys else queries * (keys - queries / 2)
