"""A lower bound on one step of one worker (file 004, equation 1, tightened).

Equation 1 bounds a step's makespan by the busiest resource: max over resources r of the sum of Cost(op) on r.
We take the larger of two bounds, each valid for every policy that shares the links:

- the critical path, each transfer at the best rate its flow can have;
- for every resource of the worker (`worker`, a link to one server, a server's time for it, its NIC in one
  direction): head + total + tail, where head is the least path before any op of that resource and tail the
  least path after any: the resource cannot start earlier, and something must still follow its last op.

A worker's steps do not overlap, in synchronous mode either (a step ends when all its ops have), so the bound
of n steps is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.policy import Fifo, Multiplexed, Ordered, Policy, Sliced, overheads_s
from planner.profile import DOWNLINK, PS, UPLINK, WORKER, Profile

Floats = npt.NDArray[np.float64]
_CELLS = 4_000_000  # ops x rates x steps evaluated at once


@dataclass(frozen=True)
class Rates:
    """What a worker gets at best, one row for each kind of worker: seconds a byte from (to) every server,
    seconds a byte over its NIC, and whether a server lives on its node (its bytes cross no NIC)."""

    down_s_per_byte: Floats  # kinds x servers
    up_s_per_byte: Floats  # kinds x servers
    nic_down_s_per_byte: Floats  # kinds
    nic_up_s_per_byte: Floats  # kinds
    speed: Floats  # kinds
    local: npt.NDArray[np.bool_]  # kinds x servers

    def __len__(self) -> int:
        return len(self.speed)

    def rows(self, start: int, stop: int) -> Rates:
        cut = slice(start, stop)
        return Rates(
            self.down_s_per_byte[cut],
            self.up_s_per_byte[cut],
            self.nic_down_s_per_byte[cut],
            self.nic_up_s_per_byte[cut],
            self.speed[cut],
            self.local[cut],
        )


@dataclass(frozen=True, eq=False)
class Demand:
    """What a step asks of each resource, and the graph in the form the paths need."""

    profile: Profile

    @cached_property
    def down_bytes(self) -> Floats:
        return self._bytes(DOWNLINK)

    @cached_property
    def up_bytes(self) -> Floats:
        return self._bytes(UPLINK)

    def _bytes(self, resource: int) -> Floats:
        p = self.profile
        on = p.resource == resource
        return np.bincount(p.server[on], p.bytes[on], p.servers).astype(np.float64)

    @cached_property
    def order(self) -> list[int]:
        return [int(op) for op in self.profile.topological_order()]

    @cached_property
    def deps(self) -> list[list[int]]:
        p = self.profile
        return [p.deps(op).tolist() for op in range(p.ops)]

    @cached_property
    def dependents(self) -> list[list[int]]:
        start, index = self.profile.dependents()
        return [index[start[op] : start[op + 1]].tolist() for op in range(self.profile.ops)]

    def on(self, resource: int, server: int | None = None) -> list[int]:
        p = self.profile
        mask = p.resource == resource
        if server is not None:
            mask = mask & (p.server == server)
        return [int(op) for op in np.flatnonzero(mask)]


def chunk_overhead_s(profile: Profile, policy: Policy) -> Floats:
    """Seconds that each transfer spends on its link besides its bytes. Blocks and Credit share the overhead
    between transfers; none is counted for them, which keeps the bound valid."""
    chunks = np.zeros(profile.ops)
    if isinstance(policy, Fifo | Ordered):
        chunks += 1.0
    elif isinstance(policy, Multiplexed):
        chunks += 1.0 + (profile.bytes > policy.window_bytes)
    elif isinstance(policy, Sliced):
        chunks += np.ceil(profile.bytes / policy.slice_bytes)
    down_s, up_s = overheads_s(policy)
    each_s = np.where(profile.resource == DOWNLINK, down_s, up_s)
    return np.where(profile.is_transfer, chunks * each_s, 0.0)


def step_lower_bound_s(demand: Demand, rates: Rates, policy: Policy) -> npt.NDArray[np.float64]:
    """Seconds that a step lasts at least: one row for each kind of worker, one column for each step."""
    p = demand.profile
    rows = max(1, _CELLS // max(1, p.ops * p.steps))
    parts = [_bound(demand, rates.rows(at, at + rows), policy) for at in range(0, len(rates), rows)]
    return np.concatenate(parts) if parts else np.zeros((0, p.steps))


def _bound(demand: Demand, rates: Rates, policy: Policy) -> Floats:
    p = demand.profile
    cost = _op_costs(demand, rates, policy)
    heads = _longest_before(demand.order, demand.deps, cost)
    tails = _longest_before(demand.order[::-1], demand.dependents, cost)
    bound = (heads + cost).max(axis=0)

    def resource(ops: Sequence[int], total: Floats | None = None) -> None:
        """What a resource does takes its time, after something has come to it and before what must follow."""
        if ops:
            busy = cost[ops].sum(axis=0) if total is None else total
            np.maximum(bound, busy + heads[ops].min(axis=0) + tails[ops].min(axis=0), out=bound)

    resource(demand.on(WORKER))
    for server in range(p.servers):
        for kind in (DOWNLINK, UPLINK, PS):
            resource(demand.on(kind, server))
    crossing = ~rates.local
    for kind, moved, s_per_byte in (
        (DOWNLINK, demand.down_bytes, rates.nic_down_s_per_byte),
        (UPLINK, demand.up_bytes, rates.nic_up_s_per_byte),
    ):
        total = (crossing @ moved) * s_per_byte
        resource(demand.on(kind), total[:, None])
    return np.asarray(bound)


def _op_costs(demand: Demand, rates: Rates, policy: Policy) -> Floats:
    """The least time of each op: ops x kinds of worker x steps."""
    p = demand.profile
    cost = np.repeat(p.durations_s.T[:, None, :], len(rates), axis=1)
    cost[p.resource == WORKER] /= rates.speed[:, None]
    overhead = chunk_overhead_s(p, policy)
    for kind, per_byte in ((DOWNLINK, rates.down_s_per_byte), (UPLINK, rates.up_s_per_byte)):
        ops = np.flatnonzero(p.resource == kind)
        seconds = per_byte[:, p.server[ops]].T * p.bytes[ops, None] + overhead[ops, None]
        cost[ops] = seconds[:, :, None]
    return cost


def _longest_before(order: Sequence[int], before: Sequence[Sequence[int]], cost: Floats) -> Floats:
    """The longest path that ends just before each op; `order` puts what an op waits for first."""
    begins, ends = np.zeros_like(cost), np.empty_like(cost)
    for op in order:
        waits = before[op]
        if len(waits) == 1:
            begins[op] = ends[waits[0]]
        elif waits:
            ends[waits].max(axis=0, out=begins[op])
        np.add(begins[op], cost[op], out=ends[op])
    return begins
