"""How long a pipeline takes for the micro-batches of a step: played out op by op, and by the closed form.

Stage s of p does p - 1 - s forward passes, then one forward and one backward in turn, then the backward
passes that are left; a pass waits for its neighbour, and a send takes `send_s`, beside the next pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.parallel.pipeline import bubble_s, exposed_sends_s


def pipeline_s(
    forward_s: npt.ArrayLike,
    backward_s: npt.ArrayLike,
    micro_batches: int,
    virtual_stages: int = 1,
    send_s: float = 0.0,
) -> float:
    """Seconds of all micro-batches of a step, by the closed form; times are those of each stage."""
    stage_s = np.asarray(forward_s, np.float64) + np.asarray(backward_s, np.float64)
    stages = len(stage_s)
    slowest = float(stage_s.max())
    steady = micro_batches * slowest
    sends_s = micro_batches * exposed_sends_s(send_s, virtual_stages) if stages > 1 else 0.0
    return steady + bubble_s(stage_s, virtual_stages) + 2 * send_s * (stages - 1) + sends_s


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
