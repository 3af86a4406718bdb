"""An upper bound on the throughput of any case, proved for the step language: whatever an exchange lowers to.

Let a step of a worker last at least L, and let x be the steps a second of each worker in the long run.

(a) L is at least the longest path of its ops, each at the best rate it can have; and for every lane and every
port that its ops use, head + total + tail: before the first of them something must have come, the lane runs
one at a time (the port moves so many bytes a second), and something must follow the last. Waiting for others
only adds: a joint op runs on its leader's lane, but cannot start before it is ready at this worker, and what
follows it here begins after it.

(b) What crosses a port is at most its capacity: the sum of x * bytes <= capacity, for every port and for the
far ends together. A joint op crosses its leader's ports, once for the group. The cores of a node are such a
port too: seconds of updates and of hosts a second.

(c) Workers that joint ops or joins tie together go at one rate, that of the slowest; and the period of joint
ops bounds it (`planner.simulator.bounds.together`).

In between the best mix of rates is a linear program; every single port relaxes it to a fractional knapsack,
solved by taking the least demanding first. `steps="fastest"` takes the fastest
step of the profile: no run exceeds it however its steps fall. `steps="mean"` bounds the throughput in the
long run (a worker's rate tends to 1 / E[step time], and E[step] >= the mean of the bounds); it is tighter,
and a finite run may exceed it by its own sampling error. For parameter servers that have a node each it is
the closed form of `benchmarks/robustness/server_bounds.py` (in the mean that form, as
`planner.servers.bounds_grid`, also counts the wait for downloads in random order).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.simulator.bounds.kinds import Floats, Ints, layout, op_costs_s, uses_of
from planner.simulator.bounds.paths import PathGraph, structure_of
from planner.simulator.bounds.step import LEAST_S, Steps, chunk_overhead_s
from planner.simulator.bounds.together import Around, joint_work, longest_period_s
from planner.simulator.inputs import parties_of
from planner.simulator.joins import joins_of
from planner.simulator.policy import Blocks, Credit
from planner.simulator.simulate import Case
from planner.simulator.step import WORKER

_CELLS = 1_000_000  # ops x columns evaluated at once: what fits in a cache is faster


@dataclass(frozen=True, slots=True)
class Bound:
    """The most samples a second that a plan can reach, and what keeps it from more."""

    samples_per_s: float
    limited_by: str  # "worker step", "node 0 egress", ...


@dataclass(frozen=True, eq=False)
class Loads:
    """What the steps of a case ask for.

    A party is workers that are tied together: all of them, or each for itself, or those of a machine. Parties
    that ask the same of every port are one class. By class: `workers` of one party, `most_steps_per_s` of all
    its parties together as far as the length of steps goes, `asked` of each port in one step of one party.
    """

    batch: int
    workers: Floats
    most_steps_per_s: Floats
    names: tuple[str, ...]
    capacity_bytes_per_s: Floats
    asked_bytes: Floats  # ports x classes; of cores: seconds

    def bound(self) -> Bound:
        """The most samples a second, and what keeps the case from more."""
        with np.errstate(divide="ignore"):
            rates = self.capacity_bytes_per_s[:, None] / self.asked_bytes  # were a class alone
        most, reason = self.most_steps_per_s, "worker step"
        if len(rates):
            by_port = rates.min(axis=0)
            if (by_port < most).any():
                reason = self.names[int(rates[:, int(np.argmax(most / by_port))].argmin())]
            most = np.minimum(most, by_port)
        best = float(most @ self.workers)
        if len(most) > 1 and len(rates):
            totals = self._knapsacks(most)
            if totals.min() < best * (1 - 1e-12):
                best, reason = float(totals.min()), self.names[int(totals.argmin())]
        return Bound(best * self.batch, reason)

    def _knapsacks(self, most: Floats) -> Floats:
        """For each port the most steps of workers a second: it goes to those who ask least of it first."""
        order = np.argsort(self.asked_bytes / self.workers, axis=1, kind="stable")
        asked = np.take_along_axis(self.asked_bytes, order, axis=1)
        before = np.cumsum(asked * most[order], axis=1) - asked * most[order]
        left = np.maximum(self.capacity_bytes_per_s[:, None] - before, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(asked > 0, left / asked, np.inf)
        return np.asarray((np.minimum(share, most[order]) * self.workers[order]).sum(axis=1))


def loads_of(case: Case, steps: Steps = "fastest") -> Loads:
    """The loads of one case."""
    return loads_of_many([case], steps)[0]


def bounds_of(cases: Sequence[Case]) -> Floats:
    """The most samples a second of each case in the long run."""
    return np.array([loads.bound().samples_per_s for loads in loads_of_many(cases, "mean")])


def loads_of_many(cases: Sequence[Case], steps: Steps = "fastest") -> list[Loads]:
    """Cases whose steps share a graph are evaluated together, which is what takes time."""
    asked = [_Asked(case) for case in cases]
    groups: dict[PathGraph, list[_Asked]] = {}
    for one in asked:
        groups.setdefault(structure_of(one.case.profile), []).append(one)
    least: dict[int, tuple[Floats, Floats, Floats]] = {}
    for graph, members in groups.items():
        width = max(1, _CELLS // graph.profile.ops)
        while members:
            batch, columns = [members.pop()], 0
            while members and (columns := columns + batch[-1].columns) < width:
                batch.append(members.pop())
            costs = [one.costs_s() for one in batch]
            together = np.concatenate(costs, axis=1)
            heads, tails = graph.heads_s(together), graph.tails_s(together)
            cuts = np.cumsum([cost.shape[1] for cost in costs])[:-1]
            parts = (np.split(table, cuts, axis=1) for table in (together, heads, tails))
            for one, *tables in zip(batch, *parts, strict=True):
                least[id(one)] = (tables[0], tables[1], tables[2])
    return [one.loads(*least[id(one)], steps) for one in asked]


class _Asked:
    """What a case asks for, as far as it does not depend on paths."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.uses, self.use_of_op = uses_of(case.profile)
        self.ports, self.kinds = layout(case.cluster, self.uses)
        self.bytes: Floats = np.bincount(self.use_of_op, case.profile.bytes, len(self.uses)).astype(float)

    @property
    def columns(self) -> int:
        return len(self.kinds) * self.case.profile.steps

    def costs_s(self) -> Floats:
        """The least time of each op: ops x (kinds x steps)."""
        profile, policy = self.case.profile, self.case.policy
        overhead_s = chunk_overhead_s(profile, policy)
        if not isinstance(policy, Blocks | Credit):  # those overlap what comes before the bytes
            overhead_s = overhead_s + profile.latency_s
        return op_costs_s(profile, self.use_of_op, self.kinds, overhead_s, profile.durations_s.min(axis=0))

    def loads(self, cost: Floats, heads: Floats, tails: Floats, steps: Steps) -> Loads:
        case, kinds = self.case, self.kinds
        profile = case.profile
        joint = np.flatnonzero(profile.scope >= 0)
        if len(joint):
            before, after = joint_work(profile)
            work = cost[profile.resource == WORKER]
            heads[joint] = np.maximum(heads[joint], before @ work)
            tails[joint] = np.maximum(tails[joint], after @ work)
        around = Around(kinds, self.use_of_op, (cost, heads, tails), self.bytes)
        table = around.least_s().reshape(len(kinds), profile.steps)
        step_s = np.maximum(table.min(axis=1) if steps == "fastest" else table.mean(axis=1), LEAST_S)
        party = parties_of(profile, case.cluster, case.joins or joins_of(profile, case.mode))
        least_s = np.zeros(party.max() + 1)
        np.maximum.at(least_s, party, step_s[kinds.of])
        if len(joint):
            for scope in np.unique(profile.scope[joint]).tolist():
                leaders = np.array(case.cluster.leaders[scope], np.intp)
                periods = longest_period_s(profile, leaders, scope, around, steps)
                np.maximum.at(least_s, party, periods[leaders])
        return self._by_class(party, 1.0 / least_s, steps)

    def _by_class(self, party: Ints, rates: Floats, steps: Steps) -> Loads:
        """Parties put together to classes, and what each asks of the ports."""
        parties, workers = len(rates), len(party)
        crossed, own = self.ports.crossed, self.ports.lane_worker == np.arange(workers)[:, None]
        busy_s = self._busy_s(steps)
        if parties == workers:
            key = np.concatenate([own, crossed.reshape(workers, -1), self.ports.node], axis=1)
            _, first, class_of = np.unique(key, axis=0, return_index=True, return_inverse=True)
            class_of = np.asarray(class_of).reshape(-1)
            counted, size = first, np.ones(len(first))
        else:
            class_of, counted = np.arange(parties), np.arange(workers)
            size = np.bincount(party).astype(np.float64)
        classes = len(size)
        asked = np.zeros((len(self.ports.capacity), classes))
        place = np.arange(classes) if parties == workers else party
        for at in range(len(self.uses)):
            for side in range(2):
                at_port = crossed[counted, at, side]
                counts = own[counted, at] & (at_port >= 0)
                np.add.at(asked, (at_port[counts], place[counts]), self.bytes[at])
        cores = np.zeros((len(self.case.cluster.nodes), classes))
        for at in range(len(self.uses)):
            node = self.ports.node[counted, at]
            counts = own[counted, at] & (node >= 0)
            np.add.at(cores, (node[counts], place[counts]), busy_s[at])
        most = np.bincount(class_of, rates, classes).astype(float)
        return self._named(size, most, asked, cores)

    def _busy_s(self, steps: Steps) -> Floats:
        """Seconds of processors for the ops of each use in a step."""
        durations_s = self.case.profile.durations_s
        op_s = durations_s.min(axis=0) if steps == "fastest" else durations_s.mean(axis=0)
        return np.bincount(self.use_of_op, op_s, len(self.uses)).astype(float)

    def _named(self, size: Floats, most: Floats, asked: Floats, cores: Floats) -> Loads:
        used = np.flatnonzero(asked.any(axis=1))
        names = [f"node {port // 2} {'ingress' if port % 2 else 'egress'}" for port in used.tolist()]
        rows, capacities = [asked[used]], [self.ports.capacity[used]]
        far = np.unique(self.ports.crossed[:, :, 1])
        whose = "servers" if self.case.cluster.servers == self.case.cluster.channels else "far ends"
        for side, name in enumerate(("egress", "ingress")):
            nodes = np.unique(far[far >= 0] // 2)
            together = 2 * nodes + side
            if len(together) > 1 and asked[together].any():
                names.append(f"the {whose}' {name}")
                rows.append(asked[together].sum(axis=0, keepdims=True))
                capacities.append(self.ports.capacity[together].sum(keepdims=True))
        for node in np.flatnonzero(cores.any(axis=1)).tolist():
            names.append(f"node {node} cores")
            rows.append(cores[node : node + 1])
            capacities.append(np.array([float(self.case.cluster.nodes[node].cores or np.inf)]))
        return Loads(
            self.case.profile.batch,
            size,
            most,
            tuple(names),
            np.concatenate(capacities),
            np.concatenate(rows),
        )
