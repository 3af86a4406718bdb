"""The bound of a plan with parameter servers as a closed form: what `planner.simulator.bounds.loads` and the
bounds of thousands of plans (`planner.servers.bounds_grid`) are held against.

A plan moves samples no faster than each of these allows:

- every worker: one batch a step, and a step lasts at least `least_steps_s` (critical path, busiest resource,
  in the mean also the wait for downloads that come in random order);
- the workers of one node together: their downloads pass the node's ingress, their uploads its egress;
- every node that holds servers: what leaves it (downloads of the workers elsewhere, uploads of its own
  workers to servers elsewhere) passes its egress; ingress likewise;
- all these nodes together: where each has workers too, none can be spared at the expense of another;
- the cores of every node: they update for the servers that live there and parse for its workers.

In `async` mode workers run at different rates (one beside its server asks less of the network), so the bound
of a shared NIC is the best mix: maximise the sum of the rates x_n of nodes subject to sum a_n x_n <= capacity
and x_n <= u_n, a fractional knapsack solved by taking the least demanding first. In `sync` mode all run at
one rate, and the bound is capacity / sum of demands.

Steps vary. A run draws its steps, and a lucky short run draws fast ones, so `steps="fastest"` (the default)
takes the fastest step of the profile: no run exceeds it however its steps fall. `steps="mean"` bounds the
throughput in the long run (a worker's rate tends to 1 / E[step time], and E[step] >= the mean of the bounds);
it is tighter, and a finite run may exceed it by its own sampling error.

A rate counted in a window that cuts steps (as `simulate` does: ends of steps from the moment when all workers
are warm) may hold up to one step a worker that began before it: `window_tolerance` says how much that is.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.simulator.bounds.loads import Bound
from planner.simulator.bounds.paths import Floats
from planner.simulator.bounds.step import Rates, StepDemand, Steps, least_steps_s
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Mode, Policy
from planner.simulator.step import Profile


def upper_bound(
    profile: Profile,
    cluster: Cluster,
    policy: Policy | None = None,
    mode: Mode = "async",
    *,
    steps: Steps = "fastest",
) -> Bound:
    """The bound with its reason (see the module's text). Without a policy it holds for all."""
    if profile.servers != cluster.servers:
        raise BadInput(
            f"the profile is for {profile.servers} servers, the cluster has {cluster.servers}; "
            "make the profile for the cluster's number of servers"
        )
    demand = StepDemand(profile)
    rates, kind_of_worker = _worker_rates(cluster)
    step_s = least_steps_s([(demand, rates)], policy, mode, steps)[0][kind_of_worker]
    worker_node = np.array(cluster.worker_nodes)
    nodes = np.unique(worker_node)
    if mode == "sync":
        return _sync_bound(demand, cluster, step_s, steps)
    alone = np.array([np.sum(1.0 / step_s[worker_node == node]) for node in nodes])
    most = alone.copy()
    for at, node in enumerate(nodes):
        down, up = _own_traffic(demand, cluster, int(node))
        machine = cluster.nodes[node]
        most[at] = min(
            most[at],
            _per(machine.ingress_bytes_per_s, down),
            _per(machine.egress_bytes_per_s, up),
            _per(machine.cores or math.inf, demand.host_s(steps)),
        )
    best, reason = float(most.sum()), "worker step" if most.sum() >= alone.sum() else "worker NIC"
    for name, capacity, asked in _at_servers(demand, cluster, nodes, steps):
        rate = _knapsack(capacity, asked, most)
        if rate < best:
            best, reason = rate, name
    return Bound(best * profile.batch, reason)


def window_tolerance(steps: int, workers: int, runs: int = 1) -> float:
    """By how much, relative, the rate in windows with so many steps in all may exceed a bound: one step that
    began before the window for each worker and run."""
    return workers * runs / max(1, steps)


def _sync_bound(demand: StepDemand, cluster: Cluster, step_s: Floats, steps: Steps) -> Bound:
    workers = np.bincount(cluster.worker_nodes, minlength=len(cluster.nodes)).astype(float)
    nodes = np.flatnonzero(workers)
    best, reason = 1.0 / float(step_s.max()), "worker step"
    for node in nodes:
        down, up = _own_traffic(demand, cluster, int(node))
        machine = cluster.nodes[node]
        rate = min(
            _per(machine.ingress_bytes_per_s, down * workers[node]),
            _per(machine.egress_bytes_per_s, up * workers[node]),
            _per(machine.cores or math.inf, demand.host_s(steps) * workers[node]),
        )
        if rate < best:
            best, reason = rate, "worker NIC"
    for name, capacity, asked in _at_servers(demand, cluster, nodes, steps):
        rate = _per(capacity, float(asked @ workers[nodes]))
        if rate < best:
            best, reason = rate, name
    return Bound(best * cluster.workers * demand.profile.batch, reason)


def _worker_rates(cluster: Cluster) -> tuple[Rates, npt.NDArray[np.intp]]:
    """The different kinds of worker in a cluster, and the kind of each worker."""
    flow = cluster.flow_bytes_per_s
    servers = [cluster.nodes[node] for node in cluster.server_nodes]
    speeds = cluster.worker_speeds or (1.0,) * cluster.workers
    rows = []
    for node, speed in zip(cluster.worker_nodes, speeds, strict=True):
        machine = cluster.nodes[node]
        local = [node == other for other in cluster.server_nodes]
        down = [
            0.0 if here else 1.0 / min(server.egress_bytes_per_s, machine.ingress_bytes_per_s, flow)
            for here, server in zip(local, servers, strict=True)
        ]
        up = [
            0.0 if here else 1.0 / min(server.ingress_bytes_per_s, machine.egress_bytes_per_s, flow)
            for here, server in zip(local, servers, strict=True)
        ]
        nic = [1.0 / machine.ingress_bytes_per_s, 1.0 / machine.egress_bytes_per_s]
        rows.append(down + up + nic + [speed] + [float(here) for here in local])
    table, kind = np.unique(np.array(rows), axis=0, return_inverse=True)
    n = len(servers)
    return (
        Rates(
            down_s_per_byte=table[:, :n],
            up_s_per_byte=table[:, n : 2 * n],
            nic_down_s_per_byte=table[:, 2 * n],
            nic_up_s_per_byte=table[:, 2 * n + 1],
            speed=table[:, 2 * n + 2],
            local=table[:, 2 * n + 3 :] > 0.5,
        ),
        np.asarray(kind).reshape(-1),
    )


def _own_traffic(demand: StepDemand, cluster: Cluster, node: int) -> tuple[float, float]:
    """Bytes that a worker on this node downloads and uploads through its NIC in a step."""
    away = np.array([server != node for server in cluster.server_nodes])
    return float(demand.down_bytes[away].sum()), float(demand.up_bytes[away].sum())


def _at_servers(
    demand: StepDemand, cluster: Cluster, nodes: npt.NDArray[np.intp], steps: Steps
) -> list[tuple[str, float, Floats]]:
    """For each NIC of a node that holds servers: its name, capacity and the bytes a step of a worker on each
    of `nodes` sends through it; and its cores, with the seconds that such a step takes of them."""
    nics = []
    server_node = np.array(cluster.server_nodes)
    for host in np.unique(server_node):
        here = server_node == host
        own_down, own_up = _own_traffic(demand, cluster, int(host))
        out = np.where(nodes == host, own_up, demand.down_bytes[here].sum())
        into = np.where(nodes == host, own_down, demand.up_bytes[here].sum())
        machine = cluster.nodes[host]
        nics.append((f"node {host} egress", machine.egress_bytes_per_s, out))
        nics.append((f"node {host} ingress", machine.ingress_bytes_per_s, into))
    for name, of_one_kind in (("egress", nics[::2]), ("ingress", nics[1::2])):
        capacities, asked = [nic[1] for nic in of_one_kind], [nic[2] for nic in of_one_kind]
        nics.append((f"the servers' {name}", sum(capacities), np.asarray(np.sum(asked, axis=0))))
    update_s, host_s = demand.update_s(steps), demand.host_s(steps)
    for host in np.unique(server_node):
        taken = update_s[server_node == host].sum() + np.where(nodes == host, host_s, 0.0)
        nics.append((f"node {host} cores", cluster.nodes[host].cores or math.inf, taken))
    return nics


def _per(capacity: float, demand: float) -> float:
    return capacity / demand if demand > 0 else math.inf


def _knapsack(capacity: float, asked: Floats, most: Floats) -> float:
    """Maximise sum x subject to sum asked * x <= capacity and 0 <= x <= most."""
    total, left = 0.0, capacity
    for at in np.argsort(asked, kind="stable"):
        rate = min(float(most[at]), _per(left, float(asked[at])))
        total += rate
        left = max(0.0, left - rate * float(asked[at]))
    return total
