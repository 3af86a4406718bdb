"""Machines of workers and parameter servers: clusters of catalog hardware, and where servers may stand.

Workers are accelerators: a machine with eight GPUs holds eight workers that share its NIC, and machines are
filled one after another. Servers stand on the workers' own kind of machine, on cheap CPU machines of the same
provider, on machines that are named, or on the workers' machines (`colocated`), where their traffic shares
that machine's NIC and traffic with the workers beside it crosses none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from planner.device.memory import USABLE, framework_bytes
from planner.device.precision import optimizer_named
from planner.errors import BadInput
from planner.hardware import Hardware, Market, Network
from planner.model import BYTES_PER_ELEMENT
from planner.parallel.plan import flow_limit_bytes_per_s, host_cores, network_figure
from planner.simulator.cluster import Cluster, Node
from planner.units import format_bytes

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
    """Machines that a cluster rents, by kind, with `device_count` workers on each worker machine."""
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


def hosts_of(worker: Hardware, market: Market, words: Sequence[str]) -> tuple[str | None, ...]:
    """Names of the machines that servers may stand on, in order; None is beside the workers. Machines
    without a price or a network figure are left out."""
    words = tuple(words)
    return market.once(("hosts", worker.name, words), lambda: _hosts(worker, market, words))


def host(name: str, worker: Hardware, market: Market) -> Hardware:
    """The machine with a host's name."""
    return worker if name == worker.name else market.machine(name)


def cheap_servers(worker: Hardware, market: Market) -> tuple[Hardware, ...]:
    """CPU machines of the worker's provider that are cheaper and on the price-bandwidth frontier."""
    return market.once(("cheap", worker.name), lambda: tuple(_cheap(worker, market)))


def _hosts(worker: Hardware, market: Market, words: Sequence[str]) -> tuple[str | None, ...]:
    by_name: dict[str | None, None] = {}
    for word in words:
        if word == "colocated":
            by_name[None] = None
            continue
        kinds: Iterable[Hardware]
        if word == "own":
            kinds = [worker]
        else:
            kinds = cheap_servers(worker, market) if word == "cheap" else market.matching([word])
        for kind in kinds:
            priced = market.usd_per_hour(kind) is not None or kind is worker
            if priced and market.nic_bytes_per_s(kind) is not None:
                by_name[kind.name] = None
    return tuple(by_name)


def _cheap(worker: Hardware, market: Market) -> Iterator[Hardware]:
    worker_price = market.usd_per_hour(worker)
    if worker.ownership is not None or worker_price is None:
        return
    parts: list[tuple[float, float, str]] = []
    for kind in market.matching(("*",)):
        price, rate = market.usd_per_hour(kind), market.nic_bytes_per_s(kind)
        if (
            kind.device.kind == "cpu"
            and kind.provider == worker.provider
            and kind.still_sold
            and price is not None
            and rate is not None
            and price < worker_price
        ):
            parts.append((price, -rate, kind.name))
    best = 0.0
    for _, negative_rate, name in sorted(parts):
        if -negative_rate > best:
            yield market.machine(name)
            best = -negative_rate


def server_memory_bytes(parameter_bytes: float, workers: int, optimizer: str = "momentum") -> float:
    """Memory of a server: its parameters, optimizer state, and a gradient from every worker at worst. What
    is sent is read from the parameters themselves."""
    if workers < 1:
        raise BadInput(f"workers is {workers}; a server serves at least one")
    copies = 1 + optimizer_named(optimizer).state_bytes / BYTES_PER_ELEMENT + workers
    return parameter_bytes * copies + framework_bytes("cpu")


def server_memory_error(hardware: Hardware, parameter_bytes: float, workers: int) -> str:
    """Why a server lacks memory for its parameters; empty if it fits or its memory is unknown."""
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
