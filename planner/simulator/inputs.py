"""What a run needs, checked and laid out as arrays that the reference and the engine read alike.

Nothing here depends on the order of ops in the profile: wherever ops tie, they go by name.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput, unknown_name
from planner.simulator.cluster import Cluster
from planner.simulator.policy import (
    Blocks,
    Credit,
    Joins,
    Ordered,
    Policy,
    Sliced,
    tensor_count,
)
from planner.simulator.run import RunOptions
from planner.simulator.step import HOST, PS, Profile

# Ops times workers: the engine needs some 20 bytes for each, so this is about 3 GB.
MAX_STATES = 2**27

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinkPolicy:
    """A transfer policy as arrays; `rank` and `block` have one entry per op."""

    kind: str
    overhead_s: tuple[float, float]  # on downlinks, on uplinks
    chunk_bytes: int  # window or slice; 0: whole transfers
    credit_bytes: int
    rank: Floats  # lower first; infinite for transfers without a priority
    block: Ints  # the block an op is in; -1: none
    place: Ints  # its place among the members of its block on its link
    members: Ints  # how many members its block has on its link


@dataclass(frozen=True, slots=True)
class EqualShare:
    """Direction in which n flows each get min(capacity / n, flow limit): one server, equal NICs."""

    capacity_bytes_per_s: float
    flow_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Inputs:
    """Checked input arrays of a run."""

    profile: Profile
    cluster: Cluster
    options: RunOptions
    tied: bool  # some op waits for other workers
    lockstep: bool  # all workers do, so that they go at one rate
    policy: LinkPolicy
    waiting: Ints  # number of dependencies of each op
    dependent_start: Ints
    dependent_index: Ints  # dependents of an op, by name
    roots: Ints  # ops without dependencies, by name
    transfers: Ints  # transfer ops, by name
    gated: npt.NDArray[np.bool_]  # waits until it is ready at every worker
    publishes: Ints  # the tensor whose new version this op helps to publish; -1: none
    awaits: Ints  # the tensor whose last version this op waits for; -1: none
    publishers: Ints  # per tensor: runs of ops that must end in a step, over all workers
    leaders: Ints  # (scopes, workers)
    speeds: tuple[float, ...]
    start_offsets_s: tuple[float, ...]
    pool_cores: Ints  # cores that lanes share; none if nobody ever waits for one
    server_pool: Ints  # (channels,): where the updates of a channel take a core; -1: nowhere
    host_pool: Ints  # (workers,): where a worker's host takes a core; -1: nowhere
    near: Ints  # (workers, channels): the node at which a channel leaves the worker
    far: Ints  # (workers, channels): the node at its other end
    local: npt.NDArray[np.bool_]  # (workers, channels): both ends are one node
    fairness_sigma: float  # of the options, if there is a transfer that draws a share
    equal_shares: tuple[EqualShare, EqualShare] | None  # down, up; None: max-min
    flow_bytes_per_s: float  # at most, for max-min; infinite if every NIC limits flows as much


def prepare_inputs(
    profile: Profile, cluster: Cluster, policy: Policy, joins: Joins, options: RunOptions
) -> Inputs:
    """Checks that the parts of a case fit together, and returns them as arrays."""
    _check_channels(profile, cluster)
    joins.check(profile)
    workers = cluster.workers
    if profile.ops * workers > MAX_STATES:
        raise BadInput(
            f"{profile.ops:,} ops of {workers:,} workers are more than the {MAX_STATES:,} states that fit in "
            f"memory; simulate at most {MAX_STATES // profile.ops:,} workers"
        )
    by_name = np.array(sorted(range(profile.ops), key=profile.names.__getitem__), np.int32)
    name_rank = np.empty(profile.ops, np.int32)
    name_rank[by_name] = np.arange(profile.ops)
    start, index = profile.dependents()
    producer = np.repeat(np.arange(profile.ops), np.diff(start))
    index = index[np.lexsort((name_rank[index], producer))]
    waiting = np.diff(profile.dep_start).astype(np.int32)

    ends = np.array(cluster.ends, np.int32).reshape(workers, cluster.channels, 2)
    near, far = (np.ascontiguousarray(ends[:, :, side]) for side in (0, 1))
    leaders = np.array(cluster.leaders, np.int32).reshape(len(cluster.leaders), workers)
    own_transfers = profile.is_transfer & (profile.scope < 0)
    sigma = options.fairness_sigma if own_transfers.any() else 0.0
    pool_cores, server_pool, host_pool = _core_pools(profile, cluster, options.server_cores)
    widest = max(max(node.egress_bytes_per_s, node.ingress_bytes_per_s) for node in cluster.nodes)
    return Inputs(
        profile=profile,
        cluster=cluster,
        options=options,
        tied=joins.has_joins or bool((profile.scope >= 0).any()),
        lockstep=is_lockstep(profile, cluster, joins),
        policy=_link_policy_arrays(profile, policy),
        waiting=waiting,
        dependent_start=start,
        dependent_index=index.astype(np.int32),
        roots=by_name[waiting[by_name] == 0],
        transfers=by_name[profile.is_transfer[by_name]],
        gated=joins.gated,
        publishes=joins.publishes,
        awaits=joins.awaits,
        publishers=_publisher_counts(profile, leaders, joins),
        leaders=leaders,
        speeds=cluster.worker_speeds or (1.0,) * workers,
        start_offsets_s=_start_offsets_s(options, workers),
        pool_cores=pool_cores,
        server_pool=server_pool,
        host_pool=host_pool,
        near=near,
        far=far,
        local=near == far,
        fairness_sigma=sigma,
        equal_shares=_equal_shares(cluster, near, far, uneven=sigma > 0),
        flow_bytes_per_s=cluster.flow_bytes_per_s if cluster.flow_bytes_per_s < widest else math.inf,
    )


def inputs_for_rerun(inputs: Inputs, options: RunOptions) -> Inputs | None:
    """Inputs for another run of the same case; None if its options need other arrays."""
    before = inputs.options
    if (options.fairness_sigma, options.server_cores) != (before.fairness_sigma, before.server_cores):
        return None
    starts_s = _start_offsets_s(options, inputs.cluster.workers)
    return replace(inputs, options=options, start_offsets_s=starts_s)


def _start_offsets_s(options: RunOptions, workers: int) -> tuple[float, ...]:
    """Start of each worker in seconds; zeros by default."""
    offsets = tuple(offset + 0.0 for offset in options.start_offsets_s) or (0.0,) * workers  # no -0.0
    if len(offsets) != workers:
        raise BadInput(f"{len(offsets)} start offsets are given for {workers} workers")
    return offsets


def _check_channels(profile: Profile, cluster: Cluster) -> None:
    """Raises BadInput if a cluster lacks channels or scopes that a profile's ops use."""
    if profile.servers != cluster.channels and cluster.channels == cluster.servers:
        raise BadInput(
            f"the profile is for {profile.servers} parameter server(s) but the cluster has "
            f"{cluster.servers}; make or record a profile for {cluster.servers}"
        )
    if profile.servers != cluster.channels:
        raise BadInput(
            f"the profile has {profile.servers} channel(s) a worker but the cluster has {cluster.channels}"
        )
    scopes = int(profile.scope.max(initial=-1)) + 1
    if scopes > len(cluster.leaders):
        op = profile.names[int(np.argmax(profile.scope))]
        raise BadInput(
            f"op {op!r} is joint in scope {scopes - 1}, but the cluster groups its workers in "
            f"{len(cluster.leaders)} scope(s)"
        )


