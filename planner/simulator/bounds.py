"""An upper bound on the throughput of any case, proved for the step language: whatever a strategy lowers to.

Let a step of a worker last at least L, and let x be the steps per second of each worker in the long run.

(a) L is at least the longest path of its ops, each at the best rate it can have; and for every lane and every
port that its ops use, head + total + tail: before the first of them something must have come, the lane runs
one at a time (the port moves so many bytes per second), and something must follow the last (file 004,
equation 1, is the total alone). Waiting for others only adds: a joint op runs on its leader's lane, but
cannot start before it is ready at this worker, and what follows it here begins after it. Where downloads come
in random order a step also waits, in the mean, for what stands before them (`planner.simulator.paths`).

(b) What crosses a port is at most its capacity: the sum of x * bytes <= capacity, for every port and for the
far ends together. A joint op crosses its leader's ports, once for the group. The cores of a node are such a
port too: seconds of updates and of hosts per second.

(c) Workers that joint ops or joins tie together go at one rate, that of the slowest. Let O be joint ops of
one group on one lane. In step k the first of them begins when it is ready at every member w, no earlier than
the least head of O in the step that w has drawn; the last ends a total of O later; and w's next step begins
no earlier than the least tail of O after that. So

    period >= total(O) + E[max over members w of (tail_w(one step) + head_w(the next))],

and since steps are drawn independently, the slowest of many members decides. This holds for every O; those
that are looked at are the ops of a lane from each one on in the order of their heads, as for a machine whose
jobs have release times. Heads and tails of joint ops count all computation that must come before or after,
for a worker computes one op at a time.

In between the best mix of rates is a linear program; every single port relaxes it to a fractional knapsack,
solved by taking the least demanding first. `steps="fastest"` takes the fastest step of the profile: no run
exceeds it however its steps fall. `steps="mean"` bounds the throughput in the long run (a worker's rate tends
to 1 / E[step time], and E[step] >= the mean of the bounds); it is tighter, and a finite run may exceed it by
its own sampling error. Kinds of worker in each step are columns, so that many cases are evaluated at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.simulator.cluster import Cluster
from planner.simulator.inputs import party_by_worker
from planner.simulator.paths import DownloadWaits, Floats, Ints, OpGraph, Use, graph_of
from planner.simulator.policy import Blocks, Credit, Policy, chunk_overhead_s, mode_joins
from planner.simulator.simulate import Case
from planner.simulator.statistics import mean_of_slowest_s
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, Profile

Steps = Literal["fastest", "mean"]
LEAST_S = 1e-12
CELLS = 1_000_000  # ops x columns evaluated at once: what fits in a cache is faster
MOST_SETS = 3  # of joint ops of a lane, for which the slowest member is worked out


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kinds of worker: one row per kind, one column per use of a resource in its step. A use is a resource,
    channel and scope. `lane` numbers the workers on whose lanes the ops of a use run, by first appearance in
    the row: uses of the same resource and channel share a lane if their numbers are equal. `port` likewise
    numbers the ports that the flows of a use cross: `port[kind, use, side]`, -1 for none."""

    uses: tuple[Use, ...]
    speed: Floats
    s_per_byte: Floats  # at best; 0 for what crosses nothing
    lane: Ints
    port: Ints
    port_s_per_byte: Floats  # kinds x uses x sides

    def __len__(self) -> int:
        return len(self.speed)


