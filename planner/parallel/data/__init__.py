"""Data-parallel strategies: how replicas come to the same parameters, one file each.

`EXCHANGES` is the only registry: search, reports and flags go through it and ask the value. May be imported
by search, answers, report and cli.
"""

from planner.device.memory import Shares
from planner.parallel.data._base import (
    Ask,
    ChangeKind,
    Contender,
    Exchange,
    Job,
    Labels,
    Rented,
    Variant,
    with_choices,
)
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.registry import Entry, Registry, Tier, if_named
from planner.parallel.data.single import Alone
from planner.parallel.site import Site

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
        ),
        "alone": Entry(Alone),
        "allreduce": Entry(AllReduce),
        "sharded": Entry(Sharded, tier=Tier.FALLBACK),
        "owned": Entry("planner.parallel.data.owned:Owned", tier=Tier.FALLBACK, considered=if_named),
    }
)

__all__ = [
    "EXCHANGES",
    "AllReduce",
    "Alone",
    "Ask",
    "ChangeKind",
    "Contender",
    "Exchange",
    "Job",
    "Labels",
    "Rented",
    "Sharded",
    "Shares",
    "Site",
    "Tier",
    "Variant",
    "with_choices",
]
