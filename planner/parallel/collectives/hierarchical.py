"""Two levels: reduce-scatter inside each machine, all-reduce between machines, all-gather inside.

Each device talks to those in its own place in other machines about its share, so that a machine's NICs carry
the data once, not once a device; and one bucket's inner part overlaps another's outer part.
"""

from __future__ import annotations

from planner.parallel.collectives._base import Kind, Level, Peers, Scope


def parts(kind: Kind, size: float, peers: Peers) -> list[tuple[Level, Scope, Kind, float]]:
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
        case "send_recv":
            return [(between, "all", kind, size)]
        case "all_to_all" | "broadcast":
            return [(between, "all", kind, size), (inside, "machine", kind, size)]
