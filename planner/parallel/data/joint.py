"""Steps with collectives: a worker's computation as a chain, and joint ops over the links of its site.

A device runs one kernel after another, so the ops of a computation are one chain, in their order; stretches
between two points where an exchange comes in are one op each, which changes no time and leaves few events.

Channels of a worker: over the fabric of its machine, then over the network; as many of each as the library
has collectives in flight. A collective takes the next of them in turn. A joint op that all workers do goes
over the narrowest NIC, because a ring is as fast as its slowest hop.

Collectives slow down the computation that runs beside them. On an accelerator they take its memory: what a
ring passes on is written by the neighbour, read, and met with the device's own part (read for a sum, written
where results are gathered): three accesses for each byte that a device sends. So a collective over a slow
link costs computing as little as it moves in a second, however long it lasts. On a CPU it is cores: sockets
copy and sums are made by the cores that compute, unless some are spare.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from planner.device.computation import BACKWARD, Computation
from planner.memoize import memoize
from planner.parallel.collectives import Kind, Library, Peers, Phase
from planner.parallel.plan import Site
from planner.simulator.cluster import FABRIC, NETWORK, Cluster, Node, Resource
from planner.simulator.policy import Fifo
from planner.simulator.step import UPLINK, WORKER, Op, OpRole, Profile, RoleShares

if TYPE_CHECKING:
    from planner.simulator.simulate import Case

Floats = npt.NDArray[np.float64]

ALL, MACHINE = 0, 1  # scopes
SCOPES = {"all": ALL, "machine": MACHINE}
LEAST_ROWS, MOST_ROWS = 64, 1024  # steps to draw from: the slowest of many ranks is far out in the tail

# How much the steps of equal devices differ: a share of the step (standard deviation of the logarithm), and
# seconds of their hosts, which weigh more in short steps; chosen on published scaling of some 360 runs
# (benchmarks/accuracy/scaling.py, docs/communication.md). Nobody has published steps so short that it would
# be more.
JITTER = 0.03
JITTER_S = 0.003
MOST_JITTER = 0.1
# What disturbs a device comes at any moment, so that a pass longer than this differs as several passes of
# this length together do: their deviations partly cancel. Most of the runs above are shorter.
JITTER_SPAN_S = 1.0

ACCESSES = 3.0  # of a device's memory, for each byte that it sends
# What is reached of a memory's published figure: BabelStream's triad 1,700 of 2,039 GB/s on A100, 2,970 of
# 3,350 on H100, 4,150 of 4,800 on H200 (Azure/AI-benchmarking-guide @8fd0c6e1).
MEMORY_SHARE = 0.86
# Where nobody knows how fast a device's memory is: so much longer takes what runs beside a collective.
SHARE_UNKNOWN = 0.25
# On one core of an AMD EPYC, for each byte (benchmarks/robustness/recording.py prints the first): Gloo
# between two processes over TCP, all threads of one of them and the kernel's part, by what it sends; and
# copying a gradient of 42 MB.
GLOO_CPU_S_PER_BYTE = 0.5e-9
CPU_COPY_S_PER_BYTE = 0.09e-9

BETWEEN_WORKERS = {FABRIC: "intra-node links", NETWORK: "NICs"}


@memoize
def step_factors(sigma: float, workers: int, stages: int = 1) -> Floats:
    """Evenly spaced quantiles of the random factor on a step, enough for `workers` devices. The
    distribution is log-normal with mean 1 for one device; with several stages it is that of the slowest
    stage."""
    if sigma <= 0:
        return np.ones(1)
    rows = min(MOST_ROWS, max(LEAST_ROWS, 4 * workers))
    normal, places = NormalDist(), (np.arange(rows) + 0.5) / rows
    first, slowest = (
        np.exp(sigma * np.array([normal.inv_cdf(place) for place in some.tolist()]))
        for some in (places, places ** (1 / stages))
    )
    return np.asarray(slowest / first.mean())


def slowest_factor(sigma: float, workers: int, stages: int = 1) -> float:
    """Mean step time of the slowest of `workers` devices, relative to the mean of one device."""
    factors = step_factors(sigma, workers, stages)
    within = (np.arange(len(factors) + 1) / len(factors)) ** workers  # none of them above the k smallest
    return float((factors * np.diff(within)).sum())


def step_sigma(computation: Computation, jitter: float, jitter_s: float) -> float:
    """Standard deviation of the logarithm of step times: the larger of the computation's own
    and the usual one."""
    passes = sum(computation.stands_for) or computation.micro_batches
    step_s = 0.0 if computation.once_s is None else float(computation.once_s.sum())
    return max(computation.variation.step_sigma, usual_sigma(step_s, passes, jitter, jitter_s))


def usual_sigma(step_s: float, passes: float, jitter: float = JITTER, jitter_s: float = JITTER_S) -> float:
    """Usual standard deviation of the logarithm of step times, for steps of `step_s` seconds (0: unknown).
    Micro-batches, and parts of long steps, vary independently and partly cancel."""
    pass_s = step_s / passes
    share = jitter if pass_s <= JITTER_SPAN_S else jitter * math.sqrt(JITTER_SPAN_S / pass_s)
    if min(jitter, jitter_s, pass_s) > 0:
        share = max(share, min(math.hypot(share, jitter_s / pass_s), MOST_JITTER))
    return share / math.sqrt(passes)


@dataclass
class JointSteps:
    """Steps under construction: ops, and a column of durations for each.

    A synthesized op has one time, multiplied by a factor per step: variation of single ops averages out
    over a stretch of them. Recorded steps are used unchanged.
    """

    computation: Computation
    site: Site
    library: Library
    peers: Peers
    jitter: float = 0.0
    jitter_s: float = 0.0
    ops: list[Op] = field(default_factory=list)
    columns: list[Floats] = field(default_factory=list)
    sums: Floats = field(init=False)  # seconds before each op: of the only step, or steps x ops
    factors: Floats = field(init=False)
    role_sums: dict[OpRole, list[float]] = field(init=False)
    turns: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        computation = self.computation
        if computation.once_s is None:
            self.factors = np.ones(computation.steps)
            before = np.cumsum(computation.durations_s, axis=1)
            self.sums = np.concatenate([np.zeros((computation.steps, 1)), before], axis=1)
        else:
            sigma = step_sigma(computation, self.jitter, self.jitter_s)
            self.factors = step_factors(sigma, self.site.workers, self.site.mesh.stages)
            self.sums = np.concatenate([[0.0], np.cumsum(computation.once_s)])
        self.role_sums = role_sums(computation)

    @property
    def row_count(self) -> int:
        """Number of steps."""
        return len(self.factors)

    def add_compute(self, name: str, first: int, last: int, deps: Iterable[int], factor: float = 1.0) -> int:
        """Adds ops `first` to `last` of the computation as one op; returns its index."""
        role, parts = int(self.computation.role[last]), self._role_shares(first, last, factor)
        op = Op(name, WORKER, deps=_unique_sorted(deps), role=role, parts=parts)
        return self.add_op(op, self._range_seconds(first, last) * factor)

    def add_optimizer(
        self, seconds: float, deps: Iterable[int], *, communication_s: float = 0.0, name: str = "optimizer"
    ) -> int:
        """Adds the optimizer and returns its index. Of its seconds, `communication_s` notice and copy
        received data."""
        parts: RoleShares = ()
        if communication_s > 0:
            share = communication_s / seconds
            parts = ((OpRole.OPTIMIZER, 1 - share), (OpRole.COMMUNICATION, share))
        op = Op(name, WORKER, deps=_unique_sorted(deps), role=OpRole.OPTIMIZER, parts=parts)
        return self.add_op(op, np.full(self.row_count, seconds))

    def add_collective(self, name: str, kind: Kind, size: float, deps: Iterable[int]) -> tuple[int, ...]:
        """Adds a collective among all ranks; returns the ops to wait for (`deps` for a single rank)."""
        return self.add_phases(name, self.library.phases(kind, size, self.peers), deps)

    def add_phases(self, name: str, phases: Sequence[Phase], deps: Iterable[int]) -> tuple[int, ...]:
        """Adds consecutive transfers; returns the ops to wait for."""
        before = _unique_sorted(deps)
        for at, phase in enumerate(phases):
            label = name if len(phases) == 1 else f"{name}/{phase.level}[{at}]"
            op = Op(
                label,
                UPLINK,
                self._next_channel(phase.level),
                phase.bytes,
                before,
                scope=SCOPES[phase.scope],
                latency_s=phase.latency_s,
                role=OpRole.COMMUNICATION,
            )
            before = (self.add_op(op, np.zeros(self.row_count)),)
        return before

    def add_op(self, op: Op, seconds: Floats) -> int:
        """Adds an op with its seconds in each step; returns its index."""
        self.ops.append(op)
        self.columns.append(seconds)
        return len(self.ops) - 1

    def _range_seconds(self, first: int, last: int) -> Floats:
        """Seconds of ops `first` to `last` together, in each step."""
        return np.asarray(np.maximum(self.sums[..., last + 1] - self.sums[..., first], 0.0) * self.factors)

    def _role_shares(self, first: int, last: int, factor: float) -> RoleShares:
        """Fractions by role of the time of ops `first` to `last`; what `factor` adds is communication."""
        shares: dict[OpRole, float] = {}
        if self.role_sums:
            own_s = {role: sums[last + 1] - sums[first] for role, sums in self.role_sums.items()}
            if (total_s := sum(own_s.values())) > 0:
                shares = {role: own / total_s / factor for role, own in own_s.items() if own > 0}
        if not shares and factor == 1.0:
            return ()
        shares = shares or {OpRole(self.computation.role[last]): 1 / factor}
        slowed = shares.get(OpRole.COMMUNICATION, 0.0) + 1 - 1 / factor
        return tuple((shares | {OpRole.COMMUNICATION: slowed}).items())

    def _next_channel(self, level: str) -> int:
        """Index of the next channel of a level, in round-robin order."""
        turn = self.turns.get(level, 0)
        self.turns[level] = (turn + 1) % self.library.in_flight
        return turn + (self.library.in_flight if level == "network" and self.peers.inside else 0)

    def case(self) -> Case:
        """Builds the simulator's input from the added ops."""
        from planner.simulator.simulate import Case

        computation, cluster = self.computation, build_cluster(self.site, self.library, self.peers)
        order = np.broadcast_to(np.arange(len(self.ops), dtype=np.int32), (self.row_count, len(self.ops)))
        step = Profile.build(
            self.ops,
            np.column_stack(self.columns),
            model=computation.model,
            batch=computation.batch,
            servers=cluster.channels,
            order=order,
            hardware=computation.hardware,
            basis=computation.basis,
            source=computation.source,
            notes=computation.notes,
        )
        return Case(profile=step, cluster=cluster, policy=Fifo())


