"""Stages of a pipeline: a chain of blocks cut into contiguous runs, the slowest as fast as it can be.

The search is that of Yan et al. (KDD'15, section 4) with one choice left, where a segment ends: with f(s, j)
the least time of the slowest of s stages over the first j blocks,

    f(s, j) = min over i < j of max( f(s - 1, i), time(i, j) )   where stage s holds blocks i to j in memory.

Memory differs by stage: in the 1F1B schedule stage s of p keeps the activations of p - s micro-batches, so an
early stage may have to be shorter than time alone would make it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def balanced(
    block_s: npt.ArrayLike,
    stages: int,
    *,
    state_bytes: npt.ArrayLike | None = None,
    activation_bytes: npt.ArrayLike | None = None,
    memory_bytes: float = np.inf,
    micro_batches: int | None = None,
) -> tuple[int, ...] | None:
    """Where stages begin and end: `stages + 1` increasing positions in the chain of blocks, or None where no
    cut fits in memory. `state_bytes` are held by a block once, `activation_bytes` for each micro-batch in
    flight. Of equally fast cuts the one whose stages end earliest is taken."""
    times = np.asarray(block_s, np.float64)
    blocks = len(times)
    if not 1 <= stages <= blocks:
        return None
    state = np.zeros(blocks) if state_bytes is None else np.asarray(state_bytes, np.float64)
    kept = np.zeros(blocks) if activation_bytes is None else np.asarray(activation_bytes, np.float64)
    bounded = memory_bytes < np.inf
    if stages == 1 and not bounded:
        return (0, blocks) if np.isfinite(times).all() else None
    time_s = _spans(times)
    if bounded:
        state, kept = _spans(state), _spans(kept)
    cut_at = np.zeros((stages, blocks + 1), np.intp)
    best = time_s[:, 0]  # the first stage begins at the first block
    if bounded:
        full = state[:, 0] + in_flight(0, stages, micro_batches) * kept[:, 0] > memory_bytes
        best = np.where(full, np.inf, best)
    for stage in range(1, stages):
        of = slice(blocks, None) if stage == stages - 1 else slice(None)  # the last one ends at the last
        slowest = np.maximum(best, time_s[of])
        if bounded:
            full = state[of] + in_flight(stage, stages, micro_batches) * kept[of] > memory_bytes
            slowest[full] = np.inf
        cut_at[stage, of] = slowest.argmin(axis=1)
        best = slowest.min(axis=1)
    if not np.isfinite(best[-1]):
        return None
    ends = [blocks]
    for stage in reversed(range(stages)):
        ends.append(int(cut_at[stage, ends[-1]]))
    return tuple(reversed(ends))


def _spans(each: Floats) -> Floats:
    """What the blocks before one position (row) and from another on (column) have together; infinite where
    they are none."""
    before = np.zeros(len(each) + 1)
    np.cumsum(each, out=before[1:])
    spans = before[:, None] - before
    spans[_none(len(before))] = np.inf
    return spans


@lru_cache(maxsize=64)
def _none(positions: int) -> npt.NDArray[np.bool_]:
    """Where the end of a stage is not after its begin."""
    return np.tri(positions, dtype=bool).T


def in_flight(stage: int, stages: int, micro_batches: int | None = None, interleave: int = 1) -> float:
    """Micro-batches whose activations a stage keeps at its fullest moment. With interleaved stages the
    warm-up is longer by (p - 1) / (p v) (Narayanan et al. 2021, section 2.2)."""
    deep = float(stages - stage)
    if interleave > 1:
        deep = stages * (1 + (stages - 1) / (stages * interleave))
    return deep if micro_batches is None else min(deep, float(micro_batches))
