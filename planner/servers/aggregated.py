"""Machines as workers of parameter servers: the devices of a machine sum their gradients first.

    down(t) -> [parse(t)] -> share(t) -> forward(l) ... backward(l) -> sum(t) -> up(t) -> update(t)

as TensorFlow's distributed_replicated, MXNet's dist_device_sync and BytePS do it: gradients are reduced over
the fabric of the machine (a reduce-scatter: every device has the sum of its part), go to the servers once for
all its devices, and what comes back is gathered by all. So what crosses a NIC, is parsed and is updated does
not grow with the devices of a machine, and those of a machine go at one pace.

All that is done once is a joint op of the machine. The fabric is one more channel of a worker, on which one
collective runs after another, for as long as the library takes for it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.parallel.collectives import Kind
from planner.parallel.collectives.peers import peers_of
from planner.parallel.data import settings
from planner.parallel.site import Site
from planner.simulator.cluster import FABRIC, Cluster
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Op, Profile

MACHINE = 0  # the scope
WORDS: dict[Kind, str] = {"reduce_scatter": "sum", "all_gather": "share"}


def summed_in_machines(step: Profile, site: Site) -> Profile:
    """The step of a device whose machine has several at work."""
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
    """The cluster with the fabric of its machines, each a group whose first device leads."""
    far = cluster.server_nodes[0]
    return replace(
        cluster,
        links=tuple(((node, far),) for node in cluster.worker_nodes),  # nothing flows there: times are known
        link_resources=(FABRIC,),
        leaders=(tuple(site.machine_of(worker) * site.devices for worker in range(site.workers)),),
    )


def _received(step: Profile) -> dict[int, int]:
    """Of each tensor that devices wait for the last op before them, its receipt or its parsing on the host,
    and its bytes."""
    out: dict[int, int] = {}
    sizes = {op: int(step.bytes[op]) for op in np.flatnonzero(step.resource == DOWNLINK).tolist()}
    for op in step.topological_order().tolist():
        for dep in step.deps(op).tolist():
            if step.resource[op] == HOST and dep in sizes:
                sizes[op] = sizes.get(op, 0) + sizes[dep]
            elif step.resource[op] == WORKER and dep in sizes:
                out[dep] = sizes[dep]
    return out
