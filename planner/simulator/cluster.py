"""A cluster: nodes with egress and ingress rates, and the channels of each worker between nodes.

A node is anything with an egress and an ingress: a machine's NIC, a device's port on the fabric of its
machine. Every worker has the same number of channels; a channel connects two nodes, its ends, the near one
at the worker. An upload over a channel leaves the near end and enters the far one; a download goes the
other way. The first channels go to the parameter servers, in their order, from the worker's node; `links`
adds others. A transfer between two ends on one node crosses no NIC.

Workers are grouped for ops that several do together: see `leaders`.

`Resource` names what is busy in a run, by kind and number; it becomes text only in output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from planner.errors import BadInput


class ResourceKind(StrEnum):
    """Kinds of resource; their values appear in files and JSON."""

    DOWNLINK = "downlink"
    WORKER = "worker"
    UPLINK = "uplink"
    PS = "ps"
    HOST = "host"
    WORKER_DOWNLINK = "worker downlink"
    WORKER_UPLINK = "worker uplink"
    LINK = "link"


class Resource(NamedTuple):
    """Resource of a run: `uplink[0]` is the uplink of server 0, `worker` all workers' computation. A link
    between workers may have a name (`fabric`), and a number where several links share the name."""

    kind: ResourceKind
    number: int | None = None
    name: str | None = None

    def __str__(self) -> str:
        word = self.name or self.kind.value
        return word if self.number is None else f"{word}[{self.number}]"

    @property
    def without_number(self) -> Resource:
        """The resource without its number: `uplink` for `uplink[0]`."""
        return self._replace(number=None)

    @staticmethod
    def link(name: str, number: int | None = None) -> Resource:
        """Resource of a link between workers."""
        return Resource(ResourceKind.LINK, number, name)

    @staticmethod
    def parse(text: str) -> Resource:
        """Parses a resource from its text in files and JSON."""
        word, bracket, digits = text.removesuffix("]").rpartition("[")
        numbered = bool(bracket) and digits.isdecimal()
        word, number = (word, int(digits)) if numbered else (text, None)
        return Resource(ResourceKind(word), number) if word in _KINDS else Resource.link(word, number)


_KINDS = frozenset(kind.value for kind in ResourceKind)
COMPUTATION = Resource(ResourceKind.WORKER)
HOSTS = Resource(ResourceKind.HOST)
INPUT = Resource.link("input")  # the samples that hosts decode
FABRIC = Resource.link("fabric")  # between the devices of a machine
NETWORK = Resource.link("network")  # between machines


def figures_by_name(by_resource: Mapping[Resource, float]) -> dict[str, float]:
    """Figures keyed by the name of their resource, as in files and JSON."""
    return {str(resource): value for resource, value in by_resource.items()}


@dataclass(frozen=True, slots=True)
class Node:
    """Machine, or one device's port, as the network sees it. `cores` is the number of ops that its processors
    run at once for servers and for the hosts of workers on this node; None means unlimited."""

    egress_bytes_per_s: float
    ingress_bytes_per_s: float
    hardware: str | None = None
    cores: int | None = None

    def __post_init__(self) -> None:
        for name in ("egress_bytes_per_s", "ingress_bytes_per_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"a node's {name} is {value}; bandwidth must be a finite number above zero")
        if self.cores is not None and self.cores < 1:
            raise BadInput(f"a node has {self.cores} cores; it needs at least one")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, the node of each worker and of each server, further channels, and groups of workers.
    `worker_speeds` multiplies how fast a worker computes (1 is the speed of the profile); empty means 1 for
    all. `flow_bytes_per_s` limits every single (worker, channel, direction) flow, as clouds do. `links[w]`
    holds the ends (near, far) of worker w's channels beyond those to the servers; empty means none for all.
    `link_resources` names these channels. `leaders[scope][w]` is the lowest worker of the group that w
    belongs to in that scope: a joint op of the scope runs once for each group, on its leader's lane."""

    nodes: tuple[Node, ...]
    worker_nodes: tuple[int, ...]
    server_nodes: tuple[int, ...]
    worker_speeds: tuple[float, ...] = ()
    flow_bytes_per_s: float = math.inf
    links: tuple[tuple[tuple[int, int], ...], ...] = ()
    link_resources: tuple[Resource, ...] = ()
    leaders: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.worker_nodes:
            raise BadInput("a cluster needs at least one worker")
        self._check_channels()
        self._check_leaders()
        if self.worker_speeds and len(self.worker_speeds) != len(self.worker_nodes):
            raise BadInput(
                f"{len(self.worker_speeds)} worker speeds are given for {len(self.worker_nodes)} workers"
            )
        if any(not (math.isfinite(speed) and speed > 0) for speed in self.worker_speeds):
            raise BadInput("a worker's speed must be a finite number above zero")
        if not self.flow_bytes_per_s > 0:
            raise BadInput("flow_bytes_per_s must be above zero")

    def _check_channels(self) -> None:
        """Raises BadInput unless all channels end at nodes of the cluster."""
        for node in {*self.worker_nodes, *self.server_nodes}:
            if not 0 <= node < len(self.nodes):
                raise BadInput(
                    f"a worker or server is placed on node {node}, but there are {len(self.nodes)} nodes"
                )
        if self.links and len(self.links) != self.workers:
            raise BadInput(f"links are given for {len(self.links)} workers, but there are {self.workers}")
        if len({len(row) for row in self.links}) > 1:
            raise BadInput("every worker needs as many links as the others")
        for node in {node for row in self.links for ends in row for node in ends}:
            if not 0 <= node < len(self.nodes):
                raise BadInput(f"a link ends at node {node}, but there are {len(self.nodes)} nodes")
        names, links = len(self.link_resources), self.channels - self.servers
        if names not in (0, links):
            raise BadInput(f"{names} names are given for {links} link(s) a worker")

    def _check_leaders(self) -> None:
        """Raises BadInput unless every scope divides all workers into groups."""
        for scope, leader in enumerate(self.leaders):
            if len(leader) != self.workers:
                raise BadInput(f"scope {scope} groups {len(leader)} workers, but there are {self.workers}")
            for worker, lowest in enumerate(leader):
                if not 0 <= lowest <= worker or leader[lowest] != lowest:
                    raise BadInput(
                        f"in scope {scope} worker {worker} is led by {lowest}, "
                        "which is not the lowest worker of its group"
                    )

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.worker_nodes)

    @property
    def servers(self) -> int:
        """Number of parameter servers."""
        return len(self.server_nodes)

    @property
    def channels(self) -> int:
        """Number of channels per worker: one to each server, then its links to other workers."""
        return self.servers + (len(self.links[0]) if self.links else 0)

    @property
    def ends(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Nodes (near, far) at the ends of each channel, as `ends[worker][channel]`."""
        links = self.links or ((),) * self.workers
        return tuple(
            (*((node, server) for server in self.server_nodes), *row)
            for node, row in zip(self.worker_nodes, links, strict=True)
        )

    def link_resource(self, channel: int) -> Resource:
        """Resource of a channel that is a link between workers."""
        place = channel - self.servers
        return self.link_resources[place] if self.link_resources else Resource(ResourceKind.LINK, place)

    @staticmethod
    def uniform(workers: int, servers: int = 1, bandwidth_bytes_per_s: float = 1.25e9) -> Cluster:
        """Cluster with every worker and every server on a node of its own, all with equal NICs."""
        if workers < 1 or servers < 1:
            raise BadInput(f"a cluster needs at least one worker and one server, not {workers} and {servers}")
        node = Node(bandwidth_bytes_per_s, bandwidth_bytes_per_s)
        return Cluster(
            nodes=(node,) * (workers + servers),
            worker_nodes=tuple(range(servers, servers + workers)),
            server_nodes=tuple(range(servers)),
        )
