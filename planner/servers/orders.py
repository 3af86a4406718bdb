"""Which order of transfers for this training job, and whether any can help: strategies side by side.

Every strategy runs on the same cluster and profile; beside them stands what no order can beat.

Measures take times, or the timeline of a run: a structured array with a row for each chunk that ended
(`worker`, `resource`, `op`, `step`, `start_s`, `end_s`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.note import Progress, ignore_progress
from planner.search.simulations import executor_of
from planner.servers.ordering import STRATEGIES, Schedule, schedule
from planner.servers.ordering.graph import StepGraph, pipeline_step
from planner.simulator import simulate
from planner.simulator.cluster import COMPUTATION, Cluster, Node, Resource, ResourceKind
from planner.simulator.policy import Mode, Ordered, Policy
from planner.simulator.run import RunOptions, run
from planner.simulator.simulate import FAIRNESS_SIGMA
from planner.simulator.step import DOWNLINK, UPLINK, WORKER, Profile, resource_of
from planner.units import format_bandwidth

Timeline = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
LINKS = (ResourceKind.DOWNLINK, ResourceKind.UPLINK, ResourceKind.LINK)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds per step on each resource (Hashemi et al. 2018, equation 1)."""

    resource_s: dict[Resource, float]

    @property
    def lower_s(self) -> float:
        """Lower bound on the step in seconds: the busy time of the busiest resource."""
        return max(self.resource_s.values())

    @property
    def upper_s(self) -> float:
        """Upper bound on the step in seconds: the duration if nothing overlaps."""
        return sum(self.resource_s.values())

    @property
    def communication_s(self) -> float:
        """Seconds per step on the busiest link (N in TicTac)."""
        links = (s for resource, s in self.resource_s.items() if resource.kind in LINKS)
        return max(links, default=0.0)

    @property
    def computation_s(self) -> float:
        """Seconds per step of worker computation (C in TicTac)."""
        return self.resource_s.get(COMPUTATION, 0.0)


def simulate_timeline(
    profile: Profile, cluster: Cluster, policy: Policy, mode: Mode, options: RunOptions
) -> Timeline:
    """Runs a simulation and returns its timeline."""
    timeline = run(profile, cluster, policy, mode, replace(options, timeline=True)).timeline
    assert timeline is not None
    return timeline


def step_bounds(profile: Profile, bandwidth_bytes_per_s: float) -> Bounds:
    """Busy seconds of each resource in a mean step, if transfers run at this bandwidth."""
    if not bandwidth_bytes_per_s > 0:
        raise BadInput(f"bandwidth is {bandwidth_bytes_per_s} bytes a second; it must be above zero")
    cost = np.where(
        profile.is_transfer, profile.bytes / bandwidth_bytes_per_s, profile.durations_s.mean(axis=0)
    )
    out: dict[Resource, float] = {}
    for op, (resource, server) in enumerate(zip(profile.resource, profile.server, strict=True)):
        used = resource_of(int(resource), int(server))
        out[used] = out.get(used, 0.0) + float(cost[op])
    return Bounds(out)


def ordering_efficiency(step_s: float, bounds: Bounds) -> float:
    """Ordering efficiency E (Hashemi et al. 2018, equation 2): 1 at the lower bound, 0 without overlap."""
    span = bounds.upper_s - bounds.lower_s
    return (bounds.upper_s - step_s) / span if span > 0 else 1.0


def overlap_coefficient(communication_s: float, computation_s: float, step_s: float) -> float:
    """Overlap coefficient alpha (TicTac, section 3.2): (N + C - T) / min(N, C), 1 at full overlap.
    Negative if a step takes longer than N + C."""
    shorter = min(communication_s, computation_s)
    return (communication_s + computation_s - step_s) / shorter if shorter > 0 else 1.0


