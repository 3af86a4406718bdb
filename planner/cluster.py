"""A cluster: nodes with their NICs, and which worker and which server lives on which node.

A download of worker w from server s leaves the node of s (egress) and enters the node of w (ingress); an
upload goes the other way. Workers on one node share its NIC, and so does a server that lives there; a
transfer between a worker and a server on the same node crosses no NIC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.errors import BadInput


@dataclass(frozen=True, slots=True)
class Node:
    """One machine as the network sees it."""

    egress_bytes_per_s: float
    ingress_bytes_per_s: float
    hardware: str = ""

    def __post_init__(self) -> None:
        for name in ("egress_bytes_per_s", "ingress_bytes_per_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"a node's {name} is {value}; bandwidth must be a finite number above zero")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, and the node of each worker and of each server.

    `worker_speeds` multiplies how fast a worker computes (1 is the speed of the profile); empty means 1 for
    all. `flow_bytes_per_s` limits every single (worker, server, direction) flow, as clouds do.
    """

    nodes: tuple[Node, ...]
    worker_nodes: tuple[int, ...]
    server_nodes: tuple[int, ...]
    worker_speeds: tuple[float, ...] = ()
    flow_bytes_per_s: float = math.inf

    def __post_init__(self) -> None:
        if not self.worker_nodes:
            raise BadInput("a cluster needs at least one worker")
        if not self.server_nodes:
            raise BadInput("a cluster needs at least one parameter server")
        for node in (*self.worker_nodes, *self.server_nodes):
            if not 0 <= node < len(self.nodes):
                raise BadInput(
                    f"a worker or server is placed on node {node}, but there are {len(self.nodes)} nodes"
                )
        if self.worker_speeds and len(self.worker_speeds) != len(self.worker_nodes):
            raise BadInput(
                f"{len(self.worker_speeds)} worker speeds are given for {len(self.worker_nodes)} workers"
            )
        if any(not (math.isfinite(speed) and speed > 0) for speed in self.worker_speeds):
            raise BadInput("a worker's speed must be a finite number above zero")
        if not self.flow_bytes_per_s > 0:
            raise BadInput("flow_bytes_per_s must be above zero")

    @property
    def workers(self) -> int:
        return len(self.worker_nodes)

    @property
    def servers(self) -> int:
        return len(self.server_nodes)

    @staticmethod
    def uniform(workers: int, servers: int = 1, bandwidth_bytes_per_s: float = 1.25e9) -> Cluster:
        """Every worker and every server on a node of its own, all NICs alike."""
        if workers < 1 or servers < 1:
            raise BadInput(f"a cluster needs at least one worker and one server, not {workers} and {servers}")
        node = Node(bandwidth_bytes_per_s, bandwidth_bytes_per_s)
        return Cluster(
            nodes=(node,) * (workers + servers),
            worker_nodes=tuple(range(servers, servers + workers)),
            server_nodes=tuple(range(servers)),
        )
