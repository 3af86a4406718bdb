"""Pipeline parallelism: a model's units in contiguous stages, each on its own ranks.

Stages are balanced by the search of Yan et al. (KDD'15, section 4) with one choice left, where a segment
ends: with f(s, j) the least time of the slowest of s stages over the first j units,

    f(s, j) = min over i < j of max( f(s - 1, i), time(i, j) ).

Megatron-LM and its relatives divide equal blocks by their number (`even`): the first stage has the embedding
besides, the last one the head and the loss, which makes it the slowest stage of a small model with a large
vocabulary. Blocks that stages cannot share evenly go to middle stages, as in Llama 3 and BLOOM.

The wait of a stage in a step, besides all micro-batches on the slowest stage, is a closed form: the fill
and drain of the other stages, which v virtual pipeline stages per device divide by v (interleaved 1F1B,
Narayanan et al. 2021), and the sends. It is exact where stages are alike and sends are free. Frameworks
send and receive in one call that blocks, which is counted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from planner.errors import BadInput, PlannerError
from planner.memoize import memoize
from planner.parallel._base import (
    Axis,
    AxisFlag,
    Divisible,
    Labels,
    MemoryShare,
    RequestedSettings,
    StageSchedule,
)

if TYPE_CHECKING:
    from planner.model import Chain, Model
    from planner.parallel._base import Floats, StagesTime
    from planner.parallel.plan import Site

USUAL_STAGES = (1, 2, 4, 8, 16)
USUAL_VIRTUAL_STAGES = (2, 4)


@dataclass(frozen=True, slots=True)
class PipelineParallel(Axis):
    """Pipeline stages; with one of `virtual_stages`, each device holds a contiguous run of units."""

    kind: ClassVar[str] = "pp"
    flags: ClassVar[tuple[AxisFlag, ...]] = (
        AxisFlag("pipeline", "degree", "Pipeline-parallel stages, e.g. 4 or 1,2,4.", "p"),
        AxisFlag("interleave", "virtual_stages", "Virtual pipeline stages per device, e.g. 2 or 1,2,4.", "v"),
    )
    splits: ClassVar[frozenset[Divisible]] = frozenset({Divisible.LAYERS, Divisible.DENSE, Divisible.EXPERTS})

    virtual_stages: int = 1

    def __post_init__(self) -> None:
        if self.virtual_stages < 1:
            raise BadInput(
                f"a pipeline has {self.virtual_stages} virtual stages per device; it is at least 1"
            )
        if self.virtual_stages > 1 and self.degree == 1:
            raise BadInput("virtual pipeline stages (--interleave) need a pipeline of at least 2 stages")

    @classmethod
    def candidates(cls, asked: RequestedSettings, site: Site, model: Model) -> Iterator[Self]:
        """Requested degrees, or the usual ones with one virtual stage and with the most possible. The most
        are those that leave two units per stage."""
        units, settings = unit_count(model), asked.settings
        for degree in settings.get("pipeline") or USUAL_STAGES:
            virtual: tuple[int, ...] = (1,)
            if degree > 1 and "interleave" in settings:
                virtual = settings["interleave"]
            elif degree > 1 and "pipeline" not in settings:
                virtual += tuple(v for v in USUAL_VIRTUAL_STAGES if 2 * v * degree <= units)[-1:]
            yield from (cls(degree, virtual_stages) for virtual_stages in virtual)

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        """Error that explains why a model cannot run in these stages; None if it can."""
        if model is None:
            return None
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
        """Shares of the first stage (most micro-batches in flight) and of the last (logits)."""
        return tuple(
            MemoryShare(
                stage_layers(model, self.degree, stage),
                peak_micro_batches(stage, self.degree, micro_batches, self.virtual_stages),
            )
            for stage in (0, self.degree - 1)
        )

    def schedule(
        self, chain: Chain, stages_s: StagesTime, send_s: float, *, even: bool = False
    ) -> StageSchedule:
        """Schedules a chain of units in balanced stages, with the wait and the sends of the slowest."""
        ends = even_stages(chain, self.degree) if even else ()
        if not ends:
            ends = _stage_boundaries(stages_s(range(chain.length + 1)).tobytes(), self.degree)
        stage_s = stages_s(ends)
        wait_s = bubble_s(stage_s, self.virtual_stages) + 2 * send_s * (self.degree - 1)
        return StageSchedule(
            ends, int(stage_s.argmax()), wait_s, exposed_sends_s(send_s, self.virtual_stages)
        )

    def labels(self, site: Site | None = None) -> Labels:
        """Texts on pipeline stages."""
        virtual = f"{self.virtual_stages} virtual pipeline stages per device"
        role = f"in {self.degree} stages"
        if self.virtual_stages == 1:
            return Labels(f"pipeline {self.degree}", plan=role)
        return Labels(f"pipeline {self.degree}", plan=f"{role} ({virtual})", aside=virtual)


def unit_count(model: Model) -> int:
    """Number of units of a model: its blocks, and the layers before and after them."""
    from planner.model import group_into_units

    return group_into_units(model).length


@memoize
def stage_layers(model: Model, stages: int, stage: int = 0) -> frozenset[str]:
    """Names of the layers in one of `stages` stages. Stages have equally many blocks, or else equally many
    units, of which the last stage holds the rest."""
    from planner.model import group_into_units

    chain = group_into_units(model)
    if even := even_stages(chain, stages):
        ends = even[stage : stage + 2]
    else:
        each = -(-chain.length // stages)
        first = min(stage * each, chain.length - 1)
        ends = first, (stage + 1) * each if stage < stages - 1 else chain.length
    return frozenset(
        layer.name for layer, unit in zip(model.layers, chain.unit, strict=True) if ends[0] <= unit < ends[1]
    )


def peak_micro_batches(
    stage: int, stages: int, micro_batches: int | None = None, virtual_stages: int = 1
) -> float:
    """Number of micro-batches whose activations a stage stores at its peak. Virtual stages lengthen the
    warm-up by (p - 1) / (p v) (Narayanan et al. 2021, section 2.2)."""
    deep = float(stages - stage)
    if virtual_stages > 1:
        deep = stages * (1 + (stages - 1) / (stages * virtual_stages))
    return deep if micro_batches is None else min(deep, float(micro_batches))


@memoize
def even_stages(chain: Chain, stages: int) -> tuple[int, ...]:
    """Boundaries of stages with equally many blocks; empty where blocks differ or are too few. They are in
    the chain of units; remaining blocks go one each to middle stages."""
    blocks = chain.repeats.nonzero()[0].tolist()
    if len(blocks) < stages or len(set(chain.elements[chain.repeats].tolist())) > 1:
        return ()
    each, rest = divmod(len(blocks), stages)
    ends = [0]
    before = 0
    for stage in range(stages - 1):
        before += each + (1 <= stage <= rest or (rest == stages - 1 and stage == 0))
        ends.append(blocks[before])
    return (*ends, chain.length)


@memoize
def _stage_boundaries(unit_s: bytes, stages: int) -> tuple[int, ...]:
    """Boundaries of balanced stages, cached because virtual stages do not change them."""
    import numpy as np

    return balance_stages(np.frombuffer(unit_s), stages)


def balance_stages(unit_s: Floats, stages: int) -> tuple[int, ...]:
    """Balances units over stages; returns `stages + 1` increasing boundaries in the chain of units. Ties
    go to the stages that end earliest."""
    import numpy as np

    units = len(unit_s)
    if not 1 <= stages <= units:
        raise BadInput(f"{stages} pipeline stages for {units} units; the nearest that works is {units}")
    if stages == 1:
        return (0, units)
    # seconds of the units before one position (row) and from another on (column); infinite for none
    before = np.concatenate([[0.0], np.cumsum(unit_s)])
    time_s = before[:, None] - before
    time_s[np.tri(units + 1, dtype=bool).T] = np.inf
    begins = np.zeros((stages, units + 1), np.intp)
    best = time_s[:, 0]  # the first stage begins at the first unit
    for stage in range(1, stages):
        ends = slice(units, None) if stage == stages - 1 else slice(None)  # the last one ends at the last
        slowest = np.maximum(best, time_s[ends])
        begins[stage, ends] = slowest.argmin(axis=1)
        best = slowest.min(axis=1)
    boundaries = [units]
    for stage in reversed(range(stages)):
        boundaries.append(int(begins[stage, boundaries[-1]]))
    return tuple(reversed(boundaries))


def bubble_s(stage_s: Floats, virtual_stages: int = 1) -> float:
    """Seconds for which the slowest stage waits while the pipeline fills and drains."""
    return float(stage_s.sum() - stage_s.max()) / virtual_stages


def exposed_sends_s(send_s: float, virtual_stages: int = 1) -> float:
    """Seconds per micro-batch in which a stage only sends and receives, once forward and once backward.
    With virtual stages it is 0, as another virtual stage computes meanwhile."""
    return 2 * send_s if virtual_stages == 1 else 0.0
