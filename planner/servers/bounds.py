"""Bounds of plans with parameter servers in closed form, thousands at once, as numpy arrays.

Clusters are regular: so many workers on each node (the last may hold fewer), servers on nodes of their own or
server i beside the workers of node i. Plans that differ in workers and machines of servers only are a group;
a node is known by the server that it holds, -1 for none. A step of a worker there lasts at least what
`planner.simulator.bounds` says of it; the NICs and cores of nodes then bound the rates of all workers. In
`async` mode the bound of a shared NIC is the best mix: maximise the sum of the rates x_n of nodes subject to
sum a_n x_n <= capacity and x_n <= u_n, a fractional knapsack solved by taking the least demanding first. In
`sync` mode all run at one rate, and the bound is capacity / sum of demands. Tests hold it to
`planner.simulator.bounds.throughput_bounds` of the same plans.

Where the devices of a machine sum their gradients first, the machine is a worker: its step lasts at least as
long as that of one device whose sums take no time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from planner.memoize import get_or_make_on
from planner.parallel.data import Job
from planner.parallel.plan import flow_limit_bytes_per_s, host_cores
from planner.servers.lowering import UNRANKED, order_step_transfers, replica_span, replica_step
from planner.servers.ordering import STRATEGIES
from planner.simulator.bounds import Kinds, StepBounds, evaluate_steps
from planner.simulator.paths import OpGraph, graph_of
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER

if TYPE_CHECKING:
    from planner.device.computation import Computation
    from planner.parallel.data import Floats
    from planner.parallel.plan import Site
    from planner.servers.parameter_servers import ParameterServers


def server_throughput_bounds(jobs: Sequence[Job]) -> Floats:
    """Upper bounds on long-run throughput in samples per second, one per parameter-server job."""
    by_group: dict[Hashable, list[int]] = {}
    for index, job in enumerate(jobs):
        by_group.setdefault(_group_key(job), []).append(index)
    groups = [_Group([jobs[row] for row in rows]) for rows in by_group.values()]
    evaluate_steps([group.step for group in groups])
    out = np.zeros(len(jobs))
    for rows, group in zip(by_group.values(), groups, strict=True):
        out[rows] = group.samples_per_s() * [_devices_per_worker(jobs[row]) for row in rows]
    return out


def _group_key(job: Job) -> Hashable:
    """Grouping key: jobs with equal keys have the same step, placement, mode and policy."""
    exchange, site = _parameter_servers(job), job.site
    span = replica_span(exchange, job.computation, site)
    return (
        *(id(job.computation), site.hardware.name, exchange.is_summed_per_machine(site)),
        *(exchange.servers, exchange.host is None, exchange.placement, exchange.mode),
        UNRANKED.get(exchange.policy),
        exchange.policy if _has_split_transfers(exchange) else "",
        span and (span.workers, span.cuts),
    )


class _Group:
    """Plans with the same step, either all with colocated servers or all with dedicated server machines.
    Arrays are places x plans: place 0 is a node without a server, place i + 1 the node of server i."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        exchange, site = _parameter_servers(jobs[0]), jobs[0].site
        worker, market, many = site.hardware, site.market, site.mesh.size
        machines = exchange.is_summed_per_machine(site)
        self.colocated, self.is_sync = exchange.host is None, exchange.mode == "sync"
        server_hosts = [_parameter_servers(job).server_machine(job.site) for job in jobs]
        workers = [job.site.machines if machines else job.site.replicas for job in jobs]
        self.workers: Floats = np.array(workers, np.float64)
        self.nic = np.full(len(jobs), (market.nic_bytes_per_s(worker) or np.nan) * many)
        self.cores = np.full(len(jobs), host_cores(worker) or np.inf)
        self.server_nic, self.server_cores = self.nic, self.cores
        if not self.colocated:
            rates = np.array([market.nic_bytes_per_s(host) or np.nan for host in server_hosts], np.float64)
            self.server_nic = np.where(np.isnan(rates), self.nic, rates)
            self.server_cores = np.array([host_cores(host) or np.inf for host in server_hosts], np.float64)
        own_limit = flow_limit_bytes_per_s(worker)
        limit = [min(own_limit, flow_limit_bytes_per_s(host)) * many for host in server_hosts]
        flow_s = 1.0 / np.minimum(np.minimum(self.nic, self.server_nic), limit)
        self.flows_s, self.flow_of_plan = np.unique(flow_s, return_inverse=True)

        of = (exchange, jobs[0].computation, site)
        self.profile = order_step_transfers(*of)[0] if _has_split_transfers(exchange) else replica_step(*of)
        graph = graph_of(self.profile)
        busy_s, on_server = self.profile.durations_s.mean(axis=0), self.profile.resource == PS
        self.update_s: Floats = np.bincount(  # of a core, by server
            self.profile.server[on_server], busy_s[on_server], self.profile.servers
        ).astype(np.float64)
        self.host_s = float(busy_s[self.profile.resource == HOST].sum())
        self.down, self.up = (graph.bytes_by_server(way) for way in (DOWNLINK, UPLINK))
        self.hosts = range(len(self.down) if self.colocated else 0)
        # Bytes that a worker at each place moves through its NIC in a step.
        self.own_down, self.own_up = (
            (by_server.sum() - np.array([0.0, *by_server[: len(self.hosts)]]))[:, None]
            for by_server in (self.down, self.up)
        )
        self.per_node = np.minimum(1 if machines else worker.device_count, self.workers)
        nodes = np.ceil(self.workers / self.per_node)
        self.last = self.workers - (nodes - 1) * self.per_node  # workers on the last node
        self.free_nodes = nodes - len(self.hosts)
        is_last = np.array([self.free_nodes <= 1, *(nodes - 1 == server for server in self.hosts)])
        self.size = np.where(is_last, self.last, self.per_node)  # the most workers of a node at each place
        policy = UNRANKED.get(exchange.policy)
        self.step = StepBounds(self.profile, policy, self._worker_groups(graph), random=not self.is_sync)

    def _worker_groups(self, graph: OpGraph) -> Kinds:
        """Groups of identical workers, by flow rate and colocated server, as input for `StepBounds`.

        Server -1 means that the node holds none.
        """
        uses, flows = graph.uses, len(self.flows_s)
        local = np.repeat((-1, *self.hosts), flows)
        away = np.array([[use.is_transfer and use.channel != server for use in uses] for server in local])
        port = np.full((*away.shape, 2), -1)
        port[:, :, 0] = np.where(away, [use.resource == UPLINK for use in uses], -1)  # its NIC, in or out
        return Kinds(
            uses,
            speed=np.ones(len(local)),
            s_per_byte=np.where(away, np.tile(self.flows_s, len(local) // flows)[:, None], 0.0),
            lane=np.zeros(away.shape, np.intp),
            port=port,
            port_s_per_byte=np.full(port.shape, 1.0 / self.nic[0]),
        )

    def samples_per_s(self) -> Floats:
        """Throughput bound of each plan in samples per second. Run `evaluate_steps` first."""
        table = self.step.least_s("mean").reshape(-1, len(self.flows_s))
        steps_s = table[:, np.asarray(self.flow_of_plan).reshape(-1)]
        return (self.sync_rates(steps_s) if self.is_sync else self.async_rates(steps_s)) * self.profile.batch

    def sync_rates(self, steps_s: Floats) -> Floats:
        """Upper bounds on synchronous steps per second, summed over workers; the slowest node paces all."""
        at_places = _elementwise_min(
            1.0 / steps_s,
            _ratio(self.nic, self.size * self.own_down),
            _ratio(self.nic, self.size * self.own_up),
            _ratio(self.cores, self.size * self.host_s),
        )
        at_places[0] = np.where(self.free_nodes > 0, at_places[0], math.inf)
        beside = self.size[1:] if self.colocated else np.zeros((len(self.down), 1))
        own_down, own_up = (own[1:] if self.colocated else 0.0 for own in (self.own_down, self.own_up))
        away, down, up = self.workers - beside, self.down[:, None], self.up[:, None]
        at_servers = _elementwise_min(
            _ratio(self.server_nic, away * down + beside * own_up),
            _ratio(self.server_nic, away * up + beside * own_down),
            _ratio(self.server_cores, self.workers * self.update_s[:, None] + beside * self.host_s),
        )
        return np.asarray(np.minimum(at_places.min(axis=0), at_servers.min(axis=0)) * self.workers)

    def async_rates(self, steps_s: Floats) -> Floats:
        """Upper bounds on asynchronous steps per second, summed over workers, each node at its highest
        rate."""
        limits = _ratio(self.nic, self.own_down), _ratio(self.nic, self.own_up)
        most = _elementwise_min(
            *limits, _ratio(self.cores, self.host_s)
        )  # steps per second of a node, by its NIC
        full, last = (np.minimum(size / steps_s[0], most[0]) for size in (self.per_node, self.last))
        apart = np.where(self.free_nodes > 0, np.maximum(self.free_nodes - 1, 0) * full + last, 0.0)
        if not self.colocated:
            busiest = max(float(self.down.max()), float(self.up.max()))
            by_cores = _ratio(self.server_cores, float(self.update_s.max()))
            return _elementwise_min(apart, _ratio(self.server_nic, busiest), by_cores)
        host = np.minimum(self.size[1:] / steps_s[1:], most[1:])
        total = apart + host.sum(axis=0)
        limited = [total]
        for server, own in enumerate(host):
            others, update_s = total - own, float(self.update_s[server])
            own_down, own_up = float(self.own_down[server + 1, 0]), float(self.own_up[server + 1, 0])
            limited += [
                _fractional_knapsack(self.nic, [(float(self.down[server]), others), (own_up, own)]),
                _fractional_knapsack(self.nic, [(float(self.up[server]), others), (own_down, own)]),
                _fractional_knapsack(self.cores, [(update_s, others), (update_s + self.host_s, own)]),
            ]
        for served, back in ((self.down, self.own_up), (self.up, self.own_down)):
            # the NICs of all nodes with servers together, out and in
            kinds = [(float(served.sum()), total - host.sum(axis=0))]
            kinds += [
                (float(back[server + 1, 0] + float(served.sum() - served[server])), own)
                for server, own in enumerate(host)
            ]
            limited.append(_fractional_knapsack(self.nic * len(host), kinds))
        return _elementwise_min(*limited)


def throughput_ceiling(
    exchange: ParameterServers, computation: Computation, site: Site, *, links: bool = True
) -> float:
    """Cheap upper bound on samples per second, looser than `server_throughput_bounds`.

    No worker is faster than its step without transfers. With `links`, downloads end before the forward pass
    does and gradients leave after it, over the machine's NIC and one connection per server; server NICs and
    cores carry all of it. Traffic to a server on the worker's own machine is free. Infinite for replicas that
    span workers.
    """
    if not site.mesh.is_whole or exchange.policy not in UNRANKED:
        return math.inf

    def measure_demand() -> tuple[float, ...]:
        """Demands of one step: worker, host and server seconds; bytes down, up, and on the busiest server."""
        step = replica_step(exchange, computation, site)
        busy_s = np.where(step.is_transfer, 0.0, step.durations_s.mean(axis=0))
        cost = busy_s[:, None]
        path_s = float((graph_of(step).heads_s(cost) + cost).max())
        worker_s, host_s, update_s = (
            float(busy_s[step.resource == what].sum()) for what in (WORKER, HOST, PS)
        )
        down, up = (float(step.bytes[step.resource == way].sum()) for way in (DOWNLINK, UPLINK))
        moved = step.is_transfer
        by_server = np.bincount(step.server[moved], step.bytes[moved], exchange.servers)
        return max(path_s, worker_s, host_s), host_s, update_s, down, up, float(by_server.max())

    where = ("ceiling", exchange.servers, exchange.placement, site.is_parsed_by_host)
    alone_s, host_s, update_s, down, up, largest = get_or_make_on(computation, where, measure_demand)
    alone = site.workers / alone_s
    if not links:
        return computation.batch * alone
    host, servers = exchange.server_machine(site), exchange.servers
    full = min(site.workers, site.devices)
    together = full if exchange.is_summed_per_machine(site) else 1  # devices that send as one
    senders = full // together  # of a machine
    nic = (site.market.nic_bytes_per_s(site.hardware) or math.inf) / senders
    flow = min(flow_limit_bytes_per_s(site.hardware), flow_limit_bytes_per_s(host))
    cores = (host_cores(site.hardware) or math.inf) / senders
    least_s = max(alone_s, host_s / cores)
    apart_s = max(least_s, (down + up) / min(nic, servers * flow))
    beside_s = max(least_s, (down + up - largest) / min(nic, max(servers - 1, 1) * flow))
    server_nic = site.market.nic_bytes_per_s(host) or math.inf
    sent = together * servers * server_nic / max(up, down, 1.0)
    updated = together * servers * (host_cores(host) or math.inf) / max(update_s, 1e-12)
    beside = 0 if exchange.host is not None else min(site.workers, site.devices * servers)
    apart = min((site.workers - beside) / apart_s, sent)
    return computation.batch * min(alone, beside / beside_s + apart, updated)


def _devices_per_worker(job: Job) -> float:
    """Number of devices per parameter-server worker: a machine's if they sum their gradients, else 1.

    In sync mode their mean per machine.
    """
    site = job.site
    if not _parameter_servers(job).is_summed_per_machine(site):
        return 1.0
    full = min(site.workers, site.devices)
    return site.workers / site.machines if _parameter_servers(job).mode == "sync" else float(full)


def _parameter_servers(job: Job) -> ParameterServers:
    """The job's exchange, typed as ParameterServers."""
    return cast("ParameterServers", job.exchange)


def _has_split_transfers(exchange: ParameterServers) -> bool:
    """Whether the transfer policy splits tensors into pieces, as P3 and ByteScheduler do."""
    return exchange.policy in STRATEGIES and STRATEGIES[exchange.policy].cuts


def _elementwise_min(*rates: Floats) -> Floats:
    """Elementwise minimum of arrays, broadcast to one shape."""
    return np.asarray(np.minimum.reduce(np.broadcast_arrays(*rates)))


def _ratio(capacity: Floats, demand: Floats | float) -> Floats:
    """Capacity divided by demand, elementwise; infinite where the demand is zero."""
    held, asked = np.broadcast_arrays(capacity, np.asarray(demand, float))
    return np.asarray(np.divide(held, asked, out=np.full(asked.shape, math.inf), where=asked > 0))


def _fractional_knapsack(capacity: Floats, groups: Sequence[tuple[float, Floats]]) -> Floats:
    """Largest total steps per second within a capacity, serving the least demanding nodes first.

    Each entry of `groups` is (demand per step, most steps per second).
    """
    total, left = np.zeros(capacity.shape), capacity
    for ask, most in sorted(groups, key=lambda kind: kind[0]):
        rate = np.minimum(most, _ratio(left, ask))
        total = total + rate
        left = np.maximum(left - rate * ask, 0.0)
    return total