class StepBounds:
    """Lower bounds on the seconds of a step, one column for each kind of worker and recorded step."""

    def __init__(
        self, profile: Profile, policy: Policy | None, kinds: Kinds, *, random: bool = False
    ) -> None:
        """`random`: count the wait for downloads in random order, which holds in the mean only."""
        self.profile = profile
        self.kinds = kinds
        self.graph: OpGraph = graph_of(profile)
        self.steps = profile.steps
        self.policy = policy
        self.download_waits = self.graph.download_waits(profile, policy) if random else None
        self.columns = len(kinds) * profile.steps
        self.cost, self.heads, self.tails = (np.zeros(0),) * 3  # ops x columns
        self.by_step_s: Floats = np.zeros(0)  # the least time of each step: kinds x steps

    def least_op_s(self) -> Floats:
        """Lower bound on the seconds of each op, as an array of ops x columns."""
        profile, kinds = self.profile, self.kinds
        overhead_s = chunk_overhead_s(profile, self.policy)
        if not isinstance(self.policy, Blocks | Credit):  # those overlap what comes before the bytes
            overhead_s = overhead_s + profile.latency_s
        costs = np.repeat(profile.durations_s.T[:, None, :], len(kinds), axis=1)
        costs[self.graph.worker_ops] /= kinds.speed[:, None]
        joint, links = self.graph.joint_ops, profile.is_transfer
        costs[joint] = profile.durations_s[:, joint].min(axis=0)[:, None, None]
        use_of_op = self.graph.use_of_op[links]
        bytes_s = kinds.s_per_byte[:, use_of_op].T * profile.bytes[links, None] + overhead_s[links, None]
        costs[links] = bytes_s[:, :, None]
        return np.ascontiguousarray(costs.reshape(profile.ops, -1))

    def set_step_bounds(self, op_s: Floats, heads: Floats, tails: Floats) -> None:
        """Sets the lower bound of each step, given the longest paths before and after each op. Joint ops,
        which a group runs once, also wait for the computation before them."""
        joint = self.graph.joint_ops
        if len(joint):
            before, after = self.graph.joint_work
            work = op_s[self.graph.worker_ops]
            heads[joint] = np.maximum(heads[joint], before @ work)
            tails[joint] = np.maximum(tails[joint], after @ work)
        self.cost, self.heads, self.tails = op_s, heads, tails
        self.by_step_s = self._least_step_s().reshape(len(self.kinds), self.steps)
        if not len(joint):  # thousands of steps at once hold more memory than they need
            self.cost = self.heads = self.tails = np.zeros(0)

    def least_s(self, steps: Steps) -> Floats:
        """Least seconds per step of each kind of worker; `steps` selects the fastest step or the mean."""
        least_s = self.by_step_s.min(axis=1) if steps == "fastest" else self.by_step_s.mean(axis=1)
        return np.asarray(np.maximum(least_s, LEAST_S))

    def _least_step_s(self) -> Floats:
        """Lower bound on the seconds of each step: its longest path, busiest lane or busiest NIC port."""
        least = np.asarray((self.heads + self.cost + self.tails).max(axis=0))
        by_use = self.graph.ops_by_use
        head = np.array([self.heads[ops].min(axis=0) for ops in by_use])
        tail = np.array([self.tails[ops].min(axis=0) for ops in by_use])
        total = np.array([self.cost[ops].sum(axis=0) for ops in by_use])
        np.maximum(least, (head + total + tail).max(axis=0), out=least)
        for together, busy_s in (*self._shared_lanes(total), *self._shared_ports()):
            first = np.where(together, head, np.inf).min(axis=0)
            last = np.where(together, tail, np.inf).min(axis=0)
            np.maximum(least, busy_s + first + last, out=least, where=together.any(axis=0))
        if self.download_waits is not None:
            np.maximum(least, self._random_order_step_s(self.download_waits), out=least)
        return least

    def _shared_lanes(self, total: Floats) -> Iterator[tuple[np.ndarray, Floats]]:
        """Yields each lane that several uses share, as a mask (uses x columns), with its busy seconds."""
        uses, lane = self.kinds.uses, self.kinds.lane
        for at, use in enumerate(uses):
            same = np.array([other[:2] == use[:2] for other in uses])
            if same.sum() > 1:
                here = np.repeat(same[:, None] & (lane == lane[:, at : at + 1]).T, self.steps, axis=1)
                yield here, np.where(here, total, 0.0).sum(axis=0)

    def _shared_ports(self) -> Iterator[tuple[np.ndarray, Floats]]:
        """Yields each NIC port that several uses share, as a mask (uses x columns), with its busy seconds."""
        for here, s_per_byte in self._nic_ports():
            if (here.sum(axis=0) > 1).any():  # else its lane says as much
                busy_s = self.graph.bytes_by_use @ here * s_per_byte
                yield np.repeat(here, self.steps, axis=1), np.repeat(busy_s, self.steps)

    def _nic_ports(self) -> Iterator[tuple[np.ndarray, Floats]]:
        """Yields each NIC port as a mask (uses x kinds) of its traffic, with its seconds per byte by kind."""
        port = self.kinds.port
        for number in np.unique(port[port >= 0]).tolist():
            sides = port == number
            rates = np.where(sides, self.kinds.port_s_per_byte, 0.0).max(axis=(1, 2))
            yield sides.any(axis=2).T, rates

    def _random_order_step_s(self, waits: DownloadWaits) -> Floats:
        """Lower bound on the seconds of each step if downloads arrive in random order."""
        after, before_uploads = waits.work_s(self.cost[self.graph.worker_ops])
        then = after + self.tails[self.graph.worker_ops].min(axis=0)
        uploads = np.flatnonzero(self.profile.resource == UPLINK)
        if len(uploads):
            upload_s = self._transfer_s(UPLINK, self.graph.bytes_by_server(UPLINK)[None, :])
            then = np.maximum(then, before_uploads + upload_s + self.tails[uploads].min(axis=0))
        return np.asarray((self._transfer_s(DOWNLINK, waits.delivered_bytes) + then).max(axis=0))

    def _transfer_s(self, direction: int, sizes: Floats) -> Floats:
        """Least seconds to send `sizes` (any rows x servers, in bytes) in one direction, by column."""
        mine = [at for at, use in enumerate(self.kinds.uses) if use.resource == direction]
        sent = sizes[:, [self.kinds.uses[at].channel for at in mine]]
        least = (sent[:, :, None] * self.kinds.s_per_byte[:, mine].T).max(axis=1)
        for here, s_per_byte in self._nic_ports():
            np.maximum(least, sent @ here[mine] * s_per_byte, out=least)
        return np.repeat(least, self.steps, axis=1)

    def period_s(self, ops: Ints, members: Floats, steps: Steps) -> float:
        """Least seconds per step of a group with joint ops (collectives); `members` counts each kind."""
        present = np.flatnonzero(members)
        columns = [slice(kind * self.steps, (kind + 1) * self.steps) for kind in present.tolist()]
        order = ops[np.argsort(self.heads[ops, columns[0]].mean(axis=1), kind="stable")]
        cost = self.cost[order, columns[0]].min(axis=1)  # the same for all members, but for durations
        if steps == "mean":
            mean_s = self.profile.durations_s[:, order].mean(axis=0)
            cost = np.where(self.profile.is_transfer[order], cost, mean_s)
        total = cost[::-1].cumsum()[::-1]
        least = [
            [
                np.minimum.accumulate(table[order, of][::-1], axis=0)[::-1]
                for table in (self.heads, self.tails)
            ]
            for of in columns
        ]
        if steps == "fastest":
            return float((total + np.max([h.min(axis=1) + t.min(axis=1) for h, t in least], axis=0)).max())
        means = total + np.max([h.mean(axis=1) + t.mean(axis=1) for h, t in least], axis=0)
        best = float(means.max())
        most = total + np.max([h.max(axis=1) + t.max(axis=1) for h, t in least], axis=0)
        for at in np.argsort(-means, kind="stable")[:MOST_SETS].tolist():
            if self.steps > 1 and most[at] > best:
                rows = [(head[at], tail[at]) for head, tail in least]
                best = max(best, float(total[at]) + mean_of_slowest_s(rows, members[present]))
        return best


