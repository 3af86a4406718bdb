"""Exchanges: how replicas come to the same parameters, one file a strategy.

`EXCHANGES` is the only registry: search, reports and flags go through it and ask the value. May be imported
by search, answers, report and cli; imports nouns, cost and the simulator's `Case`.
"""

from planner.cost.memory import Held
from planner.exchange._base import (
    Ask,
    ChangeKind,
    Exchange,
    Job,
    Neighbour,
    Rented,
    Size,
    Words,
    with_choices,
)
from planner.exchange.allreduce import AllReduce
from planner.exchange.alone import Alone
from planner.exchange.owned import Owned
from planner.exchange.parameter_servers import ParameterServers
from planner.exchange.sharded import Sharded
from planner.exchange.site import Site

EXCHANGES: dict[str, type[Exchange]] = {
    one.kind: one for one in (ParameterServers, Alone, AllReduce, Sharded, Owned)
}

__all__ = [
    "EXCHANGES",
    "AllReduce",
    "Alone",
    "Ask",
    "ChangeKind",
    "Exchange",
    "Held",
    "Job",
    "Neighbour",
    "Owned",
    "ParameterServers",
    "Rented",
    "Sharded",
    "Site",
    "Size",
    "Words",
    "with_choices",
]
