"""Algorithms of collectives: how many bytes cross a port, and how many hops follow each other.

Ring: every rank sends to the next, machine by machine. A reduce-scatter, an all-gather or an all-to-all of S
bytes over n ranks takes n - 1 hops of S / n each; a broadcast goes from its owner through all others, so that
all S bytes cross every port. A ring enters and leaves every machine once, so that a machine's NICs together
carry what one device does: the ring is as fast as its slowest link.

Tree: sums go up a tree of machines, with a chain inside each, and results come down (all-reduce only). Two
trees share the work, as NCCL's double binary tree does, so that a machine sends the data about twice in all,
like a ring; but hops grow with the logarithm of the machines.

Hierarchical, two levels: reduce-scatter inside each machine, all-reduce between machines, all-gather inside.
Each device talks to those in its own place in other machines about its share, so that a machine's NICs carry
the data once, not once per device; and one bucket's inner part overlaps another's outer part.
"""

from __future__ import annotations

import math

from planner.parallel.collectives._base import Kind, Level, Peers, Scope, passes


def ring_bytes(kind: Kind, size: float, members: int) -> float:
    """Bytes that cross each port of a ring."""
    if kind in ("broadcast", "send_recv"):
        return size if members > 1 else 0.0
    return passes(kind) * (members - 1) / members * size


def ring_hops(kind: Kind, peers: Peers) -> tuple[int, int]:
    """Steps of a ring inside machines and between them that follow each other."""
    if kind == "send_recv":
        return (0, 1) if peers.machines > 1 else (1, 0)
    between = passes(kind) * (peers.machines - 1)
    return passes(kind) * (peers.ranks - 1) - between, between


def tree_bytes(size: float, peers: Peers) -> float:
    """Bytes that cross each port of a tree. Two machines just swap their sums."""
    if peers.machines == 2:
        return size
    return 2 * (peers.ranks - 1) / peers.ranks * size


def tree_hops(peers: Peers) -> tuple[float, float]:
    """Steps of a tree inside machines and between them that follow each other."""
    return 2 * (peers.devices - 1), 2 * math.log2(peers.machines) if peers.machines > 1 else 0.0


def hierarchical_parts(kind: Kind, size: float, peers: Peers) -> list[tuple[Level, Scope, Kind, float]]:
    """The collectives of one level that it consists of: (level, scope, kind, bytes of the message)."""
    inside, between = peers.inside, peers.between
    if inside is None or between is None:
        only = inside or between
        return [] if only is None else [(only, "all", kind, size)]
    scatter: list[tuple[Level, Scope, Kind, float]] = [(inside, "machine", "reduce_scatter", size)]
    gather: list[tuple[Level, Scope, Kind, float]] = [(inside, "machine", "all_gather", size)]
    match kind:
        case "all_reduce":
            return [*scatter, (between, "all", "all_reduce", size), *gather]
        case "reduce_scatter":
            return [*scatter, (between, "all", "reduce_scatter", size)]
        case "all_gather":
            return [(between, "all", "all_gather", size), *gather]
        case "all_to_all" | "broadcast":
            return [(between, "all", kind, size), (inside, "machine", kind, size)]
        case "send_recv":
            return [(between, "all", kind, size)]
