"""What one worker computes in a step, apart from how replicas exchange what they learn.

`Computation` is the noun. It is made from a model and a device (`synthesis`) or from recorded steps
(`recorded`), knows no network and no other worker, and every exchange (`planner.parallel.data`) lowers it to
the step that the simulator runs. Imports nouns only: models, hardware, precision.
"""

from planner.device.computation._computation import (
    BACKWARD,
    COMPUTE,
    FORWARD,
    OTHER,
    RECOMPUTE,
    SUM,
    WAIT,
    Computation,
    Parameter,
    Shape,
    Variation,
)

__all__ = [
    "BACKWARD",
    "COMPUTE",
    "FORWARD",
    "OTHER",
    "RECOMPUTE",
    "SUM",
    "WAIT",
    "Computation",
    "Parameter",
    "Shape",
    "Variation",
]
