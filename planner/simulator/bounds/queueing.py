"""A lower bound on the mean step of a worker whose downloads come in random order.

Where nothing ranks them, all downloads of a step queue on their links at its start, in an order that is
random in every step. Let A be the k downloads of one server that an op v waits for, directly or through
others. The last of them has each of the server's other downloads before it with probability k / (k + 1), so
that the link has delivered, in the mean, at least

    X(A) = bytes of A + k / (k + 1) * bytes of the others

before v can start. Streams cut by a window send all first pieces before any rest: the same holds for first
pieces among each other and for rests among each other. With several servers a worker has received X from
every one of them, all through its NIC. After that

- v and its descendants must be computed, one op at a time, and something follows the last of them;
- where all uploads wait for some of these ops, those are computed, then everything is uploaded.

    E[step] >= X(A(v)) / rate + max(work after v + tail, work between v and uploads + uploads + tail)

for every v. It is no bound on a single step, which may be lucky, and none for policies that rank downloads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.files.byte_cache import ByteCache
from planner.simulator.bounds.paths import Floats, PathGraph, bit_rows
from planner.simulator.policy import Fifo, Multiplexed, Policy
from planner.simulator.step import DOWNLINK, UPLINK, WORKER, Profile

MOST_OPS = 24  # v that are looked at; each gives a bound of its own


def queues_at_random(profile: Profile, policy: Policy | None) -> bool:
    """Do all downloads queue at the start of a step, in an order that is random in each?"""
    downloads = profile.resource == DOWNLINK
    return (
        profile.order is None
        and isinstance(policy, Fifo | Multiplexed)
        and bool(downloads.any())
        and not np.diff(profile.dep_start)[downloads].any()
    )


@dataclass(frozen=True, eq=False)
class Releases:
    """Of some worker ops: mean bytes that each server has delivered before the op starts, and which ops of
    the worker run after that: all that follow, and those that every upload waits for."""

    delivered_bytes: Floats  # ops x servers
    follow: Floats  # ops x worker's ops, 0 or 1
    precede_uploads: Floats  # likewise

    def work_s(self, durations_s: Floats) -> Floats:
        """Seconds of the worker's ops after each release, and of those before any upload: 2 x ops x steps."""
        which = np.stack([self.follow, self.precede_uploads])
        return np.asarray(
            np.einsum("kvo,so->kvs", which, durations_s)
        )  # too small for threads, as @ has them


def releases_of(graph: PathGraph, policy: Policy) -> Releases:
    """Releases under a policy that leaves downloads in random order."""
    window_bytes = policy.window_bytes if isinstance(policy, Multiplexed) else None
    return _RELEASES.get((graph, window_bytes), lambda: _releases(graph, window_bytes))


_RELEASES: ByteCache[Releases] = ByteCache(
    4 << 20, lambda found: found.delivered_bytes.nbytes + 2 * found.follow.nbytes
)


def _releases(graph: PathGraph, window_bytes: int | None) -> Releases:
    profile = graph.profile
    downloads, uploads, compute = graph.on(DOWNLINK), graph.on(UPLINK), graph.on(WORKER)
    needs = graph.before({int(op): 1 << at for at, op in enumerate(downloads)})
    chosen = _spread(graph, needs)
    waited = bit_rows((needs[op] for op in chosen), len(downloads))
    after = graph.after({int(op): 1 << at for at, op in enumerate(compute)})
    follow = bit_rows((after[op] for op in chosen), len(compute)).astype(np.float64)
    reach = graph.after({int(op): 1 << at for at, op in enumerate(uploads)})
    every = (1 << len(uploads)) - 1
    common = np.array([reach[op] == every for op in compute.tolist()], np.float64)

    sizes = profile.bytes[downloads].astype(np.float64)
    pieces = np.minimum(sizes, window_bytes or np.inf)
    rests = sizes - pieces
    delivered = np.zeros((len(chosen), profile.servers))
    for server in range(profile.servers):
        here = profile.server[downloads] == server
        large = here & (rests > 0)
        first = _up_to_last(waited[:, here], pieces[here])
        late = waited[:, large].any(axis=1)
        delivered[:, server] = np.where(late, pieces[here].sum(), first)
        delivered[:, server] += _up_to_last(waited[:, large], rests[large])
    return Releases(delivered, follow, follow * common)


def _spread(graph: PathGraph, needs: list[int]) -> list[int]:
    """Worker ops to look at: the first that waits for so many downloads, for numbers spread evenly."""
    first: dict[int, int] = {}
    for op in graph.order:
        if graph.profile.resource[op] == WORKER and needs[op]:
            first.setdefault(needs[op].bit_count(), op)
    ops = [first[count] for count in sorted(first)]
    picks = np.linspace(0, len(ops) - 1, min(MOST_OPS, len(ops))).round().astype(int)
    return [ops[at] for at in picks]


def _up_to_last(waited: np.typing.NDArray[np.bool_], sizes: Floats) -> Floats:
    """Mean bytes sent up to the end of the last stream waited for, of streams in random order."""
    count, own = waited.sum(axis=1), waited @ sizes
    return np.asarray(own + count / (count + 1.0) * (sizes.sum() - own))
