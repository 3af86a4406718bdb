"""Upper bounds on the throughput of collective exchanges in closed form, for thousands of plans at once.

The step of a worker in the long run lasts at least what it would with every op at its mean: waiting for
others only adds, and the end of a chain of maxima is convex in its times, so that its mean is not below its
value at the means (Jensen). All workers go at the rate of the slowest. Channels of one level share its wire:
where a library has several collectives in flight only their bytes count, where it has one their latencies
too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from planner.device.computation import WAIT, Computation
from planner.memoize import itself, memoize
from planner.parallel.collectives import Library, Peers, Phase, alone_s
from planner.parallel.collectives.peers import peers_of
from planner.parallel.data import Job, settings
from planner.parallel.data.fsdp import beside_s, groups
from planner.parallel.data.joint import mean_s, turn_of
from planner.parallel.plan import Site

if TYPE_CHECKING:
    from planner.parallel.data import Floats
    from planner.parallel.data.ddp import AllReduce, Bucket
    from planner.parallel.data.fsdp import Sharded, ShardTraffic
    from planner.parallel.data.owned import Owned


def allreduce_bound(exchange: AllReduce, job: Job) -> float:
    """Samples a second at most."""
    from planner.parallel.data.ddp import slowed

    computation, site = job.computation, job.site
    library = settings.library(exchange.library, exchange.algorithm, site)
    peers = peers_of(site, library)
    buckets = exchange.buckets(computation)
    factor = slowed(
        *(computation, buckets, library, peers, site),
        accesses=exchange.accesses,
        copied=exchange.copied,
        passes=job.accumulate,
    )
    step_s = _summed_s(job, buckets, factor, library, peers)
    return _samples_per_s(job, step_s, exchange.after_s(computation, buckets, peers, site))


def owned_bound(exchange: Owned, job: Job) -> float:
    """Samples a second at most: the first forward pass waits for broadcasts, sums wait for its end."""
    from planner.parallel.data.ddp import slowed

    computation, site = job.computation, job.site
    library = settings.library(exchange.library, "auto", site)
    peers = peers_of(site, library)
    buckets = exchange.buckets(computation)
    factor = slowed(
        *(computation, buckets, library, peers, site),
        accesses=exchange.accesses,
        copied=True,
        passes=job.accumulate,
    )
    sent, group = exchange.broadcasts(computation, site), exchange.group(peers)
    costs = [_cost(library.phases("broadcast", size, group), library, group) for size, _ in sent]
    busy: dict[str, float] = {}
    for _, levels in costs:
        for level, busy_s in levels.items():
            busy[level] = busy.get(level, 0.0) + busy_s
    op_s = _with_shared_wait_s(computation, job.accumulate)
    longer = exchange.slowed(float(op_s[: turn_of(computation)].sum()), sent, library, group, site)
    slowest = min(site.speeds, default=1.0)
    at, end_s, plain_s, lane_s = 0, 0.0, 0.0, 0.0
    for (_, first), (alone, _) in zip(sent, costs, strict=True):
        stretch_s = float(op_s[at:first].sum()) / slowest
        at, end_s, plain_s = max(at, first), end_s + stretch_s * longer, plain_s + stretch_s
        lane_s = lane_s + alone if library.in_flight == 1 else alone
        end_s = max(end_s, lane_s)
    late_s = max(end_s, *busy.values(), 0.0) - plain_s
    step_s = _summed_s(job, buckets, factor, library, peers, late_s=late_s, busy_s=busy)
    return _samples_per_s(job, step_s, exchange.after_s(computation, buckets, peers, site))


def _summed_s(
    job: Job,
    buckets: tuple[Bucket, ...],
    factor: float,
    library: Library,
    peers: Peers,
    *,
    late_s: float = 0.0,
    busy_s: Mapping[str, float] = MappingProxyType({}),
) -> float:
    """Until all buckets are summed, at least: backward passes take `factor` as long, all begins `late_s`
    later and each level has been busy for a while before."""
    computation = job.computation
    slowest = min(job.site.speeds, default=1.0)
    forward_s, ready_s, pass_s = _ready_s(computation, buckets)
    # One wait for other stages in a step: each pass has its part, and buckets leave in the last pass.
    others_s = _wait_s(computation) * (1 - 1 / job.accumulate)
    forward_s, pass_s = forward_s - others_s, pass_s - others_s
    before_s, total_s = (job.accumulate - 1) * pass_s - others_s, job.accumulate * pass_s
    costs = {
        size: _cost(library.phases("all_reduce", size, peers), library, peers) for size in _sizes(buckets)
    }
    end_s = computed_s = late_s + (forward_s + (total_s - forward_s) * factor) / slowest
    free_s = dict(busy_s)
    for bucket, at_s in zip(buckets, ready_s, strict=True):
        ready = late_s + (forward_s + (before_s + at_s - forward_s) * factor) / slowest
        alone, busy = costs[bucket.bytes]
        for level, of_bucket_s in busy.items():
            free_s[level] = max(free_s.get(level, 0.0), ready) + of_bucket_s
        end_s = max(end_s, ready + alone)
    return max(end_s, computed_s, *free_s.values(), 0.0)


def _samples_per_s(job: Job, step_s: float, after_s: float) -> float:
    step_s += after_s / min(job.site.speeds, default=1.0)
    return job.computation.batch * job.accumulate * job.site.workers / max(step_s, 1e-12)


def _with_shared_wait_s(computation: Computation, accumulate: int) -> Floats:
    """How long each op takes on average in one of so many micro-batches: the wait for other stages is
    divided among them."""
    if computation.work is None:
        return mean_s(computation)
    return np.where(computation.work == WAIT, mean_s(computation) / accumulate, mean_s(computation))


def _sizes(buckets: Iterable[Bucket]) -> set[int]:
    return {bucket.bytes for bucket in buckets}


def _cost(phases: Sequence[Phase], library: Library, peers: Peers) -> tuple[float, dict[str, float]]:
    """How long phases take alone, and how long they keep each level."""
    return alone_s(phases, peers), _busy_s(phases, library, peers)


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the collectives of one micro-batch take: one after another, and of each level's time; and those
    that nothing can hide."""

    gathers_s: float
    scatters_s: float
    gathers_busy_s: Mapping[str, float]
    scatters_busy_s: Mapping[str, float]
    taken_s: tuple[float, float]  # from computation, by gathers and by scatters
    exposed_s: float
    after_s: float  # after the optimizer


