"""What crosses machines between two stages: the segment-worker mapping of Yan et al. (KDD 2015), section 5.

A stage with P partitions and R replications has P R segments, each on a worker of its own (constraint C3);
copy r of a stage trains every R-th sample. A segment goes to the worker that already holds most of what it
needs. The greedy choice is best unless two segments want the same worker; then the assignment problem is
solved (`linear_sum_assignment`). Workers are alike, so the source's segment (p, r) may stand on worker
p R + r without loss: for a chain of stages every pair of neighbours reaches its best mapping.

Samples meet copy r0 of the source and copy r1 of the stage when r0 = r1 modulo gcd(R0, R1), each such pair
equally often. For one sample the slowest segment counts: the most elements received by any segment (A), and
on the way back the most errors received by any segment of the source (E): for each activation that was sent,
a partial error returns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

from planner.memoize import memoize
from planner.servers.partition.stages import Geometry

_FEW = 4
Placement = npt.NDArray[np.intp]  # [p, r] -> worker


@dataclass(frozen=True, slots=True)
class Traffic:
    """Shares of the source's elements that the slowest segment receives, averaged over samples, and the share
    of samples for which anything is received."""

    forward: float
    forward_messages: float
    backward: float
    backward_messages: float

    @property
    def shares(self) -> tuple[float, float, float, float]:
        return self.forward, self.forward_messages, self.backward, self.backward_messages


def _bounds(rows: int, partitions: int) -> npt.NDArray[np.float64]:
    return np.floor(np.arange(partitions + 1) * rows / partitions)


@memoize(most_bytes=64 << 20)
def overlaps(geometry: Geometry, source_parts: int, parts: int) -> npt.NDArray[np.float64]:
    """[p, q]: rows that segment p of the stage needs of segment q of its source, as shares of all rows."""
    g = geometry
    held = _bounds(g.rows_in, source_parts)
    if g.all_rows:
        low, high = np.zeros(parts), np.full(parts, float(g.rows_in))
    else:
        out = _bounds(g.rows_out, parts)
        pad = max(0, (g.rows_out - 1) * g.stride + g.kernel - g.rows_in) // 2
        low = np.clip(out[:-1] * g.stride - pad, 0, g.rows_in)
        high = np.clip((out[1:] - 1) * g.stride - pad + g.kernel, low, g.rows_in)
    rows = np.minimum(high[:, None], held[None, 1:]) - np.maximum(low[:, None], held[None, :-1])
    return np.asarray(np.maximum(rows, 0.0) / g.rows_in)


def default_placement(parts: int, copies: int) -> Placement:
    return np.arange(parts * copies, dtype=np.intp).reshape(parts, copies)


def best_placement(
    workers: int, parts: int, copies: int, sources: list[tuple[npt.NDArray[np.float64], Placement]]
) -> Placement:
    """The workers on which a stage's segments find most of what they need. `sources` holds the overlaps with
    each source (times its elements) and where that source stands."""
    gain = np.zeros((parts, copies, workers))
    for overlap, place in sources:
        r0, r1 = _meetings(place.shape[1], copies)
        gain[:, r1[None, :], place[:, r0]] += overlap[:, :, None]
    flat = gain.reshape(parts * copies, workers)
    wanted = flat.argmax(axis=1)
    if len(set(wanted.tolist())) < len(wanted):
        wanted = _assigned(flat)
    return np.asarray(wanted, np.intp).reshape(parts, copies)


def _assigned(gain: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Each row's column, all different, with the most gain in all. Few are tried one by one: loading the
    solver takes longer than that."""
    rows, columns = gain.shape
    if columns <= _FEW:
        every = np.array(list(permutations(range(columns), rows)), np.intp)
        return np.asarray(every[gain[np.arange(rows), every].sum(axis=1).argmax()])
    from scipy.optimize import linear_sum_assignment

    return np.asarray(linear_sum_assignment(gain, maximize=True)[1], np.intp)


def traffic_between(overlap: npt.NDArray[np.float64], source: Placement, stage: Placement) -> Traffic:
    """What crosses machines between a source and a stage that stand where they stand."""
    r0, r1 = _meetings(source.shape[1], stage.shape[1])
    together = stage[:, None, r1] == source[None, :, r0]  # segments p, q, meetings
    away = np.where(together, 0.0, overlap[:, :, None])
    received, sent = away.sum(axis=1).max(axis=0), away.sum(axis=0).max(axis=0)
    n = len(r0)
    return Traffic(
        float(received.sum()) / n,
        np.count_nonzero(received) / n,
        float(sent.sum()) / n,
        np.count_nonzero(sent) / n,
    )


@memoize(most_bytes=64 << 20)
def _meetings(source_copies: int, copies: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The pairs of copies (r0 of the source, r1 of the stage) that meet over a sample."""
    every = math.lcm(source_copies, copies)
    samples = np.arange(every)
    return samples % source_copies, samples % copies


@memoize(most_bytes=64 << 20)
def best_traffic(geometry: Geometry, source: tuple[int, int], stage: tuple[int, int]) -> Traffic:
    """The traffic between neighbours (P, R) with the best mapping of the stage's segments."""
    overlap = overlaps(geometry, source[0], stage[0])
    workers = max(math.prod(source), math.prod(stage))
    before = default_placement(*source)
    if source == stage:  # each segment's own stripe is the largest part of what it needs
        return traffic_between(overlap, before, before)
    return traffic_between(overlap, before, best_placement(workers, *stage, [(overlap, before)]))
