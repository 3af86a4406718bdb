"""How running transfers share the network: equal shares of one server's NIC, and max-min fair rates.

A flow is named by its lane, the tuple (resource, worker, server). Flows that share a limit have a `Clock`
with a virtual time V, the bytes that a flow of weight 1 has received (file 000, section 3.4, where the limit
is the NIC of the one server): a flow that starts at V with b bytes ends when V reaches V + b / weight,
whatever starts or ends meanwhile, so that a change touches the clock and no other flow. A lane whose next
chunk follows at once goes on as the same flow: nobody's rate changes, and its target moves on by the chunk.
What followed is summed in whole bytes, so that the end of many chunks does not depend on how they were cut.

`EqualShares` serves one direction of one server where every flow gets capacity / n (weighted if asked).
`MaxMinShares` serves everything else: each NIC has a clock; a flow goes by that of the NIC that limits it.

The engine does these operations in the same order, so that it rounds as this does.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from planner.simulator.inputs import Inputs
from planner.simulator.step import DOWNLINK

TIE = 1 + 1e-9
Lane = tuple[int, int, int]  # resource, worker, server
Event = tuple[float, int, int, int]  # time, then the lane


@dataclass(slots=True, eq=False)
class Clock:
    """Virtual time of flows that share a limit; it is `virtual` at time `since` and grows at `level`."""

    virtual: float = 0.0
    since: float = 0.0
    level: float = math.nan  # bytes per second for a flow of weight 1
    pace: float = math.nan  # 1 / level
    flows: int = 0

    def virtual_time(self, now: float) -> float:
        """Virtual time (bytes per unit of weight) at a moment."""
        return self.virtual + (now - self.since) * self.level

    def time_reaching(self, target: float) -> float:
        """Time in seconds at which virtual time reaches a target."""
        return max(self.since + (target - self.virtual) * self.pace, self.since)

    def set_virtual_time(self, now: float, virtual: float) -> None:
        """Sets the virtual time at a moment."""
        self.virtual, self.since = virtual, now

    def set_rate(self, level: float) -> None:
        """Sets the bytes per second of a flow with weight 1."""
        if level != self.level:
            self.level, self.pace = level, 1.0 / level


@dataclass(slots=True, eq=False)
class Flow:
    """Chunk in transmission; it has arrived when the clock's virtual time reaches `target`."""

    size: float
    weight: float
    target: float = 0.0
    origin: float = 0.0  # the target of the chunk with which it came to this clock
    followed: float = 0.0  # bytes of chunks that followed that one at once
    clock: Clock | None = None
    own: Clock | None = None  # for a limit that each flow has for itself

    def attach(self, clock: Clock, virtual: float, left: float) -> None:
        """Attaches the flow to a clock at a virtual time, with `left` bytes still to send."""
        self.clock = clock
        self.target = self.origin = virtual + left / self.weight
        self.followed = 0.0

    def continue_with(self, size: float) -> None:
        """Continues the flow with the lane's next chunk, without a gap."""
        self.size = size
        self.followed += size
        self.target = self.origin + self.followed / self.weight

    def delivered_bytes(self, now: float) -> float:
        """Bytes of the current chunk that have arrived."""
        assert self.clock is not None
        return self.size - (self.target - self.clock.virtual_time(now)) * self.weight