def _sent(exchange: Sharded, traffic: ShardTraffic, library: Library, site: Site) -> _Sent:
    peers = peers_of(site, library)
    whole, across = groups(exchange, peers)
    gathers = [(library.phases("all_gather", size, whole), whole, times) for size, times in traffic.gathers]
    scatters = []
    for size, times in traffic.scatters:
        scatters.append((library.phases("reduce_scatter", size, whole), whole, times))
        if across is not None:
            scatters.append((library.phases("all_reduce", size, across), across, times))
    alone, busy = [], []
    for sent in (gathers, scatters):
        alone.append(sum(alone_s(phases, group) * times for phases, group, times in sent))
        levels: dict[str, float] = {}
        for phases, group, times in sent:
            for level, busy_s in _busy_s(phases, library, group).items():
                levels[level] = levels.get(level, 0.0) + busy_s * times
        busy.append(levels)
    exposed_s = library.seconds("all_gather", traffic.first, whole) if traffic.first else 0.0
    exposed_s += library.seconds("reduce_scatter", traffic.last, whole)
    after_s = library.seconds("all_gather", traffic.after, whole) if traffic.after else 0.0
    taken_s = beside_s(exchange, traffic, library, peers, site)
    return _Sent(alone[0], alone[1], busy[0], busy[1], taken_s, exposed_s, after_s)


def sharded_bound(exchange: Sharded, job: Job) -> float:
    """Samples a second at most."""
    computation, site = job.computation, job.site
    library = settings.library(exchange.library, "auto", site)
    traffic = exchange.traffic(computation, site)
    key = ("sent", traffic, exchange.within, exchange.library, exchange.accesses)
    sent = site.once(key, lambda: _sent(exchange, traffic, library, site))
    slowest = min(site.speeds, default=1.0)
    gathered = job.accumulate if exchange.stage == 3 else 1
    scattered = job.accumulate if exchange.each_pass else 1
    alone = gathered * sent.gathers_s + scattered * sent.scatters_s
    mean = job.accumulate * _total_s(computation) - (job.accumulate - 1) * _wait_s(computation)
    taken_s = gathered * sent.taken_s[0] + scattered * sent.taken_s[1]
    compute_s = (mean if exchange.blocking else mean + min(taken_s, mean)) / slowest
    if exchange.blocking and exchange.within == "all":
        step_s = compute_s + alone
    else:
        step_s = compute_s + sent.exposed_s
        for level in (*sent.gathers_busy_s, *sent.scatters_busy_s):
            busy_s = gathered * sent.gathers_busy_s.get(level, 0.0)
            step_s = max(step_s, busy_s + scattered * sent.scatters_busy_s.get(level, 0.0))
    step_s += computation.optimizer_s / exchange.shards(site) / slowest + sent.after_s
    return computation.batch * job.accumulate * site.workers / max(step_s, 1e-12)


@memoize(on=itself)
def _wait_s(computation: Computation) -> float:
    """For other stages of a pipeline, in a step."""
    return 0.0 if computation.work is None else float(mean_s(computation)[computation.work == WAIT].sum())


@memoize(on=itself)
def _total_s(computation: Computation) -> float:
    return float(mean_s(computation).sum())


@memoize(on=itself)
def _ready_s(computation: Computation, buckets: tuple[Bucket, ...]) -> tuple[float, tuple[float, ...], float]:
    """Seconds until the backward pass begins, until each bucket is ready, and of all ops; not slowed."""
    ends = np.cumsum(mean_s(computation))
    turn = turn_of(computation)
    forward_s = float(ends[turn - 1]) if 0 < turn < computation.ops else 0.0
    return forward_s, tuple(float(ends[bucket.ready]) for bucket in buckets), float(ends[-1])


def _busy_s(phases: Iterable[Phase], library: Library, peers: Peers) -> dict[str, float]:
    """How long phases keep each level from other collectives."""
    busy_s: dict[str, float] = {}
    for phase in phases:
        wire_s = phase.bytes / _rate(phase, peers)
        waits_s = phase.latency_s if library.in_flight == 1 else 0.0
        busy_s[phase.level] = busy_s.get(phase.level, 0.0) + wire_s + waits_s
    return busy_s


def _rate(phase: Phase, peers: Peers) -> float:
    level = peers.inside if phase.level == "fabric" else peers.between
    assert level is not None
    return level.bytes_per_s
