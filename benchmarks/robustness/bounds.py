"""Upper bounds against simulations of random plans: how many exceed them, and how close they come.

    python benchmarks/robustness/bounds.py [COUNT]

Property tests draw their plans here, too: with parameter servers as (profile, cluster, policy, mode), with
joint ops as a case.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np

from planner.simulator import Case, simulate
from planner.simulator.bounds import throughput_bounds
from planner.simulator.cluster import Cluster, Node
from planner.simulator.policy import Blocks, Credit, Fifo, Mode, Multiplexed, Ordered, Policy, Sliced
from planner.simulator.run import RunOptions, run
from planner.simulator.simulate import Effort, simulate_case
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Op, Profile


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
    """A random cluster: any mix of NICs, one or more workers per node, servers with or beside them."""
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
    """A random policy, with and without a cost per chunk."""
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


def hosted(rng: random.Random, profile: Profile) -> Profile:
    """The step with some of its first ops on the host."""
    resource = profile.resource.copy()
    for op in np.flatnonzero(resource == WORKER).tolist():
        if profile.names[op].startswith("forward") and rng.random() < 0.5:
            resource[op] = HOST
    resource.flags.writeable = False
    return replace(profile, resource=resource)


def random_host_case(seed: int) -> tuple[Profile, Cluster, Policy, Mode]:
    """A plan with host ops, on nodes with many or few cores."""
    profile, cluster, policy, mode = random_case(seed)
    rng = random.Random(seed)
    nodes = tuple(replace(node, cores=rng.choice((None, 1, 2))) for node in cluster.nodes)
    return hosted(rng, profile), replace(cluster, nodes=nodes), policy, mode


def random_case(seed: int) -> tuple[Profile, Cluster, Policy, Mode]:
    """A plan determined by its seed."""
    rng = random.Random(seed)
    servers = rng.randint(1, 3)
    profile = random_profile(rng, servers)
    mode: Mode = rng.choice(("async", "async", "sync"))
    return profile, random_cluster(rng, servers), random_policy(rng, profile), mode


def joint_step(rng: random.Random, channels: int, scopes: int, layers: int = 8) -> Profile:
    """A step with joint ops over some gradients between ops that each worker runs alone."""
    n = rng.randint(1, layers)
    ops: list[Op] = []

    def add(name: str, resource: int, deps: tuple[int, ...], *, joint: bool = False, tensor: int = -1) -> int:
        link = resource in (DOWNLINK, UPLINK)
        channel = -1 if resource == WORKER else rng.randrange(channels)
        size = rng.choice((1, 10_000, 300_000, 2_000_000, 9_000_000)) if link else 0
        latency_s = rng.choice((0.0, 1e-5, 1e-3)) if link else 0.0
        scope = rng.randrange(scopes) if joint else -1
        ops.append(Op(f"{name}{len(ops)}", resource, channel, size, deps, tensor, scope, latency_s))
        return len(ops) - 1

    arrived = [add("gather", rng.choice((DOWNLINK, UPLINK)), (), joint=True) for _ in range(n // 3)]
    last = add("forward", WORKER, tuple(arrived))
    for _ in range(n - 1):
        last = add("forward", WORKER, (last,) if rng.random() < 0.8 else ())
    reduced = []
    for i in range(n):
        last = add("backward", WORKER, (last,))
        op = last
        for _ in range(rng.randint(0, 3)):
            resource = rng.choice((UPLINK, UPLINK, DOWNLINK, PS))
            op = add("phase", resource, (op,), joint=rng.random() < 0.8, tensor=i)
        if op != last:
            reduced.append(op)
    for op in rng.sample(reduced, rng.randint(0, len(reduced))):
        add("optimizer", WORKER, (op, last))
    steps, scale = rng.randint(1, 5), rng.choice((1e-4, 1e-2, 1e-1))
    durations = [[0.0 if op.bytes else scale * rng.random() for op in ops] for _ in range(steps)]
    return Profile.build(
        ops,
        durations,
        model="joint",
        batch=rng.choice((1, 8, 32)),
        servers=channels,
        tensors=[f"t{i}" for i in range(n)],
    )


def random_joint_case(seed: int) -> Case:
    """A step with joint ops, on random channels and groups."""
    rng = random.Random(seed)
    servers, links, workers = rng.randint(0, 2), rng.randint(1, 2), rng.choice((1, 2, 4, 4, 8, 8))
    cluster = random_cluster(rng, max(1, servers), workers)
    workers, nodes = cluster.workers, len(cluster.nodes)
    size = rng.choice((2, 4))
    apart = rng.random() < 0.5  # rings of neighbours, else anything
    cluster = replace(
        cluster,
        server_nodes=cluster.server_nodes[:servers],
        links=tuple(
            tuple(
                (w % nodes, (w + 1) % nodes) if apart else (rng.randrange(nodes), rng.randrange(nodes))
                for _ in range(links)
            )
            for w in range(workers)
        ),
        leaders=((0,) * workers, tuple(w // size * size for w in range(workers))),
    )
    profile = joint_step(rng, cluster.channels, len(cluster.leaders))
    policy = random_policy(rng, profile)
    if isinstance(policy, Blocks):
        policy = Fifo()
    return Case(profile=profile, cluster=cluster, policy=policy)


def allreduce_case(seed: int) -> Case:
    """Equal ranks that reduce buckets over a ring while they compute; steps vary a little."""
    rng = random.Random(seed)
    workers, buckets = rng.choice((2, 4, 8, 16, 64)), rng.randint(1, 8)
    ops = [Op("forward", WORKER)]
    reduced = []
    for i in range(buckets):
        ops.append(Op(f"backward{i}", WORKER, -1, 0, (2 * i - 1 if i else 0,)))
        size = rng.choice((1_000_000, 5_000_000, 25_000_000))
        ops.append(Op(f"bucket{i}", UPLINK, 0, size, (2 * i + 1,), scope=0, latency_s=1e-4))
        reduced.append(2 * i + 2)
    ops.append(Op("optimizer", WORKER, -1, 0, tuple(reduced)))
    steps, spread = rng.choice((1, 10)), rng.choice((0.01, 0.1))
    means = [0.0 if op.bytes else rng.uniform(0.5, 1.5) * 0.2 / buckets for op in ops]
    durations = []
    for _ in range(steps):
        slow = max(0.2, rng.gauss(1.0, spread))
        durations.append([slow * mean for mean in means])
    nic = rng.choice((1e8, 1e9, 1e10))
    cluster = Cluster(
        (Node(nic, nic),) * workers,
        tuple(range(workers)),
        (),
        links=tuple(((w, (w + 1) % workers),) for w in range(workers)),
        leaders=((0,) * workers,),
    )
    order = [list(range(len(ops)))] * steps
    profile = Profile.build(ops, durations, model="allreduce", batch=32, servers=1, order=order)
    return Case(profile=profile, cluster=cluster, policy=Fifo())


def window_tolerance(steps: int, workers: int, runs: int = 1) -> float:
    """The relative excess over a bound that a window of steps allows: one step per worker and run."""
    return workers * runs / max(1, steps)


def share_of_bound(seed: int, steps: int = 30) -> float:
    """Throughput of one run, in whole steps of every worker, over the bound."""
    profile, cluster, policy, mode = random_case(seed)
    case = Case(profile=profile, cluster=cluster, policy=policy, mode=mode)
    bound = float(throughput_bounds([case], "fastest")[0])
    result = run(profile, cluster, policy, mode, options=RunOptions(seed=seed, steps=steps))
    done = sum(len(ends) for ends in result.step_ends_s)
    last = max(float(ends[-1]) for ends in result.step_ends_s if len(ends))
    return done * profile.batch / last / bound


def share_of_mean_bound(seed: int) -> float:
    """The lower end of a prediction's 99.9% interval over the bound, less the window's tolerance."""
    profile, cluster, policy, mode = random_case(seed)
    bound = float(throughput_bounds([Case(profile=profile, cluster=cluster, policy=policy, mode=mode)])[0])
    result = simulate(profile, cluster, policy, mode, seed=seed, max_steps=2000, confidence=0.999)
    return (
        result.samples_per_s_low / bound / (1 + window_tolerance(result.steps, cluster.workers, result.runs))
    )


def share_of_joint_bound(seed: int, steps: int = 20) -> float:
    """Throughput of one run with joint ops over its bound; n steps have n - 1 periods."""
    case = random_joint_case(seed)
    bound = float(throughput_bounds([case], "fastest")[0])
    result = run(case.profile, case.cluster, case.policy, options=RunOptions(seed=seed, steps=steps))
    done = sum(len(ends) for ends in result.step_ends_s)
    last = max(float(ends[-1]) for ends in result.step_ends_s if len(ends))
    return done * case.profile.batch / last / bound * (steps - 1) / steps


def share_of_mean_joint_bound(case: Case, seed: int) -> float:
    """The lower end of a prediction with joint ops over its bound."""
    result = simulate_case(case, Effort(seed=seed, max_steps=2000, confidence=0.999))
    tolerance = window_tolerance(result.steps, case.cluster.workers, result.runs)
    return result.samples_per_s_low / float(throughput_bounds([case])[0]) / (1 + tolerance)


def joint(count: int) -> None:
    """Check cases with joint ops: none exceeds its bound, and equal ranks come close."""
    shares = np.array([share_of_joint_bound(seed) for seed in range(count)])
    above = int((shares > 1 + 1e-9).sum())
    print(f"{count} random cases with joint ops: {above} above the bound; highest share {shares.max():.6f}")
    print(f"  half of them reach at least {np.median(shares):.3f} of their bound")
    means = [share_of_mean_joint_bound(random_joint_case(seed), seed) for seed in range(count // 4)]
    above = int((np.array(means) > 1).sum())
    print(f"{len(means)} in the long run: {above} above the bound; highest share {max(means):.6f}")
    equal = [share_of_mean_joint_bound(allreduce_case(seed), seed) for seed in range(count // 8)]
    above = int((np.array(equal) > 1).sum())
    print(f"{len(equal)} all-reduce on equal ranks: {above} above the bound; shares of it:")
    print("  " + ", ".join(f"{q}%: {np.percentile(equal, q):.3f}" for q in (0, 10, 50, 90, 100)))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    shares = np.array([share_of_bound(seed) for seed in range(count)])
    above = int((shares > 1 + 1e-9).sum())
    print(f"{count} random plans: {above} above the bound; highest share {shares.max():.6f}")
    for quantile in (10, 50, 90):
        print(f"  {quantile}% of plans reach at most {np.percentile(shares, quantile):.3f} of their bound")
    means = np.array([share_of_mean_bound(seed) for seed in range(count // 4)])
    above = int((means > 1).sum())
    print(f"{len(means)} in the long run: {above} above the bound; highest share {means.max():.6f}")
    print(f"  half of them reach at least {np.median(means):.3f} of their bound")
    joint(count)


if __name__ == "__main__":
    main()
