"""Random small plans for property tests and benchmarks: (profile, cluster, policy, mode) from a seed."""

from __future__ import annotations

import random

from planner.cluster import Cluster, Node
from planner.policy import Blocks, Credit, Fifo, Mode, Multiplexed, Ordered, Policy, Sliced
from planner.profile import DOWNLINK, PS, UPLINK, WORKER, Op, Profile


def random_profile(rng: random.Random, servers: int, layers: int = 6) -> Profile:
    """A training step: downloads, forward ops with branches, backward ops, uploads, updates."""
    n = rng.randint(1, layers)
    ops: list[Op] = []
    sizes = [rng.choice((1, 10_000, 300_000, 2_000_000, 9_000_000)) for _ in range(n)]
    home = [rng.randrange(servers) for _ in range(n)]
    ops += [Op(f"down{i}", DOWNLINK, home[i], sizes[i], (), i) for i in range(n)]
    forward = []
    for i in range(n):
        before = sorted({rng.choice(forward) for _ in range(rng.randint(1, 2))}) if forward else []
        forward.append(len(ops))
        ops.append(Op(f"forward{i}", WORKER, -1, 0, (i, *before)))
    last = len(ops)
    ops.append(Op("loss", WORKER, -1, 0, tuple(forward)))
    for i in reversed(range(n)):
        backward = len(ops)
        ops.append(Op(f"backward{i}", WORKER, -1, 0, (last,)))
        last = backward if rng.random() < 0.8 else last
        ops.append(Op(f"up{i}", UPLINK, home[i], sizes[i], (backward,), i))
        ops.append(Op(f"update{i}", PS, home[i], 0, (backward + 1,), i))
    steps = rng.randint(1, 4)
    scale = rng.choice((1e-4, 1e-2, 1e-1))
    durations = [
        [0.0 if op.resource in (DOWNLINK, UPLINK) else scale * rng.random() for op in ops]
        for _ in range(steps)
    ]
    return Profile.build(
        ops,
        durations,
        model="random",
        batch=rng.choice((1, 8, 32)),
        servers=servers,
        tensors=[f"t{i}" for i in range(n)],
    )


def random_cluster(rng: random.Random, servers: int, workers: int = 6) -> Cluster:
    """Any mix of NICs, several workers a node, servers beside workers or not."""
    count = rng.randint(1, workers)
    nics = [rng.choice((1e7, 1e8, 1.25e9)) for _ in range(count + servers)]
    alike = rng.random() < 0.5
    nodes = tuple(Node(nics[0], nics[0]) if alike else Node(nic, rng.choice((nic, nic / 2))) for nic in nics)
    apart = rng.random() < 0.6
    worker_nodes = tuple(servers + i if apart else rng.randrange(len(nodes)) for i in range(count))
    server_nodes = tuple(i if apart else rng.randrange(len(nodes)) for i in range(servers))
    speeds = () if rng.random() < 0.5 else tuple(rng.choice((0.5, 1.0, 2.0)) for _ in range(count))
    flow = rng.choice((float("inf"), float("inf"), 5e7))
    return Cluster(nodes, worker_nodes, server_nodes, speeds, flow)


def random_policy(rng: random.Random, profile: Profile) -> Policy:
    """Any policy, with and without a cost for each chunk."""
    overhead = rng.choice((0.0, 0.0, 1e-4))
    transfers = [profile.names[i] for i in range(profile.ops) if profile.is_transfer[i]]
    rng.shuffle(transfers)
    ranks = {name: float(rank) for rank, name in enumerate(transfers)}
    kind = rng.choice(("fifo", "multiplexed", "ordered", "sliced", "credit", "blocks"))
    if kind == "fifo":
        return Fifo(overhead_s=overhead)
    if kind == "multiplexed":
        return Multiplexed(window_bytes=rng.choice((65_536, 4 * 2**20)), overhead_s=overhead)
    if kind == "ordered":
        return Ordered(priorities=ranks, overhead_s=overhead)
    if kind == "sliced":
        return Sliced(slice_bytes=500_000, priorities=ranks, overhead_s=overhead)
    if kind == "credit":
        return Credit(slice_bytes=500_000, credit_bytes=1_500_000, priorities=ranks, overhead_s=overhead)
    blocks: dict[tuple[int, int], list[str]] = {}
    for i, name in enumerate(profile.names):
        if profile.is_transfer[i] and rng.random() < 0.7:
            blocks.setdefault((int(profile.resource[i]), int(profile.server[i])), []).append(name)
    return Blocks(blocks=tuple(tuple(names) for names in blocks.values()), overhead_s=overhead)


def random_case(seed: int) -> tuple[Profile, Cluster, Policy, Mode]:
    """One plan, the same for the same seed."""
    rng = random.Random(seed)
    servers = rng.randint(1, 3)
    profile = random_profile(rng, servers)
    mode: Mode = rng.choice(("async", "async", "sync"))
    return profile, random_cluster(rng, servers), random_policy(rng, profile), mode
