"""Data-parallel strategies, one file each: how replicas arrive at the same parameters.

A strategy is a frozen value of a plan, with its settings as fields, and its methods are pure functions of
their arguments. Search, reports and JSON never inspect its class; they ask for the machines it rents, the
memory of its workers, and the simulator's input. A new strategy is one file with one subclass of
`Exchange` and a line in `EXCHANGES`, the only registry. An entry holds the facts needed before a
strategy's module is loaded, so that a strategy that cannot win costs no import; a class that is registered
directly is tried like DDP.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from planner.parallel._base import Labels, Parallelism, RequestedSettings
from planner.parallel.plan import Rented, Site

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from planner.device.computation import Computation
    from planner.device.memory import Shares
    from planner.device.precision import Precision
    from planner.model import Model
    from planner.simulator.simulate import Case

    Floats = npt.NDArray[np.float64]

__all__ = [
    "EXCHANGES",
    "ChangeKind",
    "Exchange",
    "Job",
    "Labels",
    "Rented",
    "RequestedSettings",
    "Site",
    "Tier",
    "Variant",
    "with_choices",
]


class ChangeKind(StrEnum):
    """Kind of setting that a change to a plan modifies, as JSON names it."""

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
    """Other settings of a strategy that may be faster; the best of each kind of change is shown.

    A variant with a `size` belongs to a series, with more or fewer of `Labels.size_noun`, whose best counts.
    """

    change: str
    label: str  # "a second server (greedy placement)"
    exchange: Exchange
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Input of a throughput bound: a strategy, a site and a computation. The computation is that of one of
    `accumulate` micro-batches (without variation where `whole` gives the computation of the step)."""

    exchange: Exchange
    computation: Computation
    site: Site
    accumulate: int = 1
    whole: Callable[[], Computation] | None = None

    @property
    def step(self) -> Computation:
        """Computation of a worker in a step, with all its micro-batches."""
        from planner.device.computation import repeat_passes

        return repeat_passes(self.computation, self.accumulate) if self.whole is None else self.whole()

    def case(self) -> Case:
        """Simulator case of the job."""
        return self.exchange.lower(self.step, self.site)


class Exchange(Parallelism):
    """A data-parallel strategy. Subclasses are frozen, hashable dataclasses. Their fields are the
    settings: plain values (numbers, strings, None), as JSON and optuna read them.

    Four members are abstract: `candidates`, `memory_shares`, `lower` and `labels`. The others have a
    default that is right for strategies whose workers are all machines that a plan pays for.
    """

    @abstractmethod
    def memory_shares(self, model: Model, precision: Precision, site: Site) -> Shares:
        """Fractions of the model's memory footprint that one worker stores, with buffers on top."""

    @abstractmethod
    def lower(self, computation: Computation, site: Site) -> Case:
        """Lowers a computation to the simulator's input: its transfers, the cluster, the policy and the
        joins. Equal arguments give equal values; expensive parts may be cached by value."""

    def rented(self, site: Site) -> tuple[Rented, ...]:
        """Machines that the strategy needs besides the workers' machines."""
        return ()

    def variants(self, site: Site) -> Iterator[Variant]:
        """Yields other settings that may be faster on a site."""
        return iter(())

    @classmethod
    def bounds(cls, jobs: Sequence[Job]) -> Floats:
        """Upper bounds on the long-run samples per second of each job. The default holds for every step
        and cluster; override it only for speed, and test that both agree."""
        from planner.simulator.bounds import throughput_bounds

        return throughput_bounds([job.case() for job in jobs])

    @property
    def key(self) -> str:
        """Text of the strategy's kind and of all settings that differ from the default. Part of a plan's key,
        hence of its seed and of stores: it never changes for an existing setting."""
        default = type(self)()
        names = (entry.name for entry in fields(self))  # type: ignore[arg-type]
        changed = (name for name in names if getattr(self, name) != getattr(default, name))
        return "/".join([self.kind, *(f"{name}={getattr(self, name)}" for name in changed)])

    @property
    def is_asynchronous(self) -> bool:
        """Whether replicas do not wait for each other, so that gradients may be stale."""
        return False

    def record(self) -> dict[str, Any]:
        """Kind and settings of the strategy as plain values, for JSON."""
        return {"kind": self.kind, **{entry.name: getattr(self, entry.name) for entry in fields(self)}}  # type: ignore[arg-type]


E = TypeVar("E", bound=Exchange)


def filter_by_choices(options: Iterable[E], choices: Mapping[str, str]) -> Iterator[E]:
    """Yields the options whose settings match the `choices` of a request."""
    for option in options:
        if all(str(getattr(option, name)) == value for name, value in choices.items()):
            yield option


Rule = Callable[[int, Site], bool]  # by the model's parameters and the site


class Tier(StrEnum):
    """The stage of a search that tries a strategy which the request does not name."""

    BASELINE = "baseline"  # first
    FALLBACK = "fallback"  # where no baseline fits in memory
    CONTENDER = "contender"  # last, at the model's own batch, where it may beat what the others surely reach


