"""Which order of transfers for this training job, and whether any can help: strategies side by side.

Every strategy runs on the same cluster and profile; beside them stands what no order can beat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.errors import BadInput
from planner.progress import Progress, ignore_progress
from planner.search.simulations import executor_of
from planner.servers.ordering import STRATEGIES, Schedule, Setting, measures, strategy
from planner.servers.ordering.graph import StepGraph, pipelined
from planner.servers.ordering.measures import Bounds
from planner.simulator import simulate
from planner.simulator.cluster import COMPUTATION, Cluster, Node, Resource, ResourceKind
from planner.simulator.policy import Mode, Ordered
from planner.simulator.run import RunOptions
from planner.simulator.simulate import FAIRNESS_SIGMA
from planner.simulator.step import DOWNLINK, UPLINK, Profile
from planner.units import format_bandwidth

LEAST_SPEED = 1e-3  # of a slow worker: below it nothing arrives within the steps that are traced
TRACED_STEPS = 30  # of one run, for stragglers, waits and unique orders
MOST_OPS = 500_000  # of all workers and strategies in a step
BASELINE = "fifo"
WORTHWHILE = 0.05  # a gain below this is not worth enforcing an order: TicTac saw slow-downs up to 4.2%

UNORDERED = {  # why no order of a strategy's transfers is better
    "alone": "One device alone transfers nothing.",
    "allreduce": "With all-reduce there is nothing to order: buckets are summed one after another as "
    "gradients come, and the optimizer waits for the last, which ends at the same time in any order; try "
    "other sizes (planner simulate --exchange allreduce:bucket_bytes=4194304).",
    "sharded": "Sharded training gathers parameters in the order in which layers need them; try another "
    "prefetch (planner simulate --exchange sharded:prefetch=2).",
    "owned": "Owners send parameters in the order in which layers need them; try owners in each machine "
    "(planner simulate --exchange owned:within=machine).",
}


@dataclass(frozen=True, slots=True)
class OrderResult:
    """Measures of one strategy."""

    strategy: str
    step_s: float
    samples_per_s: float  # over all workers
    samples_per_s_low: float
    samples_per_s_high: float
    gain: float  # of throughput over no order
    efficiency: float  # E of file 004
    overlap: float  # alpha of file 001
    straggler_share: float  # the longest wait for the slowest worker, of the step; mean over steps
    wait_s: float  # device idle in a step; mean
    orders_seen: int
    orders_of: int


@dataclass(frozen=True, slots=True)
class OrderComparison:
    """Results of all strategies, and their bounds."""

    results: tuple[OrderResult, ...]
    schedules: Mapping[str, Schedule]
    bounds: Bounds
    batch: int
    workers: int

    @property
    def ideal_step_s(self) -> float:
        return self.bounds.lower_s

    @property
    def ideal_samples_per_s(self) -> float:
        return self.workers * self.batch / self.ideal_step_s

    def sentence(self) -> str:
        """State whether ordering can help here, and why."""
        n, c = self.bounds.communication_s, self.bounds.computation_s
        ratio = n / c if c > 0 else float("inf")
        possible = self.results[0].step_s / self.ideal_step_s - 1
        best = max(self.results, key=lambda r: r.samples_per_s)
        what = f"Communication takes {ratio:.2g} times as long as computation."
        if possible < WORTHWHILE:
            why = "transfers hide behind computation anyway" if ratio < 1 else "the network is busy anyway"
            at_most = max(0.0, possible)
            return f"{what} Ordering cannot help: no order gains more than {at_most:.0%} over none; {why}."
        most = f"No order can gain more than {possible:.0%} over none; the best here ({best.strategy}) "
        if best.gain < WORTHWHILE:
            return f"{what} {most}gains {best.gain:.0%}, which is not worth the trouble."
        return f"{what} {most}gains {best.gain:.0%}."


def slowest_nic_bytes_per_s(cluster: Cluster, nodes: Iterable[int]) -> float:
    """Bandwidth of the slowest NIC among these nodes, in its slower direction."""
    return min(min(cluster.nodes[n].egress_bytes_per_s, cluster.nodes[n].ingress_bytes_per_s) for n in nodes)


def cluster_bounds(profile: Profile, cluster: Cluster, *, barrier: bool = False) -> Bounds:
    """Bounds of a step (file 004, equation 1) for the slowest worker of a cluster.

    With several servers a worker's own NIC carries what all of them send: it is a resource too. With a
    barrier, where every upload waits for every download, the two directions never work at once: they are one
    resource, as N of file 001 counts all transfers of a step.
    """
    own = slowest_nic_bytes_per_s(cluster, cluster.worker_nodes)
    server = slowest_nic_bytes_per_s(cluster, cluster.server_nodes)
    shared = min(own, server / cluster.workers, cluster.flow_bytes_per_s)  # all workers transfer at once
    slowest = min(cluster.worker_speeds, default=1.0)
    each = measures.bounds(profile, shared).resource_s.items()
    cost = {r: seconds / slowest if r == COMPUTATION else seconds for r, seconds in each}
    direction: dict[Resource, float] = {}
    for resource, kind in ((DOWNLINK, ResourceKind.DOWNLINK), (UPLINK, ResourceKind.UPLINK)):
        links = [cost.pop(r) for r in list(cost) if r.kind is kind]
        total_s = float(profile.bytes[profile.resource == resource].sum()) / own
        if links:
            direction[Resource(kind)] = max(*links, total_s)
    if barrier and _uploads_wait_for_downloads(profile):
        direction = {Resource(ResourceKind.LINK): sum(direction.values())}
    return Bounds(direction | cost)


def _uploads_wait_for_downloads(profile: Profile) -> bool:
    graph = StepGraph.of(profile)
    everything = (1 << len(graph.pulls)) - 1
    return all(graph.needs[op] == everything for op in np.flatnonzero(profile.resource == UPLINK).tolist())


def compare_orders(
    profile: Profile,
    cluster: Cluster,
    strategies: Iterable[str] = tuple(STRATEGIES),
    mode: Mode = "sync",
    *,
    barrier: bool = False,
    overhead_s: float = 0.0,
    download_overhead_s: float | None = None,
    seed: int = 0,
    precision: float = 0.01,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    priorities: Mapping[str, float] | None = None,
    progress: Progress = ignore_progress,
) -> OrderComparison:
    """Simulate ordering strategies on one cluster. `options` holds those of a strategy by its name;
    `priorities` adds a row of that name with an order of the user's own, for the transfers of the profile as
    it is.

    Without a `barrier` a tensor is downloaded as soon as it is updated, beside the next forward pass.
    """
    names = list(dict.fromkeys([BASELINE, *strategies]))
    running = profile if barrier else pipelined(profile)
    setting = Setting(
        bandwidth_bytes_per_s=slowest_nic_bytes_per_s(cluster, cluster.worker_nodes),
        overhead_s=overhead_s,
        download_overhead_s=download_overhead_s,
        seed=seed,
    )
    schedules: dict[str, Schedule] = {}
    for name in names:
        progress("ordering", len(schedules), len(names))
        schedules[name] = strategy(name, **(options or {}).get(name, {})).schedule(running, setting)
    if priorities is not None:
        policy = Ordered(
            priorities=dict(priorities), overhead_s=overhead_s, download_overhead_s=download_overhead_s
        )
        schedules["priorities"] = Schedule(running, policy)
    ops = {name: plan.profile.ops for name, plan in schedules.items()}
    if cluster.workers * (total := sum(ops.values())) > MOST_OPS:
        name = max(ops, key=lambda name: ops[name])
        raise BadInput(
            f"--workers {cluster.workers} with {total:,} ops in a step of all strategies; at most "
            f"{MOST_OPS:,} are simulated: take at most {max(1, MOST_OPS // total)} workers, larger "
            f"slices (--slice, --partition), or leave {name} ({ops[name]:,}) out of --strategies"
        )
    # P3 deals slices over the servers: a strategy's bound is that of the profile it runs.
    limits = {
        name: cluster_bounds(plan.profile, cluster, barrier=barrier) for name, plan in schedules.items()
    }
    progress("simulating", 0, len(schedules))

    def look(name: str) -> OrderResult:
        plan, bounds = schedules[name], limits[name]
        options = RunOptions(seed=seed, steps=TRACED_STEPS, until="all", fairness_sigma=FAIRNESS_SIGMA)
        traced = measures.traced(plan.profile, cluster, plan.policy, mode, options)
        prediction = simulate(plan.profile, cluster, plan.policy, mode, seed=seed, precision=precision)
        seen, of = measures.orders_seen(traced)
        return OrderResult(
            strategy=name,
            step_s=prediction.step_s,
            samples_per_s=prediction.samples_per_s,
            samples_per_s_low=prediction.samples_per_s_low,
            samples_per_s_high=prediction.samples_per_s_high,
            gain=0.0,
            efficiency=measures.ordering_efficiency(prediction.step_s, bounds),
            overlap=measures.overlap(bounds.communication_s, bounds.computation_s, prediction.step_s),
            straggler_share=float(measures.straggler_shares(traced).mean()),
            wait_s=float(measures.idle_s(traced).mean()),
            orders_seen=seen,
            orders_of=of,
        )

    results: list[OrderResult] = []
    with executor_of() as pool:
        for result in pool.map(look, schedules):
            base = results[0] if results else result
            results.append(replace(result, gain=result.samples_per_s / base.samples_per_s - 1))
            progress("simulating", len(results), len(schedules))
    lowest = min(limits.values(), key=lambda bounds: bounds.lower_s)
    return OrderComparison(tuple(results), schedules, lowest, profile.batch, cluster.workers)


def machines(
    workers: int,
    servers: int,
    bandwidth_bytes_per_s: float,
    *,
    slow_worker: float | None = None,
    slow_link_bytes_per_s: float | None = None,
    flow_bytes_per_s: float | None = None,
) -> Cluster:
    """A cluster with one machine per worker and server; the last worker or its link may be slower."""
    cluster = Cluster.uniform(workers, servers, bandwidth_bytes_per_s)
    if flow_bytes_per_s is not None:
        cluster = replace(cluster, flow_bytes_per_s=flow_bytes_per_s)
    if slow_worker is not None:
        if not LEAST_SPEED <= slow_worker <= 1:
            raise BadInput(
                f"the slow worker's speed is {slow_worker:g}; it must be {LEAST_SPEED} to 1, as 0.5"
            )
        cluster = replace(cluster, worker_speeds=(1.0,) * (workers - 1) + (slow_worker,))
    if slow_link_bytes_per_s is not None:
        if slow_link_bytes_per_s > bandwidth_bytes_per_s:
            raise BadInput(
                f"the slow link has {format_bandwidth(slow_link_bytes_per_s)}, more than the "
                f"{format_bandwidth(bandwidth_bytes_per_s)} of the others; give less"
            )
        slow = Node(slow_link_bytes_per_s, slow_link_bytes_per_s)
        cluster = replace(cluster, nodes=(*cluster.nodes[:-1], slow))
    return cluster
