"""The kinds of worker in a cluster, as bounds see them: what its ops get at best, which of them share a lane
and which share a port.

Ops are sorted by what they use: a `Use` is a resource, a channel and a scope (-1: not joint). A joint op runs
on its leader's lane and over its leader's channel, so two workers are of one kind if their leaders are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.simulator.cluster import Cluster
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Profile

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


class KindUse(NamedTuple):
    """What ops use."""

    resource: int
    channel: int
    scope: int

    @property
    def on_link(self) -> bool:
        return self.resource in (DOWNLINK, UPLINK)


@dataclass(frozen=True, eq=False)
class Kinds:
    """One row for each kind of worker, one column for each use.

    `lane` numbers the workers on whose lanes the ops of a use run, by first appearance in the row: uses of
    the same resource and channel share a lane if their numbers are equal. `port` likewise numbers the ports
    that the flows of a use cross: `port[kind, use, side]`, -1 for none. `of` is the kind of each worker.
    """

    uses: tuple[KindUse, ...]
    of: Ints
    speed: Floats
    s_per_byte: Floats  # at best; 0 for what crosses nothing
    lane: Ints
    port: Ints
    port_s_per_byte: Floats  # kinds x uses x sides

    def __len__(self) -> int:
        return len(self.speed)


@dataclass(frozen=True, eq=False)
class Ports:
    """Which ports the flows of each worker's own lanes cross: 2 * node egress, 2 * node + 1 ingress."""

    capacity: Floats
    crossed: Ints  # workers x uses x sides (near, far); -1: none
    lane_worker: Ints  # workers x uses: on whose lane an op runs
    node: Ints  # workers x uses: the node whose cores an op takes; -1: none, or one that has enough for all


def uses_of(profile: Profile) -> tuple[tuple[KindUse, ...], Ints]:
    """The uses that occur in a step, in order, and the use of each op."""
    return _uses(profile.resource.tobytes(), profile.server.tobytes(), profile.scope.tobytes())


@lru_cache(maxsize=64)
def _uses(resources: bytes, channels: bytes, scopes: bytes) -> tuple[tuple[KindUse, ...], Ints]:
    columns = (
        np.frombuffer(data, kind)
        for data, kind in ((resources, np.uint8), (channels, np.int32), (scopes, np.int32))
    )
    found, at = np.unique(np.stack([*columns], axis=1), axis=0, return_inverse=True)
    uses = tuple(KindUse(int(resource), int(channel), int(scope)) for resource, channel, scope in found)
    return uses, np.asarray(at, np.intp).reshape(-1)


@lru_cache(maxsize=256)
def layout(cluster: Cluster, uses: tuple[KindUse, ...]) -> tuple[Ports, Kinds]:
    """The lanes and ports of every worker's ops, and the kinds of worker."""
    ports = _ports_of(cluster, uses)
    return ports, _kinds_of(cluster, uses, ports)


def _ports_of(cluster: Cluster, uses: tuple[KindUse, ...]) -> Ports:
    workers, channels = cluster.workers, cluster.channels
    capacity = np.array(
        [[node.egress_bytes_per_s, node.ingress_bytes_per_s] for node in cluster.nodes], np.float64
    ).reshape(-1)
    ends = np.array(cluster.ends, np.intp).reshape(workers, channels, 2)
    lane_worker = np.empty((workers, len(uses)), np.intp)
    crossed = np.full((workers, len(uses), 2), -1, np.intp)
    for at, use in enumerate(uses):
        lane = np.arange(workers) if use.scope < 0 else np.array(cluster.leaders[use.scope], np.intp)
        lane_worker[:, at] = lane
        if use.on_link:
            near, far = ends[lane, use.channel].T
            up = use.resource == UPLINK
            crossed[:, at, 0] = np.where(near == far, -1, 2 * near + (0 if up else 1))
            crossed[:, at, 1] = np.where(near == far, -1, 2 * far + (1 if up else 0))
    node = np.full((workers, len(uses)), -1, np.intp)
    scarce = np.array([machine.cores is not None for machine in cluster.nodes])
    for at, use in enumerate(uses):
        if use.resource == PS and use.channel < cluster.servers:
            node[:, at] = cluster.server_nodes[use.channel]
        elif use.resource == HOST:
            node[:, at] = np.array(cluster.worker_nodes, np.intp)[lane_worker[:, at]]
    node[(node >= 0) & ~scarce[node]] = -1
    return Ports(capacity, crossed, lane_worker, node)


def _kinds_of(cluster: Cluster, uses: tuple[KindUse, ...], ports: Ports) -> Kinds:
    """Workers that bounds cannot tell apart are of one kind."""
    workers = cluster.workers
    speed = np.array(cluster.worker_speeds or (1.0,) * workers)
    s_per_port = np.append(1.0 / ports.capacity, 0.0)  # -1 is no port
    of_port = s_per_port[ports.crossed]
    flow = 0.0 if np.isinf(cluster.flow_bytes_per_s) else 1.0 / cluster.flow_bytes_per_s
    on_link = ports.crossed[:, :, 0] >= 0
    s_per_byte = np.where(on_link, np.maximum(of_port.max(axis=2), flow), 0.0)
    lane = np.zeros_like(ports.lane_worker)
    if len({(use.resource, use.channel) for use in uses}) < len(uses):  # else no two uses share a lane
        lane = _numbered(ports.lane_worker)
    port = _numbered(ports.crossed.reshape(workers, -1))
    port[ports.crossed.reshape(workers, -1) < 0] = -1
    table = np.concatenate([speed[:, None], s_per_byte, lane, port, of_port.reshape(workers, -1)], axis=1)
    if (table == table[0]).all():
        first, of = np.zeros(1, np.intp), np.zeros(workers, np.intp)
    else:
        _, first, of = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return Kinds(
        uses,
        np.asarray(of, np.intp).reshape(-1),
        speed[first],
        s_per_byte[first],
        lane[first],
        port.reshape(workers, len(uses), 2)[first],
        of_port[first],
    )


def _numbered(table: Ints) -> Ints:
    """Each entry replaced by the first column of its row that holds the same."""
    out = np.zeros_like(table)
    for column in range(table.shape[1]):
        out[:, column] = (table[:, : column + 1] == table[:, column : column + 1]).argmax(axis=1)
    return out


def op_costs_s(
    profile: Profile, use_of_op: Ints, kinds: Kinds, overhead_s: Floats, shared_s: Floats
) -> Floats:
    """The least time of each op: ops x (kinds x steps). `shared_s`: of joint ops that have durations."""
    durations = np.repeat(profile.durations_s.T[:, None, :], len(kinds), axis=1)
    computes, joint = profile.resource == WORKER, profile.scope >= 0
    durations[computes] /= kinds.speed[:, None]
    durations[joint] = shared_s[joint, None, None]
    links = profile.is_transfer
    bytes_s = kinds.s_per_byte[:, use_of_op[links]].T * profile.bytes[links, None] + overhead_s[links, None]
    durations[links] = bytes_s[:, :, None]
    return np.ascontiguousarray(durations.reshape(profile.ops, -1))
