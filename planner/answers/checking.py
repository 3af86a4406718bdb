"""A real run beside its prediction: inside or outside of the range, and which assumption would explain it.

The step is split into what the device computes and the rest. If only one assumption was wrong, it must have
been wrong by so much: the device by (measured - rest) / computed, what is between devices by
(measured - computed) / rest. The likelier culprit is the one that had to be wrong by less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.answers.answer_files import ChosenPlan
from planner.errors import BadInput
from planner.simulator.resource import COMPUTATION

PLAUSIBLE = (0.2, 3.0)  # times the prediction that a wrong assumption may explain
CLOSE = 0.02  # of the prediction: nothing to explain


@dataclass(frozen=True, slots=True)
class Culprit:
    """An assumption, and what it would have to be times to explain the run alone (above 1: slower)."""

    name: str
    words: str
    times: float


@dataclass(frozen=True, slots=True)
class Check:
    """A prediction and a run of it."""

    predicted_samples_per_s: float
    low: float
    high: float
    measured_samples_per_s: float
    culprits: tuple[Culprit, ...]

    @property
    def inside(self) -> bool:
        return self.low <= self.measured_samples_per_s <= self.high

    @property
    def factor(self) -> float:
        return self.measured_samples_per_s / self.predicted_samples_per_s

    @property
    def absurd(self) -> bool:
        """Whether the run is so far off that it was rather measured or meant otherwise."""
        low, high = PLAUSIBLE
        return not low <= self.factor <= high


def measured_rate(step_times_s: Sequence[float], samples_per_step: int) -> float:
    """Samples a second from the seconds of single steps; the first tenth warms up."""
    times = list(step_times_s)[len(step_times_s) // 10 :]
    if not times:
        raise BadInput("there are no step times in the file; write one number of seconds a line")
    wrong = next((one for one in times if not (math.isfinite(one) and one > 0)), None)
    if wrong is not None:
        raise BadInput(f"a step of {wrong} s; step times are seconds above zero")
    return samples_per_step * len(times) / sum(times)


def check(plan: ChosenPlan, measured_samples_per_s: float) -> Check:
    """A run of a plan against its prediction."""
    if not (math.isfinite(measured_samples_per_s) and measured_samples_per_s > 0):
        raise BadInput(f"the measured rate is {measured_samples_per_s}; it is samples a second, above zero")
    return Check(
        plan.samples_per_s,
        plan.low,
        plan.high,
        measured_samples_per_s,
        _culprits(plan, measured_samples_per_s),
    )


def _culprits(plan: ChosenPlan, measured: float) -> tuple[Culprit, ...]:
    slower = plan.samples_per_s / measured  # times as long a step
    if abs(slower - 1) <= CLOSE:
        return ()
    computed = min(plan.used(COMPUTATION, 1.0), 1.0)
    rest = 1.0 - computed
    found = []
    if (needed := slower - rest) > 0 and computed > 0:
        found.append(Culprit("device", f"the device computes {_times(needed / computed)}", needed / computed))
    if rest > 0.01 and (left := slower - computed) > 0:
        longer = left / rest
        words = f"transfers and waiting that computation does not hide take {longer:.2g} times as long"
        found.append(Culprit("network", words, left / rest))
    if slower > 1:
        words = f"each step waits {(slower - 1) / slower:.0%} of its time for input or the host"
        found.append(Culprit("input", words, slower / computed if computed else math.inf))
    return tuple(sorted(found, key=lambda one: abs(math.log(one.times))))


def _times(slower: float) -> str:
    how = f"{slower:.2g} times slower" if slower > 1 else f"{1 / slower:.2g} times faster"
    return f"{how} than assumed"
