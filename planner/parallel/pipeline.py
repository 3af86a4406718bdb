"""Pipeline parallelism: a model's units in contiguous stages, each on ranks of its own.

`planner.parallel.stage` says where stages begin and end, and what they wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from planner.errors import BadInput, PlannerError
from planner.memoize import memoize
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
        AxisFlag("pipeline", "degree", "Pipeline-parallel stages, as 4 or 1,2,4."),
        AxisFlag("interleave", "virtual_stages", "Virtual pipeline stages per device, as 2 or 1,2,4."),
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
        units = unit_count(model)
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
        units = unit_count(model)
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


def unit_count(model: Model) -> int:
    """Units of a model: blocks, and what stands before and after them."""
    from planner.model.units import chain_of

    return chain_of(model).length


@memoize
def stage_layers(model: Model, stages: int, stage: int = 0) -> frozenset[str]:
    """Layers of one of so many stages of equally many units; the last has what is left."""
    from planner.model.units import chain_of

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
