"""All-reduce: every worker has all parameters, and gradients are summed among all, as DDP and Horovod do.

Gradients leave in buckets while the backward pass goes on; the optimizer then runs on every worker alike. The
slowest worker of a step decides when a bucket is summed, so that variation between workers costs time even
where links are fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from planner.computation import BACKWARD, Computation
from planner.exchange import settings
from planner.exchange._base import Ask, Exchange, Held, Neighbour, Words
from planner.exchange.buckets import CAP_BYTES, FIRST_CAP_BYTES, MIB, Bucket, buckets
from planner.exchange.joint import Steps
from planner.exchange.peers import peers_of
from planner.exchange.site import Site
from planner.model import Model
from planner.precision import Precision

if TYPE_CHECKING:
    from planner.simulator.simulate import Case

# How much longer the backward pass takes while collectives run beside it: they use cores and memory of the
# device. docs/allreduce.md has where the figure comes from.
OVERLAP_SLOWDOWN = 0.05


@dataclass(frozen=True, slots=True)
class AllReduce(Exchange):
    """`bucket_bytes` and `first_bucket_bytes` are the caps of buckets; `rebuilt`: in the order in which
    gradients arrive, else in that of registration (find_unused_parameters). `library` is nccl or gloo (auto:
    by the device), `algorithm` one of NCCL's."""

    kind: ClassVar[str] = "allreduce"
    title: ClassVar[str] = "all-reduce"

    bucket_bytes: int = CAP_BYTES
    first_bucket_bytes: int = FIRST_CAP_BYTES
    rebuilt: bool = True
    library: str = "auto"
    algorithm: str = "auto"
    slowdown: float = OVERLAP_SLOWDOWN

    def __post_init__(self) -> None:
        settings.positive("allreduce:bucket_bytes", self.bucket_bytes)
        settings.positive("allreduce:first_bucket_bytes", self.first_bucket_bytes)
        settings.known("library", self.library, settings.LIBRARIES)
        settings.known("algorithm", self.algorithm, settings.ALGORITHMS)
        settings.share("allreduce:slowdown", self.slowdown)

    @property
    def key(self) -> str:
        return settings.key(self, AllReduce())

    @classmethod
    def options(cls, ask: Ask, site: Site) -> Iterator[Self]:
        exchange = settings.chosen(cls(), ask.choices(cls.kind))
        if site.workers > 1 and not exchange.refusal(site):
            yield exchange

    def refusal(self, site: Site) -> str:
        return settings.refusal(self.library, site)

    def held(self, model: Model, precision: Precision, site: Site) -> Held:
        elements = sum(tensor.elements for layer in model for tensor in layer.tensors)
        return Held(buffers_bytes=float(elements * precision.gradient_bytes))

    def lower(self, computation: Computation, site: Site) -> Case:
        library = settings.library(self.library, self.algorithm, site)
        steps = Steps(computation, site, library, peers_of(site, library))
        found = buckets(
            computation,
            cap_bytes=self.bucket_bytes,
            first_bytes=self.first_bucket_bytes,
            rebuilt=self.rebuilt,
        )
        factor = 1 + self.slowdown * _overlap(computation, found, steps)
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

    def neighbours(self, site: Site) -> Iterator[Neighbour]:
        from dataclasses import replace

        for size in (self.bucket_bytes // 4, self.bucket_bytes * 4):
            words = f"buckets of {size / MIB:.3g} MiB"
            yield Neighbour("bucket", words, replace(self, bucket_bytes=size))
        if site.machines > 1 and site.devices > 1 and self.algorithm != "hierarchical":
            yield Neighbour("algorithm", "two levels of rings", replace(self, algorithm="hierarchical"))

    def words(self) -> Words:
        how = "" if self.algorithm == "auto" else f", {self.algorithm}"
        return Words(
            cell="all-reduce",
            rest="",
            plan=f"gradients summed among all in buckets of {self.bucket_bytes / MIB:.3g} MiB{how}",
            assumptions=(
                "Gradients are summed while the backward pass goes on, which takes "
                f"{self.slowdown:.0%} longer where both run at once.",
            ),
            resources={"fabric": "the links between the devices of a machine", "network": "the NICs"},
        )


def _overlap(computation: Computation, found: tuple[Bucket, ...], steps: Steps) -> float:
    """The share of the backward pass in which collectives run too."""
    backward_s = float(steps.rows[:, computation.role == BACKWARD].sum(axis=1).mean())
    rates = {level.name: level.bytes_per_s for level in (steps.peers.inside, steps.peers.between) if level}
    busy_s = sum(
        phase.seconds(rates[phase.level])
        for bucket in found
        for phase in steps.library.phases("all_reduce", bucket.bytes, steps.peers)
    )
    return min(busy_s / backward_s, 1.0) if backward_s > 0 else 0.0


def _stretches(computation: Computation, found: tuple[Bucket, ...]) -> Iterator[tuple[int | None, str, int]]:
    """Where the computation is cut: (bucket that is ready then, name, last op), in order."""
    backward = [op for op in range(computation.ops) if computation.role[op] == BACKWARD]
    if backward and backward[0] > 0:
        yield None, "forward", backward[0] - 1
    for at, bucket in enumerate(found):
        yield at, f"backward[{at}]", bucket.ready
    if not found or found[-1].ready < computation.ops - 1:
        yield None, "rest", computation.ops - 1
