"""The Pareto front of plans: throughput against cost per sample, and its knee.

A plan dominates another when it is at least as fast and costs at most as much a sample; what is on the front
is dominated by nothing. The fastest, the cheapest and the best value (the knee) are all on it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
NEAR_FASTEST = 0.02  # "fastest" means the cheapest of the plans within this of the highest throughput


def front(samples_per_s: Floats, usd_per_sample: Floats) -> list[int]:
    """Indices of the plans that nothing dominates, fastest first; of equal plans the first one stays."""
    order = np.lexsort((np.arange(len(samples_per_s)), usd_per_sample, -samples_per_s))
    out: list[int] = []
    cheapest = np.inf
    for i in order.tolist():
        if usd_per_sample[i] < cheapest:
            out.append(i)
            cheapest = usd_per_sample[i]
    return out


def knee(samples_per_s: Floats, usd_per_sample: Floats) -> int:
    """The best value on a front: the point furthest from the line between its ends, on logarithmic axes.

    Logarithms make the choice independent of units and treat "twice as fast" and "half the price" alike. A
    front of one or two points has no knee; then it is the one with most throughput for its cost a sample.
    """
    speed, cost = np.log(samples_per_s), np.log(usd_per_sample)
    if len(speed) < 3:
        return int(np.argmax(speed - cost))
    span_speed, span_cost = np.ptp(speed), np.ptp(cost)
    if span_speed == 0 or span_cost == 0:
        return int(np.argmax(speed - cost))
    gain = (speed - speed.min()) / span_speed - (cost - cost.min()) / span_cost
    return int(np.argmax(gain))


def cheapest_of_fastest(samples_per_s: Floats, usd_per_sample: Floats) -> int:
    """Of the plans within `NEAR_FASTEST` of the highest throughput, the one with the lowest cost a sample.

    It lies on the front: what dominates it would be at least as fast and cheaper.
    """
    near = np.flatnonzero(samples_per_s >= samples_per_s.max() * (1 - NEAR_FASTEST))
    best = np.lexsort((near, -samples_per_s[near], usd_per_sample[near]))[0]
    return int(near[best])
