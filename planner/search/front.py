"""The Pareto front of plans: throughput against cost per sample.

A plan dominates another when it is at least as fast and costs at most as much per sample; the front holds the
plans that nothing dominates, the fastest and the cheapest among them.
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
