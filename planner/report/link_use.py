"""How many transfers cross a server's NIC at each moment, and how much of it they use."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from planner.cluster import Cluster
from planner.profile import DOWNLINK
from planner.simulator.sharing import max_min_rates

Use = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.float64]]


def link_use(rows: npt.NDArray[Any], cluster: Cluster, direction: int) -> list[Use]:
    """For each server: times, transfers running from then on, and the percentage of its NIC that they use.

    Rates are max-min fair with equal weights over the flows that run. With one server this is exact, for the
    sum does not depend on how flows share; with several it leaves out only the unevenness of TCP's shares. A
    flow between a worker and a server on the same node crosses no NIC. Each state is computed once.
    """
    servers, workers = cluster.servers, cluster.workers
    flows = rows[(rows["resource"] == direction) & (rows["end_s"] > rows["flow_s"])]
    times = np.concatenate([flows["flow_s"], flows["end_s"]])
    change = np.repeat([1, -1], len(flows))
    lane = np.tile(flows["server"] * workers + flows["worker"], 2)
    order = np.lexsort((change, times))
    times, change, lane = times[order], change[order], lane[order].tolist()
    rates = _Rates(cluster, direction)
    running = np.zeros(servers * workers, np.int64)
    state = 0
    active = np.empty((len(times), servers), np.int64)
    share = np.empty((len(times), servers))
    counts = [0] * servers
    for index, (here, by) in enumerate(zip(lane, change.tolist(), strict=True)):
        running[here] += by
        counts[here // workers] += by
        state = state | 1 << here if running[here] else state & ~(1 << here)
        active[index] = counts
        share[index] = rates.percent(state)
    last = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, bool)
    out = []
    for server in range(servers):
        kept = np.flatnonzero(last)
        same = (np.diff(active[kept, server]) == 0) & (np.diff(share[kept, server]) == 0)
        kept = kept[np.append(True, ~same)] if len(kept) else kept
        out.append((times[kept], active[kept, server], share[kept, server]))
    return out


class _Rates:
    """What the flows of a state, a set of lanes as bits, use of each server's NIC."""

    def __init__(self, cluster: Cluster, direction: int) -> None:
        self.cluster = cluster
        self.direction = direction
        self.known: dict[int, list[float]] = {}
        self.capacities = [c for n in cluster.nodes for c in (n.egress_bytes_per_s, n.ingress_bytes_per_s)]

    def percent(self, state: int) -> list[float]:
        if state not in self.known:
            self.known[state] = self._computed(state)
        return self.known[state]

    def _computed(self, state: int) -> list[float]:
        cluster, down = self.cluster, self.direction == DOWNLINK
        lanes, crosses = [], []
        for lane in range(cluster.servers * cluster.workers):
            if state >> lane & 1:
                server, worker = divmod(lane, cluster.workers)
                there, here = cluster.server_nodes[server], cluster.worker_nodes[worker]
                if there != here:
                    lanes.append(server)
                    crosses.append((2 * there, 2 * here + 1) if down else (2 * here, 2 * there + 1))
        rates = max_min_rates(crosses, [1.0] * len(lanes), self.capacities, cluster.flow_bytes_per_s)
        used = [0.0] * cluster.servers
        for server, rate in zip(lanes, rates, strict=True):
            used[server] += rate
        side = 0 if down else 1
        return [
            100 * used[s] / self.capacities[2 * node + side] for s, node in enumerate(cluster.server_nodes)
        ]
