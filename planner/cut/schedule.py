"""How long a pipeline takes for the micro-batches of a step.

Two answers to one question. `one_forward_one_backward_s` plays the schedule out, op by op: stage s of p does
p - 1 - s forward passes, then one forward and one backward in turn, then the backward passes that are left;
a pass waits for its neighbour's, and a send takes `send_s`. `pipeline_s` is the closed form: every
micro-batch on the slowest stage, and the fill and drain of the others, which v interleaved stages a device
divide by v. The closed form is exact where stages are alike and sends are free; plans are bounded and lowered
with it. Frameworks send and receive in one call that blocks, which the closed form counts and the played
schedule, whose sends run beside the next pass, does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def pipeline_s(
    forward_s: npt.ArrayLike,
    backward_s: npt.ArrayLike,
    micro_batches: int,
    interleave: int = 1,
    send_s: float = 0.0,
) -> float:
    """Seconds of all micro-batches of a step, by the closed form; times are those of each stage."""
    stage_s = np.asarray(forward_s, np.float64) + np.asarray(backward_s, np.float64)
    stages = len(stage_s)
    slowest = float(stage_s.max())
    steady = micro_batches * slowest
    sends_s = micro_batches * exposed_sends_s(send_s, interleave) if stages > 1 else 0.0
    return steady + bubble_s(stage_s, interleave) + 2 * send_s * (stages - 1) + sends_s


def bubble_s(stage_s: npt.ArrayLike, interleave: int = 1) -> float:
    """Seconds in which the slowest stage waits for the others to fill and to drain."""
    times = np.asarray(stage_s, np.float64)
    return float(times.sum() - times.max()) / interleave


def exposed_sends_s(send_s: float, interleave: int = 1) -> float:
    """Seconds of a micro-batch in which a stage sends and receives and does nothing else, once forward and
    once backward: with one pass after another it waits for its neighbours in turn; with interleaved stages
    another one computes meanwhile."""
    return 2 * send_s if interleave == 1 else 0.0


def one_forward_one_backward_s(
    forward_s: Sequence[float], backward_s: Sequence[float], micro_batches: int, send_s: float = 0.0
) -> float:
    """Seconds of all micro-batches of a step, by playing the 1F1B schedule (PipeDream-flush) out."""
    stages = len(forward_s)
    orders = [_order(stage, stages, micro_batches) for stage in range(stages)]
    forward_end = [[-1.0] * micro_batches for _ in range(stages)]
    backward_end = [[-1.0] * micro_batches for _ in range(stages)]
    free = [0.0] * stages
    at = [0] * stages
    left = 2 * stages * micro_batches
    while left:
        before = left
        for stage in range(stages):
            while at[stage] < len(orders[stage]):
                is_forward, micro = orders[stage][at[stage]]
                if is_forward:
                    arrived = 0.0 if stage == 0 else forward_end[stage - 1][micro]
                    first = stage == 0
                else:
                    last = stage == stages - 1
                    arrived = forward_end[stage][micro] if last else backward_end[stage + 1][micro]
                    first = last
                if arrived < 0:
                    break
                begin = max(free[stage], arrived + (0.0 if first else send_s))
                end = begin + (forward_s[stage] if is_forward else backward_s[stage])
                (forward_end if is_forward else backward_end)[stage][micro] = end
                free[stage] = end
                at[stage] += 1
                left -= 1
        assert left < before, "a schedule always has a pass that can go on"
    return max(free)


def _order(stage: int, stages: int, micro_batches: int) -> list[tuple[bool, int]]:
    """(is it forward, which micro-batch) of a stage, in order."""
    warm = min(stages - 1 - stage, micro_batches)
    order = [(True, micro) for micro in range(warm)]
    for micro in range(micro_batches - warm):
        order += [(True, warm + micro), (False, micro)]
    return order + [(False, micro) for micro in range(micro_batches - warm, micro_batches)]
