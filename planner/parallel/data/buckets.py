"""Buckets of gradients, as PyTorch's DistributedDataParallel makes them.

Gradients are put into a bucket in the order in which they arrive (after the first step; before it, and for
good with `find_unused_parameters`, in the reverse order of registration). A bucket is closed by the tensor
that fills it, so it may be larger than its cap; the first one has a cap of its own, so that the first
collective starts early. Buckets are reduced in their order: one that is full waits for those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.device.computation import Computation, Parameter

MIB = 2**20
CAP_BYTES = 25 * MIB
FIRST_CAP_BYTES = MIB


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced together. `ready` is the op after which the last of them is there and all
    buckets before this one could be started."""

    bytes: int
    ready: int
    parameters: tuple[int, ...]


def buckets(
    computation: Computation,
    *,
    cap_bytes: int = CAP_BYTES,
    first_bytes: int = FIRST_CAP_BYTES,
    rebuilt: bool = True,
    width: int | None = None,
) -> tuple[Bucket, ...]:
    """The buckets of a computation in the order in which they are reduced. `width`: bytes of an element, if
    not those of the computation's precision."""
    trained = [
        (at, parameter) for at, parameter in enumerate(computation.parameters) if parameter.ready is not None
    ]
    width = width or computation.precision.gradient_bytes
    if rebuilt:
        arrival = sorted(trained, key=lambda pair: (pair[1].ready, -pair[0]))
        groups = _grouped(arrival, width, cap_bytes, first_bytes)
    else:  # filled from the front, sent from the back
        groups = _grouped(trained, width, cap_bytes, first_bytes)[::-1]
    closed: list[Bucket] = []
    latest = 0
    for group in groups:
        latest = max(latest, *(parameter.ready for _, parameter in group if parameter.ready is not None))
        size = sum(parameter.elements for _, parameter in group) * width
        closed.append(Bucket(size, latest, tuple(at for at, _ in group)))
    return tuple(closed)


def _grouped(
    gradients: Sequence[tuple[int, Parameter]], width: int, cap_bytes: int, first_bytes: int
) -> list[list[tuple[int, Parameter]]]:
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
