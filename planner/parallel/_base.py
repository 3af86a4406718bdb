"""The interface of an axis: one dimension of a plan's device mesh.

An axis spreads one replica of a model over `degree` ranks. To add one, write one file with one frozen
subclass of `Axis` and one line in `planner.parallel.mesh.AXES`; its flags, JSON keys, labels, memory, search
candidates and communication follow from the members below. Nobody outside this package inspects a degree.
Flags are read before a command runs, so that files of axes import numpy and layers where they need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from planner.errors import PlannerError
    from planner.hardware import Hardware
    from planner.model import Model
    from planner.parallel.collectives import Kind

# What the backward pass communicates where the forward pass did this.
TRANSPOSED: dict[Kind, Kind] = {
    "all_reduce": "all_reduce",
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "all_to_all": "all_to_all",
    "broadcast": "all_reduce",
    "send_recv": "send_recv",
}


@dataclass(frozen=True, slots=True)
class AxisFlag:
    """A setting of an axis as users write it: `name` is the flag (`--tensor`), the scenario field and the
    JSON key; `field` is the axis' own."""

    name: str
    field: str
    help: str


@dataclass(frozen=True, slots=True)
class Communication:
    """A collective among the ranks of an axis after a layer: of so many activation elements per sample in the
    forward pass, and of its transpose (`TRANSPOSED`) in the backward pass. `of_gradients`: of so many
    gradient elements, whatever the batch, and in the backward pass only (parameters that the ranks have in
    common)."""

    layer: str
    kind: Kind
    elements: int
    of_gradients: bool = False


@dataclass(frozen=True, slots=True)
class Shard:
    """What one rank computes and stores. `boundary_split`: of a unit's output it holds one part in so many,
    which is what it sends to the next pipeline stage."""

    model: Model
    boundary_split: int = 1


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """What one rank of an axis holds of its part: these layers (None: all), with the activations of so many
    micro-batches at its fullest moment."""

    layers: frozenset[str] | None = None
    in_flight: float = 1.0


@dataclass(frozen=True, slots=True)
class AxisLabels:
    """An axis in words: `degree` in a list of degrees (`tensor 8`), `detail` what follows the list, `role`
    what its ranks do, in a sentence about the replica (`8 share every layer`)."""

    degree: str
    detail: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Axis(ABC):
    """One dimension of a device mesh. `name` is what engineers call it (`tp`); the first of `flags` is that
    of the degree."""

    name: ClassVar[str]
    flags: ClassVar[tuple[AxisFlag, ...]]
    # The data-parallel strategy that lowers this axis itself; empty: it is lowered here, for every strategy.
    lowered_by: ClassVar[str] = ""
    outermost: ClassVar[bool] = False  # ranks stand further apart than data-parallel ones, as stages do
    own_samples: ClassVar[bool] = False  # each rank brings its own samples; else they work on the same ones
    splits_parameters: ClassVar[bool] = (
        True  # each rank holds its part of them; else ranks hold the same ones
    )

    degree: int = 1

    @property
    def key(self) -> str:
        """Tells the axis apart in a plan's key, hence in seeds and stores: never change it."""
        return f"{self.name}{self.degree}"

    @classmethod
    @abstractmethod
    def candidates(
        cls, model: Model, hardware: Hardware, asked: Mapping[str, tuple[int, ...]]
    ) -> Iterator[Self]:
        """What to try on a machine: all combinations of the flags that are `asked`, or where the degree is
        not among them, degrees worth searching. They may be infeasible."""

    def infeasibility(
        self, model: Model, hardware: Hardware | None = None, batch: int = 1
    ) -> PlannerError | None:
        """Why a model cannot be spread like this (on machines of a kind), with what would work; None if it
        can."""
        return None

    def shard(self, part: Shard) -> Shard:
        """What one rank computes and stores of a part."""
        return part

    def communications(self, part: Shard) -> tuple[Communication, ...]:
        """What its ranks exchange while they compute a part, before it is sharded by this axis."""
        return ()

    def memory_shares(self, model: Model, micro_batches: int) -> tuple[MemoryShare, ...]:
        """What the ranks hold that may hold the most."""
        return (MemoryShare(),)

    @abstractmethod
    def labels(self) -> AxisLabels:
        """The axis in words."""
