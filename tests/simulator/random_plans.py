"""Random profiles, clusters, policies and options for the properties of the simulator."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from planner.errors import BadInput
from planner.simulator.cluster import Cluster, Node
from planner.simulator.inputs import prepare_inputs
from planner.simulator.policy import (
    Blocks,
    Credit,
    Fifo,
    Joins,
    Mode,
    Multiplexed,
    Ordered,
    Policy,
    Sliced,
    mode_joins,
)
from planner.simulator.run import RunOptions
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Op, Profile

# Few distinct values, so that many things happen at the same instant.
DURATIONS_S = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 0.1, 0.3, 1 / 3])
SIZES = st.sampled_from([1, 10, 10, 20, 35, 100])
RATES = st.sampled_from([10.0, 10.0, 20.0, 7.0, 100 / 3, math.nextafter(100 / 3, 0)])


@dataclass(frozen=True)
class Plan:
    profile: Profile
    cluster: Cluster
    policy: Policy
    mode: Mode
    options: RunOptions
    joins: Joins | None = None


@st.composite
def profiles(draw: st.DrawFn, servers: int, max_ops: int = 14) -> Profile:
    """Any DAG over any resources, in an order that is not topological."""
    n = draw(st.integers(1, max_ops))
    tensors = draw(st.integers(1, 4))
    ops: list[Op] = []
    for i in range(n):
        resource = draw(
            st.sampled_from([DOWNLINK, WORKER, UPLINK, PS, WORKER, HOST] if servers else [WORKER, HOST])
        )
        deps = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        ops.append(
            Op(
                f"op{(7 * i) % 23:02}",
                resource,
                -1 if resource in (WORKER, HOST) else draw(st.integers(0, servers - 1)),
                draw(SIZES) if resource in (DOWNLINK, UPLINK) else 0,
                tuple(deps),
                # The first op makes sure that synchronous mode has something to wait for.
                0 if i == 0 else draw(st.integers(-1, tensors - 1)),
            )
        )
    return shuffled(draw, ops, servers, tensors)


@st.composite
def training_steps(draw: st.DrawFn, servers: int, max_layers: int = 5, *, fast: bool = False) -> Profile:
    """Download, forward, backward, upload, update: what a real step looks like, with some branches.

    As in recorded steps, something may come before the first download and after everything else. Unless they
    are to run on the fast path, some have an op that has no place in such a step.
    """
    layers = draw(st.integers(1, max_layers))
    parse, opening, closing = (draw(st.booleans()) for _ in range(3))
    ops: list[Op] = []

    def add(name: str, resource: int, server: int, size: int, deps: list[int], *, tensor: int = -1) -> int:
        ops.append(Op(name, resource, server, size, tuple(deps), tensor))
        return len(ops) - 1

    server_of = [draw(st.integers(0, servers - 1)) for _ in range(layers)]
    first = [add("opening", WORKER, -1, 0, [])] if opening else []
    arrived = [add(f"down{i}", DOWNLINK, server_of[i], draw(SIZES), first, tensor=i) for i in range(layers)]
    if parse:
        where = draw(st.sampled_from([WORKER, HOST]))
        arrived = [
            add(f"parse{i}", where, -1, 0, [d]) if draw(st.integers(0, 5)) else d
            for i, d in enumerate(arrived)
        ]
    beside = [add(f"beside{i}", WORKER, -1, 0, first) for i in range(draw(st.integers(0, 2)))]
    forward: list[int] = []
    for i in range(layers):
        before = [forward[-1]] if forward and draw(st.integers(0, 3)) else forward[:1]
        forward.append(add(f"forward{i}", WORKER, -1, 0, [arrived[i], *before]))
    back = add("loss", WORKER, -1, 0, [*forward, *beside])
    ups: list[int] = []
    for i in reversed(range(layers)):
        back = add(f"backward{i}", WORKER, -1, 0, [back, *([forward[i]] if forward[i] != back else [])])
        ups.append(add(f"up{i}", UPLINK, server_of[i], draw(SIZES), [back], tensor=i))
        if draw(st.integers(0, 4)):
            add(f"update{i}", PS, server_of[i], 0, [ups[-1]], tensor=i)
    odd = draw(st.sampled_from(["", "", "", "late", "early", "early upload"])) if not fast else ""
    if odd == "late":  # computation that waits for an upload
        add("late", WORKER, -1, 0, [draw(st.sampled_from(ups))])
    elif odd:  # something that does not wait for the downloads
        upload, server = odd == "early upload", draw(st.integers(0, servers - 1))
        add("early", UPLINK if upload else PS, server, draw(SIZES) if upload else 0, first)
    if closing:
        needed = {dep for op in ops for dep in op.deps}
        add("closing", WORKER, -1, 0, [i for i in range(len(ops)) if i not in needed])
    return shuffled(draw, ops, servers, layers)


def shuffled(draw: st.DrawFn, ops: list[Op], servers: int, tensors: int) -> Profile:
    n, rows = len(ops), draw(st.integers(1, 3))
    new_place = draw(st.permutations(range(n)))
    placed: list[Op] = [ops[0]] * n
    for i, op in enumerate(ops):
        deps = tuple(new_place[dep] for dep in op.deps)
        placed[new_place[i]] = Op(op.name, op.resource, op.server, op.bytes, deps, op.tensor)
    order = None
    if draw(st.booleans()):
        order = [draw(st.lists(st.integers(0, n), min_size=n, max_size=n)) for _ in range(rows)]
    return Profile.build(
        placed,
        [draw(st.lists(DURATIONS_S, min_size=n, max_size=n)) for _ in range(rows)],
        model="random",
        batch=1,
        servers=servers,
        tensors=[f"t{i}" for i in range(tensors)],
        order=order,
    )


@st.composite
def clusters(draw: st.DrawFn, max_workers: int = 6, max_servers: int = 3) -> Cluster:
    workers, servers = draw(st.integers(1, max_workers)), draw(st.integers(1, max_servers))
    if draw(st.booleans()):
        cluster = Cluster.uniform(workers, servers, draw(RATES))
        nodes, worker_nodes, server_nodes = cluster.nodes, cluster.worker_nodes, cluster.server_nodes
    else:
        nodes = tuple(Node(draw(RATES), draw(RATES)) for _ in range(draw(st.integers(1, 6))))
        place = st.integers(0, len(nodes) - 1)
        worker_nodes = tuple(draw(place) for _ in range(workers))
        server_nodes = tuple(draw(place) for _ in range(servers))
    speeds = tuple(draw(st.sampled_from([1.0, 0.5, 1.7])) for _ in range(workers))
    return Cluster(
        nodes,
        worker_nodes,
        server_nodes,
        worker_speeds=draw(st.sampled_from([(), speeds])),
        flow_bytes_per_s=draw(st.sampled_from([math.inf, math.inf, 6.0])),
    )


@st.composite
def policies(draw: st.DrawFn, profile: Profile) -> Policy:
    names = [name for name, transfer in zip(profile.names, profile.is_transfer, strict=True) if transfer]
    overhead_s = draw(st.sampled_from([0.0, 0.0, 0.25]))
    download_overhead_s = draw(st.sampled_from([None, None, 0.0, 0.5]))
    ranked = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    priorities = {name: float(draw(st.integers(0, 3))) for name in ranked}
    cuts = sorted(draw(st.sets(st.integers(0, len(ranked)), max_size=3)) | {0, len(ranked)})
    policy = draw(
        st.sampled_from(
            [
                Fifo(overhead_s=overhead_s),
                Multiplexed(window_bytes=draw(st.sampled_from([1, 10, 15, 50])), overhead_s=overhead_s),
                Ordered(priorities=priorities, overhead_s=overhead_s),
                Sliced(
                    slice_bytes=draw(st.sampled_from([8, 10])), priorities=priorities, overhead_s=overhead_s
                ),
                Credit(
                    slice_bytes=8,
                    credit_bytes=draw(st.sampled_from([8, 20])),
                    priorities=priorities,
                    overhead_s=overhead_s,
                ),
                Blocks(
                    blocks=tuple(tuple(ranked[a:b]) for a, b in itertools.pairwise(cuts)),
                    overhead_s=overhead_s,
                ),
            ]
        )
    )
    return replace(policy, download_overhead_s=download_overhead_s)


@st.composite
def options(draw: st.DrawFn, workers: int) -> RunOptions:
    steps = draw(st.integers(1, 6))
    offsets = tuple(draw(DURATIONS_S) for _ in range(workers))
    return RunOptions(
        seed=draw(st.integers(0, 3)),
        run=draw(st.integers(0, 3)),
        steps=steps,
        until=draw(st.sampled_from(["first", "all"])),
        warmup_steps=draw(st.integers(0, steps - 1)),
        start_offsets_s=draw(st.sampled_from([(), offsets])),
        fairness_sigma=draw(st.sampled_from([0.0, 0.0, 0.3])),
        server_cores=draw(st.sampled_from([None, None, 1, 2])),
        local_bytes_per_s=draw(st.sampled_from([math.inf, 50.0])),
        max_events=draw(st.sampled_from([None, None, None, 20])),
        max_time_s=draw(st.sampled_from([math.inf, math.inf, math.inf, 15.0])),
    )


@st.composite
def plans(draw: st.DrawFn, max_workers: int = 6, max_servers: int = 3) -> Plan:
    cluster = draw(clusters(max_workers, max_servers))
    profile = draw(st.one_of(profiles(cluster.servers), training_steps(cluster.servers)))
    syncable = any(
        resource in (UPLINK, PS) and tensor >= 0
        for resource, tensor in zip(profile.resource, profile.tensor, strict=True)
    )
    policy = draw(policies(profile))
    try:
        prepare_inputs(profile, cluster, policy, mode_joins(profile, "async"), RunOptions())
    except BadInput:  # blocks that wait for each other
        policy = Fifo()
    mode: Mode = draw(st.sampled_from(["async", "sync"])) if syncable else "async"
    return Plan(profile, cluster, policy, mode, draw(options(cluster.workers)))


@st.composite
def linked_clusters(draw: st.DrawFn, max_workers: int = 6) -> Cluster:
    """Channels between any nodes, with and without servers; workers grouped in several ways."""
    workers, servers = draw(st.integers(1, max_workers)), draw(st.integers(0, 2))
    cores = st.sampled_from([None, None, 1, 2, 3])
    nodes = tuple(Node(draw(RATES), draw(RATES), "", draw(cores)) for _ in range(draw(st.integers(1, 7))))
    place = st.integers(0, len(nodes) - 1)
    links = draw(st.integers(0, 2))
    groups = draw(st.lists(st.integers(0, 2), min_size=workers, max_size=workers))
    return Cluster(
        nodes,
        tuple(draw(place) for _ in range(workers)),
        tuple(draw(place) for _ in range(servers)),
        worker_speeds=draw(st.sampled_from([(), tuple(0.5 + w for w in range(workers))])),
        flow_bytes_per_s=draw(st.sampled_from([math.inf, math.inf, 6.0])),
        links=tuple(tuple((draw(place), draw(place)) for _ in range(links)) for _ in range(workers)),
        leaders=((0,) * workers, tuple(groups.index(group) for group in groups)),
    )


@st.composite
def joint_plans(draw: st.DrawFn) -> Plan:
    """Joint ops of several scopes, latencies, and joins of any ops."""
    cluster = draw(linked_clusters())
    steps = [profiles(cluster.channels)]
    if cluster.channels:
        steps.append(training_steps(cluster.channels))
    profile = draw(st.one_of(*steps))
    n, links = profile.ops, profile.is_transfer
    scope = np.array(draw(st.lists(st.sampled_from([-1, -1, 0, 1]), min_size=n, max_size=n)), np.int32)
    latency_s = np.array(draw(st.lists(st.sampled_from([0.0, 0.0, 0.5, 0.1]), min_size=n, max_size=n)))
    latencies = draw(st.booleans())
    profile = replace(
        profile,
        scope=np.where(profile.resource == WORKER, -1, scope).astype(np.int32),
        latency_s=np.where(links, latency_s, 0.0) * latencies,
    )
    joins = draw(joins_of_any_op(profile)) if draw(st.booleans()) else None
    policy = draw(policies(profile))
    try:
        prepare_inputs(profile, cluster, policy, mode_joins(profile, "async"), RunOptions())
    except BadInput:  # blocks that wait for each other, or with joint ops
        policy = Fifo()
    return Plan(profile, cluster, policy, "async", draw(options(cluster.workers)), joins)


@st.composite
def joins_of_any_op(draw: st.DrawFn, profile: Profile) -> Joins:
    """Of all ops but computation."""
    ops, computes = profile.ops, profile.resource == WORKER
    gated = np.array(draw(st.lists(st.sampled_from([False, False, True]), min_size=ops, max_size=ops)))
    tensor = st.lists(st.sampled_from([-1, -1, 0]), min_size=ops, max_size=ops)
    publishes, awaits = (np.where(computes, -1, draw(tensor)).astype(np.int32) for _ in range(2))
    return Joins(gated & ~computes, publishes, awaits)


@st.composite
def fast_plans(draw: st.DrawFn, max_workers: int = 6, max_servers: int = 3) -> Plan:
    """Plans for the path called lazy: no overheads, asynchronous; servers on nodes of their own or beside."""
    workers, servers = draw(st.integers(1, max_workers)), draw(st.integers(1, max_servers))
    nodes = tuple(Node(draw(RATES), draw(RATES)) for _ in range(workers + servers))
    speeds = tuple(draw(st.sampled_from([1.0, 0.5, 1.7])) for _ in range(workers))
    cluster = Cluster(
        nodes if draw(st.booleans()) else (nodes[0],) * (workers + servers),
        tuple(draw(st.integers(0, workers - 1)) for _ in range(workers)),
        tuple(range(workers, workers + servers))
        if draw(st.booleans())
        else tuple(draw(st.integers(0, workers + servers - 1)) for _ in range(servers)),
        worker_speeds=draw(st.sampled_from([(), speeds])),
        flow_bytes_per_s=draw(st.sampled_from([math.inf, math.inf, 6.0])),
    )
    profile = draw(training_steps(servers, max_layers=8, fast=True))
    policy = draw(policies(profile).filter(lambda policy: not isinstance(policy, Blocks)))
    chosen = replace(draw(options(workers)), server_cores=None, max_events=None)
    if HOST in profile.resource and math.isinf(chosen.local_bytes_per_s):
        profile = replace(profile, durations_s=with_time_before_uploads(profile))
    policy = replace(policy, overhead_s=0.0, download_overhead_s=None)
    return Plan(profile, cluster, policy, "async", chosen)


def with_time_before_uploads(profile: Profile) -> np.ndarray:
    """The durations, where computation that unlocks an upload takes time: else the path may not be taken."""
    unlocks = {dep for op in np.flatnonzero(profile.resource == UPLINK) for dep in profile.deps(op)}
    instant = (profile.durations_s == 0) & np.isin(np.arange(profile.ops), list(unlocks))
    return np.where(instant, 0.5, profile.durations_s)


def uploads_at_once() -> Plan:
    """Two workers on the node of their server, whose hosts parse, and nothing takes time: when the first has
    done its step, the other has not parsed yet, so that it has not uploaded either."""
    ops = [
        Op("down", DOWNLINK, 0, 1, tensor=0),
        Op("parse", HOST, deps=(0,)),
        Op("forward", WORKER, deps=(1,)),
        Op("up", UPLINK, 0, 1, (2,), tensor=0),
        Op("update", PS, 0, deps=(3,), tensor=0),
    ]
    profile = Profile.build(ops, [[0.0] * 5], model="random", batch=1, servers=1, tensors=["t0"])
    cluster = Cluster((Node(10.0, 10.0),), (0, 0), (0,))
    return Plan(profile, cluster, Fifo(), "async", RunOptions(steps=1))


def nothing_takes_time() -> Plan:
    """Two workers on the node of their server, and nothing takes time: when the first has done its
    step, the other has computed, but not uploaded."""
    ops = [
        Op("down", DOWNLINK, 0, 1, tensor=0),
        Op("forward", WORKER, deps=(0,)),
        Op("up", UPLINK, 0, 1, (1,), tensor=0),
    ]
    profile = Profile.build(ops, [[0.0] * 3], model="random", batch=1, servers=1, tensors=["t0"])
    return Plan(profile, Cluster((Node(10.0, 10.0),), (0, 0), (0,)), Fifo(), "async", RunOptions(steps=1))


@st.composite
def unison_steps(draw: st.DrawFn, channels: int, max_ops: int = 14) -> Profile:
    """Computation in one order, by itself or through what is joint; all else is joint among all workers."""
    ops: list[Op] = []

    def add(resource: int, deps: set[int]) -> int:
        server = -1 if resource == WORKER else draw(st.integers(0, channels - 1))
        size = draw(SIZES) if resource in (DOWNLINK, UPLINK) else 0
        ops.append(Op(f"op{(7 * len(ops)) % 23:02}", resource, server, size, tuple(deps)))
        return len(ops) - 1

    def some() -> set[int]:
        return draw(st.sets(st.integers(0, len(ops) - 1), max_size=3)) if ops else set()

    joint = st.sampled_from([DOWNLINK, UPLINK, UPLINK, PS])
    after: set[int] = set()  # what the next op of computation waits for, so that it cannot overtake the last
    for _ in range(draw(st.integers(2, max_ops))):
        if draw(st.booleans()):
            after = {add(WORKER, some() | after)}
        elif draw(st.integers(0, 3)):
            add(draw(joint), some())
        else:
            after = {add(draw(joint), some() | after)}
    add(draw(joint), some())
    add(WORKER, some() | after)
    profile = shuffled(draw, ops, channels, 0)
    n, links = profile.ops, profile.is_transfer
    latency_s = np.array(draw(st.lists(st.sampled_from([0.0, 0.0, 0.5, 0.1]), min_size=n, max_size=n)))
    scope = np.where(profile.resource == WORKER, -1, draw(st.sampled_from([0, 1]))).astype(np.int32)
    return replace(profile, scope=scope, latency_s=np.where(links, latency_s, 0.0) * draw(st.booleans()))


@st.composite
def unison_plans(draw: st.DrawFn, max_workers: int = 6) -> Plan:
    """Plans for the path called unison."""
    workers, channels = draw(st.integers(2, max_workers)), draw(st.integers(1, 2))
    nodes = tuple(Node(draw(RATES), draw(RATES)) for _ in range(draw(st.integers(1, 5))))
    place = st.integers(0, len(nodes) - 1)
    served = draw(st.integers(0, channels))
    cluster = Cluster(
        nodes,
        tuple(draw(place) for _ in range(workers)),
        tuple(draw(place) for _ in range(served)),
        worker_speeds=draw(st.sampled_from([(), tuple(0.5 + w for w in range(workers))])),
        flow_bytes_per_s=draw(st.sampled_from([math.inf, math.inf, 6.0])),
        links=tuple(
            tuple((draw(place), draw(place)) for _ in range(channels - served)) for _ in range(workers)
        ),
        leaders=((0,) * workers,) * 2,
    )
    profile = draw(unison_steps(channels))
    policy = draw(policies(profile).filter(lambda policy: not isinstance(policy, Blocks)))
    chosen = replace(
        draw(options(workers)), until="all", server_cores=None, max_events=None, max_time_s=math.inf
    )
    return Plan(profile, cluster, policy, "async", chosen)