def role_sums(computation: Computation) -> dict[OpRole, list[float]]:
    """Seconds of all earlier ops of a role, before each op, by role; empty if kinds of work are unknown."""
    if computation.work is None:
        return {}
    spent_s, roles = mean_s(computation), computation.op_roles
    return {
        OpRole(role): [0.0, *np.cumsum(np.where(roles == role, spent_s, 0.0)).tolist()]
        for role in np.unique(roles).tolist()
    }


def build_cluster(site: Site, library: Library, peers: Peers) -> Cluster:
    """Cluster of the simulator: a node per machine's NIC, and two fabric ports where devices connect."""
    machine = [site.machine_index(worker) for worker in range(site.workers)]
    nodes: list[Node] = []
    links: list[list[tuple[int, int]]] = [[] for _ in machine]
    names: list[Resource] = []

    def node(rate: float) -> int:
        """Adds a node with this rate in both directions; returns its index."""
        nodes.append(Node(rate, rate, site.hardware.name))
        return len(nodes) - 1

    if peers.inside is not None:
        ports = [
            (node(peers.inside.bytes_per_s), node(peers.inside.bytes_per_s)) for _ in range(site.machines)
        ]
        for worker, row in enumerate(links):
            row += [ports[machine[worker]]] * library.in_flight
        names += _numbered_links(FABRIC, library.in_flight)
    home = list(range(0, 2 * site.machines, 2)) if peers.inside is not None else []
    if peers.between is not None:
        # All NICs at the rate of the narrowest: what goes over one goes over all.
        home = [node(peers.between.bytes_per_s) for _ in range(site.machines)]
        for row in links:
            row += [(home[0], home[1])] * library.in_flight
        names += _numbered_links(NETWORK, library.in_flight)
    if not nodes:
        home = [node(1e9)]
    leaders = [(0,) * site.workers]
    if peers.inside is not None:
        leaders.append(tuple(at * site.devices for at in machine))
    return Cluster(
        nodes=tuple(nodes),
        worker_nodes=tuple(home[at] for at in machine),
        server_nodes=(),
        worker_speeds=site.speeds,
        links=tuple(map(tuple, links)) if names else (),
        link_resources=tuple(names),
        leaders=tuple(leaders),
    )


