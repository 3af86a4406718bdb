"""Clusters of catalog hardware: how many machines, who shares a NIC, and how fast the network is.

Workers are accelerators: a machine with eight GPUs holds eight workers that share its NIC, and machines are
filled one after another. Each server has a machine of its own, or lives on a worker's machine (`colocated`),
where its traffic shares that machine's NIC and traffic with the workers beside it crosses none.
"""

from __future__ import annotations

import math
from collections import Counter

from planner.errors import BadInput
from planner.hardware import Hardware, Network
from planner.parallel.site import flow_limit_bytes_per_s, host_cores, network_figure
from planner.simulator.cluster import Cluster, Node

_LIMITS = {"workers": 100_000, "servers": 10_000}


def cluster_of(
    worker_hardware: Hardware | str,
    workers: int,
    server_hardware: Hardware | str | None = None,
    servers: int = 1,
    network: Network = "baseline",
    *,
    colocated: bool = False,
    placement_group: bool = True,
    bandwidth_bytes_per_s: float | None = None,
) -> Cluster:
    """Workers and servers on machines of the catalogue.

    `server_hardware` None means machines like the workers'. `network` picks what long training gets
    (`baseline`) or what lasts for minutes (`burst`); `network_figure` says the figure in words. Clouds limit
    a single connection, and a (worker, server) pair uses one in each direction: training is assumed to run in
    a cluster placement group, where that limit is higher, unless `placement_group` is False.
    `bandwidth_bytes_per_s` replaces the NIC of every machine, for those whose network nobody has published.
    """
    worker_kind, server_kind = _kinds(worker_hardware, server_hardware, colocated)
    machines = machine_counts(worker_kind, workers, server_kind, servers, colocated)
    kinds = [kind for kind, _ in machines]
    rates = {kind.name: bandwidth_bytes_per_s or network_figure(kind, network).bytes_per_s for kind in kinds}
    worker_node, server_node = (
        Node(rates[kind.name], rates[kind.name], kind.name, host_cores(kind))
        for kind in (worker_kind, server_kind)
    )
    worker_machines = math.ceil(workers / worker_kind.device_count)
    own = 0 if colocated else servers  # machines of servers come first, as in Cluster.uniform
    return Cluster(
        nodes=(server_node,) * own + (worker_node,) * worker_machines,
        worker_nodes=tuple(own + worker // worker_kind.device_count for worker in range(workers)),
        server_nodes=tuple(server % worker_machines if colocated else server for server in range(servers)),
        flow_bytes_per_s=min(flow_limit_bytes_per_s(kind, placement_group) for kind in kinds),
    )


def machine_counts(
    worker_hardware: Hardware,
    workers: int,
    server_hardware: Hardware | None = None,
    servers: int = 1,
    colocated: bool = False,
) -> tuple[tuple[Hardware, int], ...]:
    """How many machines of which kind a cluster rents, `device_count` workers on each of the workers'."""
    for name, value in (("workers", workers), ("servers", servers)):
        if not 1 <= value <= _LIMITS[name]:
            raise BadInput(f"{name} is {value}; a cluster has between 1 and {_LIMITS[name]:,}")
    counts: Counter[str] = Counter({worker_hardware.name: math.ceil(workers / worker_hardware.device_count)})
    kinds = {worker_hardware.name: worker_hardware}
    if not colocated:
        server = server_hardware or worker_hardware
        kinds.setdefault(server.name, server)
        counts[server.name] += servers
    return tuple((kinds[name], count) for name, count in counts.items())


def _kinds(
    worker: Hardware | str, server: Hardware | str | None, colocated: bool
) -> tuple[Hardware, Hardware]:
    from planner.hardware.catalog import load_hardware

    worker_kind = load_hardware(worker) if isinstance(worker, str) else worker
    if server is None:
        return worker_kind, worker_kind
    server_kind = load_hardware(server) if isinstance(server, str) else server
    if colocated and server_kind.name != worker_kind.name:
        raise BadInput(
            f"servers cannot live on the workers' machines ({worker_kind.name}) and on machines of their own "
            f"({server_kind.name}); drop colocated or the servers' hardware"
        )
    return worker_kind, server_kind