def evaluate_steps(steps: Sequence[StepBounds]) -> None:
    """Computes the bounds of many steps; those with the same graph share the search for longest paths."""
    groups: dict[OpGraph, list[StepBounds]] = {}
    for step in steps:
        groups.setdefault(step.graph, []).append(step)
    for graph, members in groups.items():
        width = max(1, CELLS // graph.profile.ops)
        while members:
            batch, columns = [members.pop()], 0
            while members and (columns := columns + batch[-1].columns) < width:
                batch.append(members.pop())
            costs = [step.least_op_s() for step in batch]
            together = np.concatenate(costs, axis=1)
            ends = np.cumsum([step.columns for step in batch])[:-1]
            paths = (np.split(find(together), ends, axis=1) for find in (graph.heads_s, graph.tails_s))
            for step, *tables in zip(batch, costs, *paths, strict=True):
                step.set_step_bounds(*tables)


def throughput_bounds(cases: Sequence[Case], steps: Steps = "mean") -> Floats:
    """Upper bounds on the samples per second of simulator cases, one per case."""
    placed = [_PlacedCase(case, steps) for case in cases]
    evaluate_steps([entry.step for entry in placed])
    return np.array([entry.samples_per_s() for entry in placed])


class _PlacedCase:
    """A case with its workers grouped by kind, and the NIC ports that their transfers cross."""

    def __init__(self, case: Case, steps: Steps) -> None:
        self.case = case
        self.steps = steps
        self.uses = graph_of(case.profile).uses
        self._locate_uses(case.cluster)
        kinds, self.kind_of_worker = self._group_workers(case.cluster)
        random = steps == "mean" and case.mode == "async" and case.joins is None
        self.step = StepBounds(case.profile, case.policy, kinds, random=random)

    def _locate_uses(self, cluster: Cluster) -> None:
        """Finds the lane, the NIC ports and the processor pool of each use of each worker. Ports are 2 * node
        (egress) and 2 * node + 1 (ingress); -1 is none."""
        workers = cluster.workers
        ends = np.array(cluster.ends, np.intp).reshape(workers, cluster.channels, 2)
        self.lane_worker = np.empty((workers, len(self.uses)), np.intp)
        self.crossed = np.full((workers, len(self.uses), 2), -1, np.intp)
        self.core_node = np.full((workers, len(self.uses)), -1, np.intp)
        for at, use in enumerate(self.uses):
            lane = np.arange(workers) if use.scope < 0 else np.array(cluster.leaders[use.scope], np.intp)
            self.lane_worker[:, at] = lane
            if use.is_transfer:
                near, far = ends[lane, use.channel].T
                up = use.resource == UPLINK
                self.crossed[:, at, 0] = np.where(near == far, -1, 2 * near + (0 if up else 1))
                self.crossed[:, at, 1] = np.where(near == far, -1, 2 * far + (1 if up else 0))
            elif use.resource == PS and use.channel < cluster.servers:
                self.core_node[:, at] = cluster.server_nodes[use.channel]
            elif use.resource == HOST:
                self.core_node[:, at] = np.array(cluster.worker_nodes, np.intp)[lane]
        scarce = np.array([machine.cores is not None for machine in cluster.nodes])
        self.core_node[(self.core_node >= 0) & ~scarce[self.core_node]] = -1
        rates = [(node.egress_bytes_per_s, node.ingress_bytes_per_s) for node in cluster.nodes]
        self.capacity: Floats = np.array(rates, np.float64).reshape(-1)

    def _group_workers(self, cluster: Cluster) -> tuple[Kinds, Ints]:
        """Groups workers with equal bounds into kinds; returns the kinds and the kind of each worker."""
        workers, crossed = cluster.workers, self.crossed
        speed = np.array(cluster.worker_speeds or (1.0,) * workers)
        port_s_per_byte = np.append(1.0 / self.capacity, 0.0)[crossed]  # -1 is no port
        flow_s = 0.0 if np.isinf(cluster.flow_bytes_per_s) else 1.0 / cluster.flow_bytes_per_s
        s_per_byte = np.where(crossed[:, :, 0] >= 0, np.maximum(port_s_per_byte.max(axis=2), flow_s), 0.0)
        lane, port = map(_first_equal_columns, (self.lane_worker, crossed.reshape(workers, -1)))
        port[crossed.reshape(workers, -1) < 0] = -1
        rates = port_s_per_byte.reshape(workers, -1)
        table = np.concatenate([speed[:, None], s_per_byte, lane, port, rates], axis=1)
        _, first, of = np.unique(table, axis=0, return_index=True, return_inverse=True)
        ports = port.reshape(workers, len(self.uses), 2)[first]
        kinds = Kinds(self.uses, speed[first], s_per_byte[first], lane[first], ports, port_s_per_byte[first])
        return kinds, np.asarray(of, np.intp).reshape(-1)

    def samples_per_s(self) -> float:
        """Upper bound on samples per second of all workers; groups with equal demand form one class."""
        case, profile, kind_of = self.case, self.case.profile, self.kind_of_worker
        party = party_by_worker(profile, case.cluster, case.joins or mode_joins(profile, case.mode))
        least_s = np.zeros(party.max() + 1)
        np.maximum.at(least_s, party, self.step.least_s(self.steps)[kind_of])
        for scope in np.unique(profile.scope[self.step.graph.joint_ops]).tolist():
            leaders = np.array(case.cluster.leaders[scope], np.intp)
            np.maximum.at(least_s, party, self._group_periods_s(scope, leaders)[leaders])
        if party.max() + 1 < len(party):
            return self._best_mix_samples_per_s(party, np.bincount(party).astype(np.float64), 1.0 / least_s)
        own = self.lane_worker == np.arange(len(party))[:, None]
        key = np.concatenate([own, self.crossed.reshape(len(party), -1), self.core_node], axis=1)
        _, first, of = np.unique(key, axis=0, return_index=True, return_inverse=True)
        most = np.bincount(np.asarray(of).reshape(-1), 1.0 / least_s, len(first)).astype(np.float64)
        return self._best_mix_samples_per_s(np.arange(len(first)), np.ones(len(first)), most, first)

    def _group_periods_s(self, scope: int, leaders: Ints) -> Floats:
        """Least seconds per step of each group that runs joint ops, at its leader; 0 for other workers."""
        table = np.zeros((len(leaders), len(self.step.kinds)))
        np.add.at(table, (leaders, self.kind_of_worker), 1.0)
        first = np.unique(leaders)
        groups, which = np.unique(table[first], axis=0, return_inverse=True)
        by_use = zip(self.uses, self.step.graph.ops_by_use, strict=True)
        lanes = [ops for use, ops in by_use if use.scope == scope]
        least = [max(self.step.period_s(ops, group, self.steps) for ops in lanes) for group in groups]
        out = np.zeros(len(leaders))
        out[first] = np.array(least)[np.asarray(which).reshape(-1)]
        return out

    def _best_mix_samples_per_s(
        self, place: Ints, size: Floats, most: Floats, counted: Ints | slice = slice(None)
    ) -> float:
        """Upper bound on samples per second for the best division of capacity among classes of workers.
        `place` is the class of each counted worker, `size` the number of workers per party, `most` the steps
        per second of a class by its step times."""
        asked, capacity = self._demand_and_capacity(place, len(size), counted)
        with np.errstate(divide="ignore"):
            most = np.minimum(most, (capacity[:, None] / asked).min(axis=0, initial=np.inf))
        best = float(most @ size)
        if len(most) > 1 and len(capacity):
            best = min(best, float(_knapsack_bounds(asked, capacity, size, most).min()))
        return best * self.case.profile.batch

    def _demand_and_capacity(self, place: Ints, classes: int, counted: Ints | slice) -> tuple[Floats, Floats]:
        """Demand of each class per step (port bytes, core seconds), and the capacities. The last two rows are
        the far ends of all links together."""
        durations_s, nodes = self.case.profile.durations_s, self.case.cluster.nodes
        op_s = durations_s.min(axis=0) if self.steps == "fastest" else durations_s.mean(axis=0)
        busy_s = np.bincount(self.step.graph.use_of_op, op_s, len(self.uses))
        own = (self.lane_worker == np.arange(len(self.lane_worker))[:, None])[counted]
        ports, cores = np.zeros((2 * len(nodes), classes)), np.zeros((len(nodes), classes))
        for at, size in enumerate(self.step.graph.bytes_by_use.tolist()):
            for table, targets, amount in (
                (ports, self.crossed[counted, at, 0], size),
                (ports, self.crossed[counted, at, 1], size),
                (cores, self.core_node[counted, at], busy_s[at]),
            ):
                counts = own[:, at] & (targets >= 0)
                np.add.at(table, (targets[counts], place[counts]), amount)
        far = np.unique(self.crossed[:, :, 1])
        ends = [2 * np.unique(far[far >= 0] // 2) + side for side in (0, 1)]
        asked = np.concatenate([ports, cores, *(ports[side].sum(axis=0, keepdims=True) for side in ends)])
        limits = np.array([node.cores or np.inf for node in nodes], np.float64)
        capacity = np.concatenate([self.capacity, limits, *([self.capacity[side].sum()] for side in ends)])
        used = asked.any(axis=1)
        return asked[used], capacity[used]


def _knapsack_bounds(demand: Floats, capacity: Floats, size: Floats, limits: Floats) -> Floats:
    """Largest number of worker steps per second at each port, serving the least demanding workers first."""
    order = np.argsort(demand / size, axis=1, kind="stable")
    demand = np.take_along_axis(demand, order, axis=1)
    before = np.cumsum(demand * limits[order], axis=1) - demand * limits[order]
    left = np.maximum(capacity[:, None] - before, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(demand > 0, left / demand, np.inf)
    return np.asarray((np.minimum(share, limits[order]) * size[order]).sum(axis=1))


def _first_equal_columns(table: Ints) -> Ints:
    """Replaces each entry by the index of the first column of its row with an equal value."""
    out = np.zeros_like(table)
    for column in range(table.shape[1]):
        out[:, column] = (table[:, : column + 1] == table[:, column : column + 1]).argmax(axis=1)
    return out
