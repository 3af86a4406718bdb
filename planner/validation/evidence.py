"""Comparison of measured runs with predictions, and the error statistics of many runs.

A `Compared` is one run: the measurement, our prediction and its stated range, the prediction with constants
chosen without the run's source, and the estimate of a rule of thumb. `Figures` summarize many runs. Runs that
a suite cannot compare are in `Evidence.skipped` with the reason, never dropped silently.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

OTHER_KIND = "of another kind"  # why a suite passes a run over that is none of its own
Target = tuple[float, float]  # median and nine in ten of the error


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A measured run and its prediction; `part` names the line of the suite's table that counts it."""

    id: str
    source: str
    part: str
    what: str
    unit: str
    measured: float
    predicted: float
    low: float | None = None
    high: float | None = None
    left_out: float | None = None
    rule: float | None = None
    claimed: bool | None = None  # whether a paper's row does what is claimed of it

    @property
    def error(self) -> float:
        """Relative error: predicted / measured - 1."""
        return self.predicted / self.measured - 1

    @property
    def is_in_range(self) -> bool | None:
        """Whether the measurement lies in the predicted range; without a range, whether the claim holds."""
        if self.low is None or self.high is None:
            return self.claimed
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True)
class Figures:
    """Error statistics of several runs; the error is predicted / measured - 1. `median`, `ninth` (90th
    percentile) and `worst` are of absolute errors, `bias` is the median signed error. `left_*` use
    predictions with the source left out, `rule_*` those of the rule of thumb; `inside` is the fraction of
    runs within the stated range."""

    runs: int
    sources: int
    median: float
    ninth: float
    worst: float
    bias: float
    inside: float | None
    left_median: float | None
    left_ninth: float | None
    rule_median: float | None
    rule_ninth: float | None


@dataclass(frozen=True, slots=True)
class Part:
    """One line of a suite's table of errors."""

    name: str
    figures: Figures
    target: Target | None = None

    @property
    def meets_target(self) -> bool | None:
        """Whether the error meets the target; uses left-out errors where known; None without a target."""
        if self.target is None:
            return None
        of = self.figures
        left = of.left_median is not None and of.left_ninth is not None
        median, ninth = (of.left_median, of.left_ninth) if left else (of.median, of.ninth)
        assert median is not None
        assert ninth is not None
        return median <= self.target[0] and ninth <= self.target[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A figure other than an error, such as regret or a correlation. `most`: whether the target is an
    upper bound. `percent`: whether to show it as a percentage."""

    name: str
    value: float
    target: float | None = None
    most: bool = True
    peer: str = ""
    percent: bool = True

    @property
    def meets_target(self) -> bool | None:
        """Whether the figure meets its target; None without a target."""
        if self.target is None:
            return None
        return self.value <= self.target if self.most else self.value >= self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Result of one suite. `fitted` says which constants were fitted to its runs, `rule` names the
    rule-of-thumb baseline, `peers` gives the errors of other tools."""

    suite: str
    title: str
    quantity: str
    fitted: str
    rule: str
    peers: str
    rows: Sequence[Compared]
    targets: dict[str, Target] = field(default_factory=dict)
    statements: Sequence[Statement] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def refused(self) -> Counter[str]:
        """Number of runs that cannot be compared, by reason."""
        return Counter(reason for reason in self.skipped.values() if reason != OTHER_KIND)

    @property
    def parts(self) -> list[Part]:
        """Lines of the suite's table: all runs together, then each part in the order of its first run."""
        names = list(dict.fromkeys(row.part for row in self.rows))
        lines = [("all", list(self.rows))] if len(names) > 1 else []
        lines += [(name, [row for row in self.rows if row.part == name]) for name in names]
        return [Part(name, error_statistics(rows), self.targets.get(name)) for name, rows in lines]

    @property
    def whole(self) -> Figures:
        """Error statistics of all runs together."""
        return error_statistics(self.rows)


def error_statistics(rows: Sequence[Compared]) -> Figures:
    """Error statistics of one or more compared runs."""
    errors = np.array([row.error for row in rows])
    sizes = abs(errors)
    left_out = _absolute_errors(rows, lambda row: row.left_out)
    rule = _absolute_errors(rows, lambda row: row.rule)
    inside = [row.is_in_range for row in rows if row.is_in_range is not None]
    return Figures(
        runs=len(rows),
        sources=len({row.source for row in rows}),
        median=float(np.median(sizes)),
        ninth=percentile_90(sizes),
        worst=float(errors[int(np.argmax(sizes))]),
        bias=float(np.median(errors)),
        inside=float(np.mean(inside)) if inside else None,
        left_median=float(np.median(left_out)) if left_out else None,
        left_ninth=percentile_90(left_out) if left_out else None,
        rule_median=float(np.median(rule)) if rule else None,
        rule_ninth=percentile_90(rule) if rule else None,
    )


def percentile_90(sizes: Iterable[float]) -> float:
    """90th percentile of the values."""
    return float(np.quantile(np.fromiter(sizes, np.float64), 0.9))


def _absolute_errors(rows: Sequence[Compared], predicted: Callable[[Compared], float | None]) -> list[float]:
    """Absolute relative errors of predictions, skipping unknown ones."""
    pairs = [(predicted(row), row.measured) for row in rows]
    return [abs(value / measured - 1) for value, measured in pairs if value is not None]


def add_ranges(rows: Sequence[Compared]) -> list[Compared]:
    """Rows with 90% ranges, from the errors of other sources; without ranges if there are no others.

    Errors may be one-sided: real clusters scale worse than predicted far more often than better. So the range
    leaves at most one in twenty of those runs on either side.
    """
    result = []
    for row in rows:
        others = [
            math.log((entry.left_out or entry.predicted) / entry.measured)
            for entry in rows
            if entry.part == row.part and entry.source != row.source
        ]
        if others:
            low, high = np.quantile(others, (0.05, 0.95))
            reach = math.exp(max(-low, high, 0.0))
            centre = row.left_out or row.predicted
            row = replace(row, low=centre / reach, high=centre * reach)
        result.append(row)
    return result
