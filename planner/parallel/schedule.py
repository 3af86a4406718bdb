"""Stages of a pipeline: where they begin and end, and what they wait for.

Stages are as fast as they can be, by the search of Yan et al. (KDD'15, section 4) with one choice left, where
a segment ends: with f(s, j) the least time of the slowest of s stages over the first j units,

    f(s, j) = min over i < j of max( f(s - 1, i), time(i, j) ).

What stages wait for in a step, beside all micro-batches on the slowest of them, is a closed form: the fill
and drain of the other stages, which v virtual pipeline stages per device divide by v (interleaved 1F1B,
Narayanan et al. 2021), and the sends. It is exact where stages are alike and sends are free. Frameworks send
and receive in one call that blocks, which is counted here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.model.units import Floats


def balanced(unit_s: npt.ArrayLike, stages: int) -> tuple[int, ...]:
    """Where stages begin and end: `stages + 1` increasing positions in the chain of units. Of equally fast
    choices the one whose stages end earliest is taken."""
    times = np.asarray(unit_s, np.float64)
    units = len(times)
    if not 1 <= stages <= units:
        raise BadInput(f"{stages} pipeline stages for {units} units; the nearest that works is {units}")
    if stages == 1:
        return (0, units)
    time_s = _spans(times)
    begins = np.zeros((stages, units + 1), np.intp)
    best = time_s[:, 0]  # the first stage begins at the first unit
    for stage in range(1, stages):
        ends = slice(units, None) if stage == stages - 1 else slice(None)  # the last one ends at the last
        slowest = np.maximum(best, time_s[ends])
        begins[stage, ends] = slowest.argmin(axis=1)
        best = slowest.min(axis=1)
    boundaries = [units]
    for stage in reversed(range(stages)):
        boundaries.append(int(begins[stage, boundaries[-1]]))
    return tuple(reversed(boundaries))


def _spans(each: Floats) -> Floats:
    """Seconds of the units before one position (row) and from another on (column); infinite for none."""
    before = np.zeros(len(each) + 1)
    np.cumsum(each, out=before[1:])
    spans = before[:, None] - before
    spans[_empty(len(before))] = np.inf
    return spans


def _empty(positions: int) -> npt.NDArray[np.bool_]:
    """Where the end of a stage is not after its begin."""
    return np.tri(positions, dtype=bool).T


def bubble_s(stage_s: npt.ArrayLike, virtual_stages: int = 1) -> float:
    """Seconds in which the slowest stage waits for the others to fill and to drain."""
    times = np.asarray(stage_s, np.float64)
    return float(times.sum() - times.max()) / virtual_stages


def exposed_sends_s(send_s: float, virtual_stages: int = 1) -> float:
    """Seconds of a micro-batch in which a stage sends and receives and does nothing else, once forward and
    once backward: with one pass after another it waits for its neighbours in turn; with virtual stages
    another one computes meanwhile."""
    return 2 * send_s if virtual_stages == 1 else 0.0
