"""Bounds of plans with parameter servers, thousands at once (`planner.servers.bounds_grid`).

Where the devices of a machine sum their gradients first, the machine is a worker: its step lasts at least as
long as that of one device whose sums take no time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from planner.device.computation.memo import once
from planner.parallel.cluster_of import flow_limit_bytes_per_s, host_cores
from planner.parallel.data._base import Floats, Job
from planner.servers.bounds_grid import Family, Plans, bound_families
from planner.servers.ordering import STRATEGIES, Strategy
from planner.servers.served import UNRANKED, scheduled, span_of, step_of
from planner.simulator.bounds.paths import graph_of
from planner.simulator.policy import Mode, Policy
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER

if TYPE_CHECKING:
    from planner.device.computation import Computation
    from planner.parallel.site import Site
    from planner.servers.parameter_servers import ParameterServers


def served_bounds(jobs: Sequence[Job]) -> Floats:
    """Upper bounds on throughput in the long run, one a job. Plans that differ in workers and servers only
    are a family; families of one policy and mode are bounded together."""
    out = np.zeros(len(jobs))
    groups: dict[tuple[Policy | None, Mode], dict[tuple[object, ...], list[int]]] = {}
    for index, job in enumerate(jobs):
        exchange = _servers(job)
        span = span_of(exchange, job.computation, job.site)
        family = (
            id(job.computation),
            job.site.hardware.name,
            exchange.placement,
            exchange.policy if _rewritten(exchange) else "",
            exchange.sums_inside(job.site),
            span and (span.workers, span.cuts),
        )
        kind = (UNRANKED.get(exchange.policy), exchange.mode)
        groups.setdefault(kind, {}).setdefault(family, []).append(index)
    for (policy, mode), by_family in groups.items():
        families = [_family([jobs[row] for row in rows]) for rows in by_family.values()]
        found = bound_families(families, policy, mode, steps="mean")
        for rows, bounds in zip(by_family.values(), found, strict=True):
            out[rows] = bounds * [_devices(jobs[row]) for row in rows]
    return out


@dataclass(frozen=True, slots=True)
class _StepAsks:
    """What a step asks of everybody: seconds of a worker, of its host and of all servers, bytes each way."""

    worker_s: float  # at least, without transfers
    host_s: float
    servers_s: float
    down_bytes: float
    up_bytes: float
    largest_bytes: float  # both ways, of one server


def served_ceiling(
    exchange: ParameterServers, computation: Computation, site: Site, *, links: bool = True
) -> float:
    """More than a plan can reach, for next to nothing. No worker is faster than its step without transfers;
    and (`links`) all parameters arrive before the forward pass is over and gradients leave after it, through
    the NIC of a machine and one connection to each server. Servers' NICs carry what others send, their cores
    all updates. On a server's own machine stays at most what the largest holds. Infinite for cut replicas."""
    if site.mesh.size > 1 or exchange.policy not in UNRANKED:
        return math.inf

    def look() -> _StepAsks:
        step = step_of(exchange, computation, site)
        busy_s = np.where(step.is_transfer, 0.0, step.durations_s.mean(axis=0))
        cost = busy_s[:, None]
        path_s = float((graph_of(step).heads_s(cost) + cost).max())
        worker_s, host_s, update_s = (
            float(busy_s[step.resource == what].sum()) for what in (WORKER, HOST, PS)
        )
        down, up = (float(step.bytes[step.resource == way].sum()) for way in (DOWNLINK, UPLINK))
        moved = step.is_transfer
        by_server = np.bincount(step.server[moved], step.bytes[moved], exchange.servers)
        least_s = max(path_s, worker_s, host_s)
        return _StepAsks(least_s, host_s, update_s, down, up, float(by_server.max()))

    where = ("ceiling", exchange.servers, exchange.placement, site.hosts_parse)
    asked = once(computation, where, look)
    alone = site.workers / asked.worker_s
    if not links:
        return computation.batch * alone
    host, servers = exchange.machine(site), exchange.servers
    full = min(site.workers, site.devices)
    together = full if exchange.sums_inside(site) else 1  # devices that send as one
    senders = full // together  # of a machine
    nic = (site.market.nic_bytes_per_s(site.hardware) or math.inf) / senders
    flow = min(flow_limit_bytes_per_s(site.hardware), flow_limit_bytes_per_s(host))
    cores = (host_cores(site.hardware) or math.inf) / senders
    least_s = max(asked.worker_s, asked.host_s / cores)
    both_ways = asked.down_bytes + asked.up_bytes
    apart_s = max(least_s, both_ways / min(nic, servers * flow))
    beside_s = max(least_s, (both_ways - asked.largest_bytes) / min(nic, max(servers - 1, 1) * flow))
    server_nic = site.market.nic_bytes_per_s(host) or math.inf
    sent = together * servers * server_nic / max(asked.up_bytes, asked.down_bytes, 1.0)
    updated = together * servers * (host_cores(host) or math.inf) / max(asked.servers_s, 1e-12)
    beside = 0 if exchange.host is not None else min(site.workers, site.devices * servers)
    apart = min((site.workers - beside) / apart_s, sent)
    return computation.batch * min(alone, beside / beside_s + apart, updated)


def _devices(job: Job) -> float:
    """Devices that a worker of the bound stands for; at one pace a half-full machine counts for as many."""
    site = job.site
    if not _servers(job).sums_inside(site):
        return 1.0
    full = min(site.workers, site.devices)
    return site.workers / site.machines if _servers(job).mode == "sync" else float(full)


def _family(members: Sequence[Job]) -> Family:
    profiles = {}
    for job in sorted(members, key=lambda job: _servers(job).servers):
        exchange, of = _servers(job), (job.computation, job.site)
        profiles[exchange.servers] = (
            scheduled(exchange, *of)[0] if _rewritten(exchange) else step_of(exchange, *of)
        )
    return Family(profiles, _grid(members))


def _grid(members: Sequence[Job]) -> Plans:
    site = members[0].site
    worker, market, many = site.hardware, site.market, site.mesh.size
    exchanges = [_servers(job) for job in members]
    machines = exchanges[0].sums_inside(site)
    hosts = [exchange.machine(job.site) for exchange, job in zip(exchanges, members, strict=True)]
    return Plans(
        workers=[job.site.machines if machines else job.site.replicas for job in members],
        worker_nic_bytes_per_s=(market.nic_bytes_per_s(worker) or np.nan) * many,
        servers=[exchange.servers for exchange in exchanges],
        server_nic_bytes_per_s=[market.nic_bytes_per_s(host) or np.nan for host in hosts],
        workers_per_node=1 if machines else worker.device_count,
        colocated=[exchange.host is None for exchange in exchanges],
        flow_bytes_per_s=[
            min(flow_limit_bytes_per_s(worker), flow_limit_bytes_per_s(host)) * many for host in hosts
        ],
        worker_cores=host_cores(worker) or np.inf,
        server_cores=[host_cores(host) or np.inf for host in hosts],
    )


def _servers(job: Job) -> ParameterServers:
    return cast("ParameterServers", job.exchange)


def _rewritten(exchange: ParameterServers) -> bool:
    """Whether the policy changes the step itself: P3 and ByteScheduler cut transfers, which then overlap with
    what the whole had to wait for, and P3 deals them over the servers. What is bounded is what is run."""
    strategy = STRATEGIES.get(exchange.policy)
    return strategy is not None and strategy.rewrite is not Strategy.rewrite
