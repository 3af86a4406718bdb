"""How running transfers share the network: equal shares in virtual time, and max-min fair rates.

A flow is named by its lane, the tuple (resource, worker, server). `EqualShares` serves one direction of one
server where every flow gets capacity / n (file 000, section 3.4; weighted if asked). It keeps a virtual time
V, the bytes that a flow of weight 1 has received since the link was last idle: a flow that starts at V with
b bytes ends when V reaches V + b / weight, whatever starts or ends meanwhile, so a change touches no other
flow. `MaxMinShares` serves everything else, with rates from `max_min_rates`.

The engine does these operations in the same order, so that it rounds as this does.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from planner.cluster import Cluster
from planner.profile import DOWNLINK

Lane = tuple[int, int, int]  # resource, worker, server
Event = tuple[float, int, int, int]  # time, then the lane


class EqualShares:
    """One direction of one server."""

    def __init__(self, resource: int, capacity: float, flow_limit: float) -> None:
        self.resource = resource
        self.capacity = capacity
        self.flow_limit = flow_limit
        self.weights = 0.0  # of all running flows
        self.virtual = 0.0  # V at the time `since`
        self.since = 0.0
        self.targets: list[tuple[float, int]] = []  # heap of (V at which the flow ends, worker)
        self.flows: dict[int, tuple[float, float, float]] = {}  # worker: (bytes, weight, target)

    def rate(self) -> float:
        """Bytes per second for a flow of weight 1."""
        return min(self.capacity / self.weights, self.flow_limit)

    def start(self, now: float, lane: Lane, size: float, weight: float) -> None:
        if self.flows:
            self.virtual += (now - self.since) * self.rate()
        self.since = now
        self.weights += weight
        target = self.virtual + size / weight
        self.flows[lane[1]] = (size, weight, target)
        heapq.heappush(self.targets, (target, lane[1]))

    def finish(self, now: float, lane: Lane) -> None:
        target, worker = heapq.heappop(self.targets)
        assert worker == lane[1]
        _, weight, _ = self.flows.pop(worker)
        self.virtual, self.since = target, now
        self.weights -= weight
        if not self.flows:
            self.virtual = self.weights = 0.0

    def commit(self, now: float) -> None:
        """Nothing to do: rates follow from the number of flows."""

    def next(self) -> Event | None:
        if not self.targets:
            return None
        target, worker = self.targets[0]
        end = self.since + (target - self.virtual) / self.rate()
        return (max(end, self.since), self.resource, worker, 0)

    def delivered(self, now: float, lane: Lane) -> float:
        """Bytes of a running flow that have arrived."""
        size, weight, target = self.flows[lane[1]]
        return size - (target - (self.virtual + (now - self.since) * self.rate())) * weight


@dataclass(slots=True)
class Flow:
    """A running flow: `remaining` bytes at the time `since`, at a constant rate from then on."""

    size: float
    weight: float
    remaining: float
    since: float
    rate: float = 0.0
    end: float = math.inf


class MaxMinShares:
    """Any number of servers and NICs; rates change only when a flow starts or ends."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.capacities = [
            capacity
            for node in cluster.nodes
            for capacity in (node.egress_bytes_per_s, node.ingress_bytes_per_s)
        ]
        self.flows: dict[Lane, Flow] = {}
        self.changed = False

    def crosses(self, lane: Lane) -> tuple[int, int]:
        """The two NIC directions a flow crosses (2 * node: egress, 2 * node + 1: ingress)."""
        resource, worker, server = lane
        there, here = self.cluster.server_nodes[server], self.cluster.worker_nodes[worker]
        return (2 * there, 2 * here + 1) if resource == DOWNLINK else (2 * here, 2 * there + 1)

    def start(self, now: float, lane: Lane, size: float, weight: float) -> None:
        self.flows[lane] = Flow(size, weight, size, now)
        self.changed = True

    def finish(self, now: float, lane: Lane) -> None:
        del self.flows[lane]
        self.changed = True

    def commit(self, now: float) -> None:
        """New rates after an event; a flow whose rate stays is left alone."""
        if not self.changed:
            return
        self.changed = False
        lanes = sorted(self.flows)
        rates = max_min_rates(
            [self.crosses(lane) for lane in lanes],
            [self.flows[lane].weight for lane in lanes],
            self.capacities,
            self.cluster.flow_bytes_per_s,
        )
        for lane, rate in zip(lanes, rates, strict=True):
            flow = self.flows[lane]
            if rate != flow.rate:
                flow.remaining = max(0.0, flow.remaining - flow.rate * (now - flow.since))
                flow.since = now
                flow.rate = rate
                flow.end = now + flow.remaining / rate

    def next(self) -> Event | None:
        return min(((flow.end, *lane) for lane, flow in self.flows.items()), default=None)

    def delivered(self, now: float, lane: Lane) -> float:
        flow = self.flows[lane]
        return flow.size - (flow.remaining - flow.rate * (now - flow.since))


def max_min_rates(
    crosses: list[tuple[int, int]], weights: list[float], capacities: list[float], flow_limit: float
) -> list[float]:
    """Max-min fair rates by filling all flows alike until something is full (Bertsekas and Gallager, 6.5.2).

    Each round finds the link with the least left a unit of weight, the lowest level at which flows stop
    growing; ties go to the lowest index. Flows whose own limit lies at or below that level get their limit;
    if there is none, the flows of that link get the level times their weight. Flows go in the order given.
    """
    left = list(capacities)
    weight_left = [0.0] * len(capacities)
    flows_left = [0] * len(capacities)
    rates = [0.0] * len(crosses)
    waiting = list(range(len(crosses)))
    for flow in waiting:
        for link in crosses[flow]:
            weight_left[link] += weights[flow]
            flows_left[link] += 1
    while waiting:
        level, full = min(
            (max(0.0, left[link]) / weight_left[link], link) for link in range(len(left)) if flows_left[link]
        )
        stop = [flow for flow in waiting if flow_limit / weights[flow] <= level]
        limited = bool(stop)
        if not limited:
            stop = [flow for flow in waiting if full in crosses[flow]]
        for flow in stop:
            rates[flow] = flow_limit if limited else level * weights[flow]
            for link in crosses[flow]:
                left[link] -= rates[flow]
                weight_left[link] -= weights[flow]
                flows_left[link] -= 1
        stopped = set(stop)
        waiting = [flow for flow in waiting if flow not in stopped]
    return rates