def _numbered_links(link: Resource, count: int) -> list[Resource]:
    """Names of `count` parallel channels over one link."""
    return [link] if count == 1 else [link._replace(number=at) for at in range(count)]


def _unique_sorted(deps: Iterable[int]) -> tuple[int, ...]:
    """Distinct dependencies in ascending order."""
    return tuple(sorted(set(deps)))


def contention_s(accesses: float, sent_bytes: float, busy_s: float, site: Site) -> float:
    """Seconds that computation loses to collectives sending `sent_bytes` in `busy_s` seconds."""
    device = site.hardware.device
    if accesses <= 0:
        return 0.0
    if device.kind == "cpu":
        spare = device.cores is None or 2 * device.cores < (site.hardware.vcpus or 0)
        return 0.0 if spare else min(sent_bytes * GLOO_CPU_S_PER_BYTE / (device.cores or 1), busy_s)
    if device.memory_bytes_per_s is None:
        return SHARE_UNKNOWN * busy_s
    return min(accesses * sent_bytes / (MEMORY_SHARE * device.memory_bytes_per_s), busy_s)


def first_backward_op(computation: Computation) -> int:
    """Index of the first backward op; the number of ops if there is none."""
    backward = np.flatnonzero(computation.role == BACKWARD)
    return int(backward[0]) if len(backward) else computation.ops


def mean_s(computation: Computation) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Seconds of each op, averaged over steps."""
    return computation.durations_s.mean(axis=0) if computation.once_s is None else computation.once_s
