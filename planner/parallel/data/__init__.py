"""Data-parallel strategies: how replicas come to the same parameters, one file each.

`EXCHANGES` is the only registry: search, reports and flags go through it and ask the value. May be imported
by search, answers, report and cli.

An entry says what has to be known before a strategy's module is loaded, so that what cannot win costs no
import. A strategy that is put in as a class is tried like DDP.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from planner.device.memory import Shares
from planner.parallel.data._base import (
    Asked,
    ChangeKind,
    Exchange,
    Job,
    Labels,
    Rented,
    Variant,
    with_choices,
)
from planner.parallel.site import Site

Rule = Callable[[int, Site], bool]  # by the model's parameters and the site


class Tier(StrEnum):
    """When a search tries a strategy that a request does not name."""

    BASELINE = "baseline"  # first
    FALLBACK = "fallback"  # where no baseline fits in memory
    CONTENDER = "contender"  # last, at the model's own batch, where it may beat what the others surely reach


def always(parameters: int, site: Site) -> bool:
    return True


def if_named(parameters: int, site: Site) -> bool:
    """Never, unless the request names the strategy or one of its settings."""
    return False


@dataclass(frozen=True, slots=True)
class Entry:
    """A strategy's class, or `module:Class` to load it from; the request's fields that are settings of it;
    and where a search considers it that names none. `ceiling`: where (`module:function`) a bound is that
    needs no lowering, so that a search makes only those of dozens of settings that can win."""

    target: str | type[Exchange]
    tier: Tier = Tier.BASELINE
    fields: tuple[str, ...] = ()
    considered: Rule = always
    ceiling: str = ""

    def load(self) -> type[Exchange]:
        if not isinstance(self.target, str):
            return self.target
        loaded: type[Exchange] = _loaded(self.target)
        return loaded


def _loaded(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


class Registry(MutableMapping[str, type[Exchange]]):
    """Strategies by kind, loaded when they are looked up; iterated in the order in which ties are broken."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self._entries = entries
        self._loaded: dict[str, type[Exchange]] = {}

    def entry(self, kind: str) -> Entry:
        return self._entries[kind]

    def tier(self, exchange: Exchange) -> Tier:
        return self._entries[exchange.kind].tier

    def ceiling(self, exchange: Exchange) -> Callable[..., float] | None:
        """A function of the exchange, a computation and a site: more samples per second than it can reach;
        with `links=False` whatever its transfers take, in proportion to the workers. None: it has none."""
        target = self._entries[exchange.kind].ceiling
        return _loaded(target) if target else None

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


def _servers_may_win(parameters: int, site: Site) -> bool:
    """Several replicas with parameter servers may win on CPU machines, with small models, and where nobody
    has said how the GPUs of a machine are joined, so that no collectives can run."""
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
            considered=_servers_may_win,
            ceiling="planner.servers.bounds:served_ceiling",
        ),
        "alone": Entry("planner.parallel.data.single:Alone"),
        "allreduce": Entry("planner.parallel.data.ddp:AllReduce"),
        "sharded": Entry("planner.parallel.data.fsdp:Sharded", tier=Tier.FALLBACK),
        "owned": Entry("planner.parallel.data.owned:Owned", tier=Tier.FALLBACK, considered=if_named),
    }
)

__all__ = [
    "EXCHANGES",
    "Asked",
    "ChangeKind",
    "Exchange",
    "Job",
    "Labels",
    "Rented",
    "Shares",
    "Site",
    "Tier",
    "Variant",
    "with_choices",
]
