"""Exchanges: how replicas come to the same parameters, one file a strategy.

`EXCHANGES` is the only registry: search, reports and flags go through it and ask the value. May be imported
by search, answers, report and cli; imports nouns, cost and the simulator's `Case`.
"""

from planner.device.memory import Shares
from planner.parallel.data._base import (
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
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.owned import Owned
from planner.parallel.data.single import Alone
from planner.parallel.site import Site
from planner.servers.parameter_servers import ParameterServers

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
    "Job",
    "Neighbour",
    "Owned",
    "ParameterServers",
    "Rented",
    "Sharded",
    "Shares",
    "Site",
    "Size",
    "Words",
    "with_choices",
]
