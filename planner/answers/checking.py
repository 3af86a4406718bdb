"""A real run beside its prediction: inside or outside of the range, and which assumption would explain it.

The step is split into what the device computes and the rest. If only one assumption was wrong, it must have
been wrong by so much: the device by (measured - rest) / computed, what is between devices by
(measured - computed) / rest. The likelier suspect is the one that had to be wrong by less.

The speed of a run comes from a series of its log, without warm-up and evaluation. Names of series are read
word by word: `train/step_time_ms`, `samples_per_sec`, `it/s`. Step times are preferred to samples per second,
steps per second and timestamps, in this order; a single figure for the whole run is used only where nothing
else is logged.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from planner.answers.answer_files import ChosenPlan
from planner.answers.training_logs import TrainingLog, read_log
from planner.errors import BadInput
from planner.simulator.cluster import COMPUTATION

PLAUSIBLE = (0.2, 3.0)  # times the prediction that a wrong assumption may explain
CLOSE = 0.02  # of the prediction: nothing to explain


@dataclass(frozen=True, slots=True)
class Suspect:
    """An assumption that, wrong by a factor, would alone explain a measured speed.

    `wait_share`: the share of a step spent waiting for input.
    """

    name: str  # device, network or input
    times: float
    wait_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Check:
    """Comparison of a predicted with a measured speed."""

    predicted_samples_per_s: float
    low: float
    high: float
    measured_samples_per_s: float
    suspects: tuple[Suspect, ...]

    @property
    def is_inside(self) -> bool:
        """Whether the measured speed lies in the predicted range."""
        return self.low <= self.measured_samples_per_s <= self.high

    @property
    def factor(self) -> float:
        """Measured speed divided by the predicted one."""
        return self.measured_samples_per_s / self.predicted_samples_per_s

    @property
    def is_absurd(self) -> bool:
        """Whether the measured speed is so far off that it must belong to another plan."""
        low, high = PLAUSIBLE
        return not low <= self.factor <= high


def check_speed(plan: ChosenPlan, measured_samples_per_s: float) -> Check:
    """Compares a measured speed in samples per second with a plan's prediction."""
    if not (math.isfinite(measured_samples_per_s) and measured_samples_per_s > 0):
        raise BadInput(f"the measured rate is {measured_samples_per_s}; give samples per second, above zero")
    return Check(
        plan.samples_per_s,
        plan.range_low_samples_per_s,
        plan.range_high_samples_per_s,
        measured_samples_per_s,
        _suspects(plan, measured_samples_per_s),
    )


def _suspects(plan: ChosenPlan, measured: float) -> tuple[Suspect, ...]:
    """Assumptions that would explain the measured speed; empty if the prediction is close."""
    slower = plan.samples_per_s / measured  # times as long a step
    if abs(slower - 1) <= CLOSE:
        return ()
    computed = min(plan.utilisation_of(COMPUTATION, 1.0), 1.0)
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


WARMUP = 10  # the first tenth of the values is left out, at least one
FEWEST = 3  # values needed to leave out warm-up

Kind = Literal["step time", "samples per second", "steps per second"]
KINDS: tuple[Kind, ...] = ("step time", "samples per second", "steps per second")
_EVALUATION = frozenset(("eval", "evaluation", "val", "valid", "validation", "test"))
_OTHER = frozenset(
    ("device", "gpu", "rank", "min", "max", "std", "data", "dataloader", "loading", "forward", "backward")
) | {"optimizer", "total", "elapsed", "vs"}
_STEP = "(?:steps?|iterations?|iters?|it|batch|batches)"
_SAMPLE = "(?:samples?|examples?|images?|imgs?|sequences?|seqs?)"
_SECOND = "(?:s|secs?|seconds?)"
_UNIT = f"(?:{_SECOND}|ms|msecs?|milliseconds?|millis)"
_PATTERNS: dict[Kind, re.Pattern[str]] = {
    "step time": re.compile(
        rf"\b(?:{_STEP} (?:times?|timing|duration|latency)|{_STEP}(?: in)? {_UNIT}$"
        rf"|(?:times?|{_UNIT}) per {_STEP}|end to end {_SECOND}$)"
    ),
    "samples per second": re.compile(rf"\b{_SAMPLE} per {_SECOND}\b"),
    "steps per second": re.compile(rf"\b{_STEP} per {_SECOND}\b"),
}


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Samples per second of all workers, and the part of the log they come from."""

    samples_per_s: float
    source: str


def measured_speed(path: Path | str, samples_per_step: int) -> MeasuredSpeed:
    """Reads the speed of a run from its log; `samples_per_step` is the plan's global batch."""
    log = read_log(path)
    if ways := list(_speed_sources(log, samples_per_step)):
        _, _, name, steps = min(ways, key=lambda way: way[:2])
        return _mean_speed(log, name, steps, samples_per_step)
    names = ", ".join(sorted(log.series)[:8]) or "no values"
    raise BadInput(
        f"{path}: no step time, samples per second or clock among {names}; log step_time in seconds, or give "
        "--measured"
    )


