"""What spot machines cost in truth: the work that interruptions destroy, with checkpoints at the best times.

A run on several machines stops when any of them is taken away; it goes on from its last checkpoint after a
restart. With M the mean time between interruptions of the whole run, d the time of a checkpoint, R that of a
restart (until the machine is replaced and the checkpoint is loaded) and t the time between checkpoints, Daly
("A higher order estimate of the optimum checkpoint interval", FGCS 22, 2006) gives the expected time of a run
that would take T without any of it:

    T' = T / t * M * exp(R / M) * (exp((t + d) / M) - 1)

and the interval that makes it least, of which Young's sqrt(2 d M) is the first term:

    t = sqrt(2 d M) * (1 + sqrt(d / (2 M)) / 3 + d / (18 M)) - d    if d < 2 M, else t = M

Interruptions are taken as independent of each other and of time. All machines are paid for while one is
replaced.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass

from planner.errors import BadInput
from planner.files.folders import shipped_folder
from planner.memoize import memoize

HOURS_PER_MONTH = 730.0
RESTART_S = 300.0  # assumed: a new machine, its image, and the checkpoint
CHECKPOINT_BYTES_PER_S = 1e9  # assumed: to local disk or a parallel file system
AS_OF = "2025-06-28"
SOURCE = "AWS Spot Advisor, as alexei-led/spotinfo carries it"

# the share of machines that AWS took back in the trailing month, by its class: lowest, highest
CLASSES = {
    "<5%": (0.0, 0.05),
    "5-10%": (0.05, 0.10),
    "10-15%": (0.10, 0.15),
    "15-20%": (0.15, 0.20),
    ">20%": (0.20, None),
}


@dataclass(frozen=True, slots=True)
class Interruption:
    """How often a spot machine is taken away: the class that AWS publishes, and an hourly rate from it.

    The rate is that of the upper end of the class, except for `>20%`, which has none: there it is that of the
    lower end, and the truth is at least that.
    """

    share_of_month: str
    per_hour: float
    at_least: bool
    basis: str = f"{SOURCE}, {AS_OF}"

    @property
    def words(self) -> str:
        if not self.per_hour:
            return f"none is taken away ({self.basis})"
        often = f"{'at least' if self.at_least else 'at most'} one in {1 / self.per_hour / 24:.0f} days each"
        return f"{self.share_of_month} of machines a month ({self.basis}), {often}"


@dataclass(frozen=True, slots=True)
class SpotRun:
    """A run on spot machines: how often to write a checkpoint, and how much longer all takes."""

    interval_s: float  # between checkpoints; infinite where nothing is ever taken away
    time_factor: float  # expected time over the time without interruptions and checkpoints
    interruptions_per_hour: float  # of the whole run

    @property
    def lost(self) -> float:
        """The share of the paid time that makes no progress."""
        return 1 - 1 / self.time_factor

    def usd_per_useful_hour(self, spot_usd_per_hour: float) -> float:
        """What one hour of useful work costs at a spot price."""
        return spot_usd_per_hour * self.time_factor


def interruption_of(machine: str, region: str) -> Interruption | None:
    """What is known of a machine in a region; None where nothing is, as everywhere but on AWS."""
    share = _classes().get((machine, region))
    return None if share is None else interruption_class(share)


def interruption_class(share: str) -> Interruption:
    """The hourly rate of a class: -ln(1 - f) / 730 where the share f is taken away in a month."""
    lowest, highest = CLASSES[share]
    fraction = lowest if highest is None else highest
    return Interruption(share, -math.log1p(-fraction) / HOURS_PER_MONTH, highest is None)


def interruption_share(share: float, basis: str) -> Interruption:
    """The same for a share of machines a month that someone gives or assumes."""
    if not 0 <= share < 1:
        raise BadInput(f"--interruptions is {share:g}; it is a share of machines a month, as 10%")
    return Interruption(f"{100 * share:.3g}%", -math.log1p(-share) / HOURS_PER_MONTH, False, basis)


def spot_run(
    interruptions_per_hour: float,
    *,
    machines: int = 1,
    checkpoint_s: float,
    restart_s: float = RESTART_S,
    interval_s: float | None = None,
) -> SpotRun:
    """The expected course of a run on machines that are taken away at a rate, each by itself.

    Checkpoints are written at Daly's interval unless one is given. A run that is interrupted so often that it
    hardly gets on has a factor of infinity.
    """
    figures = {"interruptions_per_hour": interruptions_per_hour, "restart_s": restart_s}
    for name, value in figures.items():
        if not (math.isfinite(value) and value >= 0):
            raise BadInput(f"{name} must be a number of at least 0, not {value:g}")
    if not (math.isfinite(checkpoint_s) and checkpoint_s > 0):
        raise BadInput(f"checkpoint_s must be above 0, not {checkpoint_s:g}")
    if machines < 1:
        raise BadInput(f"machines must be at least 1, not {machines}")
    if interval_s is not None and not interval_s > 0:
        raise BadInput(f"interval_s must be above 0, not {interval_s:g}")
    rate = interruptions_per_hour * machines
    if rate == 0:
        never = math.inf if interval_s is None else interval_s
        return SpotRun(never, 1 + checkpoint_s / never, 0.0)
    mean_s = 3600 / rate
    interval = best_interval_s(mean_s, checkpoint_s) if interval_s is None else interval_s
    return SpotRun(interval, _factor(mean_s, interval, checkpoint_s, restart_s), rate)


def best_interval_s(mean_s: float, checkpoint_s: float) -> float:
    """Daly's interval between checkpoints for a mean time between interruptions."""
    if checkpoint_s >= 2 * mean_s:
        return mean_s
    ratio = checkpoint_s / (2 * mean_s)
    return math.sqrt(2 * checkpoint_s * mean_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_s


def checkpoint_s(state_bytes: float) -> float:
    """How long a checkpoint of parameters and optimizer state takes."""
    return max(1e-3, state_bytes / CHECKPOINT_BYTES_PER_S)


def _factor(mean_s: float, interval_s: float, checkpoint_s: float, restart_s: float) -> float:
    exponent = restart_s / mean_s + (interval_s + checkpoint_s) / mean_s
    if exponent > 500:
        return math.inf
    return (
        mean_s * math.exp(restart_s / mean_s) * math.expm1((interval_s + checkpoint_s) / mean_s) / interval_s
    )


@memoize
def _classes() -> dict[tuple[str, str], str]:
    path = shipped_folder("hardware") / "prices" / "interruptions.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["machine"], row["region"]): row["share_of_month"] for row in csv.DictReader(file)}
