"""The interface of a data-parallel strategy: how replicas come to the same parameters.

A strategy is a frozen value of a plan, with its own settings as fields. Search, reports and JSON never ask
which one it is; they ask it what it rents, what its workers hold, and what the simulator runs. A new strategy
is one file with one class and a line in `planner.parallel.data.EXCHANGES`. Methods are pure functions of
their arguments.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from planner.device.computation import Computation, accumulated
from planner.device.memory import Shares
from planner.device.precision import Precision
from planner.model import Model
from planner.parallel._base import Asked, Labels, Parallelism
from planner.parallel.site import Site

if TYPE_CHECKING:
    from planner.simulator.simulate import Case

Floats = npt.NDArray[np.float64]


__all__ = [
    "Asked",
    "Exchange",
    "Floats",
    "Job",
    "Labels",
    "Rented",
    "Variant",
    "with_choices",
]


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
class Variant:
    """Other settings of a strategy that might make a plan faster. Of each kind of change the best is shown.

    With a `size` it belongs to a series: the strategy with so many of what it can have more or fewer of
    (`Labels.size_noun`), of which the best counts.
    """

    change: str
    label: str  # "a second server (greedy placement)"
    exchange: Exchange
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What a bound is asked for: a strategy, and what it would be lowered from: the computation of one of
    `accumulate` micro-batches, without variation where `whole` gives that of the step."""

    exchange: Exchange
    computation: Computation
    site: Site
    accumulate: int = 1
    whole: Callable[[], Computation] | None = None

    @property
    def step(self) -> Computation:
        """What a worker computes in a step, all micro-batches of it."""
        return accumulated(self.computation, self.accumulate) if self.whole is None else self.whole()

    def case(self) -> Case:
        """What the simulator would run."""
        return self.exchange.lower(self.step, self.site)


class Exchange(Parallelism):
    """A data-parallel strategy. Subclasses are frozen dataclasses, hashable, their fields the settings: plain
    values (numbers, strings, None), as JSON and optuna read them.

    Four members are abstract: `candidates`, `memory_shares`, `lower` and `labels`. The others have a default
    that is right for strategies whose workers are all machines that a plan pays for.
    """

    @abstractmethod
    def memory_shares(self, model: Model, precision: Precision, site: Site) -> Shares:
        """Fractions of the model's memory footprint that one worker stores, with buffers on top."""

    @abstractmethod
    def lower(self, computation: Computation, site: Site) -> Case:
        """What the simulator runs: the step with its transfers, the cluster, the policy and the joins. Same
        arguments, same value; expensive parts may be cached by value."""

    def rented(self, site: Site) -> tuple[Rented, ...]:
        """The machines that it needs besides the workers'."""
        return ()

    def variants(self, site: Site) -> Iterator[Variant]:
        """Other settings that might be faster."""
        return iter(())

    @classmethod
    def bounds(cls, jobs: Sequence[Job]) -> Floats:
        """The most samples per second that each job can reach in the long run. The default holds for every
        step and cluster; override it only to be faster, and hold both equal in a test."""
        from planner.simulator.bounds import bounds_of

        return bounds_of([job.case() for job in jobs])

    @property
    def key(self) -> str:
        """Tells it apart from all others: its kind and every setting that is not the default. Part of the
        plan's key, hence of its seed and of stores: it never changes for a setting that exists."""
        default = type(self)()
        names = (entry.name for entry in fields(self))  # type: ignore[arg-type]
        changed = (name for name in names if getattr(self, name) != getattr(default, name))
        return "/".join([self.kind, *(f"{name}={getattr(self, name)}" for name in changed)])

    @property
    def is_asynchronous(self) -> bool:
        """Whether gradients may be stale: replicas do not wait for each other."""
        return False

    def record(self) -> dict[str, Any]:
        """It as JSON: its kind and its settings."""
        return {"kind": self.kind, **{entry.name: getattr(self, entry.name) for entry in fields(self)}}  # type: ignore[arg-type]


E = TypeVar("E", bound=Exchange)


def with_choices(options: Iterable[E], choices: Mapping[str, str]) -> Iterator[E]:
    """Those of the options that have the settings which a request fixes."""
    for option in options:
        if all(str(getattr(option, name)) == value for name, value in choices.items()):
            yield option
