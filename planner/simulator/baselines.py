"""What simpler models predict, to compare with: ideal scaling, Cynthia's formula, a queueing network.

All three need only a few figures of a single worker, which `one_worker` takes from a simulated run with its
timeline, and none knows that computation and communication overlap op by op (file 000, Fig. 3c, shows how far
off they are).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planner.simulator.cluster import Cluster
from planner.simulator.policy import Multiplexed, Policy
from planner.simulator.run import RunOptions, run
from planner.simulator.step import DOWNLINK, UPLINK, Profile

STEPS = 100


@dataclass(frozen=True, slots=True)
class OneWorker:
    """A step of a single worker: its length and its four phases, as someone watching the wire sees them."""

    batch: int
    step_s: float
    downlink_s: float  # until the last download has ended
    compute_s: float  # from then until the first upload starts
    uplink_s: float  # from then until the last upload has ended
    update_s: float  # from then until the end of the step
    busy_s: float  # the worker computes, whatever else goes on
    transfer_s: float  # the model in one direction, over the busiest link
    network_use: float  # share of the step during which that link is busy


def one_worker(
    profile: Profile, cluster: Cluster, policy: Policy | None = None, *, seed: int = 0
) -> OneWorker:
    """The figures of the cluster's first worker alone."""
    alone = replace(cluster, worker_nodes=cluster.worker_nodes[:1], worker_speeds=cluster.worker_speeds[:1])
    options = RunOptions(seed=seed, steps=STEPS, timeline=True)
    result = run(profile, alone, policy or Multiplexed(), "async", options)
    assert result.timeline is not None
    chunks, starts, ends = result.timeline, result.step_starts_s[0], result.step_ends_s[0]
    steps = len(ends)

    def edge(resource: int, column: str, pick: np.ufunc, missing: np.ndarray) -> np.ndarray:
        """The first start or the last end on a resource in each step."""
        rows = chunks[chunks["resource"] == resource]
        out = np.full(steps, np.inf if pick is np.minimum else -np.inf)
        pick.at(out, rows["step"], rows[column])
        return np.where(np.isfinite(out), out, missing)

    down_end = edge(DOWNLINK, "end_s", np.maximum, starts)
    up_end = edge(UPLINK, "end_s", np.maximum, ends)
    up_start = np.maximum(edge(UPLINK, "start_s", np.minimum, up_end), down_end)
    step_s = float((ends - starts).mean())
    transfer_s = _transfer_s(profile, alone)
    return OneWorker(
        batch=profile.batch,
        step_s=step_s,
        downlink_s=float((down_end - starts).mean()),
        compute_s=float((up_start - down_end).mean()),
        uplink_s=float(np.maximum(up_end - up_start, 0.0).mean()),
        update_s=float((ends - np.maximum(up_end, up_start)).mean()),
        busy_s=float(result.worker_busy_s[0]) / steps,
        transfer_s=transfer_s,
        network_use=min(1.0, transfer_s / step_s),
    )


def ideal(one: OneWorker, workers: int) -> float:
    """Samples a second if workers never met: W times one worker."""
    return workers * one.batch / one.step_s


def cynthia(one: OneWorker, workers: int) -> float:
    """Samples a second by Cynthia (Zheng et al., ICPP 2019), as file 000 quotes it in section 1:

        W * K / (T_P * max(1, W * U1) + 2 * T_C)

    W workers, K the batch, T_P the time to process a batch, T_C the time to transmit the model or its
    updates, U1 the network utilisation of a single worker.
    """
    processing_s = one.busy_s * max(1.0, workers * one.network_use)
    return workers * one.batch / (processing_s + 2 * one.transfer_s)


def queueing(one: OneWorker, workers: int) -> float:
    """Samples a second of a closed queueing network with four phases a step (file 000, section 1, on [10]).

    W customers go round downlink (a queue), computation (no waiting), uplink (a queue) and update (no
    waiting), with the phases of a single worker as service demands. Exact mean value analysis: with n
    customers the time at queue i is R_i = D_i * (1 + Q_i(n - 1)), throughput X = n / (Z + sum R_i), and
    Q_i(n) = X * R_i.
    """
    demands = (one.downlink_s, one.uplink_s)
    think_s = one.compute_s + one.update_s
    queues = [0.0, 0.0]
    throughput = 0.0
    for customers in range(1, workers + 1):
        times = [demand * (1 + queue) for demand, queue in zip(demands, queues, strict=True)]
        throughput = customers / (think_s + sum(times))
        queues = [throughput * time for time in times]
    return throughput * one.batch


BASELINES: dict[str, Callable[[OneWorker, int], float]] = {
    "ideal": ideal,
    "cynthia": cynthia,
    "queueing": queueing,
}


def _transfer_s(profile: Profile, alone: Cluster) -> float:
    """The model in one direction over the link that takes longest: a server's NIC or the worker's."""
    nodes, worker = alone.nodes, alone.nodes[alone.worker_nodes[0]]
    times = []
    for resource in (DOWNLINK, UPLINK):
        down = resource == DOWNLINK
        sizes = profile.bytes * (profile.resource == resource)
        by_server = [float(sizes[profile.server == s].sum()) for s in range(profile.servers)]
        for node, size in zip(alone.server_nodes, by_server, strict=True):
            times.append(size / (nodes[node].egress_bytes_per_s if down else nodes[node].ingress_bytes_per_s))
        times.append(sum(by_server) / (worker.ingress_bytes_per_s if down else worker.egress_bytes_per_s))
    return max(times)