class EqualShares:
    """Flows in one direction of one server, which share its NIC equally."""

    def __init__(self, resource: int, capacity: float, flow_limit: float) -> None:
        self.resource = resource
        self.capacity = capacity
        self.flow_limit = flow_limit
        self.clock = Clock()
        self.weights = 0.0  # of all running flows
        self.flows: dict[int, Flow] = {}  # by worker
        self.targets: list[tuple[float, int]] = []  # heap of (target, worker); some may be outdated
        self.ended: int | None = None  # the worker whose chunk ended in this event
        self.touched = False  # in this event
        self.first: Event | None = None

    def start(self, now: float, lane: Lane, size: float, weight: float) -> None:
        """Starts sending a lane's chunk of `size` bytes, in its flow if that just ended."""
        worker = lane[1]
        self.touched = True
        if worker == self.ended and weight == self.flows[worker].weight:
            flow, self.ended = self.flows[worker], None
            flow.continue_with(size)
        else:
            self.remove_ended_flow(now)
            self.clock.set_virtual_time(now, self.clock.virtual_time(now) if self.flows else 0.0)
            flow = self.flows[worker] = Flow(size, weight)
            flow.attach(self.clock, self.clock.virtual, size)
            self.weights += weight
            self.clock.set_rate(min(self.capacity / self.weights, self.flow_limit))
        heapq.heappush(self.targets, (flow.target, worker))

    def finish(self, now: float, lane: Lane) -> None:
        """Records that a lane's chunk has arrived; its flow ends unless another chunk starts now."""
        self.ended = lane[1]
        self.touched = True

    def remove_ended_flow(self, now: float) -> None:
        """Removes the flow that ended in this event, unless its lane started another chunk."""
        if self.ended is None:
            return
        flow, self.ended = self.flows.pop(self.ended), None
        self.clock.set_virtual_time(now, flow.target)
        self.weights = self.weights - flow.weight if self.flows else 0.0
        if self.flows:
            self.clock.set_rate(min(self.capacity / self.weights, self.flow_limit))

    def commit(self, now: float) -> None:
        """Updates rates, and the next end of a flow, after an event."""
        if not self.touched:
            return
        self.touched = False
        self.remove_ended_flow(now)
        targets, end = self.targets, self.clock.time_reaching
        while targets and self.is_outdated_target(*targets[0]):
            heapq.heappop(targets)
        self.first = None
        if targets:
            target, worker = targets[0]
            end_s = end(target)
            if len(targets) > 1 and end(min(targets[1:3])[0]) <= end_s:  # at the same time: by worker
                worker = min(w for t, w in targets if end(t) <= end_s and not self.is_outdated_target(t, w))
            self.first = (end_s, self.resource, worker, 0)

    def is_outdated_target(self, target: float, worker: int) -> bool:
        """Whether a heap entry is outdated: its worker has no flow, or one with another target."""
        flow = self.flows.get(worker)
        return flow is None or flow.target != target

    def next_end(self) -> Event | None:
        """Time and lane of the next chunk to arrive; None if nothing is sent."""
        return self.first

    def delivered_bytes(self, now: float, lane: Lane) -> float:
        """Bytes of a running chunk that have arrived."""
        return self.flows[lane[1]].delivered_bytes(now)


class MaxMinShares:
    """Flows between any nodes at max-min fair rates, which change when a flow starts or ends."""

    def __init__(self, inputs: Inputs) -> None:
        self.near: list[list[int]] = inputs.near.tolist()
        self.far: list[list[int]] = inputs.far.tolist()
        self.flow_limit = inputs.flow_bytes_per_s
        self.capacities = [
            capacity
            for node in inputs.cluster.nodes
            for capacity in (node.egress_bytes_per_s, node.ingress_bytes_per_s)
        ]
        self.clocks = [Clock() for _ in self.capacities]
        self.flows: dict[Lane, Flow] = {}
        self.ended: Lane | None = None
        self.touched = self.changed = False  # since the last event: a chunk, the rates of flows
        self.first: Event | None = None

    def crossed_ports(self, lane: Lane) -> tuple[int, int]:
        """NIC ports at the near and the far end (2 * node: egress, 2 * node + 1: ingress)."""
        resource, worker, channel = lane
        here, there = self.near[worker][channel], self.far[worker][channel]
        return (2 * here + 1, 2 * there) if resource == DOWNLINK else (2 * here, 2 * there + 1)

    def start(self, now: float, lane: Lane, size: float, weight: float) -> None:
        """Starts sending a lane's chunk of `size` bytes, in its flow if that just ended."""
        self.touched = True
        if lane == self.ended and weight == self.flows[lane].weight:
            self.flows[lane].continue_with(size)
            self.ended = None
        else:
            self.remove_ended_flow(now)
            self.flows[lane] = Flow(size, weight)
            self.changed = True

    def finish(self, now: float, lane: Lane) -> None:
        """Records that a lane's chunk has arrived; its flow ends unless another chunk starts now."""
        self.ended = lane
        self.touched = True

    def remove_ended_flow(self, now: float) -> None:
        """Removes the flow that ended in this event, unless its lane started another chunk."""
        if self.ended is None:
            return
        flow, self.ended = self.flows.pop(self.ended), None
        assert flow.clock is not None
        flow.clock.set_virtual_time(now, flow.target)
        flow.clock.flows -= 1
        self.changed = True

    def commit(self, now: float) -> None:
        """Updates rates, and the next end of a flow, after an event."""
        if not self.touched:
            return
        self.touched = False
        self.remove_ended_flow(now)
        if self.changed:
            self.changed = False
            self.update_rates(now)
        self.first = min(
            (
                (flow.clock.time_reaching(flow.target), *lane)
                for lane, flow in self.flows.items()
                if flow.clock
            ),
            default=None,
        )

    def update_rates(self, now: float) -> None:
        """Gives flows their fair rates. Clocks whose level stays, and their flows, do not change."""
        lanes = sorted(self.flows)
        flows = [self.flows[lane] for lane in lanes]
        limits = max_min_limits(
            [self.crossed_ports(lane) for lane in lanes],
            [flow.weight for flow in flows],
            self.capacities,
            self.flow_limit,
        )
        moving: list[tuple[Flow, Clock, float]] = []  # to that clock, with so many bytes left
        levels: dict[Clock, float] = {}
        for flow, (link, level) in zip(flows, limits, strict=True):
            if link is None:
                clock = flow.own = flow.own or Clock()
            else:
                clock = self.clocks[link]
            levels[clock] = level
            if flow.clock is clock:
                continue
            left = flow.size
            if flow.clock is not None:
                left = max(0.0, (flow.target - flow.clock.virtual_time(now)) * flow.weight)
                flow.clock.flows -= 1
            moving.append((flow, clock, left))
        for clock, level in levels.items():
            if clock.flows == 0:
                clock.set_virtual_time(now, 0.0)
            elif level != clock.level:
                clock.set_virtual_time(now, clock.virtual_time(now))
            clock.set_rate(level)
        for flow, clock, left in moving:
            flow.attach(clock, clock.virtual_time(now), left)
            clock.flows += 1

    def next_end(self) -> Event | None:
        """Time and lane of the next chunk to arrive; None if nothing is sent."""
        return self.first

    def delivered_bytes(self, now: float, lane: Lane) -> float:
        """Bytes of a running chunk that have arrived."""
        return self.flows[lane].delivered_bytes(now)


