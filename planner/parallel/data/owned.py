"""Owned optimizer state: each worker stores the state of whole tensors, as ZeRO-1 of InternEvo does it.
PyTorch's ZeroRedundancyOptimizer is alike, but waits for all broadcasts before the next pass begins.

Gradients are all-reduced in buckets, as in DDP; each owner then updates its tensors and sends them to all
other workers, one broadcast per owner, while the next forward pass begins: a layer waits for the owners of
its tensors. Tensors are assigned to owners in their order, as evenly as whole tensors allow. `Sharded`
cuts every tensor into parts instead, so that all workers have equal shares, and gathers them; a chain of
broadcasts over hundreds of workers, each of which waits for every machine on its way, makes this exchange
slow there. `within="machine"` has owners in each machine: broadcasts stay on its fabric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from planner.device.computation import Computation, layout_key
from planner.device.memory import Shares
from planner.device.precision import Precision
from planner.memoize import memoize
from planner.model import Model
from planner.parallel.collectives import Library, Peers, ring_bytes
from planner.parallel.data import ChangeKind, Labels, RequestedSettings, Variant
from planner.parallel.data.collective import Collective, can_shard_within_machines
from planner.parallel.data.ddp import (
    CAP_BYTES,
    MIB,
    Bucket,
    add_all_reduces,
    backward_slowdown,
    bucket_gradients,
    copy_s,
)
from planner.parallel.data.joint import (
    ACCESSES,
    BETWEEN_WORKERS,
    JITTER,
    JointSteps,
    contention_s,
    first_backward_op,
    mean_s,
)
from planner.parallel.plan import Site

if TYPE_CHECKING:
    from planner.simulator.simulate import Case


@dataclass(frozen=True, slots=True)
class Owned(Collective):
    """ZeRO-1 of InternEvo: each worker owns the optimizer state of whole tensors. `bucket_bytes` is the cap
    of a bucket of gradients (DDP's 25 MiB; InternEvo has 1 GiB), `gradients` the format that they are sent
    in, `accesses` and `jitter` as in `AllReduce`. Searches have it only where it is named: `Sharded` with
    stage 1 shares out the same state."""

    kind: ClassVar[str] = "owned"

    within: str = "all"
    bucket_bytes: int = CAP_BYTES
    library: str = "auto"
    gradients: str = "auto"
    accesses: float = ACCESSES
    jitter: float = JITTER

    @classmethod
    def candidates(cls, asked: RequestedSettings, site: Site, model: Model) -> Iterator[Self]:
        """Yields owned optimizer state with the requested settings, and inside each machine."""
        exchange = cls.first_candidate(asked, site)
        if exchange is None:
            return
        yield exchange
        if "within" not in asked.choices and can_shard_within_machines(site):
            yield replace(exchange, within="machine")

    def memory_shares(self, model: Model, precision: Precision, site: Site) -> Shares:
        """Shares of a worker with the optimizer state of its tensors, plus gradient buckets."""
        width = self.gradient_bytes(precision)
        sizes = [tensor.elements for tensor in model.trained_tensors]
        return Shares(
            gradients=width / precision.gradient_bytes,
            optimizer=largest_share(sizes, self.shard_count(site)),
            buffers_bytes=float(model.trained_parameters * width),
            communicators=int(site.workers > 1),
        )

    def lower(self, computation: Computation, site: Site) -> Case:
        """Lowers a step: broadcasts in the forward pass, all-reduces in the backward pass."""
        steps = self.start_steps(computation, site)
        buckets, links = self.buckets(computation), (steps.library, steps.peers, site)
        at, last = self._add_broadcasts(steps)
        factor = backward_slowdown(computation, buckets, *links, accesses=self.accesses, copied=True)
        done = add_all_reduces(steps, buckets, factor, at, last)
        after_s = self.tail_s(computation, buckets, steps.peers, site)
        share = largest_share(tensor_elements(computation), self.shard_count(site))
        steps.add_optimizer(after_s, done, communication_s=after_s - computation.optimizer_s * share)
        return steps.case()

    def _add_broadcasts(self, steps: JointSteps) -> tuple[int, tuple[int, ...]]:
        """Adds broadcasts, and the forward pass until the last one is needed; returns next op and deps."""
        computation, library, site = steps.computation, steps.library, steps.site
        sent, group = self.broadcasts(computation, site), self.receiving_peers(steps.peers)
        forward_s = float(mean_s(computation)[: first_backward_op(computation)].sum())
        factor = self.broadcast_slowdown(forward_s, sent, library, group, site)
        at = 0
        last: tuple[int, ...] = ()
        for owner, (size, first) in enumerate(sent):
            if first > at:
                last = (steps.add_compute(f"forward[{at}]", at, first - 1, last, factor),)
                at = first
            phases = library.phases("broadcast", size, group)
            if self.within == "machine":
                phases = tuple(replace(phase, scope="machine") for phase in phases)
            last += steps.add_phases(f"broadcast[{owner}]", phases, ())
        return at, last

    def buckets(self, computation: Computation) -> tuple[Bucket, ...]:
        """Gradient buckets in the order in which they are reduced."""
        width = self.gradient_bytes(computation.precision)
        return bucket_gradients(computation, self.bucket_bytes, self.bucket_bytes, width)

    def broadcasts(self, computation: Computation, site: Site) -> tuple[tuple[int, int], ...]:
        """Bytes that each owner broadcasts, and the first op that needs them."""
        width = computation.precision.parameter_bytes
        return tuple(
            (elements * width, first)
            for elements, first in elements_by_owner(computation, self.shard_count(site))
        )

    def receiving_peers(self, peers: Peers) -> Peers:
        """Ranks that receive an owner's tensors."""
        if self.within == "all" or peers.inside is None:
            return peers
        return Peers.of(inside=peers.inside)

    def broadcast_slowdown(
        self,
        forward_s: float,
        sent: Sequence[tuple[int, int]],
        library: Library,
        group: Peers,
        site: Site,
    ) -> float:
        """Factor by which concurrent broadcasts lengthen a forward pass of `forward_s` seconds."""
        if forward_s <= 0 or group.slower_level is None:
            return 1.0
        sizes = [size for size, _ in sent]
        busy_s = sum(library.seconds("broadcast", size, group) for size in sizes)
        moved = ring_bytes("broadcast", sum(sizes), group.ranks)
        return 1 + min(contention_s(self.accesses, moved, busy_s, site) / forward_s, 1.0)

    def tail_s(self, computation: Computation, buckets: Sequence[Bucket], peers: Peers, site: Site) -> float:
        """Seconds after the last all-reduce: copies out of buckets, and the busiest owner's optimizer."""
        share = largest_share(tensor_elements(computation), self.shard_count(site))
        copies_s = 0.0 if peers.slower_level is None or not self.accesses else copy_s(buckets, site)
        return copies_s + computation.optimizer_s * share

    def variants(self, site: Site) -> Iterator[Variant]:
        """Yields ZeRO-1, and owners inside each machine, which may be faster."""
        from planner.parallel.data.fsdp import Sharded

        parts = Sharded(stage=1, within=self.within, each_pass=False, gradients=self.gradients)
        yield Variant(ChangeKind.EXCHANGE, "parts of every tensor instead of owners (ZeRO-1)", parts)
        if self.within == "all" and can_shard_within_machines(site):
            yield Variant(ChangeKind.WITHIN, "owners in each machine", replace(self, within="machine"))

    def labels(self, site: Site | None = None) -> Labels:
        """Texts on owned optimizer state and its assumptions."""
        inside = " of each machine" if self.within == "machine" else ""
        return Labels(
            name=f"{'hybrid ' if inside else ''}ZeRO-1 by owners",
            cell=f"owned{' (machine)' if inside else ''}",
            plan=f"gradients all-reduced in buckets of {self.bucket_bytes / MIB:.3g} MiB, state of "
            f"whole tensors divided among the workers{inside}",
            assumptions=self.link_notes(site),
            resources=BETWEEN_WORKERS,
        )


def assign_owners(sizes: Sequence[int], owners: int) -> tuple[int, ...]:
    """Assigns each tensor to an owner; returns the owner's index per tensor. The sequence of all elements
    is cut into equal parts, one per owner; a tensor belongs to the owner whose part contains its middle."""
    before, part = np.cumsum([0, *sizes]), max(sum(sizes), 1) / owners
    middle = (before[:-1] + before[1:]) / 2
    return tuple(np.minimum(middle // part, owners - 1).astype(int).tolist())


def largest_share(sizes: Sequence[int], owners: int) -> float:
    """Fraction of all elements that the busiest owner has."""
    kept: dict[int, int] = {}
    for size, owner in zip(sizes, assign_owners(sizes, owners), strict=True):
        kept[owner] = kept.get(owner, 0) + size
    return max(kept.values(), default=0) / max(sum(sizes), 1)


def tensor_elements(computation: Computation) -> list[int]:
    """Number of elements of each tensor; a unit's vectors are counted with its matrices."""
    return [
        size for parameter in computation.parameters for size in parameter.matrices or (parameter.elements,)
    ]


@memoize(on=layout_key)
def elements_by_owner(computation: Computation, owners: int) -> tuple[tuple[int, int], ...]:
    """Elements that each owner broadcasts, and the first op that needs any of them, sorted by that op."""
    sizes = tensor_elements(computation)
    needed = [
        min(parameter.readers, default=0)
        for parameter in computation.parameters
        for _ in parameter.matrices or (parameter.elements,)
    ]
    sent: dict[int, tuple[int, int]] = {}
    for size, first, owner in zip(sizes, needed, assign_owners(sizes, owners), strict=True):
        elements, before = sent.get(owner, (0, first))
        sent[owner] = (elements + size, min(before, first))
    return tuple(sorted(sent.values(), key=lambda entry: entry[1])) if owners > 1 else ()
