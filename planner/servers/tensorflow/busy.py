"""Ops that ran at the same time, as one worker that runs one op at a time would have to be told of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def shared_time(starts: npt.NDArray[np.float64], ends: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How much of the busy time each of these intervals has, if at every instant those that run share it."""
    times = np.unique(np.concatenate([starts, ends]))
    if len(times) < 2:
        return ends - starts
    first, last = np.searchsorted(times, starts), np.searchsorted(times, ends)
    change = np.bincount(first, minlength=len(times)) - np.bincount(last, minlength=len(times))
    running = np.cumsum(change)[:-1]
    share = np.diff(times) / np.maximum(running, 1)
    total = np.concatenate([[0.0], np.cumsum(share)])
    alone = total[last] - total[first]
    overlaps = np.array([running[a:b].max(initial=1) > 1 for a, b in zip(first, last, strict=True)])
    return np.where(overlaps, alone, ends - starts)  # those that ran alone keep their time to the last bit


def dispatch_gaps(
    starts: npt.NDArray[np.float64],
    ends: npt.NDArray[np.float64],
    ops: npt.NDArray[np.intp],
    deps: Sequence[Sequence[int]],
) -> npt.NDArray[np.float64]:
    """How long (steps x ops) each of `ops` waited before its start although its dependencies had ended and
    none of the others ran."""
    own_starts, own_ends = starts[:, ops], ends[:, ops]
    gaps = np.zeros(own_starts.shape)
    for column, needs in enumerate(deps):
        start = own_starts[:, column, None]
        free = np.where(own_ends <= start, own_ends, -np.inf).max(axis=1)
        ready = np.maximum(free, ends[:, list(needs)].max(axis=1)) if needs else free
        busy = ((own_starts < start) & (own_ends > start)).any(axis=1)
        known = np.isfinite(ready) & ~busy
        gaps[:, column] = np.where(known, np.maximum(start[:, 0] - np.where(known, ready, 0.0), 0.0), 0.0)
    return gaps
