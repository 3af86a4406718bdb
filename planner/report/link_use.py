"""How many transfers cross a server's NIC at each moment, and how much of it they use."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from planner.simulator.cluster import Cluster
from planner.simulator.sharing import max_min_rates
from planner.simulator.step import DOWNLINK

Use = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.float64]]


def link_use(rows: npt.NDArray[Any], cluster: Cluster, direction: int) -> list[Use]:
    """For each server: times, transfers running from then on, and the percentage of its NIC that they use.

    Rates are max-min fair with equal weights over the flows that run. With one server this is exact, for the
    sum does not depend on how flows share; with several it leaves out only the unevenness of TCP's shares. A
    flow between a worker and a server on the same node crosses no NIC. Each state is computed once.
    """
    servers, workers = cluster.servers, cluster.workers
    if servers == 0:
        return []
    to_server = (rows["resource"] == direction) & (rows["server"] < servers)
    flows = rows[to_server & (rows["end_s"] > rows["flow_s"])]
    times = np.concatenate([flows["flow_s"], flows["end_s"]])
    change = np.repeat([1, -1], len(flows))
    server = np.tile(flows["server"], 2)
    # A lane, a worker with a server, carries one transfer at a time: which lanes are busy fits in bits.
    bits: list[Any] = [1 << lane for lane in range(servers * workers)]
    kind = np.int64 if len(bits) < 63 else object
    lane = np.array(bits, kind)[server * workers + np.tile(flows["worker"], 2)]
    order = np.lexsort((change, times))  # at the same moment ends come before starts
    times, change, server, lane = times[order], change[order], server[order], lane[order]
    states, state = np.unique(np.cumsum(change * lane), return_inverse=True)
    percent = np.array([_percent(int(one), cluster, direction) for one in states]).reshape(-1, servers)
    settled = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, bool)
    out = []
    for here in range(servers):
        active = np.cumsum(np.where(server == here, change, 0))
        share = percent[state, here]
        kept = np.flatnonzero(settled)
        same = (np.diff(active[kept]) == 0) & (np.diff(share[kept]) == 0)
        kept = kept[np.append(True, ~same)] if len(kept) else kept
        out.append((times[kept], active[kept], share[kept]))
    return out


def _percent(state: int, cluster: Cluster, direction: int) -> list[float]:
    """What the flows of a state, a set of lanes as bits, use of each server's NIC."""
    down = direction == DOWNLINK
    capacities = [c for n in cluster.nodes for c in (n.egress_bytes_per_s, n.ingress_bytes_per_s)]
    servers, crosses = [], []
    for lane in range(cluster.servers * cluster.workers):
        server, worker = divmod(lane, cluster.workers)
        there, here = cluster.server_nodes[server], cluster.worker_nodes[worker]
        if state >> lane & 1 and there != here:
            servers.append(server)
            crosses.append((2 * there, 2 * here + 1) if down else (2 * here, 2 * there + 1))
    rates = max_min_rates(crosses, [1.0] * len(servers), capacities, cluster.flow_bytes_per_s)
    used = [0.0] * cluster.servers
    for server, rate in zip(servers, rates, strict=True):
        used[server] += rate
    side = 0 if down else 1
    return [100 * used[s] / capacities[2 * node + side] for s, node in enumerate(cluster.server_nodes)]
