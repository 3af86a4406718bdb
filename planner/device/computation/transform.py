"""Computations made from others: several micro-batches in a step, recorded steps without their accidents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.device.computation import WAIT, Computation, Ints, Parameter, Variation
from planner.errors import BadInput

MOST_RUNS = 3
ROWS = 64  # steps that stand for a distribution of durations


def accumulated(computation: Computation, micro_batches: int, most: int = MOST_RUNS) -> Computation:
    """The same forward and backward pass so many times, one after the other, before the optimizer: parameters
    are read in each, gradients are complete after the last.

    Of more than `most` passes the first and the last stay as they are, because exchanges overlap with them,
    and `most - 2` longer ones stand for those between. Where collectives run in every pass they
    are longer by as much: what overlaps in one pass overlaps in the long one, and only what is not hidden at
    its ends, one unit's collective, is counted too often, by a unit of all units times runs. The wait for
    other stages of a pipeline is one of the step, divided among its micro-batches.
    """
    if micro_batches < 1:
        raise BadInput(f"accumulate is {micro_batches}; a step has at least one micro-batch")
    if micro_batches == 1:
        return computation
    if computation.micro_batches > 1:
        raise BadInput("micro-batches of a step that is made of several already cannot be repeated")
    times = min(micro_batches, most)
    longer = (micro_batches - 2) / (times - 2) if times > 2 else 1.0
    scale = (1.0, *(longer,) * (times - 2), 1.0)
    n = computation.ops
    last = (times - 1) * n
    parameters = tuple(
        replace(
            parameter,
            readers=tuple(at * n + op for at in range(times) for op in parameter.readers),
            ready=None if parameter.ready is None else last + parameter.ready,
        )
        for parameter in computation.parameters
    )
    start, index = _repeated_deps(computation, times)
    each = np.repeat(scale, n)
    if computation.work is not None:
        each = np.where(np.tile(computation.work == WAIT, times), each / micro_batches, each)
    once_s = None if computation.once_s is None else np.tile(computation.once_s, times) * each
    durations_s = (
        _repeated(computation, times) * each
        if once_s is None
        else once_s * computation.variation.factors(computation.steps, len(once_s), computation.seed)
    )
    return replace(
        computation,
        batch=computation.batch * micro_batches,
        names=tuple(f"{name}#{at}" for at in range(times) for name in computation.names),
        role=np.tile(computation.role, times),
        layer=np.tile(computation.layer, times),
        work=None if computation.work is None else np.tile(computation.work, times),
        dep_start=start,
        dep_index=index,
        durations_s=durations_s,
        parameters=parameters,
        once_s=once_s,
        micro_batches=times,
        stands_for=scale,
        step=None,
        layout=None,
    )


def _repeated_deps(computation: Computation, times: int) -> tuple[Ints, Ints]:
    """Where the waits of each op begin, and for which ops it waits; a pass begins when the one before it is
    over."""
    n, waits = computation.ops, np.diff(computation.dep_start)
    first = np.flatnonzero(waits == 0)
    later = np.insert(computation.dep_index, computation.dep_start[first], -1)  # the op before the pass
    index = [computation.dep_index, *(at * n + later for at in range(1, times))]
    count = np.concatenate([waits, np.tile(np.maximum(waits, 1), times - 1)])
    start = np.concatenate([[0], np.cumsum(count)])
    return start.astype(np.int32), np.concatenate(index).astype(np.int32)


def _repeated(computation: Computation, times: int) -> np.ndarray:
    """Recorded rows in a row: pass k of step i is the recorded step i + k."""
    rows = [np.roll(computation.durations_s, -at, axis=0) for at in range(times)]
    return np.concatenate(rows, axis=1)


def steadied(
    computation: Computation, variation: Variation | None = None, *, steps: int = ROWS, seed: int = 0
) -> Computation:
    """Every op as long as in the middle of its recorded steps: few steps, some of them disturbed by the
    recording, say little of how steps vary. With `variation` they vary by so much, and no more."""
    once_s = np.median(computation.durations_s, axis=0)
    vary = variation or Variation(0.0, 0.0)
    rows = steps if vary.step_sigma or vary.op_sigma else 1
    return replace(
        computation,
        durations_s=once_s * vary.factors(rows, len(once_s), seed),
        once_s=once_s,
        variation=vary,
        seed=seed,
        step=None,
    )


__all__ = ["Parameter", "accumulated", "steadied"]
