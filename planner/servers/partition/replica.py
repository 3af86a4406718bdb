"""A replica that spans several workers as a profile that the simulator runs.

One simulated worker stands for one replica, on a node that has the NICs of all its n workers together.

For the answers, one worker's profile is made into that of a replica (`scale_profile`), which takes n times a
worker's batch in a step. Every stage is cut into P parts and kept in R copies with P R = n
(`costs.PartitionProblem` with `every_worker`): its computing lasts share(P) n / R of what one worker needs
for one batch, so about as long as before. What changes is what travels. Copies and stripes of a convolution
read and write all of its weights each; parts of a dense layer only their own, so that a replica reads a cut
dense layer once where n workers read it n times. In exchange activations and errors cross the network; how
long follows from the mapping of segments, at one message a step. Exchanges count as computing of the stage
that waits for them: they do not compete with weights for a NIC.

For `planner partition --simulate`, a plan of the search becomes a profile (`replica_profile`). A step is
`read_every` samples: every worker reads its own share of each stage's weights from all servers (spread
evenly), and training stalls until all is read, as in the paper. Then come the stages forward and backward,
each for as long as its slowest segment takes, with the exchange of activations or errors as an op of its own
between them, and the weight updates; gradients are written as soon as their stage is done. `simulate` adds
what the analytical model leaves out: replicas that meet at a server wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.device.memory import footprint, usable_bytes
from planner.device.precision import FP32
from planner.hardware import Hardware
from planner.model import BYTES_PER_ELEMENT, Model
from planner.servers.partition.costs import PartitionProblem, ReplicaPlacement, place_segments
from planner.servers.partition.layers import PaperConstants, Split
from planner.servers.partition.search import PartitionPlan, pareto_placements
from planner.servers.partition.stages import Stage, stages_of
from planner.simulator.cluster import Cluster, Node
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, OpRole, Profile, RoleShares

Floats = npt.NDArray[np.float64]

WORTH_CUTTING = 0.1  # of the reading that a span must save; without, its workers may as well be replicas
PASSES = (OpRole.FORWARD, OpRole.BACKWARD)
MOST_REPLICAS = 64  # that share one server, for the highest price of a byte that is looked at


@dataclass(frozen=True, slots=True)
class Span:
    """Split of a model's stages over the workers of one replica, with the seconds and bytes of its step."""

    workers: int
    samples: int  # a step of the replica
    stages: tuple[Stage, ...]
    cuts: tuple[tuple[int, int], ...]  # (P, R) of each stage
    forward_s: tuple[float, ...]  # exchange of activations before each stage, in a step
    backward_s: tuple[float, ...]  # exchange of errors behind it
    busy_s: float  # computing and exchanges of a step
    read_bytes: float  # by the replica in a step

    def compute_factor(self, index: int) -> float:
        """Compute time of one stage, relative to that of a single worker with its own batch."""
        partitions, replications = self.cuts[index]
        return self.stages[index].largest_share(partitions) * self.workers / replications

    def held_weight_fraction(self, index: int) -> float:
        """Fraction of a stage's weights that each worker holds."""
        return self.stages[index].largest_share(self.cuts[index][0]) if self.stages[index].dense else 1.0


