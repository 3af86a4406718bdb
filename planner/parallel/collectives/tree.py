"""A tree of machines, a chain inside each: sums go up, results come down (all-reduce only).

Two trees share the work, as NCCL's double binary tree does, so that a machine sends the data about twice in
all, like a ring; but hops grow with the logarithm of the machines.
"""

from __future__ import annotations

import math

from planner.parallel.collectives._base import Peers


def volume(size: float, peers: Peers) -> float:
    """Bytes that cross each port. Two machines just swap their sums."""
    if peers.machines == 2:
        return size
    return 2 * (peers.ranks - 1) / peers.ranks * size


def hops(peers: Peers) -> tuple[float, float]:
    """Steps inside machines and between them that follow each other."""
    return 2 * (peers.devices - 1), 2 * math.log2(peers.machines) if peers.machines > 1 else 0.0
