"""The interfaces of parallelism: `Parallelism`, and `Axis`, one dimension of a plan's device mesh.

An axis spreads one replica of a model over `degree` ranks; a data-parallel strategy
(`planner.parallel.data.Exchange`) keeps replicas alike. Both are frozen values of a plan that answer the
same questions: what is worth trying, why it cannot run, and how it reads. To add an axis, write one file with
one frozen subclass of `Axis` and one line in `planner.parallel.mesh.AXES`; its flags, JSON keys, labels,
memory, search candidates and communication follow from the members below. Nobody outside this package
inspects a degree. Flags are read before a command runs, so that files of axes import numpy and layers where
they need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from planner.errors import PlannerError
    from planner.model import Model
    from planner.note import Note
    from planner.parallel.collectives import Kind
    from planner.parallel.plan import Site
    from planner.simulator.cluster import Resource, ResourceKind

    Floats = npt.NDArray[np.float64]

# What the backward pass communicates where the forward pass did this.
TRANSPOSED: dict[Kind, Kind] = {
    "all_reduce": "all_reduce",
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "all_to_all": "all_to_all",
    "broadcast": "all_reduce",
    "send_recv": "send_recv",
}


class Divisible(Enum):
    """What an axis may divide, so that each of its ranks has a part of its own."""

    SAMPLES = "samples"  # else all ranks work on the same ones
    DENSE = "dense parameters"  # else all ranks hold the same ones
    EXPERTS = "parameters of experts"
    LAYERS = "layers"  # ranks follow one another in a step, further apart than data-parallel ones


@dataclass(frozen=True, slots=True)
class AxisFlag:
    """A setting of an axis as users write it: `name` is the flag (`--tensor`), the scenario field and the
    JSON key; `field` is the axis' own, `key` stands before its value in a plan's key."""

    name: str
    field: str
    help: str
    key: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request says of one parallelism: the `settings` that it names, by flag; the `choices` that
    `--exchange KIND:NAME=VALUE` fixes. `single`: the question is about one plan, of which the first is taken,
    and a request that names several is refused. `brief`: fewer choices where none is named."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, str] = field(default_factory=dict)
    single: bool = False
    brief: bool = False


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
    """What one rank computes and stores, and the `communications` of the axis that cut it.
    `boundary_split`: of a unit's output it holds one part in so many, which is what it sends to the next
    pipeline stage."""

    model: Model
    boundary_split: int = 1
    communications: tuple[Communication, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """What one rank of an axis holds of its part: these layers (None: all), with the activations of so many
    micro-batches at its fullest moment."""

    layers: frozenset[str] | None = None
    in_flight: float = 1.0


@dataclass(frozen=True, slots=True)
class Labels:
    """A parallelism as people read it.

    `cell` stands in a table's column and in a list of degrees (`2 servers on c5n.large`, `tensor 8`); `plan`
    is half a sentence about its settings; `added` are the machines besides the workers'
    (` + 2 servers on c5n.large`), `aside` follows them, or the degrees, in a sentence. `name` is what
    practitioners call it (`DDP`), `run` how they say it with {} for the devices where that is not
    `DDP on {}`. `assumptions` is what it rests on. `resources` says what it means that a resource is busy, by
    resource without its number, with {} for the number; those of one of the kinds `links` fill as workers are
    added. `size_noun` is what it can have more of, `size_choice` the setting that is chosen anew for each.
    """

    cell: str
    plan: str
    added: str = ""
    aside: str = ""
    name: str = ""
    run: str = ""
    assumptions: tuple[Note, ...] = ()
    resources: Mapping[Resource, str] = field(default_factory=dict)
    links: tuple[ResourceKind, ...] = ()
    size_noun: str = ""
    size_choice: str = ""


@dataclass(frozen=True, slots=True)
class StageSchedule:
    """A step in stages: where in the chain of units each begins and the last ends, which is the `slowest`,
    how long that waits for the others in a step, and how long it sends and receives in a micro-batch."""

    ends: tuple[int, ...]
    slowest: int = 0
    wait_s: float = 0.0
    send_s: float = 0.0

    @property
    def stages(self) -> int:
        return len(self.ends) - 1


class Parallelism(ABC):
    """What axes and data-parallel strategies have in common. `kind` is its name in its registry, in plans and
    in JSON."""

    __slots__ = ()

    kind: ClassVar[str]

    @classmethod
    @abstractmethod
    def candidates(cls, asked: Asked, site: Site, model: Model) -> Iterator[Self]:
        """What to try on a site: all combinations of the settings that are asked, and where one is not, what
        is worth searching; in the order in which ties are broken."""

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        """Why it cannot run, with what would work: on a site (None: on any), with a model (None: whatever the
        model). `BadInput` is a setting that never works there, `Infeasible` one for which machines are too
        small. None if it can."""
        return None

    @abstractmethod
    def labels(self, site: Site | None = None) -> Labels:
        """It in words; with a site, what it assumes about the links there too."""


@dataclass(frozen=True, slots=True)
class Axis(Parallelism):
    """One dimension of a device mesh; `kind` is what engineers call it (`tp`). The first of `flags` is that
    of the degree. `splits` says what each rank has a part of."""

    flags: ClassVar[tuple[AxisFlag, ...]]
    splits: ClassVar[frozenset[Divisible]] = frozenset({Divisible.DENSE, Divisible.EXPERTS})

    degree: int = 1

    @property
    def key(self) -> str:
        """Tells the axis apart in a plan's key, hence in seeds and stores: never change it."""
        return "".join(f"{flag.key}{getattr(self, flag.field)}" for flag in self.flags)

    def shard(self, part: Shard) -> Shard:
        """What one rank computes and stores of a part, and what the ranks exchange meanwhile."""
        return part

    def memory_shares(self, model: Model, micro_batches: int) -> tuple[MemoryShare, ...]:
        """What the ranks hold that may hold the most."""
        return (MemoryShare(),)

    def schedule(self, unit_s: Floats, send_s: float) -> StageSchedule | None:
        """How its ranks follow one another in a step of units that take so long, of an axis that divides
        layers."""
        return None
