"""Bounds of plans with parameter servers, thousands at once, as numpy arrays.

`Plans` holds one array for each thing that may differ between plans of one family (model, batch, worker
hardware): workers, servers, bandwidths and so on. A family has one profile for each number of servers,
because placement decides which bytes each server holds. Clusters are regular: `workers_per_node` workers on
each node (the last may hold fewer), servers on nodes of their own or server i beside the workers of node i.
`Plans.cluster(i)` is plan i as a cluster; tests hold its bound to that of
`benchmarks/robustness/server_bounds.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.simulator.bounds.paths import Floats
from planner.simulator.bounds.step import Rates, StepDemand, Steps, least_steps_s
from planner.simulator.cluster import Cluster, Node
from planner.simulator.policy import Mode, Policy
from planner.simulator.step import Profile


@dataclass(frozen=True, eq=False)
class Plans:
    """Plans as columns; scalars and arrays broadcast to one length."""

    workers: npt.ArrayLike
    worker_nic_bytes_per_s: npt.ArrayLike
    servers: npt.ArrayLike = 1
    server_nic_bytes_per_s: npt.ArrayLike = math.nan  # NaN: as the workers'
    workers_per_node: npt.ArrayLike = 1
    colocated: npt.ArrayLike = False
    flow_bytes_per_s: npt.ArrayLike = math.inf
    speed: npt.ArrayLike = 1.0
    worker_cores: npt.ArrayLike = math.inf  # of a node
    server_cores: npt.ArrayLike = math.inf  # likewise, for servers on nodes of their own

    def __post_init__(self) -> None:
        names = [column.name for column in fields(self)]
        columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(getattr(self, name))) for name in names))
        for name, column in zip(names, columns, strict=True):
            object.__setattr__(self, name, np.ravel(column))
        nic = np.asarray(self.worker_nic_bytes_per_s, float)
        server = np.asarray(self.server_nic_bytes_per_s, float)
        object.__setattr__(self, "worker_nic_bytes_per_s", nic)
        object.__setattr__(self, "server_nic_bytes_per_s", np.where(np.isnan(server), nic, server))
        too_many = np.asarray(self.colocated, bool) & (np.asarray(self.servers) > self.nodes)
        if too_many.any():
            at = int(np.argmax(too_many))
            raise BadInput(
                f"plan {at} puts {np.asarray(self.servers)[at]} servers beside the workers of "
                f"{self.nodes[at]} nodes; at most one server a node can live there"
            )

    @property
    def nodes(self) -> npt.NDArray[np.int64]:
        """Nodes that hold workers."""
        return np.asarray(-(-np.asarray(self.workers) // np.asarray(self.workers_per_node)), np.int64)

    def __len__(self) -> int:
        return len(np.asarray(self.workers))

    def column(self, name: str, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        return np.asarray(getattr(self, name), np.float64)[rows]

    def cluster(self, plan: int) -> Cluster:
        """One plan as a cluster."""

        def at(name: str) -> float:
            return float(np.asarray(getattr(self, name))[plan])

        workers, servers, per_node = int(at("workers")), int(at("servers")), int(at("workers_per_node"))
        nic = at("worker_nic_bytes_per_s")
        nodes = [Node(nic, nic, None, _cores(at("worker_cores")))] * int(self.nodes[plan])
        first = 0
        if not at("colocated"):
            server_nic = at("server_nic_bytes_per_s")
            nodes = [Node(server_nic, server_nic, None, _cores(at("server_cores")))] * servers + nodes
            first = servers
        return Cluster(
            nodes=tuple(nodes),
            worker_nodes=tuple(first + worker // per_node for worker in range(workers)),
            server_nodes=tuple(range(servers)),
            worker_speeds=(at("speed"),) * workers,
            flow_bytes_per_s=at("flow_bytes_per_s"),
        )


@dataclass(frozen=True, eq=False)
class Family:
    """Plans of one model, batch and worker hardware; `profiles` maps servers to the profile with so many."""

    profiles: Mapping[int, Profile]
    plans: Plans


def bound_plans(
    profiles: Mapping[int, Profile],
    plans: Plans,
    policy: Policy | None = None,
    mode: Mode = "async",
    *,
    steps: Steps = "fastest",
) -> Floats:
    """Upper bounds in samples a second, one a plan, of a family."""
    return bound_families([Family(profiles, plans)], policy, mode, steps=steps)[0]


def bound_families(
    families: Sequence[Family],
    policy: Policy | None = None,
    mode: Mode = "async",
    *,
    steps: Steps = "fastest",
) -> list[Floats]:
    """The bounds of several families: what they have in common is computed once."""
    parts = [
        (number, part)
        for number, family in enumerate(families)
        for part in _groups(family.profiles, family.plans)
    ]
    least = least_steps_s([(part.demand, part.rates) for _, part in parts], policy, mode, steps)
    out = [np.zeros(len(family.plans)) for family in families]
    for (number, part), step_s in zip(parts, least, strict=True):
        part.take(step_s, steps)
        rate = part.sync() if mode == "sync" else part.asynchronous()
        out[number][part.rows] = rate * part.demand.profile.batch
    return out


def _groups(profiles: Mapping[int, Profile], plans: Plans) -> Iterator[_PlanGroup]:
    """The plans of a family by their number of servers and by where those stand."""
    servers, beside = np.asarray(plans.servers), np.asarray(plans.colocated, bool)
    for count in np.unique(servers).tolist():
        if count not in profiles:
            raise BadInput(
                f"no profile for {count} servers; there are profiles for {sorted(profiles)} servers"
            )
        demand = StepDemand(profiles[count])
        for colocated in (False, True):
            rows = np.flatnonzero((servers == count) & (beside == colocated))
            if len(rows):
                yield _PlanGroup(demand, plans, rows, colocated)


@dataclass(eq=False)
class _PlanGroup:
    """Plans of one profile, all with or all without servers beside the workers. A node is known by the server
    it holds, or -1 for none; `rate` is steps a second over all workers."""

    demand: StepDemand
    plans: Plans
    rows: npt.NDArray[np.intp]
    colocated: bool
    _steps: dict[int, Floats] = field(default_factory=dict)
    _update_s: Floats = field(default_factory=lambda: np.zeros(0))  # of a core, by server
    _host_s: float = 0.0

    def sync(self) -> Floats:
        """All workers at one rate, that of the most loaded place."""
        rate = np.full(len(self.rows), math.inf)
        for local in (-1, *self.hosts):
            down, up = self.own_bytes(local)
            size = self.size(local)
            parse_s = size * self._host_s
            least = np.minimum.reduce(
                [
                    1.0 / self.step_s(local),
                    _ratio(self.nic, size * down),
                    _ratio(self.nic, size * up),
                    _ratio(self.cores, parse_s),
                ]
            )
            exists = self.free_nodes > 0 if local < 0 else True
            rate = np.where(exists, np.minimum(rate, least), rate)
        for server in range(len(self.demand.down_bytes)):
            size = self.size(server) if self.colocated else np.zeros(len(self.rows))
            own_down, own_up = self.own_bytes(server)
            away = self.workers - size
            out = away * self.demand.down_bytes[server] + size * own_up
            into = away * self.demand.up_bytes[server] + size * own_down
            capacity, taken_s = self.server_nic, self.workers * self._update_s[server] + size * self._host_s
            rate = np.minimum.reduce(
                [
                    rate,
                    _ratio(capacity, out),
                    _ratio(capacity, into),
                    _ratio(self.server_cores, taken_s),
                ]
            )
        return np.asarray(rate * self.workers)

    def asynchronous(self) -> Floats:
        """The best mix of the nodes' rates."""
        down, up = self.demand.down_bytes, self.demand.up_bytes
        plain = self.most(-1, self.per_node)
        rest = np.maximum(self.free_nodes - 1, 0) * plain + self.most(-1, self.last)
        total = np.where(self.free_nodes > 0, rest, 0.0)
        if not self.colocated:
            busiest = max(float(down.max()), float(up.max()))
            by_cores = _ratio(self.server_cores, float(self._update_s.max()))
            return np.asarray(np.minimum.reduce([total, _ratio(self.server_nic, busiest), by_cores]))
        host = {server: self.most(server, self.size(server)) for server in self.hosts}
        total = total + sum(host.values())
        best = total
        for server in self.hosts:
            others, own = total - host[server], host[server]
            own_down, own_up = self.own_bytes(server)
            out = _mixed(self.nic, [(float(down[server]), others), (own_up, own)])
            into = _mixed(self.nic, [(float(up[server]), others), (own_down, own)])
            update_s = float(self._update_s[server])
            by_cores = _mixed(self.cores, [(update_s, others), (update_s + self._host_s, own)])
            best = np.minimum.reduce([best, out, into, by_cores])
        return np.asarray(np.minimum.reduce([best, *self.all_hosts(total, host)]))

    def all_hosts(self, total: Floats, host: Mapping[int, Floats]) -> Iterator[Floats]:
        """What the NICs of all nodes with servers allow together, out and in."""
        down, up = self.demand.down_bytes, self.demand.up_bytes
        own = [self.own_bytes(server) for server in self.hosts]
        on_hosts = np.asarray(sum(host.values()))
        for served, back in ((down, [own_up for _, own_up in own]), (up, [own_down for own_down, _ in own])):
            kinds = [(float(served.sum()), total - on_hosts)]
            kinds += [
                (back[server] + float(served.sum() - served[server]), host[server]) for server in self.hosts
            ]
            yield _mixed(self.nic * len(self.hosts), kinds)

    @cached_property
    def workers(self) -> Floats:
        return self._column("workers")

    @cached_property
    def nic(self) -> Floats:
        return self._column("worker_nic_bytes_per_s")

    @cached_property
    def server_nic(self) -> Floats:
        return self.nic if self.colocated else self._column("server_nic_bytes_per_s")

    @cached_property
    def cores(self) -> Floats:
        return self._column("worker_cores")

    @cached_property
    def server_cores(self) -> Floats:
        return self.cores if self.colocated else self._column("server_cores")

    @cached_property
    def per_node(self) -> Floats:
        return np.asarray(np.minimum(self._column("workers_per_node"), self.workers))

    @cached_property
    def nodes(self) -> Floats:
        return np.ceil(self.workers / self.per_node)

    @cached_property
    def last(self) -> Floats:
        """Workers on the last node."""
        return self.workers - (self.nodes - 1) * self.per_node

    @property
    def hosts(self) -> range:
        return range(len(self.demand.down_bytes) if self.colocated else 0)

    @property
    def free_nodes(self) -> Floats:
        return self.nodes - len(self.hosts)

    def size(self, local: int) -> Floats:
        """Workers on the node of a server; for -1 the most on any node without one."""
        is_last = self.free_nodes <= 1 if local < 0 else self.nodes - 1 == local
        return np.where(is_last, self.last, self.per_node)

    def own_bytes(self, local: int) -> tuple[float, float]:
        """Bytes that a worker moves through its NIC in a step, down and up."""
        down, up = self.demand.down_bytes, self.demand.up_bytes
        beside_down, beside_up = (down[local], up[local]) if local >= 0 and self.colocated else (0.0, 0.0)
        return float(down.sum() - beside_down), float(up.sum() - beside_up)

    def most(self, local: int, workers: Floats) -> Floats:
        """The most steps a second of so many workers on one node."""
        down, up = self.own_bytes(local)
        return np.asarray(
            np.minimum.reduce(
                [
                    workers / self.step_s(local),
                    _ratio(self.nic, down),
                    _ratio(self.nic, up),
                    _ratio(self.cores, self._host_s),
                ]
            )
        )

    def step_s(self, local: int) -> Floats:
        """The least step time of a worker beside server `local`, for each plan."""
        return self._steps[local]

    @cached_property
    def _kinds(self) -> tuple[Floats, npt.NDArray[np.intp]]:
        """The rates that occur (a flow's, the NIC's, the speed of the worker), and those of each plan."""
        flow = np.minimum(np.minimum(self.nic, self.server_nic), self._column("flow_bytes_per_s"))
        kinds = np.stack([1.0 / flow, 1.0 / self.nic, self._column("speed")], axis=1)
        table, kind = np.unique(kinds, axis=0, return_inverse=True)
        return table, np.asarray(kind).reshape(-1)

    @property
    def places(self) -> tuple[int, ...]:
        return (-1, *self.hosts)

    @property
    def rates(self) -> Rates:
        """Those of a worker beside no server (-1) and beside each, at every rate that occurs."""
        table, _ = self._kinds
        here = np.zeros((len(self.places), len(table), len(self.demand.down_bytes)), bool)
        for at, local in enumerate(self.places[1:], start=1):
            here[at, :, local] = True
        local_rows = here.reshape(len(self.places) * len(table), -1)
        rows = np.tile(table, (len(self.places), 1))
        per_byte = np.where(local_rows, 0.0, rows[:, :1])
        return Rates(per_byte, per_byte, rows[:, 1], rows[:, 1], rows[:, 2], local_rows)

    def take(self, least_s: Floats, steps: Steps) -> None:
        """Take over the least step times that belong to `rates`, and what a step asks of cores."""
        self._update_s, self._host_s = self.demand.update_s(steps), self.demand.host_s(steps)
        _, kind = self._kinds
        table = least_s.reshape(len(self.places), -1)
        self._steps = {local: table[at][kind] for at, local in enumerate(self.places)}

    def _column(self, name: str) -> Floats:
        return self.plans.column(name, self.rows)


def _cores(count: float) -> int | None:
    return None if math.isinf(count) else int(count)


def _ratio(capacity: Floats, demand: Floats | float) -> Floats:
    asked = np.broadcast_to(np.asarray(demand, float), capacity.shape)
    out = np.full(capacity.shape, math.inf)
    np.divide(capacity, asked, out=out, where=asked > 0)
    return out


def _mixed(capacity: Floats, kinds: Sequence[tuple[float, Floats]]) -> Floats:
    """The fractional knapsack for kinds of node (what a step asks, the most steps), least demanding first."""
    total, left = np.zeros(capacity.shape), capacity
    for ask, most in sorted(kinds, key=lambda kind: kind[0]):
        rate = np.minimum(most, _ratio(left, ask))
        total = total + rate
        left = np.maximum(left - rate * ask, 0.0)
    return total
