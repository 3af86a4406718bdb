"""What collectives take from the computation that runs beside them.

On an accelerator that is its memory. What a ring passes on is written by the neighbour, read, and met with
the device's own part (read for a sum, written where results are gathered): three accesses for each byte that
a device sends. So a collective over a slow link costs computing as little as it moves in a second, however
long it lasts. DDP and Horovod also copy gradients into buckets and back: each is read and written twice.

On a CPU it is cores: sockets copy and sums are made by the cores that compute, unless some are spare; the
copies are theirs in any case.

Buckets of gradients, as PyTorch's DistributedDataParallel makes them.

Gradients are put into a bucket in the order in which they arrive (after the first step; before it, and for
good with `find_unused_parameters`, in the reverse order of registration). A bucket is closed by the tensor
that fills it, so it may be larger than its cap; the first one has a cap of its own, so that the first
collective starts early. Buckets are reduced in their order: one that is full waits for those before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.device.computation import BACKWARD, Computation, Parameter
from planner.memoize import itself, memoize
from planner.parallel.collectives import Library, Peers, ring_bytes
from planner.parallel.site import Site

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


ACCESSES = 3.0  # of a device's memory, for each byte that it sends
COPIES = 4.0  # accesses for each byte of a gradient that goes through a bucket, half of them after the sum
COPY_S = 5e-6  # at least, of one tensor one way: a kernel of its own
# What is reached of a memory's published figure: BabelStream's triad 1,700 of 2,039 GB/s on A100, 2,970 of
# 3,350 on H100, 4,150 of 4,800 on H200 (Azure/AI-benchmarking-guide @8fd0c6e1).
MEMORY_SHARE = 0.86
# Where nobody knows how fast a device's memory is: so much longer takes what runs beside a collective.
SHARE_UNKNOWN = 0.25
# On one core of an AMD EPYC, for each byte (benchmarks/robustness/recording.py prints the first): Gloo
# between two processes over TCP, all threads of one of them and the kernel's part, by what it sends; and
# copying a gradient of 42 MB.
GLOO_CPU_S_PER_BYTE = 0.5e-9
CPU_COPY_S_PER_BYTE = 0.09e-9


def slowed(
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
    """By which factor the backward passes take longer. The last bucket leaves when they are over."""
    backward_s = passes * _backward_s(computation)
    if backward_s <= 0 or peers.outermost is None or accesses <= 0:
        return 1.0
    sizes = [bucket.bytes for bucket in buckets]
    taken_s = beside_s(accesses, sizes[:-1], library, peers, site)
    if copied and not computation.buckets:
        taken_s += copied_s(buckets, site)
    return 1 + min(taken_s / backward_s, 1.0)


def beside_s(accesses: float, sizes: Sequence[float], library: Library, peers: Peers, site: Site) -> float:
    """Seconds that computing loses to all-reduces of these sizes; no more than they last."""
    sent_bytes = ring_bytes("all_reduce", sum(sizes), peers.ranks)
    return taken_s(accesses, sent_bytes, _busy_s(sizes, library, peers), site)


def taken_s(accesses: float, sent_bytes: float, busy_s: float, site: Site) -> float:
    """Seconds that computing loses to collectives in which a device sends so much in so many seconds."""
    device = site.hardware.device
    if accesses <= 0:
        return 0.0
    if device.kind == "cpu":
        spare = device.cores is None or 2 * device.cores < (site.hardware.vcpus or 0)
        return 0.0 if spare else min(sent_bytes * GLOO_CPU_S_PER_BYTE / (device.cores or 1), busy_s)
    if device.memory_bytes_per_s is None:
        return SHARE_UNKNOWN * busy_s
    return min(accesses * sent_bytes / (MEMORY_SHARE * device.memory_bytes_per_s), busy_s)


def copied_s(buckets: Sequence[Bucket], site: Site) -> float:
    """Seconds of copying all gradients into buckets, or sums out of them. A step that was recorded with
    buckets has its copies in it."""
    if site.mesh.is_sharded:
        return 0.0  # as Megatron does, in the buffers that are sent
    device, size = site.hardware.device, sum(bucket.bytes for bucket in buckets)
    if device.kind == "cpu":
        return CPU_COPY_S_PER_BYTE * size / device.cores if device.cores else 0.0
    if device.memory_bytes_per_s is None:
        return 0.0
    moved_s = COPIES / 2 * size / (MEMORY_SHARE * device.memory_bytes_per_s)
    return moved_s + COPY_S * sum(len(bucket.parameters) for bucket in buckets)


def _busy_s(sizes: Sequence[float], library: Library, peers: Peers) -> float:
    return sum(library.seconds("all_reduce", size, peers) * many for size, many in Counter(sizes).items())


@memoize(on=itself)
def _backward_s(computation: Computation) -> float:
    return float(mean_s(computation)[computation.role == BACKWARD].sum())


def turn_of(computation: Computation) -> int:
    """The op with which the first backward pass begins."""
    backward = np.flatnonzero(computation.role == BACKWARD)
    return int(backward[0]) if len(backward) else computation.ops


def mean_s(computation: Computation) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """How long each op takes on average."""
    return computation.durations_s.mean(axis=0) if computation.once_s is None else computation.once_s
