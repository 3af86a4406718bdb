"""Upper bounds on the throughput of collective exchanges in closed form, for thousands of plans at once.

The step of a worker in the long run lasts at least as long as a step with every op at its mean: waiting
for others only adds, and the end of a chain of maxima is convex in its times, so that its mean is not
below its value at the means (Jensen). All workers go at the rate of the slowest. Channels of one level
share its wire: where a library has several collectives in flight only their bytes count, where it has one
their latencies count too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.device.computation import WAIT, Computation
from planner.memoize import first_argument, memoize
from planner.parallel.collectives import Library, Peers, Phase, alone_s
from planner.parallel.collectives.libraries import peers_of
from planner.parallel.data import Job
from planner.parallel.data.fsdp import overlap_loss_s, shard_and_replica_groups
from planner.parallel.data.joint import first_backward_op, mean_s
from planner.parallel.plan import Site

if TYPE_CHECKING:
    from planner.parallel.data.ddp import AllReduce, Bucket
    from planner.parallel.data.fsdp import Sharded, ShardTraffic


def allreduce_bound(exchange: AllReduce, job: Job) -> float:
    """Upper bound on samples per second of an all-reduce job."""
    from planner.parallel.data.ddp import backward_slowdown

    computation, site, times = job.computation, job.site, job.accumulate
    library = exchange.library_at(site)
    peers = peers_of(site, library)
    buckets = exchange.buckets(computation)
    factor = backward_slowdown(
        *(computation, buckets, library, peers, site),
        accesses=exchange.accesses,
        copied=exchange.copied,
        passes=times,
    )
    forward_s, ready_s, pass_s = _ready_s(computation, buckets)
    # One wait for other stages in a step: each pass has its part, and buckets leave in the last pass.
    others_s = _wait_s(computation) * (1 - 1 / times)
    forward_s, pass_s = forward_s - others_s, pass_s - others_s
    before_s, total_s = (times - 1) * pass_s - others_s, times * pass_s
    slowest = min(site.speeds, default=1.0)
    step_s = (forward_s + (total_s - forward_s) * factor) / slowest
    costs: dict[float, tuple[float, dict[str, float]]] = {}
    free_s: dict[str, float] = {}  # when each level is free again
    for bucket, at_s in zip(buckets, ready_s, strict=True):
        if bucket.bytes not in costs:
            phases = library.phases("all_reduce", bucket.bytes, peers)
            costs[bucket.bytes] = alone_s(phases, peers), _level_busy_s(phases, library, peers)
        alone, busy = costs[bucket.bytes]
        ready = (forward_s + (before_s + at_s - forward_s) * factor) / slowest
        for level, busy_s in busy.items():
            free_s[level] = max(free_s.get(level, 0.0), ready) + busy_s
        step_s = max(step_s, ready + alone)
    step_s = max(step_s, *free_s.values(), 0.0)
    return _samples_per_s(job, step_s + exchange.after_s(computation, buckets, peers, site) / slowest)


def _samples_per_s(job: Job, step_s: float) -> float:
    return job.computation.batch * job.accumulate * job.site.workers / max(step_s, 1e-12)


@dataclass(frozen=True, slots=True)
class _TrafficTimes:
    """Collectives of one micro-batch: seconds in sequence, seconds per level, and seconds that nothing
    hides."""

    gathers_s: float
    scatters_s: float
    gathers_busy_s: Mapping[str, float]
    scatters_busy_s: Mapping[str, float]
    contention_s: tuple[float, float]  # from computation, by gathers and by scatters
    exposed_s: float
    after_s: float  # after the optimizer


def _traffic_times(exchange: Sharded, traffic: ShardTraffic, library: Library, site: Site) -> _TrafficTimes:
    peers = peers_of(site, library)
    whole, across = shard_and_replica_groups(exchange, peers)
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
            for level, busy_s in _level_busy_s(phases, library, group).items():
                levels[level] = levels.get(level, 0.0) + busy_s * times
        busy.append(levels)
    exposed_s = library.seconds("all_gather", traffic.first, whole) if traffic.first else 0.0
    exposed_s += library.seconds("reduce_scatter", traffic.last, whole)
    after_s = library.seconds("all_gather", traffic.after, whole) if traffic.after else 0.0
    contention_s = overlap_loss_s(exchange, traffic, library, peers, site)
    return _TrafficTimes(alone[0], alone[1], busy[0], busy[1], contention_s, exposed_s, after_s)


def sharded_bound(exchange: Sharded, job: Job) -> float:
    """Upper bound on samples per second of a sharded job."""
    computation, site = job.computation, job.site
    library = exchange.library_at(site)
    traffic = exchange.traffic(computation, site)
    key = ("sent", traffic, exchange.within, exchange.library, exchange.accesses)
    sent = site.once(key, lambda: _traffic_times(exchange, traffic, library, site))
    slowest = min(site.speeds, default=1.0)
    gathered = job.accumulate if exchange.stage == 3 else 1
    scattered = job.accumulate if exchange.each_pass else 1
    alone = gathered * sent.gathers_s + scattered * sent.scatters_s
    mean = job.accumulate * _total_s(computation) - (job.accumulate - 1) * _wait_s(computation)
    contention_s = gathered * sent.contention_s[0] + scattered * sent.contention_s[1]
    compute_s = (mean if exchange.blocking else mean + min(contention_s, mean)) / slowest
    if exchange.blocking and exchange.within == "all":
        step_s = compute_s + alone
    else:
        step_s = compute_s + sent.exposed_s
        for level in (*sent.gathers_busy_s, *sent.scatters_busy_s):
            busy_s = gathered * sent.gathers_busy_s.get(level, 0.0)
            step_s = max(step_s, busy_s + scattered * sent.scatters_busy_s.get(level, 0.0))
    step_s += computation.optimizer_s / exchange.workers_sharing(site) / slowest + sent.after_s
    return computation.batch * job.accumulate * site.workers / max(step_s, 1e-12)


@memoize(on=first_argument)
def _wait_s(computation: Computation) -> float:
    """Seconds per step of waiting for other pipeline stages."""
    return 0.0 if computation.work is None else float(mean_s(computation)[computation.work == WAIT].sum())


@memoize(on=first_argument)
def _total_s(computation: Computation) -> float:
    return float(mean_s(computation).sum())


@memoize(on=first_argument)
def _ready_s(computation: Computation, buckets: tuple[Bucket, ...]) -> tuple[float, tuple[float, ...], float]:
    """Seconds until the backward pass begins, until each bucket is ready, and of all ops."""
    ends = np.cumsum(mean_s(computation))
    turn = first_backward_op(computation)
    forward_s = float(ends[turn - 1]) if 0 < turn < computation.ops else 0.0
    return forward_s, tuple(float(ends[bucket.ready]) for bucket in buckets), float(ends[-1])


def _level_busy_s(phases: Iterable[Phase], library: Library, peers: Peers) -> dict[str, float]:
    """Seconds for which phases keep each level from other collectives."""
    busy_s: dict[str, float] = {}
    for phase in phases:
        wire_s = phase.bytes / peers.bytes_per_s(phase.level)
        waits_s = phase.latency_s if library.in_flight == 1 else 0.0
        busy_s[phase.level] = busy_s.get(phase.level, 0.0) + wire_s + waits_s
    return busy_s
