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

Workers are accelerators: a machine with eight GPUs holds eight workers that share its NIC, and machines are
filled one after another. Servers stand on the workers' own kind of machine, on cheap CPU machines of the same
provider, on machines that are named, or on the workers' machines (`colocated`), where their traffic shares
that machine's NIC and traffic with the workers beside it crosses none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from planner.device.computation import Computation
from planner.device.memory import USABLE, framework_bytes
from planner.device.precision import find_optimizer
from planner.errors import BadInput
from planner.hardware import Hardware, Market, Network
from planner.memoize import get_or_make_on
from planner.model import BYTES_PER_ELEMENT
from planner.parallel.collectives import Kind
from planner.parallel.collectives.libraries import site_peers
from planner.parallel.data import collective
from planner.parallel.plan import Site, flow_limit_bytes_per_s, host_cores, network_figure
from planner.servers.synthesis import server_step
from planner.simulator.cluster import FABRIC, Cluster, Node
from planner.simulator.policy import Fifo, Multiplexed, Policy
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Op, Profile
from planner.units import format_bytes

if TYPE_CHECKING:
    from planner.servers.parameter_servers import ParameterServers
    from planner.servers.partition.replica import Span
    from planner.simulator.simulate import Case


_LIMITS = {"workers": 100_000, "servers": 10_000}


