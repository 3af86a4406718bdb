"""The cost of collectives, as pure functions: what is sent over which links, and what it waits for.

`_base` holds levels, phases and the algorithms (bytes and hops); `nccl` and `gloo` are what
libraries make of them: which algorithm, at which latency, how many at a time. `curve` holds measured times,
which go before any formula. Nothing here knows plans or the simulator; data-parallel strategies lower the
phases to joint ops, and axes of the mesh take their seconds.
"""

from __future__ import annotations

from planner.parallel.collectives._base import (
    Curves,
    Kind,
    Level,
    Peers,
    Phase,
    TimeCurve,
    repeated,
    ring_bytes,
)
from planner.parallel.collectives.gloo import Gloo
from planner.parallel.collectives.nccl import Nccl

Library = Nccl | Gloo

__all__ = [
    "Curves",
    "Gloo",
    "Kind",
    "Level",
    "Library",
    "Nccl",
    "Peers",
    "Phase",
    "TimeCurve",
    "repeated",
    "ring_bytes",
]