def series_quantity(name: str) -> tuple[Kind, float] | None:
    """What a series measures, by its name, and the factor to seconds; None if not recognized."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    spaced = re.sub(rf"/(?={_SECOND}\b|{_STEP}$)", " per ", spaced)
    words = re.findall(r"[a-z]+", spaced)
    if not (_EVALUATION | _OTHER).isdisjoint(words):
        return None
    phrase = " ".join(words)
    for kind in reversed(KINDS):
        if _PATTERNS[kind].search(phrase):
            thousandths = kind == "step time" and re.search(r"\b(?:ms|msecs?|milliseconds?|millis)\b", phrase)
            return kind, 1e-3 if thousandths else 1.0
    return None


Steps = list[tuple[float, float]]  # seconds, and the number of steps that took them


def _speed_sources(log: TrainingLog, samples_per_step: int) -> Iterator[tuple[bool, int, str, Steps]]:
    """Yields possible sources of the speed: (has too few values, preference rank, series name, values)."""
    for name, series in log.series.items():
        meaning = series_quantity(name) or (("step time", 1.0) if log.format == "numbers" else None)
        if meaning is None:
            continue
        kind, factor = meaning
        values = [logged.value for logged in series]
        wrong = next((value for value in values if not value > 0), None)
        if wrong is not None:
            raise BadInput(f"{log.path}: {name}: a value of {wrong:g}; it must be above zero")
        work = samples_per_step if kind == "samples per second" else 1
        steps = [(value * factor if kind == "step time" else work / value, 1.0) for value in values]
        yield len(steps) < FEWEST, KINDS.index(kind), name, steps
    for name in sorted(log.series, key=lambda name: "loss" not in name):
        steps, evaluations = _step_intervals(log, name)
        if evaluations:
            name += f" without {evaluations} interval{'s' if evaluations > 1 else ''} of evaluation"
        if steps:
            yield len(steps) < FEWEST, len(KINDS), f"timestamps of {name}", steps


def _step_intervals(log: TrainingLog, name: str) -> tuple[Steps, int]:
    """Seconds and steps between a series' values, and how many intervals were skipped for an evaluation.
    Empty without a clock that advances with the steps."""
    known = {(step, clock_s) for _, step, clock_s in log.series[name]}
    points = sorted((step, clock_s) for step, clock_s in known if step is not None and clock_s is not None)
    pairs = list(pairwise(points))
    if _is_evaluation(name) or any(later[1] <= earlier[1] for earlier, later in pairs):
        return [], 0
    evaluations = (series for other, series in log.series.items() if _is_evaluation(other))
    evaluated = sorted(at.clock_s for series in evaluations for at in series if at.clock_s is not None)
    intervals: Steps = []
    for (step, start_s), (next_step, end_s) in pairs:
        if bisect_right(evaluated, start_s) == bisect_right(evaluated, end_s) and next_step > step:
            intervals.append((end_s - start_s, next_step - step))
    advancing = sum(later[0] > earlier[0] for earlier, later in pairs)
    return intervals, advancing - len(intervals)


def _is_evaluation(name: str) -> bool:
    """Whether a series name refers to evaluation, not to training."""
    return not _EVALUATION.isdisjoint(re.findall(r"[a-z]+", name.lower()))


def _mean_speed(log: TrainingLog, name: str, steps: Steps, samples_per_step: int) -> MeasuredSpeed:
    """Mean samples per second without warm-up, with its source in words."""
    skipped = max(len(steps) // WARMUP, 1) if len(steps) >= FEWEST else 0
    kept = steps[skipped:]
    seconds, count = (sum(column) for column in zip(*kept, strict=True))
    rate = samples_per_step * count / seconds if seconds else math.inf
    if not 0 < rate < math.inf:
        raise BadInput(f"{log.path}: {name} gives {rate:g} samples per second; check its unit")
    if not skipped:
        return MeasuredSpeed(rate, f"{name} ({log.format}), warm-up included")
    values = f"{len(kept):,} values, the first {skipped:,} left out as warm-up"
    return MeasuredSpeed(rate, f"{name} ({log.format}): {values}")
