"""Rungs: how hard a simulation tries, from a glance to a full prediction.

Rungs of one effort share their runs: a glance is the first three runs of a short rung, a trial and a half are
the first of a long one. So going on costs only what is new, and a plan that went through all rungs has the
figures that the long rung alone would give.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from typing import Literal, Protocol

Rung = Literal["glance", "short", "medium", "trial", "half", "long"]  # from the roughest to the best
MANY_WORKERS = 8
FEWEST_STEPS = 72  # twelve a run


@dataclass(frozen=True, slots=True)
class RungEffort:
    """How hard to try.

    `max_steps` are those of a worker in all runs at most; None, as for `precision`, is the request's;
    `first_runs` are made in any case; with `fewer`, many workers do fewer steps each, which say as much.
    `bias`: by how much the mean may be off whatever the interval says. Runs of a few steps do not forget how
    they start; at 12 steps a run they were off by up to 4%.
    """

    precision: float | None
    max_steps: int | None
    first_runs: int = 6
    fewer: bool = False
    bias: float = 0.0

    def steps(self, workers: int) -> int | None:
        if self.max_steps is None or not self.fewer or workers <= MANY_WORKERS:
            return self.max_steps
        return max(FEWEST_STEPS, self.max_steps * MANY_WORKERS // workers)


SHORT = RungEffort(0.05, 180, fewer=True, bias=0.04)
MEDIUM = RungEffort(0.02, 240, first_runs=4)
LONG = RungEffort(None, None)
# The effort of a rung, how many of its runs (None: as many as the precision takes), and by how much its
# interval is widened before it excludes a plan.
RUNGS: dict[Rung, tuple[RungEffort, int | None, float]] = {
    "glance": (SHORT, 3, 2.0),
    "short": (SHORT, 6, 2.0),
    "medium": (MEDIUM, None, 1.0),
    "trial": (LONG, 3, 1.25),
    "half": (LONG, 6, 1.25),
    "long": (LONG, None, 1.0),
}


class Score(Protocol):
    """What a rung says of one plan; `planner.simulator.Prediction` is one."""

    @property
    def samples_per_s(self) -> float: ...
    @property
    def samples_per_s_low(self) -> float: ...
    @property
    def samples_per_s_high(self) -> float: ...


def cautious(score: Score, rung: Rung) -> tuple[float, float]:
    """Between which throughputs a plan is after a rung, on the safe side."""
    effort, _, caution = RUNGS[rung]
    mean, off = score.samples_per_s, effort.bias * score.samples_per_s
    low = mean - max(off, caution * (mean - score.samples_per_s_low))
    return low, mean + max(off, caution * (score.samples_per_s_high - mean))


def half_width(score: Score) -> float:
    return score.samples_per_s_high - score.samples_per_s


def cannot_tell(difference: float, one: Score, other: Score) -> bool:
    """Whether a difference is within the error of the two that it is between (independent, so by squares)."""
    return abs(difference) <= hypot(half_width(one), half_width(other))


def gain(now: Score, more: Score) -> tuple[float, float]:
    """How much more the second is than the first, relative to it, and the half-width of that."""
    ratio = more.samples_per_s / now.samples_per_s
    errors = half_width(now) / now.samples_per_s, half_width(more) / more.samples_per_s
    return ratio - 1, ratio * hypot(*errors)
