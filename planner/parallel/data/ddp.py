"""All-reduce: every worker has all parameters, and gradients are all-reduced, as DDP and Horovod do.

Gradients leave in buckets while the backward pass goes on; the optimizer then runs on every worker alike. The
slowest worker of a step decides when a bucket is summed, so that variation between workers costs time even
where links are fast.

Gradients are put into a bucket in the order in which they arrive (after the first step; before it, and for
good with `find_unused_parameters`, in the reverse order of registration). A bucket is closed by the tensor
that fills it, so it may be larger than its cap; the first one has a cap of its own, so that the first
collective starts early. Buckets are reduced in their order: one that is full waits for those before it. DDP
and Horovod copy gradients into buckets and back: each is read and written twice, on a CPU by its cores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, cast

import numpy as np

from planner.device.computation import BACKWARD, Computation, Parameter, layout_key
from planner.device.memory import Shares
from planner.device.precision import Precision
from planner.memoize import first_argument, memoize
from planner.model import Model
from planner.note import Note
from planner.parallel.collectives import Library, Peers, ring_bytes
from planner.parallel.data import ChangeKind, Job, Labels, RequestedSettings, Variant
from planner.parallel.data.collective import GRADIENTS, Collective, allreduce_bound
from planner.parallel.data.joint import (
    ACCESSES,
    BETWEEN_WORKERS,
    CPU_COPY_S_PER_BYTE,
    JITTER,
    JITTER_S,
    MEMORY_SHARE,
    JointSteps,
    contention_s,
    mean_s,
)
from planner.parallel.plan import Site

if TYPE_CHECKING:
    from planner.parallel.data import Floats
    from planner.simulator.simulate import Case


MIB = 2**20
CAP_BYTES = 25 * MIB
FIRST_CAP_BYTES = MIB
COPIES = 4.0  # accesses for each byte of a gradient that goes through a bucket, half of them after the sum
COPY_S = 5e-6  # at least, of one tensor one way: a kernel of its own


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced together, after op `ready`, when all earlier buckets are complete too."""

    bytes: int
    ready: int
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllReduce(Collective):
    """DDP and Horovod: gradients are all-reduced in buckets. `bucket_bytes` and `first_bucket_bytes` are the
    caps of buckets; `rebuilt`: in the order in which gradients arrive, else in that of registration
    (find_unused_parameters). `library` is nccl or gloo (auto: by the device), `algorithm` one of NCCL's.
    `gradients` is the format that they are sent in (auto: that of the parameters that are updated, fp32 under
    autocast; Apex O2 sends fp16). `accesses` of a device's memory for each byte that it sends slow computing
    down (`planner.parallel.data.joint`; 0: nothing does), and gradients are `copied` into buckets and back
    (not with gradient_as_bucket_view). `jitter` and `jitter_s` are how much steps differ
    (`planner.parallel.data.joint`). Horovod looks for new gradients every `cycle_s`: the last wait half of
    that."""

    kind: ClassVar[str] = "allreduce"

    bucket_bytes: int = CAP_BYTES
    first_bucket_bytes: int = FIRST_CAP_BYTES
    rebuilt: bool = True
    library: str = "auto"
    algorithm: str = "auto"
    gradients: str = "auto"
    accesses: float = ACCESSES
    copied: bool = True
    jitter: float = JITTER
    jitter_s: float = JITTER_S
    cycle_s: float = 0.0

    @classmethod
    def candidates(cls, asked: RequestedSettings, site: Site, model: Model) -> Iterator[Self]:
        """Yields all-reduce with the requested settings."""
        if exchange := cls.first_candidate(asked, site):
            yield exchange

    def gradient_bytes(self, precision: Precision) -> int:
        """Bytes per element of the stored and sent gradients."""
        return GRADIENTS.get(self.gradients, precision.ddp_gradient_bytes)

    def memory_shares(self, model: Model, precision: Precision, site: Site) -> Shares:
        """Shares of a worker with all parameters, plus gradient buckets."""
        width = self.gradient_bytes(precision)
        return Shares(
            gradients=width / precision.gradient_bytes,
            buffers_bytes=float(model.trained_parameters * width),
            communicators=int(site.workers > 1),
        )

    def lower(self, computation: Computation, site: Site) -> Case:
        """Lowers a step: backward passes with an all-reduce for each full bucket, then the optimizer."""
        steps = self.start_steps(computation, site, self.jitter_s)
        buckets, links = self.buckets(computation), (steps.library, steps.peers, site)
        factor = backward_slowdown(computation, buckets, *links, accesses=self.accesses, copied=self.copied)
        done = add_all_reduces(steps, buckets, factor)
        after_s = self.tail_s(computation, buckets, steps.peers, site)
        steps.add_optimizer(after_s, done, communication_s=after_s - computation.optimizer_s)
        return steps.case()

    def tail_s(self, computation: Computation, buckets: Sequence[Bucket], peers: Peers, site: Site) -> float:
        """Seconds after the last all-reduce: half a cycle to notice it, the copies, and the optimizer."""
        if peers.slower_level is None:
            return computation.optimizer_s
        copies = self.copied and self.accesses > 0 and not computation.buckets
        return self.cycle_s / 2 + (copy_s(buckets, site) if copies else 0.0) + computation.optimizer_s

    def buckets(self, computation: Computation) -> tuple[Bucket, ...]:
        """Gradient buckets in the order of reduction. Recorded buckets stay unless another size is
        requested."""
        width = self.gradient_bytes(computation.precision)
        if computation.buckets and self.bucket_bytes == CAP_BYTES:
            return bucket_gradients(computation, 1, 1, width)
        return bucket_gradients(
            computation, self.bucket_bytes, self.first_bucket_bytes, width, rebuilt=self.rebuilt
        )

    @classmethod
    def bounds(cls, jobs: Sequence[Job]) -> Floats:
        """Upper bounds in closed form: the shortest possible chain of buckets."""
        return np.array([allreduce_bound(cast(AllReduce, job.exchange), job) for job in jobs])

    def variants(self, site: Site) -> Iterator[Variant]:
        """Yields other bucket sizes and algorithms that may be faster."""
        for size in (self.bucket_bytes // 4, self.bucket_bytes * 4):
            words = f"buckets of {size / MIB:.3g} MiB"
            yield Variant(ChangeKind.BUCKET, words, replace(self, bucket_bytes=size))
        if site.machines > 1 and site.devices > 1 and self.algorithm != "hierarchical":
            yield Variant(
                ChangeKind.ALGORITHM, "two levels of rings", replace(self, algorithm="hierarchical")
            )

    def labels(self, site: Site | None = None) -> Labels:
        """Texts on DDP, its buckets and its assumptions."""
        how = "" if self.algorithm == "auto" else f", {self.algorithm}"
        return Labels(
            cell="all-reduce",
            name="DDP",
            plan=f"gradients all-reduced in buckets of {self.bucket_bytes / MIB:.3g} MiB{how}",
            assumptions=(
                Note(
                    None,
                    "All-reduce overlaps the backward pass and slows it down: on a GPU by "
                    f"{self.accesses:g} memory accesses per byte sent, on a CPU by the cores that sockets "
                    "and sums occupy.",
                ),
                *self.link_notes(site),
            ),
            resources=BETWEEN_WORKERS,
        )


def add_all_reduces(
    steps: JointSteps,
    buckets: tuple[Bucket, ...],
    factor: float,
    first_op: int = 0,
    deps: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Adds ops from `first_op` on, and an all-reduce for each full bucket; returns the last ops. The first op
    waits for `deps`. Backward passes take `factor` times as long."""
    computation = steps.computation
    done: list[int] = []
    for bucket, name, end in _op_ranges_between_buckets(computation, buckets):
        if end >= first_op:
            longer = factor if computation.role[end] == BACKWARD else 1.0
            deps = (steps.add_compute(name, first_op, end, deps, longer),)
            first_op = end + 1
        if bucket is not None:
            done += steps.add_collective(f"allreduce[{bucket}]", "all_reduce", buckets[bucket].bytes, deps)
    return (*deps, *done)


def _op_ranges_between_buckets(
    computation: Computation, buckets: tuple[Bucket, ...]
) -> Iterator[tuple[int | None, str, int]]:
    """Yields ranges of ops in order, as (bucket that is full at the end, name, last op)."""
    backward = [op for op, role in enumerate(computation.role.tolist()) if role == BACKWARD]
    if backward and backward[0] > 0:
        yield None, "forward", backward[0] - 1
    for at, bucket in enumerate(buckets):
        yield at, f"backward[{at}]", bucket.ready
    if not buckets or buckets[-1].ready < computation.ops - 1:
        yield None, "rest", computation.ops - 1


@memoize(on=layout_key)
def bucket_gradients(
    computation: Computation, cap_bytes: int, first_bytes: int, width: int, *, rebuilt: bool = True
) -> tuple[Bucket, ...]:
    """Groups gradients into buckets, in the order of reduction. `width`: bytes of an element;
    `rebuilt`: buckets are filled in the order in which gradients arrive."""
    trained = [
        (at, parameter) for at, parameter in enumerate(computation.parameters) if parameter.ready is not None
    ]
    if rebuilt:
        arrival = sorted(trained, key=lambda pair: (pair[1].ready, -pair[0]))
        groups = _group_into_buckets(arrival, width, cap_bytes, first_bytes)
    else:  # filled from the front, sent from the back
        groups = _group_into_buckets(trained, width, cap_bytes, first_bytes)[::-1]
    closed: list[Bucket] = []
    latest = 0
    for group in groups:
        latest = max(latest, *(parameter.ready for _, parameter in group if parameter.ready is not None))
        size = sum(parameter.elements for _, parameter in group) * width
        closed.append(Bucket(size, latest, tuple(at for at, _ in group)))
    return tuple(closed)


def _group_into_buckets(
    gradients: Sequence[tuple[int, Parameter]], width: int, cap_bytes: int, first_bytes: int
) -> list[list[tuple[int, Parameter]]]:
    """Groups consecutive gradients; the gradient that reaches the cap closes its group."""
    groups: list[list[tuple[int, Parameter]]] = []
    open_: list[tuple[int, Parameter]] = []
    size = 0
    for pair in gradients:
        open_.append(pair)
        size += pair[1].elements * width
        if size >= (cap_bytes if groups else first_bytes):
            groups.append(open_)
            open_, size = [], 0
    return [*groups, open_] if open_ else groups


def backward_slowdown(
    computation: Computation,
    buckets: Sequence[Bucket],
    library: Library,
    peers: Peers,
    site: Site,
    *,
    accesses: float,
    copied: bool,
    passes: int = 1,
) -> float:
    """Factor by which all-reduces lengthen the backward pass they overlap with. The last one starts after the
    pass."""
    backward_s = passes * _backward_s(computation)
    if backward_s <= 0 or peers.slower_level is None or accesses <= 0:
        return 1.0
    sizes = [bucket.bytes for bucket in buckets]
    contention_s = overlap_loss_s(accesses, sizes[:-1], library, peers, site)
    if copied and not computation.buckets:
        contention_s += copy_s(buckets, site)
    return 1 + min(contention_s / backward_s, 1.0)


def overlap_loss_s(
    accesses: float, sizes: Sequence[float], library: Library, peers: Peers, site: Site
) -> float:
    """Seconds that computation loses to all-reduces of these sizes, at most their duration."""
    sent_bytes = ring_bytes("all_reduce", sum(sizes), peers.ranks)
    return contention_s(accesses, sent_bytes, _all_reduces_s(sizes, library, peers), site)


def copy_s(buckets: Sequence[Bucket], site: Site) -> float:
    """Seconds to copy all gradients into buckets, or sums out of them. Recorded buckets include their
    copies."""
    if site.mesh.is_sharded:
        return 0.0  # as Megatron does, in the buffers that are sent
    device, size = site.hardware.device, sum(bucket.bytes for bucket in buckets)
    if device.kind == "cpu":
        return CPU_COPY_S_PER_BYTE * size / device.cores if device.cores else 0.0
    if device.memory_bytes_per_s is None:
        return 0.0
    moved_s = COPIES / 2 * size / (MEMORY_SHARE * device.memory_bytes_per_s)
    return moved_s + COPY_S * sum(len(bucket.parameters) for bucket in buckets)


def _all_reduces_s(sizes: Sequence[float], library: Library, peers: Peers) -> float:
    """Seconds of all-reduces of these sizes, one after another."""
    return sum(library.seconds("all_reduce", size, peers) * many for size, many in Counter(sizes).items())


@memoize(on=first_argument)
def _backward_s(computation: Computation) -> float:
    """Seconds of the backward pass, averaged over steps."""
    return float(mean_s(computation)[computation.role == BACKWARD].sum())
