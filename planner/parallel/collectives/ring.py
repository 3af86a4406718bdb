"""A ring over all ranks: every rank sends to the next, machine by machine.

A reduce-scatter, an all-gather or an all-to-all of S bytes over n ranks takes n - 1 hops of S / n each; a
broadcast goes from its owner through all others, so that all S bytes cross every port. A ring enters and
leaves every machine once, so that a machine's NICs together carry what one device does: the ring is as fast
as its slowest link.
"""

from __future__ import annotations

from planner.parallel.collectives._base import Kind, Peers, passes


def volume(kind: Kind, size: float, members: int) -> float:
    """Bytes that cross each port."""
    if kind in ("broadcast", "send_recv"):
        return size if members > 1 else 0.0
    return passes(kind) * (members - 1) / members * size


def hops(kind: Kind, peers: Peers) -> tuple[int, int]:
    """Steps inside machines and between them that follow each other."""
    if kind == "send_recv":
        return (0, 1) if peers.machines > 1 else (1, 0)
    between = passes(kind) * (peers.machines - 1)
    return passes(kind) * (peers.ranks - 1) - between, between