def idle_s(timeline: Timeline) -> Floats:
    """Idle seconds of the device in each (worker, step): T_wait of Hashemi et al."""
    pairs = timeline["worker"].astype(np.int64) << 32 | timeline["step"].astype(np.int64)
    keys, inverse = np.unique(pairs, return_inverse=True)
    busy = np.zeros(len(keys))
    own = timeline["resource"] == WORKER
    np.add.at(busy, inverse[own], (timeline["end_s"] - timeline["start_s"])[own])
    begun, ended = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
    np.minimum.at(begun, inverse, timeline["start_s"])
    np.maximum.at(ended, inverse, timeline["end_s"])
    return np.asarray(ended - begun - busy)


def straggler_shares(timeline: Timeline) -> Floats:
    """Longest wait for the slowest worker in each step, as a fraction of the step (TicTac, section 6.3).

    A worker is done when its last upload (or, without uploads, its last op) has ended.
    """
    resource = UPLINK if (timeline["resource"] == UPLINK).any() else WORKER
    own = timeline[timeline["resource"] == resource]
    workers = int(timeline["worker"].max()) + 1
    steps = int(timeline["step"].max()) + 1
    done = np.full((steps, workers), np.nan)
    np.fmax.at(done, (own["step"], own["worker"]), own["end_s"])
    begun = np.full(steps, np.inf)
    ended = np.full(steps, -np.inf)
    np.minimum.at(begun, timeline["step"], timeline["start_s"])
    np.maximum.at(ended, timeline["step"], timeline["end_s"])
    whole = ~np.isnan(done).any(axis=1)  # a run may be cut inside a step
    slowest, fastest = done[whole].max(axis=1), done[whole].min(axis=1)
    return np.asarray((slowest - fastest) / (ended - begun)[whole])


def count_download_orders(timeline: Timeline) -> tuple[int, int]:
    """Number of distinct download orders in a run, and of (worker, step) pairs with all downloads."""
    own = timeline[timeline["resource"] == DOWNLINK]
    own = own[np.lexsort((own["start_s"], own["step"], own["worker"]))]
    sequences: dict[tuple[int, int], list[int]] = {}
    for worker, step, op in zip(
        own["worker"].tolist(), own["step"].tolist(), own["op"].tolist(), strict=True
    ):
        sequence = sequences.setdefault((worker, step), [])
        if op not in sequence[-1:]:  # the chunks of a transfer may follow each other
            sequence.append(op)
    longest = max((len(s) for s in sequences.values()), default=0)
    whole = [tuple(s) for s in sequences.values() if len(s) == longest]
    return len(set(whole)), len(whole)


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
    """Simulated measures of one ordering strategy."""

    strategy: str
    step_s: float
    samples_per_s: float  # over all workers
    samples_per_s_low: float
    samples_per_s_high: float
    gain: float  # of throughput over no order
    efficiency: float  # E of Hashemi et al. (2018)
    overlap: float  # alpha of TicTac
    straggler_share: float  # the longest wait for the slowest worker, of the step; mean over steps
    wait_s: float  # device idle in a step; mean
    orders_seen: int
    orders_of: int


@dataclass(frozen=True, slots=True)
class OrderComparison:
    """Simulated results, schedules and bounds of the compared ordering strategies."""

    results: tuple[OrderResult, ...]
    schedules: Mapping[str, Schedule]
    bounds: Bounds
    batch: int
    workers: int

    @property
    def ideal_step_s(self) -> float:
        """Shortest possible step in seconds: no order is faster."""
        return self.bounds.lower_s

    @property
    def ideal_samples_per_s(self) -> float:
        """Samples per second of all workers at the shortest possible step."""
        return self.workers * self.batch / self.ideal_step_s

    def sentence(self) -> str:
        """Sentence saying whether ordering transfers can help here, and by how much at most."""
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
    """Bounds of a step for the slowest worker of a cluster (Hashemi et al. 2018, equation 1).

    With several servers the worker's own NIC is a resource too. With a barrier the two directions never
    overlap, so they count as one link, as in TicTac's N.
    """
    own = slowest_nic_bytes_per_s(cluster, cluster.worker_nodes)
    server = slowest_nic_bytes_per_s(cluster, cluster.server_nodes)
    shared = min(own, server / cluster.workers, cluster.flow_bytes_per_s)  # all workers transfer at once
    slowest = min(cluster.worker_speeds, default=1.0)
    each = step_bounds(profile, shared).resource_s.items()
    cost = {r: seconds / slowest if r == COMPUTATION else seconds for r, seconds in each}
    direction: dict[Resource, float] = {}
    for resource, kind in ((DOWNLINK, ResourceKind.DOWNLINK), (UPLINK, ResourceKind.UPLINK)):
        links = [cost.pop(r) for r in list(cost) if r.kind is kind]
        total_s = float(profile.bytes[profile.resource == resource].sum()) / own
        if links:
            direction[Resource(kind)] = max(*links, total_s)
    if barrier and _has_download_barrier(profile):
        direction = {Resource(ResourceKind.LINK): sum(direction.values())}
    return Bounds(direction | cost)