def max_min_limits(
    crosses: list[tuple[int, int]], weights: list[float], capacities: list[float], flow_limit: float
) -> list[tuple[int | None, float]]:
    """Link that limits each flow (None: the flow limit), and its max-min fair rate per unit of weight. Found
    by filling all flows alike until some link is full (Bertsekas and Gallager, 6.5.2). Each round finds the
    lowest share per unit of weight that a link has left for its flows. Links whose shares are as low are
    full: a flow gets the share of the first full link that it crosses, times its weight. But if the heaviest
    flow's own limit lies at or below that share, it gets its limit, and nothing else changes in this round.
    Flows go in the order given. Shares that differ by rounding only must not be told apart: those within a
    billionth are equal."""
    left = list(capacities)
    weight_left = [0.0] * len(capacities)
    limits: list[tuple[int | None, float]] = [(None, 0.0)] * len(crosses)
    waiting = list(range(len(crosses)))
    for flow in waiting:
        for link in crosses[flow]:
            weight_left[link] += weights[flow]
    while waiting:
        shares = {
            link: max(0.0, left[link]) / weight_left[link] for flow in waiting for link in crosses[flow]
        }
        lowest = min(shares.values())
        heaviest = max(waiting, key=weights.__getitem__)
        stopped: dict[int, tuple[int | None, float]] = {}
        if flow_limit / weights[heaviest] <= lowest:
            stopped[heaviest] = (None, flow_limit / weights[heaviest])
        else:
            for flow in waiting:
                full = [link for link in crosses[flow] if shares[link] <= lowest * TIE]
                if full:
                    stopped[flow] = (full[0], shares[full[0]])
        for flow, (limiting, level) in stopped.items():
            limits[flow] = (limiting, level)
            for link in crosses[flow]:
                left[link] -= flow_limit if limiting is None else level * weights[flow]
                weight_left[link] -= weights[flow]
        waiting = [flow for flow in waiting if flow not in stopped]
    return limits


def max_min_rates(
    crosses: list[tuple[int, int]], weights: list[float], capacities: list[float], flow_limit: float
) -> list[float]:
    """Max-min fair rates of flows, in bytes per second."""
    limits = max_min_limits(crosses, weights, capacities, flow_limit)
    return [
        flow_limit if link is None else level * weight
        for (link, level), weight in zip(limits, weights, strict=True)
    ]