def is_always_tried(parameters: int, site: Site) -> bool:
    """Always true: searches try the strategy on every site."""
    return True


def is_tried_if_named(parameters: int, site: Site) -> bool:
    """Always false: searches try the strategy only where the request names it or a setting of it."""
    return False


@dataclass(frozen=True, slots=True)
class Entry:
    """Registered strategy: its class or where to import it from, its settings, and when to try it. The class
    may be given as `module:Class`; its settings are request fields; further fields are the rule by which a
    search considers it and its usual name. `ceiling` is a bound without lowering (`module:function`), so that
    a search lowers only settings that can win."""

    target: str | type[Exchange]
    tier: Tier = Tier.BASELINE
    fields: tuple[str, ...] = ()
    considered: Rule = is_always_tried
    ceiling: str = ""
    known_as: str = ""

    def load(self) -> type[Exchange]:
        """Imports the class of the strategy."""
        if not isinstance(self.target, str):
            return self.target
        loaded: type[Exchange] = _import_target(self.target)
        return loaded


def _import_target(target: str) -> Any:
    """Object at a path `module:name`."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


class Registry(MutableMapping[str, type[Exchange]]):
    """Strategies by kind, imported on first lookup, in the order in which ties are broken."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self._entries = entries
        self._loaded: dict[str, type[Exchange]] = {}

    def entry(self, kind: str) -> Entry:
        """Registered entry of a strategy."""
        return self._entries[kind]

    @property
    def help_text(self) -> str:
        """Strategies as help lists them, tier `CONTENDER` last: `alone, allreduce (ddp), servers`."""
        entries = sorted(self._entries.items(), key=lambda item: item[1].tier is Tier.CONTENDER)
        return ", ".join(kind + (f" ({entry.known_as})" if entry.known_as else "") for kind, entry in entries)

    def tier(self, exchange: Exchange) -> Tier:
        """Stage of a search that tries the strategy if the request does not name it."""
        return self._entries[exchange.kind].tier

    def ceiling(self, exchange: Exchange) -> Callable[..., float] | None:
        """Function that bounds the throughput of (exchange, computation, site) without lowering; None if
        there is none. With `links=False` the bound ignores transfers, in proportion to the workers."""
        target = self._entries[exchange.kind].ceiling
        return _import_target(target) if target else None

    def __getitem__(self, kind: str) -> type[Exchange]:
        if kind not in self._loaded:
            self._loaded[kind] = self._entries[kind].load()
        return self._loaded[kind]

    def __setitem__(self, kind: str, strategy: type[Exchange]) -> None:
        self._entries[kind] = Entry(strategy)
        self._loaded.pop(kind, None)

    def __delitem__(self, kind: str) -> None:
        del self._entries[kind]
        self._loaded.pop(kind, None)

    def __contains__(self, kind: object) -> bool:
        return kind in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


MAX_SERVED_PARAMETERS = 2_000_000_000  # beyond it nobody trains with parameter servers
MAX_SERVED_REPLICAS = 32  # a gradient is about as many updates old
MAX_PARSED_PARAMETERS = 10_000_000  # of more, a GPU computes faster than its host parses messages


def _may_servers_win(parameters: int, site: Site) -> bool:
    """Whether parameter servers may win on a site with several replicas, for a model that is not too large.
    They may on CPU machines, with small models, and where devices have no known links for collectives."""
    if site.workers < 2 or site.replicas > MAX_SERVED_REPLICAS or parameters > MAX_SERVED_PARAMETERS:
        return False
    joined = site.devices == 1 or site.fabric is not None
    return site.hardware.device.kind == "cpu" or parameters <= MAX_PARSED_PARAMETERS or not joined


EXCHANGES = Registry(
    {
        "servers": Entry(
            "planner.servers.parameter_servers:ParameterServers",
            tier=Tier.CONTENDER,
            fields=("servers", "server_hardware", "placements", "policies", "mode"),
            considered=_may_servers_win,
            ceiling="planner.servers.bounds:throughput_ceiling",
        ),
        "alone": Entry("planner.parallel.data.single:Alone"),
        "allreduce": Entry("planner.parallel.data.ddp:AllReduce", known_as="ddp"),
        "sharded": Entry("planner.parallel.data.fsdp:Sharded", tier=Tier.FALLBACK, known_as="fsdp, zero2"),
        "owned": Entry(
            "planner.parallel.data.owned:Owned",
            tier=Tier.FALLBACK,
            considered=is_tried_if_named,
            known_as="zero1",
        ),
    }
)
ALIASES: dict[str, tuple[str, dict[str, str]]] = {  # the strategy and the choices that a name fixes
    "ddp": ("allreduce", {}),
    "fsdp": ("sharded", {"stage": "3"}),
    "zero1": ("owned", {}),
    "zero2": ("sharded", {"stage": "2"}),
    "zero3": ("sharded", {"stage": "3"}),
}