def _has_download_barrier(profile: Profile) -> bool:
    """Whether every upload waits for all downloads."""
    graph = StepGraph.build(profile)
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
    """Simulates ordering strategies on one cluster and compares their throughput.

    `options` maps a strategy's name to its settings; `priorities` adds a row with the user's own order for
    the uncut transfers. Without a `barrier`, tensors are downloaded right after their update, beside the next
    forward.
    """
    names = list(dict.fromkeys([BASELINE, *strategies]))
    running = profile if barrier else pipeline_step(profile)
    bandwidth = slowest_nic_bytes_per_s(cluster, cluster.worker_nodes)
    overheads: dict[str, Any] = {"overhead_s": overhead_s, "download_overhead_s": download_overhead_s}
    schedules: dict[str, Schedule] = {}
    for name in names:
        progress("ordering", len(schedules), len(names))
        own = {**overheads, **(options or {}).get(name, {})}
        schedules[name] = schedule(running, name, bandwidth_bytes_per_s=bandwidth, seed=seed, **own)
    if priorities is not None:
        schedules["priorities"] = Schedule(running, Ordered(priorities=dict(priorities), **overheads))
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

    def simulate_order(name: str) -> OrderResult:
        """Simulates one ordering strategy: a timeline for its idle times, and its throughput."""
        plan, bounds = schedules[name], limits[name]
        options = RunOptions(seed=seed, steps=TRACED_STEPS, until="all", fairness_sigma=FAIRNESS_SIGMA)
        timeline = simulate_timeline(plan.profile, cluster, plan.policy, mode, options)
        prediction = simulate(plan.profile, cluster, plan.policy, mode, seed=seed, precision=precision)
        seen, of = count_download_orders(timeline)
        return OrderResult(
            strategy=name,
            step_s=prediction.step_s,
            samples_per_s=prediction.samples_per_s,
            samples_per_s_low=prediction.samples_per_s_low,
            samples_per_s_high=prediction.samples_per_s_high,
            gain=0.0,
            efficiency=ordering_efficiency(prediction.step_s, bounds),
            overlap=overlap_coefficient(bounds.communication_s, bounds.computation_s, prediction.step_s),
            straggler_share=float(straggler_shares(timeline).mean()),
            wait_s=float(idle_s(timeline).mean()),
            orders_seen=seen,
            orders_of=of,
        )

    results: list[OrderResult] = []
    with executor_of() as pool:
        for result in pool.map(simulate_order, schedules):
            base = results[0] if results else result
            results.append(replace(result, gain=result.samples_per_s / base.samples_per_s - 1))
            progress("simulating", len(results), len(schedules))
    lowest = min(limits.values(), key=lambda bounds: bounds.lower_s)
    return OrderComparison(tuple(results), schedules, lowest, profile.batch, cluster.workers)


def cluster_with_straggler(
    workers: int,
    servers: int,
    bandwidth_bytes_per_s: float,
    *,
    slow_worker: float | None = None,
    slow_link_bytes_per_s: float | None = None,
    flow_bytes_per_s: float | None = None,
) -> Cluster:
    """Cluster with one machine per worker and per server; the last worker or its link may be slow."""
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
