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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from planner.errors import PlannerError
    from planner.model import Chain, Model
    from planner.note import Note
    from planner.parallel.collectives import Kind
    from planner.parallel.plan import Site
    from planner.simulator.cluster import Resource, ResourceKind

    Floats = npt.NDArray[np.float64]
    # Seconds per micro-batch of stages, by their boundaries in a chain of units.
    StagesTime = Callable[[Sequence[int]], Floats]

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
    """The parts of training that an axis may split among its ranks."""

    SAMPLES = "samples"  # else all ranks work on the same ones
    DENSE = "dense parameters"  # else all ranks hold the same ones
    EXPERTS = "parameters of experts"
    LAYERS = "layers"  # ranks follow one another in a step, further apart than data-parallel ones


@dataclass(frozen=True, slots=True)
class AxisFlag:
    """Setting of an axis as users write it. `name` is the flag (`--tensor`), the scenario field and the JSON
    key; `field` is the attribute of the axis; `key` precedes its value in a plan's key."""

    name: str
    field: str
    help: str
    key: str


@dataclass(frozen=True, slots=True)
class RequestedSettings:
    """Part of a request about one parallelism. `settings` by flag, and the `choices` of `--exchange
    KIND:NAME=VALUE`. With `single`, the question is about one plan: the first candidate is taken, and several
    values are refused. With `brief`, fewer candidates are tried where the request names none."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, str] = field(default_factory=dict)
    single: bool = False
    brief: bool = False


@dataclass(frozen=True, slots=True)
class Communication:
    """Collective among the ranks of an axis after a layer, in both passes. It has `elements` activations per
    sample in the forward pass, and its transpose (`TRANSPOSED`) runs in the backward pass. With
    `of_gradients`, it sends `elements` gradients whatever the batch, in the backward pass only (parameters
    that all ranks hold)."""

    layer: str
    kind: Kind
    elements: int
    of_gradients: bool = False


@dataclass(frozen=True, slots=True)
class Shard:
    """Part of a model that one rank computes and stores, and the `communications` of the axis. The rank holds
    1 / `boundary_split` of a unit's output, and sends that part to the next pipeline stage."""

    model: Model
    boundary_split: int = 1
    communications: tuple[Communication, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """Layers on one rank of an axis (None: all), and its peak number of micro-batches in flight."""

    layers: frozenset[str] | None = None
    in_flight: float = 1.0


@dataclass(frozen=True, slots=True)
class Labels:
    """Texts that describe a parallelism in tables and sentences.

    `cell` is its text in a table and in a list of degrees (`2 servers on c5n.large`, `tensor 8`); `plan`
    is half a sentence about its settings; `added` names machines besides the workers' (` + 2 servers on
    c5n.large`), `aside` follows the machines, or the degrees, in a sentence. `name` is the usual name
    (`DDP`), `run` a phrase with {} for the devices where `DDP on {}` would be wrong. `assumptions` are
    notes. `resources` describes each busy resource, with {} for its number; resources of the kinds `links`
    fill up as workers are added. `size_noun` is the noun for the strategy's variable size (servers),
    `size_choice` the setting that is chosen again for each size.
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
    """One step in pipeline stages: their boundaries, the slowest stage, and its waits and sends. Boundaries
    are in the chain of units; `slowest` is an index; the wait is for others per step, sends and receives are
    per micro-batch."""

    ends: tuple[int, ...]
    slowest: int = 0
    wait_s: float = 0.0
    send_s: float = 0.0

    @property
    def stages(self) -> int:
        """Number of pipeline stages."""
        return len(self.ends) - 1


class Parallelism(ABC):
    """Common interface of axes and data-parallel strategies. `kind` is the key in registry and JSON."""

    __slots__ = ()

    kind: ClassVar[str]

    @classmethod
    @abstractmethod
    def candidates(cls, asked: RequestedSettings, site: Site, model: Model) -> Iterator[Self]:
        """Yields candidates on a site, in the order in which ties are broken. They combine all requested
        settings with those values of the other settings that are worth searching."""

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        """Error, with a remedy, that explains why the parallelism cannot run; None if it can. Without a
        site, it holds for any site; without a model, for any model. `BadInput` marks a setting that never
        works there, `Infeasible` one for which the machines are too small."""
        return None

    @abstractmethod
    def labels(self, site: Site | None = None) -> Labels:
        """Texts that describe the parallelism; with a site, also its assumptions about the links there."""


@dataclass(frozen=True, slots=True)
class Axis(Parallelism):
    """One dimension of a device mesh; `kind` is its usual short name (`tp`), the first of `flags` its
    degree. `splits` lists what the axis divides among its ranks."""

    flags: ClassVar[tuple[AxisFlag, ...]]
    splits: ClassVar[frozenset[Divisible]] = frozenset({Divisible.DENSE, Divisible.EXPERTS})

    degree: int = 1

    @property
    def key(self) -> str:
        """Text of the axis in a plan's key, hence in seeds and stores: never change it."""
        return "".join(f"{flag.key}{getattr(self, flag.field)}" for flag in self.flags)

    def shard(self, part: Shard) -> Shard:
        """Shards a model for one rank; returns the shard with the collectives among the ranks."""
        return part

    def memory_shares(self, model: Model, micro_batches: int) -> tuple[MemoryShare, ...]:
        """Memory shares of the ranks that may need the most memory."""
        return (MemoryShare(),)

    def schedule(
        self, chain: Chain, stages_s: StagesTime, send_s: float, *, even: bool = False
    ) -> StageSchedule | None:
        """Schedules a chain of units in stages; None for an axis that splits no layers. `even`: all
        stages have equally many blocks."""
        return None
