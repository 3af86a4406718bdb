"""A lower bound on one step of one worker (file 004, equation 1, tightened).

Equation 1 bounds a step's makespan by the busiest resource: max over resources r of the sum of Cost(op) on r.
We take the larger of two bounds, each valid for every policy that shares the links:

- the critical path, each transfer at the best rate its flow can have;
- for every resource of the worker (`worker`, `host`, a link to one server, a server's time for it, its NIC in
  one direction): head + total + tail, where head is the least path before any op of that resource and tail
  the least path after any: it cannot start earlier, and something must still follow its last op.

A worker's steps do not overlap, in synchronous mode either (a step ends when all its ops have), so the bound
of n steps is the sum of theirs. In the mean over many steps a third one holds where downloads come in random
order (`planner.simulator.bounds.queueing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from planner.simulator.bounds.paths import Floats, PathGraph, graph_of
from planner.simulator.bounds.queueing import Releases, queues_at_random, releases_of
from planner.simulator.policy import Fifo, Mode, Multiplexed, Ordered, Policy, Sliced, overheads_s
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Profile

Ops = npt.NDArray[np.intp]
Steps = Literal["fastest", "mean"]
_CELLS = 1_000_000  # ops x columns evaluated at once: what fits in a cache is faster
LEAST_S = 1e-12


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

    def take(self, rows: npt.NDArray[np.intp]) -> Rates:
        return Rates(*(getattr(self, field.name)[rows] for field in fields(self)))

    @staticmethod
    def joined(parts: Sequence[Rates]) -> Rates:
        columns = ([getattr(part, field.name) for part in parts] for field in fields(Rates))
        return Rates(*(np.concatenate(column) for column in columns))


@dataclass(frozen=True, eq=False)
class StepDemand:
    """What a step asks of each resource."""

    profile: Profile

    @cached_property
    def graph(self) -> PathGraph:
        return graph_of(self.profile)

    @cached_property
    def down_bytes(self) -> Floats:
        return self.graph.bytes_by_server(DOWNLINK)

    @cached_property
    def up_bytes(self) -> Floats:
        return self.graph.bytes_by_server(UPLINK)

    def update_s(self, steps: Steps) -> Floats:
        """Seconds of a core that each server spends on a step."""
        ops = self.graph.on(PS)
        taken = np.bincount(self.profile.server[ops], self._core_s(ops, steps), self.profile.servers)
        return taken.astype(np.float64)

    def host_s(self, steps: Steps) -> float:
        """Seconds of a core that the host spends on a step."""
        return float(self._core_s(self.graph.on(HOST), steps).sum())

    def _core_s(self, ops: Ops, steps: Steps) -> Floats:
        durations_s = self.profile.durations_s[:, ops]
        return np.asarray(durations_s.min(axis=0) if steps == "fastest" else durations_s.mean(axis=0))


def least_steps_s(
    cases: Sequence[tuple[StepDemand, Rates]], policy: Policy | None, mode: Mode, steps: Steps
) -> list[Floats]:
    """For each case the least step time of its kinds of worker: of the fastest step, or in the mean. Without
    a policy it holds for all. Cases that share a graph are evaluated together, which is what takes time."""
    groups: dict[tuple[PathGraph, bool], list[int]] = {}
    for at, (demand, _) in enumerate(cases):
        random = steps == "mean" and mode == "async" and queues_at_random(demand.profile, policy)
        groups.setdefault((demand.graph, random), []).append(at)
    out = [np.zeros(0)] * len(cases)
    for (graph, random), members in groups.items():
        releases = releases_of(graph, policy) if random and policy is not None else None
        bounds = _bounds(
            graph, [cases[at] for at in members], chunk_overhead_s(graph.profile, policy), releases
        )
        for at, bound in zip(members, bounds, strict=True):
            least = bound.min(axis=1) if steps == "fastest" else bound.mean(axis=1)
            out[at] = np.maximum(least, LEAST_S)
    return out


def _bounds(
    graph: PathGraph, cases: Sequence[tuple[StepDemand, Rates]], overhead_s: Floats, releases: Releases | None
) -> list[Floats]:
    """For each case a table of kinds x steps. One kind in one step is a column of what is evaluated."""
    rates = Rates.joined([rates for _, rates in cases])
    durations_s = np.concatenate([demand.profile.durations_s for demand, _ in cases])
    shapes = [(len(rates), demand.profile.steps) for demand, rates in cases]
    first = np.cumsum([(0, 0), *shapes], axis=0)[:-1]
    pairs = [np.indices(shape).reshape(2, -1) + at[:, None] for shape, at in zip(shapes, first, strict=True)]
    kind, row = np.concatenate(pairs, axis=1)
    work_s = None if releases is None else releases.work_s(durations_s[:, graph.on(WORKER)])
    width = max(1, _CELLS // graph.profile.ops)
    bound = np.zeros(len(kind))
    for at in range(0, len(kind), width):
        cut = slice(at, at + width)
        columns = rates.take(kind[cut])
        paths = _Paths(graph, _op_costs(graph.profile, durations_s[row[cut]].T, columns, overhead_s))
        bound[cut] = paths.any_order_s(columns)
        if releases is not None and work_s is not None:
            least = paths.random_order_s(columns, releases, work_s[:, :, row[cut]] / columns.speed)
            np.maximum(bound[cut], least, out=bound[cut])
    tables = np.split(bound, np.cumsum([kinds * steps for kinds, steps in shapes])[:-1])
    return [table.reshape(shape) for table, shape in zip(tables, shapes, strict=True)]


class _Paths:
    """Paths and totals of a graph whose ops cost what they do at least: ops x columns."""

    def __init__(self, graph: PathGraph, cost: Floats) -> None:
        self.graph = graph
        self.cost = cost
        self.heads = graph.heads_s(cost)
        self.tails = graph.tails_s(cost)

    def any_order_s(self, rates: Rates) -> Floats:
        """Critical path and busiest resource, for each column."""
        graph = self.graph
        bounds = [np.asarray((self.heads + self.cost).max(axis=0))]
        bounds += [self.around(graph.on(kind)) for kind in (WORKER, HOST)]
        for server in range(graph.profile.servers):
            bounds += [self.around(graph.on(kind, server)) for kind in (DOWNLINK, UPLINK, PS)]
        bounds += [self.around(graph.on(kind), _nic_s(graph, rates, kind)) for kind in (DOWNLINK, UPLINK)]
        return np.asarray(np.maximum.reduce(bounds))

    def around(self, ops: Ops, busy_s: Floats | None = None) -> Floats:
        """What a resource does takes its time, after something has come to it and before what must follow."""
        if not len(ops):
            return np.zeros(self.cost.shape[1])
        total_s = self.cost[ops].sum(axis=0) if busy_s is None else busy_s
        return np.asarray(total_s + self.heads[ops].min(axis=0) + self.tails[ops].min(axis=0))

    def random_order_s(self, rates: Rates, releases: Releases, work_s: Floats) -> Floats:
        """The bound of `planner.simulator.bounds.queueing`, for each column."""
        graph, delivered = self.graph, releases.delivered_bytes
        each = (delivered[:, None] * rates.down_s_per_byte).max(axis=2)
        together = delivered @ ~rates.local.T * rates.nic_down_s_per_byte
        after, before_uploads = work_s
        then = after + self.tails[graph.on(WORKER)].min(axis=0)
        uploads = graph.on(UPLINK)
        if len(uploads):
            by_server = (graph.bytes_by_server(UPLINK) * rates.up_s_per_byte).max(axis=1)
            upload_s = np.maximum(by_server, _nic_s(graph, rates, UPLINK))
            then = np.maximum(then, before_uploads + upload_s + self.tails[uploads].min(axis=0))
        return np.asarray((np.maximum(each, together) + then).max(axis=0))


def _nic_s(graph: PathGraph, rates: Rates, direction: int) -> Floats:
    """Seconds that a worker's NIC is busy with the transfers of a direction."""
    s_per_byte = rates.nic_down_s_per_byte if direction == DOWNLINK else rates.nic_up_s_per_byte
    return np.asarray(~rates.local @ graph.bytes_by_server(direction) * s_per_byte)


def _op_costs(p: Profile, durations_s: Floats, rates: Rates, overhead_s: Floats) -> Floats:
    """The least time of each op: ops x columns."""
    cost = np.array(durations_s, order="C")
    cost[p.resource == WORKER] /= rates.speed
    for kind, per_byte in ((DOWNLINK, rates.down_s_per_byte), (UPLINK, rates.up_s_per_byte)):
        ops = np.flatnonzero(p.resource == kind)
        cost[ops] = per_byte[:, p.server[ops]].T * p.bytes[ops, None] + overhead_s[ops, None]
    return cost


def chunk_overhead_s(profile: Profile, policy: Policy | None) -> Floats:
    """Seconds that each transfer spends on its link besides its bytes. Blocks and Credit share the overhead
    between transfers; none is counted for them, nor for an unknown policy, which keeps the bound valid."""
    if policy is None:
        return np.zeros(profile.ops)
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
