"""Lowering of a plan with parameter servers to what the simulator runs: step, cluster and policy.

A replica of several workers is one worker with the NICs of all of them, its step spread by the partition
search (`planner.servers.partition.replica`). `multiplexed` and `fifo` take a step as it is; other policies
are ordering strategies (`planner.servers.ordering`), which may cut its transfers.

Machines may be the workers: their devices sum gradients over the fabric first,

    down(t) -> [parse(t)] -> share(t) -> forward(l) ... backward(l) -> sum(t) -> up(t) -> update(t)

as TensorFlow's distributed_replicated, MXNet's dist_device_sync and BytePS do: a reduce-scatter leaves every
device the sum of its part, gradients go to the servers once per machine, and all devices gather what comes
back. What crosses a NIC, is parsed and is updated does not grow with the devices of a machine, which keep one
pace. Each such op is a joint op of the machine; the fabric is one more channel of a worker, on which
collectives run one after another, each for as long as the library takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from planner.device.computation import Computation
from planner.memoize import kept_on
from planner.parallel.collectives import Kind
from planner.parallel.collectives.peers import peers_of
from planner.parallel.data import settings
from planner.parallel.plan import Site
from planner.servers import cluster as clusters
from planner.servers.synthesis import served
from planner.simulator.cluster import FABRIC, Cluster, Node
from planner.simulator.policy import Fifo, Multiplexed, Policy
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Op, Profile

if TYPE_CHECKING:
    from planner.servers.parameter_servers import ParameterServers
    from planner.servers.partition.replica import Span
    from planner.simulator.simulate import Case


UNRANKED: dict[str, Policy] = {"multiplexed": Multiplexed(), "fifo": Fifo()}  # take a step as it is


def lower_servers(exchange: ParameterServers, computation: Computation, site: Site) -> Case:
    """Lower a plan with parameter servers to a simulator case."""
    from planner.simulator.simulate import Case

    profile, policy = scheduled(exchange, computation, site)
    cluster = cluster_of(exchange, site)
    if exchange.sums_inside(site):
        step = profile
        where = ("summed", id(step), site.fabric, site.devices, min(site.workers, site.devices))
        profile = kept_on(computation, where, lambda: sum_inside_machines(step, site))
        cluster = joined(cluster, site)
    return Case(profile=profile, cluster=cluster, policy=policy, mode=exchange.mode)


def scheduled(exchange: ParameterServers, computation: Computation, site: Site) -> tuple[Profile, Policy]:
    """The step and the policy after the ordering strategy."""
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
    """The step of a replica before an ordering strategy."""
    # with one server a rule changes nothing but the parsing that its framework does
    where = ("step", exchange.servers, exchange.placement, site.hosts_parse)

    def make() -> Profile:
        return served(computation, exchange.servers, exchange.placement, on_host=site.hosts_parse)

    profile = kept_on(computation, where, make)
    span = replica_span(exchange, computation, site)
    if span is None:
        return profile

    def spread() -> Profile:
        from planner.servers.partition.replica import spanned

        assert computation.network is not None
        return spanned(profile, span)

    return kept_on(computation, (*where, site.hardware.name, span.cuts), spread)


def replica_span(exchange: ParameterServers, computation: Computation, site: Site) -> Span | None:
    """How a replica is spread over its workers; None for one worker per replica."""
    many = site.mesh.size
    if many == 1:
        return None
    from planner.servers.partition.replica import pick, spans_of

    worker, rate, network = site.hardware, site.nic_bytes_per_s, computation.network
    assert network is not None, "recorded steps are those of one worker"

    def make() -> list[Span]:
        from planner.servers.partition.layers import constants_for

        alone = served(computation, 1, "greedy")
        return spans_of(network, worker, constants_for(worker, bandwidth_bytes_per_s=rate), alone, many)

    spans = kept_on(computation, ("spans", worker.name, many, rate), make)
    servers = exchange.servers * (site.market.nic_bytes_per_s(exchange.machine(site)) or np.nan)
    return pick(spans, site.replicas, rate, servers)


def cluster_of(exchange: ParameterServers, site: Site) -> Cluster:
    """The cluster, with servers apart or beside the workers."""
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


MACHINE = 0  # the scope
WORDS: dict[Kind, str] = {"reduce_scatter": "sum", "all_gather": "share"}


def sum_inside_machines(step: Profile, site: Site) -> Profile:
    """Add reductions inside each machine to the step of one of its devices."""
    library = settings.library("auto", "auto", site)
    peers = peers_of(replace(site, workers=min(site.workers, site.devices)), library)
    ops: list[Op] = []
    like: list[int] = []  # the op of the step whose place in the order each new one has
    seconds: dict[int, float] = {}  # of collectives
    place: dict[int, int] = {}  # the new op of each op of the step
    shared: dict[int, int] = {}  # of what is received: the op after which all devices have it

    def add(op: Op, source: int) -> int:
        ops.append(op)
        like.append(source)
        return len(ops) - 1

    def collective(kind: Kind, source: int, size: int, deps: tuple[int, ...]) -> int:
        name = f"{step.names[source]}/{WORDS[kind]}"
        op = add(Op(name, PS, step.servers, deps=deps, scope=MACHINE), source)
        seconds[op] = library.seconds(kind, size, peers)
        return op

    received = _received(step)
    for op in step.topological_order().tolist():
        own = step.op(op)
        resource = own.resource
        known = shared if resource == WORKER else place
        deps = tuple(dict.fromkeys(known.get(dep, place[dep]) for dep in own.deps))
        if resource == UPLINK:
            deps = (collective("reduce_scatter", op, own.bytes, deps),)
        scope = -1 if resource == WORKER else MACHINE
        place[op] = add(replace(own, deps=deps, scope=scope), op)
        if op in received:
            shared[op] = collective("all_gather", op, received[op], (place[op],))
    durations_s = step.durations_s[:, like]
    durations_s[:, list(seconds)] = list(seconds.values())
    order = None if step.order is None else step.order[:, like]
    return step.rebuilt(ops, durations_s, servers=step.servers + 1, order=order)


def joined(cluster: Cluster, site: Site) -> Cluster:
    """Add the fabric to a cluster, with the devices of a machine as a group led by its first."""
    far = cluster.server_nodes[0]
    return replace(
        cluster,
        links=tuple(((node, far),) for node in cluster.worker_nodes),  # nothing flows there: times are known
        link_resources=(FABRIC,),
        leaders=(tuple(site.machine_of(worker) * site.devices for worker in range(site.workers)),),
    )


def _received(step: Profile) -> dict[int, int]:
    """The op that delivers each tensor to the devices (receipt or host parsing), with its bytes."""
    out: dict[int, int] = {}
    sizes = {op: int(step.bytes[op]) for op in np.flatnonzero(step.resource == DOWNLINK).tolist()}
    for op in step.topological_order().tolist():
        for dep in step.deps(op).tolist():
            if step.resource[op] == HOST and dep in sizes:
                sizes[op] = sizes.get(op, 0) + sizes[dep]
            elif step.resource[op] == WORKER and dep in sizes:
                out[dep] = sizes[dep]
    return out
