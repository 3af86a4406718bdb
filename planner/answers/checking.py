"""A real run beside its prediction: inside or outside of the range, and which assumption would explain it.

The step is split into what the device computes and the rest. If only one assumption was wrong, it must have
been wrong by so much: the device by (measured - rest) / computed, what is between devices by
(measured - computed) / rest. The likelier suspect is the one that had to be wrong by less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.answers.answer_files import ChosenPlan
from planner.errors import BadInput
from planner.simulator.cluster import COMPUTATION

PLAUSIBLE = (0.2, 3.0)  # times the prediction that a wrong assumption may explain
CLOSE = 0.02  # of the prediction: nothing to explain


@dataclass(frozen=True, slots=True)
class Suspect:
    """An assumption, and the factor that would explain the run alone. `wait_share`: the share of a step spent
    waiting for input."""

    name: str  # device, network or input
    times: float
    wait_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Check:
    """A prediction beside a measured run."""

    predicted_samples_per_s: float
    low: float
    high: float
    measured_samples_per_s: float
    suspects: tuple[Suspect, ...]

    @property
    def inside(self) -> bool:
        return self.low <= self.measured_samples_per_s <= self.high

    @property
    def factor(self) -> float:
        return self.measured_samples_per_s / self.predicted_samples_per_s

    @property
    def absurd(self) -> bool:
        """Whether the measured speed is too far off to belong to the same plan."""
        low, high = PLAUSIBLE
        return not low <= self.factor <= high


def check(plan: ChosenPlan, measured_samples_per_s: float) -> Check:
    """Compares a measured speed in samples per second with a plan's prediction."""
    if not (math.isfinite(measured_samples_per_s) and measured_samples_per_s > 0):
        raise BadInput(f"the measured rate is {measured_samples_per_s}; give samples per second, above zero")
    return Check(
        plan.samples_per_s,
        plan.low,
        plan.high,
        measured_samples_per_s,
        _suspects(plan, measured_samples_per_s),
    )


def _suspects(plan: ChosenPlan, measured: float) -> tuple[Suspect, ...]:
    slower = plan.samples_per_s / measured  # times as long a step
    if abs(slower - 1) <= CLOSE:
        return ()
    computed = min(plan.used(COMPUTATION, 1.0), 1.0)
    rest = 1.0 - computed
    suspects = []
    if (needed := slower - rest) > 0 and computed > 0:
        suspects.append(Suspect("device", needed / computed))
    if rest > 0.01 and (left := slower - computed) > 0:
        suspects.append(Suspect("network", left / rest))
    if slower > 1:
        times = slower / computed if computed else math.inf
        suspects.append(Suspect("input", times, (slower - 1) / slower))
    return tuple(sorted(suspects, key=lambda suspect: abs(math.log(suspect.times))))
