"""What the stages of a pipeline wait for in a step, beside all micro-batches on the slowest of them.

The closed form that plans are bounded and lowered with: the fill and drain of the other stages, which v
interleaved stages a device divide by v, and the sends. It is exact where stages are alike and sends are free.
Frameworks send and receive in one call that blocks, which is counted here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def bubble_s(stage_s: npt.ArrayLike, interleave: int = 1) -> float:
    """Seconds in which the slowest stage waits for the others to fill and to drain."""
    times = np.asarray(stage_s, np.float64)
    return float(times.sum() - times.max()) / interleave


def exposed_sends_s(send_s: float, interleave: int = 1) -> float:
    """Seconds of a micro-batch in which a stage sends and receives and does nothing else, once forward and
    once backward: with one pass after another it waits for its neighbours in turn; with interleaved stages
    another one computes meanwhile."""
    return 2 * send_s if interleave == 1 else 0.0