def is_worth_spanning(model: Model, batch: int, hardware: Hardware, workers: int) -> bool:
    """Whether splitting a replica over `workers` saves at least 10% of weight reads and fits in memory."""
    stages = stages_of(model)
    cuts = tuple((_part_count(stage, workers), workers // _part_count(stage, workers)) for stage in stages)
    read = sum(stage.read_bytes(*cut) for stage, cut in zip(stages, cuts, strict=True))
    none = (0.0,) * len(stages)
    return _is_useful(Span(workers, workers * batch, stages, cuts, none, none, 0.0, read), model, hardware)


def _part_count(stage: Stage, workers: int) -> int:
    """Number of parts with the fewest weight reads: 1, but as many as possible for a dense stage."""
    return max(
        p for p in range(1, workers + 1) if workers % p == 0 and p <= (stage.rows if stage.dense else 1)
    )


def _is_useful(span: Span, model: Model, hardware: Hardware) -> bool:
    """Whether a span saves enough weight reads and fits in memory."""
    saved = 1 - span.read_bytes / (span.workers * model.bytes)
    return saved >= WORTH_CUTTING and has_memory_for_span(model, hardware, span)


def find_spans(
    model: Model, hardware: Hardware, constants: PaperConstants, profile: Profile, workers: int
) -> list[Span]:
    """Finds spans over `workers` machines that save weight reads, each optimal at some cost per byte read."""
    stages = stages_of(model)
    samples = workers * profile.batch
    columns = profile.layer.tolist(), profile.role.tolist(), profile.durations_s.mean(axis=0).tolist()
    once = {(profile.layers[layer], role): s for layer, role, s in zip(*columns, strict=True) if layer >= 0}
    splits = tuple(
        Split(sum(once.get((layer, role), 0.0) for layer in stage.layers for role in PASSES) / profile.batch)
        for stage in stages
    )
    whole = replace(  # a step is one sample of one thread; a message is shared by all its samples
        constants,
        interference=(1.0,),
        interference_out_of_cache=(1.0,),
        latency_s=(constants.latency_s[0] / samples,),
    )
    problem = PartitionProblem(stages, whole, workers, threads=1, every_worker=True, splits=splits)
    dearest = MOST_REPLICAS / (constants.nic_bytes_per_s * samples)
    most_cut = [
        next(i for i, c in enumerate(options) if c.partitions == _part_count(stage, workers))
        for stage, options in zip(stages, problem.choices, strict=True)
    ]
    parts = [*pareto_placements(problem, 0.0, dearest), place_segments(problem, most_cut)]
    spans = {span.cuts: span for span in (_build_span(problem, match, samples) for match in parts)}
    return [span for span in spans.values() if _is_useful(span, model, hardware)]


def _build_span(problem: PartitionProblem, solution: ReplicaPlacement, samples: int) -> Span:
    """Converts a solved partition problem to a span, for a batch of `samples`."""
    return Span(
        workers=problem.workers,
        samples=samples,
        stages=problem.stages,
        cuts=tuple(choice.degrees for choice in solution.choices),
        forward_s=tuple(split.forward_network_s * samples for split in solution.splits),
        backward_s=tuple(split.backward_network_s * samples for split in solution.splits),
        busy_s=solution.sample_s * samples,
        read_bytes=solution.read_bytes,
    )


def has_memory_for_span(model: Model, hardware: Hardware, span: Span) -> bool:
    """Whether each worker of the replica has enough memory for its part."""
    batch = span.samples // span.workers
    alone = footprint(model, FP32).peak(batch, device_kind=hardware.device.kind)
    weights = sum(stage.weight_bytes * span.held_weight_fraction(at) for at, stage in enumerate(span.stages))
    uneven = max(span.compute_factor(at) for at in range(len(span.stages)))
    gathered = sum(
        stage.in_elements * (span.samples / cut[1] - batch)
        for stage, cut in zip(span.stages, span.cuts, strict=True)
        if stage.dense and cut[0] > 1
    )
    used = (
        2 * weights
        + uneven * (alone.activations_bytes + alone.workspace_bytes)
        + gathered * BYTES_PER_ELEMENT
    )
    return used * alone.least_fragmentation + alone.framework_bytes <= usable_bytes(hardware.device)


def fastest_span(
    spans: Sequence[Span], replicas: int, nic_bytes_per_s: float, servers_bytes_per_s: float
) -> Span:
    """Span with the shortest step by equation 12, where weight reads overlap with nothing."""
    s_per_byte = max(replicas / servers_bytes_per_s, 1.0 / (spans[0].workers * nic_bytes_per_s))
    return min(spans, key=lambda span: (span.busy_s + span.read_bytes * s_per_byte, span.read_bytes))


def scale_profile(profile: Profile, span: Span) -> Profile:
    """Profile of a replica that spans several workers, with durations and bytes scaled from one worker's."""
    stage_of = {layer: at for at, stage in enumerate(span.stages) for layer in stage.layers}
    times, sizes, extra = np.ones(profile.ops), np.ones(profile.ops), np.zeros(profile.ops)
    exchange_s = {OpRole.FORWARD: list(span.forward_s), OpRole.BACKWARD: list(span.backward_s)}
    for op, role in enumerate(map(OpRole, profile.role.tolist())):
        at = stage_of[profile.layers[profile.layer[op]]]
        if role in exchange_s:
            times[op] = span.compute_factor(at)
            extra[op], exchange_s[role][at] = exchange_s[role][at], 0.0  # at the first op of the stage
        elif role is OpRole.PARSE:
            times[op] = span.held_weight_fraction(at)
        else:  # down, up, update
            sizes[op] = times[op] = span.cuts[at][1] if span.stages[at].dense else span.workers
    durations = profile.durations_s * times + extra
    parts = _exchange_role_shares(profile, durations.mean(axis=0), extra)
    size = np.rint(profile.bytes * sizes).astype(np.int64)
    durations.flags.writeable = size.flags.writeable = False
    return replace(
        profile,
        batch=span.samples,
        bytes=size,
        durations_s=durations,
        parts=parts,
        source=f"{profile.source}; spread over {span.workers} workers a replica by the partition search",
    )


def _exchange_role_shares(profile: Profile, mean_s: Floats, exchange_s: Floats) -> dict[int, RoleShares]:
    """Compute and communication fractions of each op that also exchanges features inside its replica."""
    parts: dict[int, RoleShares] = {}
    for op in np.flatnonzero(exchange_s).tolist():
        share = float(exchange_s[op] / mean_s[op])
        parts[op] = ((OpRole(profile.role[op]), 1 - share), (OpRole.COMMUNICATION, share))
    return parts


def replica_profile(
    plan: PartitionPlan, read_every: int = 70, *, writes: bool = True, model: str = ""
) -> Profile:
    """Simulator profile of one replica of a partition plan; a step has `read_every` samples."""
    ops: list[Op] = []
    times: list[float] = []

    def add_op(op: Op, seconds: float = 0.0) -> int:
        """Appends an op with its duration; returns its index."""
        ops.append(op)
        times.append(float(seconds))
        return len(ops) - 1

    names: list[str] = []

    def weight_parts(index: int, stage: Stage) -> list[tuple[int, int, int]]:
        """(tensor, server, bytes) of a stage's weights for each worker and server that holds a part."""
        parts = []
        for worker, size in _read_bytes_by_worker(plan, index).items():
            for server in range(plan.servers):
                if part := _part_bytes(size, server, plan.servers):
                    parts.append((len(names), server, part))
                    names.append(f"{stage.name}/worker{worker}/server{server}")
        return parts

    tensors = [weight_parts(at, stage) for at, stage in enumerate(plan.stages)]
    last: tuple[int, ...] = tuple(
        add_op(Op(f"{names[tensor]}/read", DOWNLINK, server, part, (), tensor))
        for parts in tensors
        for tensor, server, part in parts
    )
    splits = plan.spread.splits
    for stage, split in zip(plan.stages, splits, strict=True):
        exchange_s, work_s = split.forward_network_s * read_every, split.forward_compute_s * read_every
        if exchange_s:
            last = (add_op(Op(f"{stage.name}/activations", WORKER, deps=last), exchange_s),)
        last = (add_op(Op(f"{stage.name}/forward", WORKER, deps=last), work_s),)
    for stage, split, parts in reversed(list(zip(plan.stages, splits, tensors, strict=True))):
        work_s = (split.backward_compute_s + split.update_compute_s) * read_every
        done = last = (add_op(Op(f"{stage.name}/backward", WORKER, deps=last), work_s),)
        if split.backward_network_s:
            exchange_s = split.backward_network_s * read_every
            last = (add_op(Op(f"{stage.name}/errors", WORKER, deps=last), exchange_s),)
        for tensor, server, part in parts if writes else ():
            write = add_op(Op(f"{names[tensor]}/write", UPLINK, server, part, done, tensor))
            add_op(Op(f"{names[tensor]}/update", PS, server, 0, (write,), tensor))
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
    """Simulated cluster for `replica_profile`, with one node per server and one per replica."""
    nic = constants.nic_bytes_per_s
    own = constants.server_nic_bytes_per_s or nic
    server, replica = Node(own, own), Node(nic * plan.workers, nic * plan.workers)
    return Cluster(
        nodes=(server,) * plan.servers + (replica,) * plan.replicas,
        worker_nodes=tuple(range(plan.servers, plan.servers + plan.replicas)),
        server_nodes=tuple(range(plan.servers)),
    )


def _read_bytes_by_worker(plan: PartitionPlan, index: int) -> dict[int, int]:
    """Bytes of one stage's weights that each worker of a replica reads."""
    stage, choice = plan.stages[index], plan.spread.choices[index]
    parts = choice.partitions if stage.dense else 1
    shares: dict[int, int] = {}
    for p, row in enumerate(plan.spread.placements[index].tolist()):
        for worker in row:
            shares[worker] = _part_bytes(stage.weight_bytes, p if stage.dense else 0, parts)
    return {worker: size for worker, size in sorted(shares.items()) if size}


def _part_bytes(size: int, index: int, parts: int) -> int:
    """Bytes of one part when `size` bytes are divided nearly equally into `parts`."""
    return size * (index + 1) // parts - size * index // parts
