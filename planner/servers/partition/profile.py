"""A replica that spans several workers as a profile the simulator runs.

One simulated worker stands for one replica: its node has the NICs of all the replica's workers together. A
step is `read_every` samples: every worker of the replica reads its own share of each stage's weights from all
servers (their weights are spread evenly), and training stalls until all is read, as in the paper. Then come
the stages forward and backward, each for as long as its slowest segment takes, with the exchange of
activations or errors as an op of its own between them, and the weight updates; gradients are written as soon
as their stage is done. `simulate` adds what the analytical model leaves out: replicas that meet at a server
wait for each other, and others compute meanwhile.
"""

from __future__ import annotations

from planner.servers.partition.constants import PaperConstants
from planner.servers.partition.search import PartitionPlan
from planner.simulator.cluster import Cluster, Node
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile


def replica_profile(
    plan: PartitionPlan, read_every: int = 70, *, writes: bool = True, model: str = ""
) -> Profile:
    """The step of one replica of a plan."""
    ops: list[Op] = []
    times: list[float] = []

    def add(op: Op, seconds: float = 0.0) -> int:
        ops.append(op)
        times.append(float(seconds))
        return len(ops) - 1

    shares = [_shares(plan, at) for at in range(len(plan.stages))]
    names: list[str] = []
    reads: list[int] = []
    tensor_of: dict[tuple[int, int, int], int] = {}
    for at, stage in enumerate(plan.stages):
        for worker, size in shares[at].items():
            for server in range(plan.servers):
                part = _part(size, server, plan.servers)
                if part:
                    tensor_of[at, worker, server] = len(names)
                    names.append(f"{stage.name}/worker{worker}/server{server}")
                    reads.append(add(Op(f"{names[-1]}/read", DOWNLINK, server, part, (), len(names) - 1)))
    last: tuple[int, ...] = tuple(reads)
    for stage, split in zip(plan.stages, plan.spread.splits, strict=True):
        exchange, work = split.forward_network_s, split.forward_compute_s
        if exchange:
            last = (add(Op(f"{stage.name}/activations", WORKER, deps=last), exchange * read_every),)
        last = (add(Op(f"{stage.name}/forward", WORKER, deps=last), work * read_every),)
    for at in reversed(range(len(plan.stages))):
        stage, split = plan.stages[at], plan.spread.splits[at]
        work = split.backward_compute_s + split.update_compute_s
        last = (add(Op(f"{stage.name}/backward", WORKER, deps=last), work * read_every),)
        done = last
        if split.backward_network_s:
            exchange = split.backward_network_s * read_every
            last = (add(Op(f"{stage.name}/errors", WORKER, deps=last), exchange),)
        if not writes:
            continue
        for worker, size in shares[at].items():
            for server in range(plan.servers):
                part = _part(size, server, plan.servers)
                if part:
                    tensor = tensor_of[at, worker, server]
                    write = add(Op(f"{names[tensor]}/write", UPLINK, server, part, done, tensor))
                    add(Op(f"{names[tensor]}/update", PS, server, 0, (write,), tensor))
    return Profile.build(
        ops,
        [times],
        model=model,
        batch=read_every,
        servers=plan.servers,
        tensors=names,
        basis="synthesized",
        source=f"partition {plan.name}: one replica of {plan.workers} workers",
    )


def replica_cluster(plan: PartitionPlan, constants: PaperConstants) -> Cluster:
    """The cluster on which `replica_profile` runs: a node for each server and one for each replica."""
    nic = constants.nic_bytes_per_s
    own = constants.server_nic_bytes_per_s or nic
    server, replica = Node(own, own), Node(nic * plan.workers, nic * plan.workers)
    return Cluster(
        nodes=(server,) * plan.servers + (replica,) * plan.replicas,
        worker_nodes=tuple(range(plan.servers, plan.servers + plan.replicas)),
        server_nodes=tuple(range(plan.servers)),
    )


def _shares(plan: PartitionPlan, at: int) -> dict[int, int]:
    """Bytes of a stage's weights that each worker of the replica reads."""
    stage, choice = plan.stages[at], plan.spread.choices[at]
    parts = choice.partitions if stage.dense else 1
    shares: dict[int, int] = {}
    for p, row in enumerate(plan.spread.placements[at].tolist()):
        for worker in row:
            shares[worker] = _part(stage.weight_bytes, p if stage.dense else 0, parts)
    return {worker: size for worker, size in sorted(shares.items()) if size}


def _part(size: int, index: int, parts: int) -> int:
    """One of `parts` parts that differ by a byte at most and add up to `size`."""
    return size * (index + 1) // parts - size * index // parts
