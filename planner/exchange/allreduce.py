"""All-reduce: every worker has all parameters, and gradients are summed among all, as DDP and Horovod do.

Gradients leave in buckets while the backward pass goes on; the optimizer then runs on every worker alike. The
slowest worker of a step decides when a bucket is summed, so that variation between workers costs time even
where links are fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, cast

import numpy as np

from planner.computation import BACKWARD, Computation
from planner.cost.memory import Held
from planner.exchange import settings
from planner.exchange._base import Ask, ChangeKind, Exchange, Floats, Job, Neighbour, Words
from planner.exchange._memo import remembered
from planner.exchange.buckets import CAP_BYTES, FIRST_CAP_BYTES, MIB, Bucket, buckets
from planner.exchange.collectives import Library, Peers
from planner.exchange.joint import BETWEEN_WORKERS, JITTER, SLOWDOWN, JointSteps
from planner.exchange.peers import link_words, peers_of
from planner.exchange.site import Site
from planner.model import Model
from planner.note import Note
from planner.precision import Precision

if TYPE_CHECKING:
    from planner.simulator.simulate import Case


@dataclass(frozen=True, slots=True)
class AllReduce(Exchange):
    """`bucket_bytes` and `first_bucket_bytes` are the caps of buckets; `rebuilt`: in the order in which
    gradients arrive, else in that of registration (find_unused_parameters). `library` is nccl or gloo (auto:
    by the device), `algorithm` one of NCCL's. `gradients` is the format that they are sent in (auto: that of
    the precision; autocast over DDP sends fp32). `slowdown` and `jitter`: see `planner.exchange.joint`."""

    kind: ClassVar[str] = "allreduce"
    title: ClassVar[str] = "all-reduce"
    plain: ClassVar[bool] = True
    counts_micro_batches: ClassVar[bool] = True

    bucket_bytes: int = CAP_BYTES
    first_bucket_bytes: int = FIRST_CAP_BYTES
    rebuilt: bool = True
    library: str = "auto"
    algorithm: str = "auto"
    gradients: str = "auto"
    slowdown: float = SLOWDOWN
    jitter: float = JITTER

    def __post_init__(self) -> None:
        settings.positive("allreduce:bucket_bytes", self.bucket_bytes)
        settings.positive("allreduce:first_bucket_bytes", self.first_bucket_bytes)
        settings.known("library", self.library, settings.LIBRARIES)
        settings.known("algorithm", self.algorithm, settings.ALGORITHMS)
        settings.known("allreduce:gradients", self.gradients, ("auto", *settings.GRADIENTS))
        settings.share("allreduce:slowdown", self.slowdown)
        settings.share("allreduce:jitter", self.jitter)

    @property
    def key(self) -> str:
        return settings.key(self, AllReduce())

    @classmethod
    def options(cls, ask: Ask, site: Site) -> Iterator[Self]:
        choices = ask.choices(cls.kind)
        exchange = settings.chosen(cls(), choices)
        if (site.workers > 1 or choices) and not exchange.refusal(site):
            yield exchange

    @classmethod
    def named(cls, ask: Ask, site: Site) -> Self | None:
        """On one device nobody is there to exchange with: what larger sites are compared with."""
        exchange = settings.chosen(cls(), ask.choices(cls.kind))
        return None if exchange.refusal(site) else exchange

    def refusal(self, site: Site) -> str:
        return Exchange.refusal(self, site) or settings.refusal(self.library, site)

    def held(self, model: Model, precision: Precision, site: Site) -> Held:
        width = settings.gradient_bytes(self.gradients, precision)
        return Held(gradients=width / precision.gradient_bytes, buffers_bytes=float(model.parameters * width))

    def lower(self, computation: Computation, site: Site) -> Case:
        library = settings.library(self.library, self.algorithm, site)
        peers = peers_of(site, library)
        steps = JointSteps(computation, site, library, peers, self.jitter)
        found = self.buckets(computation)
        factor = 1 + self.slowdown * overlap(computation, found, library, peers)
        done: list[int] = []
        last: tuple[int, ...] = ()
        at = 0
        for bucket, name, end in _stretches(computation, found):
            if end >= at:
                slowed = factor if computation.role[end] == BACKWARD else 1.0
                last = (steps.compute(name, at, end, last, slowed),)
                at = end + 1
            if bucket is not None:
                done += steps.collective(f"allreduce[{bucket}]", "all_reduce", found[bucket].bytes, last)
        steps.spend("optimizer", computation.optimizer_s, (*last, *done))
        return steps.case()

    def buckets(self, computation: Computation) -> tuple[Bucket, ...]:
        """What is summed together, in the order in which it is; recorded buckets stay as they were unless
        other sizes are asked for."""
        width = settings.gradient_bytes(self.gradients, computation.precision)
        if computation.buckets and self.bucket_bytes == CAP_BYTES:
            return bucketed(computation, 1, 1, True, width)
        return bucketed(computation, self.bucket_bytes, self.first_bucket_bytes, self.rebuilt, width)

    @classmethod
    def bounds(cls, jobs: Sequence[Job]) -> Floats:
        """The chain of buckets at its shortest, in closed form."""
        from planner.exchange.joint_bounds import allreduce_bound

        return np.array([allreduce_bound(cast(AllReduce, job.exchange), job) for job in jobs])

    def neighbours(self, site: Site) -> Iterator[Neighbour]:
        for size in (self.bucket_bytes // 4, self.bucket_bytes * 4):
            words = f"buckets of {size / MIB:.3g} MiB"
            yield Neighbour(ChangeKind.BUCKET, words, replace(self, bucket_bytes=size))
        if site.machines > 1 and site.devices > 1 and self.algorithm != "hierarchical":
            yield Neighbour(
                ChangeKind.ALGORITHM, "two levels of rings", replace(self, algorithm="hierarchical")
            )

    def assumed(self, site: Site) -> tuple[Note, ...]:
        return link_words(site, settings.library(self.library, self.algorithm, site))

    def words(self) -> Words:
        how = "" if self.algorithm == "auto" else f", {self.algorithm}"
        return Words(
            cell="all-reduce",
            run="DDP on {}",
            rest="",
            plan=f"gradients summed among all in buckets of {self.bucket_bytes / MIB:.3g} MiB{how}",
            assumptions=(
                Note(
                    None,
                    "Gradients are summed while the backward pass goes on, which takes "
                    f"{self.slowdown:.0%} longer where both run at once.",
                ),
            ),
            resources=BETWEEN_WORKERS,
        )


@remembered
def bucketed(computation: Computation, cap: int, first: int, rebuilt: bool, width: int) -> tuple[Bucket, ...]:
    return buckets(computation, cap_bytes=cap, first_bytes=first, rebuilt=rebuilt, width=width)


def overlap(
    computation: Computation, found: tuple[Bucket, ...], library: Library, peers: Peers, passes: int = 1
) -> float:
    """The share of the backward passes in which collectives run too."""
    backward_s = passes * _backward_s(computation)
    sizes = Counter(bucket.bytes for bucket in found)
    busy_s = sum(library.seconds("all_reduce", size, peers) * many for size, many in sizes.items())
    return min(busy_s / backward_s, 1.0) if backward_s > 0 else 0.0


@remembered
def _backward_s(computation: Computation) -> float:
    return float(mean_s(computation)[computation.role == BACKWARD].sum())


@remembered
def mean_s(computation: Computation) -> Floats:
    """How long each op takes on average."""
    return computation.durations_s.mean(axis=0) if computation.once_s is None else computation.once_s


def _stretches(computation: Computation, found: tuple[Bucket, ...]) -> Iterator[tuple[int | None, str, int]]:
    """Where the computation is cut: (bucket that is ready then, name, last op), in order."""
    backward = [op for op in range(computation.ops) if computation.role[op] == BACKWARD]
    if backward and backward[0] > 0:
        yield None, "forward", backward[0] - 1
    for at, bucket in enumerate(found):
        yield at, f"backward[{at}]", bucket.ready
    if not found or found[-1].ready < computation.ops - 1:
        yield None, "rest", computation.ops - 1