def is_lockstep(profile: Profile, cluster: Cluster, joins: Joins) -> bool:
    """Whether synchronization makes all workers wait for each other in every step."""
    tied = joins.has_joins or bool((profile.scope >= 0).any())
    return tied and not party_by_worker(profile, cluster, joins).any()


def party_by_worker(profile: Profile, cluster: Cluster, joins: Joins) -> npt.NDArray[np.intp]:
    """Index of each worker's party: the workers that wait for each other, directly or through others."""
    scopes = set(profile.scope[profile.scope >= 0].tolist())
    if joins.has_joins or any(not any(cluster.leaders[scope]) for scope in scopes):
        return np.zeros(cluster.workers, np.intp)
    root = list(range(cluster.workers))  # the lowest worker that each is tied to, as far as is known
    for scope in scopes:
        for worker, leader in enumerate(cluster.leaders[scope]):
            a, b = _lowest_tied_worker(root, worker), _lowest_tied_worker(root, leader)
            root[max(a, b)] = min(a, b)
    lowest = [_lowest_tied_worker(root, worker) for worker in range(cluster.workers)]
    return np.asarray(np.unique(lowest, return_inverse=True)[1]).reshape(-1)


def _lowest_tied_worker(root: list[int], worker: int) -> int:
    """Lowest worker in the same party (union-find with path halving)."""
    while root[worker] != worker:
        root[worker] = root[root[worker]]
        worker = root[worker]
    return worker


