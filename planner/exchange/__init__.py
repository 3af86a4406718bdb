"""Exchanges: how replicas come to the same parameters, one file a strategy.

`EXCHANGES` is the only registry: search, reports and flags go through it and ask the value. May be imported
by search, answers, report and cli; imports nouns, cost and the simulator's `Case`.
"""

from planner.exchange._base import Ask, Exchange, Held, Job, Neighbour, Rented, Size, Words
from planner.exchange.site import Site

EXCHANGES: dict[str, type[Exchange]] = {}

__all__ = [
    "EXCHANGES",
    "Ask",
    "Exchange",
    "Held",
    "Job",
    "Neighbour",
    "Rented",
    "Site",
    "Size",
    "Words",
]
