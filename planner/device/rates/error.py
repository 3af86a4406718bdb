"""How far a predicted rate may be from what a reader would measure.

Errors are those of published runs whose whole source (or device) was left out of the fit, by what a
prediction rests on and by kind of network; `benchmarks/fit/calibrate_rates.py` computes and stores them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.device.rates.constants import Spread, constants


@dataclass(frozen=True, slots=True)
class Error:
    """`median` and `q90` are quantiles of |log(predicted / published)| over `rows` rows of `sources` sources
    that the fit had not seen."""

    basis: str
    median: float
    q90: float
    rows: int
    source: str

    def range_of(self, rate: float) -> tuple[float, float]:
        """Between which bounds nine of ten published figures lie."""
        return rate * math.exp(-self.q90), rate * math.exp(self.q90)


def error_of(basis: str, network: str) -> Error:
    """The error of predictions on this basis; that of all networks where there is none of this kind."""
    figures = constants()
    known = figures.errors[basis]
    spread: Spread = known.get(network, known["all"])
    words = f"{spread.rows} published runs of {spread.sources} sources left out, {figures.as_of}"
    return Error(basis, spread.median, spread.q90, spread.rows, words)


def combined(rate: float, half_width: float, error: Error) -> tuple[float, float]:
    """The range of a simulated rate: its model's error and the simulation's own half-width (in the rate's
    unit) are independent, so that they add as the squares of their logarithms do."""
    own = math.log1p(half_width / rate) if rate > 0 else 0.0
    both = math.hypot(error.q90, own)
    return rate * math.exp(-both), rate * math.exp(both)