def _core_pools(profile: Profile, cluster: Cluster, server_cores: int | None) -> tuple[Ints, Ints, Ints]:
    """Number of cores in each pool, the pool of each server channel and of each worker's host. -1: no pool. A
    node's cores serve its servers and its workers' hosts; `server_cores` gives every server its own pool.
    Pools with a core for every lane that could ask at once are left out."""
    server_pool = np.full(cluster.channels, -1, np.int32)
    host_pool = np.full(cluster.workers, -1, np.int32)
    updates = sorted(set(profile.server[(profile.resource == PS)].tolist()) & set(range(cluster.servers)))
    cores: list[int] = []

    def add_pool(count: int, servers: list[int], workers: list[int]) -> None:
        """Adds a pool of `count` cores unless there is a core for every lane that could ask."""
        if count < len(servers) * cluster.workers + len(workers):
            server_pool[servers], host_pool[workers] = len(cores), len(cores)
            cores.append(count)

    servers_on: dict[int, list[int]] = {}
    for server in updates:
        if server_cores is not None:
            add_pool(server_cores, [server], [])
        else:
            servers_on.setdefault(cluster.server_nodes[server], []).append(server)
    hosts_on: dict[int, list[int]] = {}
    if (profile.resource == HOST).any():
        for worker, node in enumerate(cluster.worker_nodes):
            hosts_on.setdefault(node, []).append(worker)
    for node in sorted({*servers_on, *hosts_on}):
        count = cluster.nodes[node].cores
        if count is not None:
            add_pool(count, servers_on.get(node, []), hosts_on.get(node, []))
    return np.array(cores, np.int32), server_pool, host_pool


def _publisher_counts(profile: Profile, leaders: Ints, joins: Joins) -> Ints:
    """Per tensor, the number of updates that complete a new version: one per worker or group and op."""
    workers = leaders.shape[1]
    groups = [len(set(row.tolist())) for row in leaders]
    publishers = np.zeros(tensor_count(profile), np.int32)
    for op in np.flatnonzero(joins.publishes >= 0):
        scope = int(profile.scope[op])
        publishers[joins.publishes[op]] += workers if scope < 0 else groups[scope]
    return publishers