def cluster_of(
    worker_hardware: Hardware | str,
    workers: int,
    server_hardware: Hardware | str | None = None,
    servers: int = 1,
    network: Network = "baseline",
    *,
    colocated: bool = False,
    bandwidth_bytes_per_s: float | None = None,
) -> Cluster:
    """Builds the simulator's cluster of workers and servers from machines of the catalog.

    `server_hardware` None means machines like the workers'. `network` picks what long training gets
    (`baseline`) or what lasts for minutes (`burst`); `network_figure` says the figure in words. Clouds limit
    a single connection, and a (worker, server) pair uses one in each direction; training is assumed to run in
    a cluster placement group, where that limit is higher. `bandwidth_bytes_per_s` replaces the NIC of every
    machine, for those whose network nobody has published.
    """
    worker_kind = _find_hardware(worker_hardware)
    server_kind = worker_kind if server_hardware is None else _find_hardware(server_hardware)
    if colocated and server_kind.name != worker_kind.name:
        raise BadInput(
            f"servers cannot live on the workers' machines ({worker_kind.name}) and on machines of their own "
            f"({server_kind.name}); drop colocated or the servers' hardware"
        )
    for name, value in (("workers", workers), ("servers", servers)):
        if not 1 <= value <= _LIMITS[name]:
            raise BadInput(f"{name} is {value}; a cluster has between 1 and {_LIMITS[name]:,}")

    def node_of(hardware: Hardware) -> Node:
        """Simulator node for a machine of the catalog, with its NIC and cores."""
        rate = bandwidth_bytes_per_s or network_figure(hardware, network).bytes_per_s
        return Node(rate, rate, hardware.name, host_cores(hardware))

    worker_node, server_node = node_of(worker_kind), node_of(server_kind)
    worker_machines = math.ceil(workers / worker_kind.device_count)
    own = 0 if colocated else servers  # machines of servers come first, as in Cluster.uniform
    return Cluster(
        nodes=(server_node,) * own + (worker_node,) * worker_machines,
        worker_nodes=tuple(own + worker // worker_kind.device_count for worker in range(workers)),
        server_nodes=tuple(server % worker_machines if colocated else server for server in range(servers)),
        flow_bytes_per_s=min(flow_limit_bytes_per_s(kind) for kind in (worker_kind, server_kind)),
    )


def _find_hardware(hardware: Hardware | str) -> Hardware:
    """Looks up hardware that is given by name."""
    from planner.hardware.catalog import load_hardware

    return load_hardware(hardware) if isinstance(hardware, str) else hardware


def server_host_names(worker: Hardware, market: Market, words: Iterable[str]) -> tuple[str | None, ...]:
    """Names of the machines that `words` select as hosts of servers; None for servers on the workers.

    `words` are `colocated`, `own`, `cheap` and machine patterns; names keep their order. Each machine has a
    price and a known network.
    """
    words = tuple(words)

    def find_hosts() -> tuple[str | None, ...]:
        """Names of the hosts; the market caches them."""
        by_name: dict[str | None, None] = {}
        for word in words:
            if word == "colocated":
                by_name[None] = None
                continue
            kinds: Iterable[Hardware] = [worker]
            if word != "own":
                kinds = cheap_servers(worker, market) if word == "cheap" else market.select_machines([word])
            for kind in kinds:
                priced = market.usd_per_hour(kind) is not None or kind is worker
                if priced and market.nic_bytes_per_s(kind) is not None:
                    by_name[kind.name] = None
        return tuple(by_name)

    return market.get_or_make(("hosts", worker.name, words), find_hosts)


def cheap_servers(worker: Hardware, market: Market) -> tuple[Hardware, ...]:
    """CPU machines cheaper than the worker's machine, by price; each has a faster NIC than cheaper ones."""
    worker_price = market.usd_per_hour(worker)

    def find_machines() -> Iterator[Hardware]:
        """Yields the Pareto-optimal machines in price and NIC rate, cheapest first."""
        if worker.ownership is not None or worker_price is None:
            return
        offers: list[tuple[float, float, str]] = []
        for kind in market.select_machines(("*",)):
            price, rate = market.usd_per_hour(kind), market.nic_bytes_per_s(kind)
            alike = kind.device.kind == "cpu" and kind.provider == worker.provider and kind.still_sold
            if alike and price is not None and rate is not None and price < worker_price:
                offers.append((price, -rate, kind.name))
        best = 0.0
        for _, negative_rate, name in sorted(offers):
            if -negative_rate > best:
                yield market.find_machine(name)
                best = -negative_rate

    return market.get_or_make(("cheap", worker.name), lambda: tuple(find_machines()))


def server_memory_bytes(parameter_bytes: float, workers: int) -> float:
    """Peak memory of a server in bytes: parameters, momentum, one gradient per worker, and the framework."""
    if workers < 1:
        raise BadInput(f"workers is {workers}; a server serves at least one")
    copies = 1 + find_optimizer("momentum").state_bytes / BYTES_PER_ELEMENT + workers
    return parameter_bytes * copies + framework_bytes("cpu")


def server_memory_error(hardware: Hardware, parameter_bytes: float, workers: int) -> str:
    """Explains why a server cannot hold its parameters; empty string if it can or its memory is unknown."""
    if hardware.memory_bytes is None:
        return ""
    need, usable = server_memory_bytes(parameter_bytes, workers), hardware.memory_bytes * USABLE["cpu"]
    if need <= usable:
        return ""
    return (
        f"a server with {format_bytes(parameter_bytes)} of parameters for {workers} workers needs "
        f"{format_bytes(need)}, and {hardware.name} has {format_bytes(usable)} to use; take a larger machine "
        "or more servers"
    )


UNRANKED: dict[str, Policy] = {"multiplexed": Multiplexed(), "fifo": Fifo()}  # take a step as it is


def lower_servers(exchange: ParameterServers, computation: Computation, site: Site) -> Case:
    """Lowers a parameter-server plan to a simulator case."""
    from planner.simulator.simulate import Case

    profile, policy = order_step_transfers(exchange, computation, site)
    cluster = plan_cluster(exchange, site)
    if exchange.is_summed_per_machine(site):
        step = profile
        where = ("summed", id(step), site.fabric, site.devices, min(site.workers, site.devices))
        profile = get_or_make_on(computation, where, lambda: sum_inside_machines(step, site))
        cluster = add_fabric(cluster, site)
    return Case(profile=profile, cluster=cluster, policy=policy, mode=exchange.mode)


def order_step_transfers(
    exchange: ParameterServers, computation: Computation, site: Site
) -> tuple[Profile, Policy]:
    """Applies the plan's ordering strategy to its step; returns the new step and the transfer policy."""
    profile = replica_step(exchange, computation, site)
    if exchange.policy in UNRANKED:
        return profile, UNRANKED[exchange.policy]

    from planner.servers.ordering import schedule

    rate, policy = site.nic_bytes_per_s, exchange.policy

    where = ("schedule", exchange.servers, exchange.placement, policy, rate, site.seed)
    ordered = get_or_make_on(
        computation, where, lambda: schedule(profile, policy, bandwidth_bytes_per_s=rate, seed=site.seed)
    )
    return ordered.profile, ordered.policy


def replica_step(exchange: ParameterServers, computation: Computation, site: Site) -> Profile:
    """Step of one replica, before an ordering strategy is applied."""
    # with one server a rule changes nothing but the parsing that its framework does
    where = ("step", exchange.servers, exchange.placement, site.is_parsed_by_host)

    profile = get_or_make_on(
        computation,
        where,
        lambda: server_step(
            computation, exchange.servers, exchange.placement, on_host=site.is_parsed_by_host
        ),
    )
    span = replica_span(exchange, computation, site)
    if span is None:
        return profile
    from planner.servers.partition.replica import scale_profile

    return get_or_make_on(
        computation, (*where, site.hardware.name, span.cuts), lambda: scale_profile(profile, span)
    )


def replica_span(exchange: ParameterServers, computation: Computation, site: Site) -> Span | None:
    """Chooses how to split a replica's model over its workers; None if each replica has one worker."""
    many = site.mesh.size
    if many == 1:
        return None
    from planner.servers.partition.replica import fastest_span, find_spans

    worker, rate, network = site.hardware, site.nic_bytes_per_s, computation.network
    assert network is not None, "recorded steps are those of one worker"

    def search_spans() -> list[Span]:
        """Finds candidate spans; the result is cached per network and machine."""
        from planner.servers.partition.layers import constants_for

        alone = server_step(computation, 1, "greedy")
        return find_spans(network, worker, constants_for(worker, bandwidth_bytes_per_s=rate), alone, many)

    spans = get_or_make_on(computation, ("spans", worker.name, many, rate), search_spans)
    servers = exchange.servers * (site.market.nic_bytes_per_s(exchange.server_machine(site)) or np.nan)
    return fastest_span(spans, site.replicas, rate, servers)


def plan_cluster(exchange: ParameterServers, site: Site) -> Cluster:
    """Simulated cluster of a plan; a replica that spans workers is one node with all their NICs."""
    cluster = cluster_of(
        site.hardware,
        site.replicas,
        None if exchange.host is None else exchange.server_machine(site),
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
    """Step of one device with reduce-scatter and all-gather inside its machine added."""
    library = collective.library("auto", "auto", site)
    peers = site_peers(replace(site, workers=min(site.workers, site.devices)), library)
    ops: list[Op] = []
    like: list[int] = []  # the op of the step whose place in the order each new one has
    seconds: dict[int, float] = {}  # of collectives
    place: dict[int, int] = {}  # the new op of each op of the step
    shared: dict[int, int] = {}  # of what is received: the op after which all devices have it

    def add_op(op: Op, source: int) -> int:
        """Appends an op that inherits the recorded order of the op `source`; returns its index."""
        ops.append(op)
        like.append(source)
        return len(ops) - 1

    def add_collective(kind: Kind, source: int, size: int, deps: tuple[int, ...]) -> int:
        """Appends a collective before or after the op `source`; returns its index."""
        name = f"{step.names[source]}/{WORDS[kind]}"
        op = add_op(Op(name, PS, step.servers, deps=deps, scope=MACHINE), source)
        seconds[op] = library.seconds(kind, size, peers)
        return op

    received = _delivered_bytes(step)
    for op in step.topological_order().tolist():
        own = step.op(op)
        resource = own.resource
        known = shared if resource == WORKER else place
        deps = tuple(dict.fromkeys(known.get(dep, place[dep]) for dep in own.deps))
        if resource == UPLINK:
            deps = (add_collective("reduce_scatter", op, own.bytes, deps),)
        scope = -1 if resource == WORKER else MACHINE
        place[op] = add_op(replace(own, deps=deps, scope=scope), op)
        if op in received:
            shared[op] = add_collective("all_gather", op, received[op], (place[op],))
    durations_s = step.durations_s[:, like]
    durations_s[:, list(seconds)] = list(seconds.values())
    order = None if step.order is None else step.order[:, like]
    return step.with_ops(ops, durations_s, servers=step.servers + 1, order=order)


def add_fabric(cluster: Cluster, site: Site) -> Cluster:
    """Cluster with links inside each machine added; a machine's devices form a group led by its first."""
    far = cluster.server_nodes[0]
    return replace(
        cluster,
        links=tuple(((node, far),) for node in cluster.worker_nodes),  # nothing flows there: times are known
        link_resources=(FABRIC,),
        leaders=(tuple(site.machine_index(worker) * site.devices for worker in range(site.workers)),),
    )


def _delivered_bytes(step: Profile) -> dict[int, int]:
    """Bytes copied to the devices, by index of the op that delivers them.

    The op is a download, or the host op that parses it.
    """
    out: dict[int, int] = {}
    sizes = {op: int(step.bytes[op]) for op in np.flatnonzero(step.resource == DOWNLINK).tolist()}
    for op in step.topological_order().tolist():
        for dep in step.deps(op).tolist():
            if step.resource[op] == HOST and dep in sizes:
                sizes[op] = sizes.get(op, 0) + sizes[dep]
            elif step.resource[op] == WORKER and dep in sizes:
                out[dep] = sizes[dep]
    return out
