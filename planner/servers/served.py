"""A plan with parameter servers as the simulator runs it: step, cluster and policy.

A replica of several workers is one worker with the NICs of all of them, its step spread by the partition
search (`planner.servers.partition.span`). `multiplexed` and `fifo` take a step as it is; other policies are
ordering strategies (`planner.servers.ordering`), which may cut its transfers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from planner.device.computation import Computation
from planner.memoize import kept_on
from planner.parallel.site import Site
from planner.servers import cluster as clusters
from planner.servers.aggregated import joined, summed_in_machines
from planner.servers.served_step import served
from planner.simulator.cluster import Cluster, Node
from planner.simulator.policy import Fifo, Multiplexed, Policy
from planner.simulator.step import Profile

if TYPE_CHECKING:
    from planner.servers.parameter_servers import ParameterServers
    from planner.servers.partition.span import Span
    from planner.simulator.simulate import Case

UNRANKED: dict[str, Policy] = {"multiplexed": Multiplexed(), "fifo": Fifo()}  # take a step as it is


def served_case(exchange: ParameterServers, computation: Computation, site: Site) -> Case:
    """What the simulator runs."""
    from planner.simulator.simulate import Case

    profile, policy = scheduled(exchange, computation, site)
    cluster = cluster_of(exchange, site)
    if exchange.sums_inside(site):
        step = profile
        where = ("summed", id(step), site.fabric, site.devices, min(site.workers, site.devices))
        profile = kept_on(computation, where, lambda: summed_in_machines(step, site))
        cluster = joined(cluster, site)
    return Case(profile=profile, cluster=cluster, policy=policy, mode=exchange.mode)


def scheduled(exchange: ParameterServers, computation: Computation, site: Site) -> tuple[Profile, Policy]:
    """The step and the policy."""
    profile = step_of(exchange, computation, site)
    if exchange.policy in UNRANKED:
        return profile, UNRANKED[exchange.policy]

    def make() -> tuple[Profile, Policy]:
        from planner.servers.ordering import schedule

        rate = site.nic_bytes_per_s
        made = schedule(profile, exchange.policy, bandwidth_bytes_per_s=rate, seed=site.seed)
        return made.profile, made.policy

    where = (
        "schedule",
        exchange.servers,
        exchange.placement,
        exchange.policy,
        site.nic_bytes_per_s,
        site.seed,
    )
    return kept_on(computation, where, make)


def step_of(exchange: ParameterServers, computation: Computation, site: Site) -> Profile:
    """The step of a replica, before a strategy orders its transfers."""
    # with one server a rule changes nothing but the parsing that its framework does
    where = ("step", exchange.servers, exchange.placement, site.hosts_parse)

    def make() -> Profile:
        return served(computation, exchange.servers, exchange.placement, on_host=site.hosts_parse)

    profile = kept_on(computation, where, make)
    span = span_of(exchange, computation, site)
    if span is None:
        return profile

    def spread() -> Profile:
        from planner.servers.partition.span import spanned

        assert computation.network is not None
        return spanned(profile, span)

    return kept_on(computation, (*where, site.hardware.name, span.cuts), spread)


def span_of(exchange: ParameterServers, computation: Computation, site: Site) -> Span | None:
    """How the replicas are spread over their workers; None for one worker a replica."""
    many = site.mesh.size
    if many == 1:
        return None
    from planner.servers.partition.span import pick, spans_of

    worker, rate, network = site.hardware, site.nic_bytes_per_s, computation.network
    assert network is not None, "recorded steps are those of one worker"

    def make() -> list[Span]:
        from planner.servers.partition.constants import constants_for

        alone = served(computation, 1, "greedy")
        return spans_of(network, worker, constants_for(worker, bandwidth_bytes_per_s=rate), alone, many)

    spans = kept_on(computation, ("spans", worker.name, many, rate), make)
    servers = exchange.servers * (site.market.nic_bytes_per_s(exchange.machine(site)) or np.nan)
    return pick(spans, site.replicas, rate, servers)


def cluster_of(exchange: ParameterServers, site: Site) -> Cluster:
    """The machines, with servers apart or beside the workers."""
    cluster = clusters.cluster_of(
        site.hardware,
        site.replicas,
        None if exchange.host is None else exchange.machine(site),
        exchange.servers,
        site.market.network,
        colocated=exchange.host is None,
        bandwidth_bytes_per_s=site.market.bandwidth_bytes_per_s,
    )
    many = site.mesh.size
    if many == 1:
        return cluster
    last = cluster.nodes[-1]
    spread = Node(last.egress_bytes_per_s * many, last.ingress_bytes_per_s * many)
    return replace(
        cluster,
        nodes=(*cluster.nodes[: exchange.servers], *(spread,) * site.replicas),
        flow_bytes_per_s=cluster.flow_bytes_per_s * many,
    )
