"""Pipeline parallelism: a model's units in contiguous stages, each on ranks of its own.

Stages are as fast as they can be, by the search of Yan et al. (KDD'15, section 4) with one choice left, where
a segment ends: with f(s, j) the least time of the slowest of s stages over the first j units,

    f(s, j) = min over i < j of max( f(s - 1, i), time(i, j) ).

What stages wait for in a step, beside all micro-batches on the slowest of them, is a closed form: the fill
and drain of the other stages, which v virtual pipeline stages per device divide by v (interleaved 1F1B,
Narayanan et al. 2021), and the sends. It is exact where stages are alike and sends are free. Frameworks send
and receive in one call that blocks, which is counted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput, PlannerError
from planner.model.units import Floats, chain_of
from planner.parallel._base import Axis, AxisFlag, AxisLabels, MemoryShare

if TYPE_CHECKING:
    from planner.hardware import Hardware
    from planner.model import Model

USUAL_STAGES = (1, 2, 4, 8, 16)
USUAL_VIRTUAL_STAGES = (2, 4)


@dataclass(frozen=True, slots=True)
class PipelineParallel(Axis):
    """`virtual_stages` per device; 1: each device holds one contiguous run of units."""

    name: ClassVar[str] = "pp"
    flags: ClassVar[tuple[AxisFlag, ...]] = (
        AxisFlag("pipeline", "degree", "Pipeline stages: 4 or 1,2,4."),
        AxisFlag("interleave", "virtual_stages", "Virtual pipeline stages per device: 2 or 1,2,4."),
    )
    outermost: ClassVar[bool] = True

    virtual_stages: int = 1

    def __post_init__(self) -> None:
        if self.virtual_stages < 1:
            raise BadInput(
                f"a pipeline has {self.virtual_stages} virtual stages per device; it is at least 1"
            )
        if self.virtual_stages > 1 and self.degree == 1:
            raise BadInput("virtual pipeline stages (--interleave) need a pipeline of at least 2 stages")

    @property
    def key(self) -> str:
        return f"p{self.degree}v{self.virtual_stages}"

    @classmethod
    def candidates(
        cls, model: Model, hardware: Hardware, asked: Mapping[str, tuple[int, ...]]
    ) -> Iterator[Self]:
        """Where nobody says how many, with one virtual stage, or as many as leave each two units or more."""
        units = chain_of(model).length
        for degree in asked.get("pipeline") or USUAL_STAGES:
            virtual: tuple[int, ...] = (1,)
            if degree > 1 and "interleave" in asked:
                virtual = asked["interleave"]
            elif degree > 1 and "pipeline" not in asked:
                virtual += tuple(v for v in USUAL_VIRTUAL_STAGES if 2 * v * degree <= units)[-1:]
            yield from (cls(degree, virtual_stages) for virtual_stages in virtual)

    def infeasibility(
        self, model: Model, hardware: Hardware | None = None, batch: int = 1
    ) -> PlannerError | None:
        units = chain_of(model).length
        if self.degree > units:
            return BadInput(
                f"--pipeline: {self.degree} stages of {model.name}, which has {units} units; the nearest "
                f"that works is {units}"
            )
        if self.degree * self.virtual_stages > units:
            return BadInput(
                f"--interleave: {self.virtual_stages} x {self.degree} stages of {model.name}, which has "
                f"{units} units; the nearest that works is --interleave {units // self.degree}"
            )
        return None

    def memory_shares(self, model: Model, micro_batches: int) -> tuple[MemoryShare, ...]:
        """The first stage, where most micro-batches are in flight, and the last, which has the logits."""
        return tuple(
            MemoryShare(
                stage_layers(model, self.degree, stage),
                in_flight(stage, self.degree, micro_batches, self.virtual_stages),
            )
            for stage in (0, self.degree - 1)
        )

    def labels(self) -> AxisLabels:
        virtual = f"{self.virtual_stages} virtual pipeline stages per device"
        role = f"in {self.degree} stages"
        if self.virtual_stages == 1:
            return AxisLabels(f"pipeline {self.degree}", role=role)
        return AxisLabels(f"pipeline {self.degree}", virtual, f"{role} ({virtual})")


def balanced(unit_s: npt.ArrayLike, stages: int) -> tuple[int, ...]:
    """Where stages begin and end: `stages + 1` increasing positions in the chain of units. Of equally fast
    choices the one whose stages end earliest is taken."""
    times = np.asarray(unit_s, np.float64)
    units = len(times)
    if not 1 <= stages <= units:
        raise BadInput(f"{stages} pipeline stages for {units} units; the nearest that works is {units}")
    if stages == 1:
        return (0, units)
    time_s = _spans(times)
    begins = np.zeros((stages, units + 1), np.intp)
    best = time_s[:, 0]  # the first stage begins at the first unit
    for stage in range(1, stages):
        ends = slice(units, None) if stage == stages - 1 else slice(None)  # the last one ends at the last
        slowest = np.maximum(best, time_s[ends])
        begins[stage, ends] = slowest.argmin(axis=1)
        best = slowest.min(axis=1)
    found = [units]
    for stage in reversed(range(stages)):
        found.append(int(begins[stage, found[-1]]))
    return tuple(reversed(found))


def _spans(each: Floats) -> Floats:
    """Seconds of the units before one position (row) and from another on (column); infinite for none."""
    before = np.zeros(len(each) + 1)
    np.cumsum(each, out=before[1:])
    spans = before[:, None] - before
    spans[_empty(len(before))] = np.inf
    return spans


@lru_cache(maxsize=64)
def _empty(positions: int) -> npt.NDArray[np.bool_]:
    """Where the end of a stage is not after its begin."""
    return np.tri(positions, dtype=bool).T


@lru_cache(maxsize=256)
def stage_layers(model: Model, stages: int, stage: int = 0) -> frozenset[str]:
    """Layers of one of so many stages of equally many units; the last has what is left."""
    chain = chain_of(model)
    each = -(-chain.length // stages)
    ends = (min(stage * each, chain.length - 1), (stage + 1) * each if stage < stages - 1 else chain.length)
    return frozenset(
        layer.name for layer, unit in zip(model.layers, chain.unit, strict=True) if ends[0] <= unit < ends[1]
    )


def in_flight(stage: int, stages: int, micro_batches: int | None = None, virtual_stages: int = 1) -> float:
    """Micro-batches whose activations a stage keeps at its fullest moment. With virtual stages the warm-up is
    longer by (p - 1) / (p v) (Narayanan et al. 2021, section 2.2)."""
    deep = float(stages - stage)
    if virtual_stages > 1:
        deep = stages * (1 + (stages - 1) / (stages * virtual_stages))
    return deep if micro_batches is None else min(deep, float(micro_batches))


def bubble_s(stage_s: npt.ArrayLike, virtual_stages: int = 1) -> float:
    """Seconds in which the slowest stage waits for the others to fill and to drain."""
    times = np.asarray(stage_s, np.float64)
    return float(times.sum() - times.max()) / virtual_stages


def exposed_sends_s(send_s: float, virtual_stages: int = 1) -> float:
    """Seconds of a micro-batch in which a stage sends and receives and does nothing else, once forward and
    once backward: with one pass after another it waits for its neighbours in turn; with virtual stages
    another one computes meanwhile."""
    return 2 * send_s if virtual_stages == 1 else 0.0
