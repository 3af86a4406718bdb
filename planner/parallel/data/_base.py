"""The interface of an exchange: how replicas come to the same parameters.

An exchange is a frozen value of a plan, with its own choices as fields. Search, reports and JSON never ask
which kind it is; they ask it what it rents, holds and needs. A new exchange is one file with one class, a
line in `planner.parallel.data.EXCHANGES`, tests and a page in docs. Methods are pure functions of their
arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from planner.device.computation import Computation
from planner.device.computation.transform import accumulated
from planner.device.memory import Shares
from planner.device.precision import Precision
from planner.model import Model
from planner.note import Note
from planner.parallel.site import Site
from planner.simulator.resource import Resource, ResourceKind

if TYPE_CHECKING:
    from planner.simulator.simulate import Case

Floats = npt.NDArray[np.float64]


__all__ = [
    "Ask",
    "Exchange",
    "Floats",
    "Job",
    "Neighbour",
    "Rented",
    "Size",
    "Words",
    "with_choices",
]


class Ask(Protocol):
    """What a request says of exchanges. None: choose for me. `brief` asks for fewer choices where none is
    named: a good plan of every machine rather than the very best."""

    @property
    def servers(self) -> tuple[int, ...] | None: ...
    @property
    def server_hardware(self) -> tuple[str, ...] | None: ...
    @property
    def placements(self) -> tuple[str, ...] | None: ...
    @property
    def policies(self) -> tuple[str, ...] | None: ...
    @property
    def mode(self) -> str | None: ...
    @property
    def brief(self) -> bool: ...

    def choices(self, kind: str) -> Mapping[str, str]:
        """What `--exchange KIND:NAME=VALUE` fixes for this kind, as written."""
        ...


@dataclass(frozen=True, slots=True)
class Rented:
    """Machines that a plan pays for: their role (`workers`, `servers`), kind and number."""

    role: str
    machine: str
    count: int


class ChangeKind(StrEnum):
    """What a change to a plan changes, by the word that JSON has for it."""

    WORKERS = "workers"
    BATCH = "batch"
    PRECISION = "precision"
    SERVER = "server"
    PLACEMENT = "placement"
    ORDER = "order"
    NIC = "faster NIC"
    BUCKET = "bucket"
    ALGORITHM = "algorithm"
    STAGE = "stage"
    WITHIN = "within"
    PREFETCH = "prefetch"
    EXCHANGE = "exchange"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A change of the exchange that might make a plan faster. Of each kind of change the best is shown."""

    change: ChangeKind
    words: str  # "a second server (greedy placement)"
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Size:
    """The exchange with so many of what it can have more or fewer of (`Words.size_noun`), in the ways that
    are worth a try; the best of them counts."""

    count: int
    options: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """An exchange as people read it.

    `cell` stands in a table's column (`2 servers on c5n.large`); `plan` is half a sentence about its choices;
    `added` are the machines that it adds to the workers' (` + 2 servers on c5n.large`), `aside` follows them
    in a sentence. `name` is what practitioners call it (`DDP`), `run` how they say it with {} for the devices
    where that is not `DDP on {}`. `assumptions` is what it rests on. `resources` says what it
    means that a resource is busy, by resource without its number, with {} for the number; those of one of the
    kinds `links` fill as workers are added. `size_noun` is what it can have more of, `size_choice` what is
    best chosen for each.
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
class Job:
    """What a bound is asked for: an exchange, and what it would be lowered from. With `accumulate` above 1
    the computation is that of one of so many micro-batches."""

    exchange: Exchange
    computation: Computation
    site: Site
    accumulate: int = 1

    def case(self) -> Case:
        """What the simulator would run."""
        return self.exchange.lower(accumulated(self.computation, self.accumulate), self.site)


class Exchange(ABC):
    """How replicas come to the same parameters. Subclasses are frozen dataclasses, hashable, their fields the
    choices; fields are plain values (numbers, strings, None), as JSON and optuna read them."""

    kind: ClassVar[str]  # its name in --exchange, in JSON and in EXCHANGES
    title: ClassVar[str]  # "parameter servers", in sentences
    asked_by: ClassVar[tuple[str, ...]] = ()  # choices of a request (`Ask`) that mean this exchange
    is_baseline: ClassVar[bool] = False  # tried before any sharded strategy
    most_parameters: ClassVar[float] = inf  # of a model that it is offered for, unless it is named
    most_replicas: ClassVar[float] = inf  # that it is offered for, unless it or one of its choices is named
    is_fallback: ClassVar[bool] = False  # offered where no baseline fits in memory
    counts_micro_batches: ClassVar[bool] = False  # whether `bounds` takes jobs with `accumulate` above 1
    many: ClassVar[bool] = False  # it has dozens of options on a site
    cuts: ClassVar[tuple[str, ...]] = (
        "layers",
    )  # kinds of cut (`planner.parallel.cut`) that its replicas may have
    unordered: ClassVar[str] = ""  # why no order of its transfers is better; empty where orders matter

    @property
    def takes_turns(self) -> bool:
        """Whether workers go through shared links each at its own time, and can fall into step."""
        return False

    @property
    @abstractmethod
    def key(self) -> str:
        """Tells it apart from all other exchanges; part of the plan's key, hence of its seed and of stores:
        never change it for a choice that exists."""

    @classmethod
    @abstractmethod
    def options(cls, ask: Ask, site: Site) -> Iterator[Self]:
        """The choices that a request allows on this site, in the order in which ties are broken. Leave out
        what `refusal` would refuse."""

    @classmethod
    def named(cls, ask: Ask, site: Site) -> Self | None:
        """The one exchange that a request names, for questions about one plan: the first of its options; a
        request that names several where one is needed is refused. None: none is possible on this site."""
        return next(cls.options(ask, site), None)

    def refusal(self, site: Site) -> str:
        """Why it cannot be run on this site, with the remedy; empty if it can."""
        return ""

    def host_memory_error(self, model: Model, precision: Precision, site: Site) -> str:
        """Why what it stores outside the workers does not fit in its machines; empty if it does."""
        return ""

    def rented(self, site: Site) -> tuple[Rented, ...]:
        """The machines that it needs besides the workers'."""
        return ()

    @abstractmethod
    def memory_shares(self, model: Model, precision: Precision, site: Site) -> Shares:
        """Fractions of the model's memory footprint that one worker stores, with buffers on top."""

    @abstractmethod
    def lower(self, computation: Computation, site: Site) -> Case:
        """What the simulator runs: the step with its transfers, the cluster, the policy and the joins. Same
        arguments, same value; expensive parts may be cached by value."""

    @classmethod
    def bounds(cls, jobs: Sequence[Job]) -> Floats:
        """The most samples a second that each job can reach in the long run. The default holds for every
        step and cluster; override it only to be faster, and hold both equal in a test."""
        from planner.simulator.bounds import bounds_of

        return bounds_of([job.case() for job in jobs])

    def ceiling(self, computation: Computation, site: Site, *, links: bool = True) -> float:
        """More samples a second than it can reach, found without lowering anything; infinite where nothing is
        known so quickly. Without `links`: whatever its transfers take, in proportion to the workers. Of an
        exchange with `many` options it decides which of them are looked at."""
        return inf

    def neighbours(self, site: Site) -> Iterator[Neighbour]:
        """Other choices of the same kind that might be faster."""
        return iter(())

    def memory_saving_alternatives(self) -> Iterator[Neighbour]:
        """Exchanges that store less on a device, the least last; `words` as `--exchange` takes them."""
        from planner.parallel.data.fsdp import STAGES, Sharded

        for stage in STAGES:
            yield Neighbour(ChangeKind.STAGE, f"sharded:stage={stage}", Sharded(stage=stage))

    def sizes(self, site: Site) -> Iterator[Size]:
        """The exchange with more and more of what it can have more of; nothing if there is no such thing."""
        return iter(())

    @abstractmethod
    def words(self) -> Words:
        """It in words."""

    def assumed(self, site: Site) -> tuple[Note, ...]:
        """What it takes for granted about the links of a site, in sentences."""
        return ()

    def record(self) -> dict[str, Any]:
        """It as JSON: its kind and its choices."""
        return {"kind": self.kind, **{one.name: getattr(self, one.name) for one in fields(self)}}  # type: ignore[arg-type]

    def flat(self, machine: str) -> dict[str, Any]:
        """Keys of version 1 of the JSON answers that have a meaning for it."""
        return {}


E = TypeVar("E", bound=Exchange)


def with_choices(options: Iterable[E], choices: Mapping[str, str]) -> Iterator[E]:
    """Those of the options that have the choices which a request fixes."""
    for one in options:
        if all(str(getattr(one, name)) == value for name, value in choices.items()):
            yield one
