"""A step's time as a linear function of six costs, which is what fits of kernel rates need.

By the rates of a hardware file arithmetic and traffic add up (`planner.device.rates.times.fitted_rates`), so
that a step takes x . theta seconds: theta are the seconds of a multiply-add of each kernel kind, of a byte,
and of a kernel; x[k] is the time of the step if cost k were one second and all others nothing.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from planner.device.rates.times import FITTED_KINDS as KINDS
from planner.device.rates.times import fitted_times
from planner.hardware import KernelRates
from planner.model import Model

MEMORY = KINDS.index("memory")
OVERHEAD = len(KINDS)
COSTS = len(KINDS) + 1


@lru_cache(maxsize=4096)
def step_costs(model: Model, batch: int, training: bool = True) -> npt.NDArray[np.float64]:
    """Seconds of a whole step for one second of each cost, the update included."""
    out = np.empty(COSTS)
    for cost in range(COSTS):
        rates = {kind: 1.0 if at == cost else np.inf for at, kind in enumerate(KINDS)}
        unit = KernelRates(rates, float(cost == OVERHEAD), "estimated", "one cost at a time")
        out[cost] = fitted_times(model, batch, unit, training=training).step_s
    out.flags.writeable = False
    return out