def _link_policy_arrays(profile: Profile, policy: Policy) -> LinkPolicy:
    """Arrays of a policy for the ops of a profile; raises BadInput if it names other ops."""
    index = {name: op for op, name in enumerate(profile.names)}
    transfer = profile.is_transfer

    def transfer_op(name: str) -> int:
        """Index of the transfer with this name; raises BadInput if there is none."""
        if name not in index:
            known = (profile.names[op] for op in np.flatnonzero(transfer))
            raise unknown_name("op in the policy", name, known)
        if not transfer[index[name]]:
            raise BadInput(f"the policy orders {name!r}, which is no transfer")
        return index[name]

    rank = np.full(profile.ops, math.inf)
    block, place, members = (np.full(profile.ops, value, np.int32) for value in (-1, 0, 1))
    chunk_bytes = getattr(policy, "window_bytes", getattr(policy, "slice_bytes", 0))
    credit_bytes = getattr(policy, "credit_bytes", 0)
    if isinstance(policy, Ordered | Sliced | Credit):
        for name, value in policy.priorities.items():
            if math.isnan(value):
                raise BadInput(f"the priority of {name!r} is not a number")
            rank[transfer_op(name)] = value
    if isinstance(policy, Blocks):
        for b, names in enumerate(policy.blocks):
            links: dict[tuple[int, int], list[int]] = {}
            for op in map(transfer_op, names):
                if profile.scope[op] >= 0:
                    raise BadInput(f"{profile.names[op]!r} is a joint op; it cannot be a member of a block")
                links.setdefault((int(profile.resource[op]), int(profile.server[op])), []).append(op)
            for ops in links.values():
                rank[ops], block[ops], place[ops], members[ops] = b, b, np.arange(len(ops)), len(ops)
        _check_blocks(profile, block)
    for value in policy.overheads_s:
        if not (math.isfinite(value) and value >= 0):
            raise BadInput(f"overhead_s is {value}; it must be finite and not negative")
    return LinkPolicy(policy.kind, policy.overheads_s, chunk_bytes, credit_bytes, rank, block, place, members)


def _check_blocks(profile: Profile, block: Ints) -> None:
    """Raises BadInput if blocks would wait for each other, as a block leaves only when all members are ready.
    With the members of a block on one link merged into one op, the graph must still be free of cycles."""
    merged: dict[tuple[int, int, int], int] = {}
    one_of = [
        merged.setdefault((int(block[op]), int(profile.resource[op]), int(profile.server[op])), op)
        if block[op] >= 0
        else op
        for op in range(profile.ops)
    ]
    graph: TopologicalSorter[int] = TopologicalSorter()
    for op in range(profile.ops):
        graph.add(one_of[op], *(one_of[dep] for dep in profile.deps(op).tolist()))
    with suppress(CycleError):
        graph.prepare()
    stuck = {profile.names[op] for op in one_of if block[op] >= 0}
    while ready := graph.get_ready():
        stuck -= {profile.names[op] for op in ready}
        graph.done(*ready)
    if stuck:
        raise BadInput(
            f"the block of {min(stuck)!r} can never be sent: one of its members waits, through other ops, "
            "for another member; put them in different blocks"
        )


def _equal_shares(
    cluster: Cluster, near: Ints, far: Ints, uneven: bool
) -> tuple[EqualShare, EqualShare] | None:
    """Equal shares of one server's downlink and uplink, if all workers always get the same; else None. They
    do if no worker's NIC can be narrower than the server's, or if each worker has a separate NIC and all are
    alike (then shares must be even, for a limit breaks proportional weights)."""
    if cluster.channels != 1 or (far != far[0]).any():
        return None
    server = int(far[0, 0])
    remote = [node for node in near[:, 0].tolist() if node != server]
    out: list[EqualShare] = []
    for here, there in (
        ("egress_bytes_per_s", "ingress_bytes_per_s"),
        ("ingress_bytes_per_s", "egress_bytes_per_s"),
    ):
        capacity = float(getattr(cluster.nodes[server], here))
        limits = {min(cluster.flow_bytes_per_s, float(getattr(cluster.nodes[n], there))) for n in remote}
        if all(limit >= capacity for limit in limits):
            out.append(EqualShare(capacity, math.inf))
        elif len(limits) == 1 and len(set(remote)) == len(remote) and not uneven:
            out.append(EqualShare(capacity, limits.pop()))
        else:
            return None
    return out[0], out[1]
