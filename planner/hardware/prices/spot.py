"""Runs on spot machines: work lost to interruptions, with checkpoints at the best interval.

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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.errors import BadInput
from planner.files.regular_file import shipped_folder
from planner.hardware import Hardware
from planner.hardware.prices.cost import RESTART_S, SECONDS_PER_HOUR, SpotTerms
from planner.memoize import memoize
from planner.units import format_bytes, format_seconds

HOURS_PER_MONTH = 730.0
CHECKPOINT_BYTES_PER_S = 1e9  # assumed: to local disk or a parallel file system
UNKNOWN_SHARE = 0.2  # assumed: machines interrupted per month where unpublished
SOURCE = "AWS Spot Advisor, as alexei-led/spotinfo carries it, 2025-06-28"

# the highest share of machines interrupted per month in a class of AWS; of the last class the lowest
CLASSES = {"<5%": 0.05, "5-10%": 0.10, "10-15%": 0.15, "15-20%": 0.20, ">20%": 0.20}


@dataclass(frozen=True, slots=True)
class Interruption:
    """Interruption rate of a spot machine: the published share per month, and the rate per hour."""

    share_of_month: str
    per_hour: float
    description: str


@dataclass(frozen=True, slots=True)
class SpotRun:
    """Expected run on spot machines: checkpoint interval, and time relative to an uninterrupted run."""

    interval_s: float  # between checkpoints; infinite without interruptions
    time_factor: float  # expected time over the time without interruptions and checkpoints
    interruptions_per_hour: float  # of the whole run

    def usd_per_useful_hour(self, spot_usd_per_hour: float) -> float:
        """USD per hour of useful work at a spot price."""
        return spot_usd_per_hour * self.time_factor


@dataclass(frozen=True, slots=True)
class SpotEstimate:
    """Expected run on spot machines, with its assumptions in words."""

    run: SpotRun
    checkpoint_s: float
    restart_s: float
    words: str

    def as_dict(self) -> dict[str, Any]:
        """Figures and assumptions of the run under their JSON keys."""
        return {
            "interruptions_per_hour": self.run.interruptions_per_hour,
            "checkpoint_interval_s": self.run.interval_s,
            "checkpoint_s": self.checkpoint_s,
            "restart_s": self.restart_s,
            "time_factor": self.run.time_factor,
            "counted": self.words,
        }


def estimate_spot_run(
    machines: Sequence[tuple[Hardware, int, str]], terms: SpotTerms, state_bytes: float
) -> SpotEstimate:
    """Estimates a run on spot machines, each given as (machine, count, region)."""
    known = [(kind, count, _interruption_rate(kind, region, terms)) for kind, count, region in machines]
    rate = sum(count * interruption.per_hour for _, count, interruption in known)
    write_s = checkpoint_write_s(state_bytes)
    run = spot_run(rate, checkpoint_s=write_s, restart_s=terms.restart_s, interval_s=terms.checkpoint_every_s)
    often = "; ".join(f"{count} x {kind.name}: {rate.description}" for kind, count, rate in known)
    if not rate:
        return SpotEstimate(run, write_s, terms.restart_s, f"{often}. The run is never interrupted")
    interval = "the cheapest interval" if terms.checkpoint_every_s is None else "as given"
    words = (
        f"{often}. One interruption per {format_seconds(SECONDS_PER_HOUR / rate)}; a checkpoint "
        f"({format_bytes(state_bytes)}, {format_seconds(write_s)} at {CHECKPOINT_BYTES_PER_S / 1e9:g} GB/s) "
        f"every {format_seconds(run.interval_s)} ({interval}), "
        f"{format_seconds(terms.restart_s)} for a restart: {run.time_factor - 1:.1%} more time and money"
    )
    return SpotEstimate(run, write_s, terms.restart_s, words)


def _interruption_rate(hardware: Hardware, region: str, terms: SpotTerms) -> Interruption:
    """Interruption rate of a machine in a region: the requested, else the published, else an assumed one."""
    share = terms.interruptions
    if share is None:
        known = published_interruption(hardware.name, region)
        return known or _interruption_from_share(UNKNOWN_SHARE, "assumed: not published")
    if not 0 <= share < 1:
        raise BadInput(f"--interruptions is {share:g}; it is a share of machines per month, as 10%")
    return _interruption_from_share(share, "as given")


def published_interruption(machine: str, region: str) -> Interruption | None:
    """Published interruption rate of a machine in a region; None if unpublished, as outside AWS.

    It is that of the upper end of the class, except for `>20%`, which has none: there it is that of the lower
    end.
    """
    share = _published_classes().get((machine, region))
    return None if share is None else _interruption_from_share(CLASSES[share], SOURCE, share)


def _interruption_from_share(share: float, basis: str, published: str | None = None) -> Interruption:
    """Interruption rate for a share f of machines interrupted per month: -ln(1 - f) / 730 per hour."""
    per_hour, shown = -math.log1p(-share) / HOURS_PER_MONTH, published or f"{100 * share:.3g}%"
    if not per_hour:
        return Interruption(shown, per_hour, f"none is taken away ({basis})")
    bound = "at least" if published and published.startswith(">") else "at most"
    often = f"{bound} one per machine in {1 / per_hour / 24:.0f} days"
    return Interruption(shown, per_hour, f"{shown} of machines interrupted per month ({basis}), {often}")


def spot_run(
    interruptions_per_hour: float,
    *,
    checkpoint_s: float,
    restart_s: float = RESTART_S,
    interval_s: float | None = None,
) -> SpotRun:
    """Checkpoint interval and time factor of a run, given the interruptions per hour of all its machines.
    Checkpoints are written at Daly's interval unless one is given. The factor is infinite where interruptions
    leave hardly any progress."""
    for name, value in (("interruptions_per_hour", interruptions_per_hour), ("restart_s", restart_s)):
        if not (math.isfinite(value) and value >= 0):
            raise BadInput(f"{name} must be a number of at least 0, not {value:g}")
    if not (math.isfinite(checkpoint_s) and checkpoint_s > 0):
        raise BadInput(f"checkpoint_s must be above 0, not {checkpoint_s:g}")
    if interval_s is not None and not interval_s > 0:
        raise BadInput(f"interval_s must be above 0, not {interval_s:g}")
    if interruptions_per_hour == 0:
        never = math.inf if interval_s is None else interval_s
        return SpotRun(never, 1 + checkpoint_s / never, 0.0)
    mean_s = SECONDS_PER_HOUR / interruptions_per_hour
    interval = best_interval_s(mean_s, checkpoint_s) if interval_s is None else interval_s
    factor = _time_factor(mean_s, interval, checkpoint_s, restart_s)
    return SpotRun(interval, factor, interruptions_per_hour)


def best_interval_s(mean_s: float, checkpoint_s: float) -> float:
    """Best seconds between checkpoints (Daly 2006), for `mean_s` seconds between interruptions on average."""
    if checkpoint_s >= 2 * mean_s:
        return mean_s
    ratio = checkpoint_s / (2 * mean_s)
    return math.sqrt(2 * checkpoint_s * mean_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_s


def checkpoint_write_s(state_bytes: float) -> float:
    """Seconds to write a checkpoint of parameters and optimizer state."""
    return max(1e-3, state_bytes / CHECKPOINT_BYTES_PER_S)


def _time_factor(mean_s: float, interval_s: float, checkpoint_s: float, restart_s: float) -> float:
    """Mean run time under random interruptions, divided by that without them and checkpoints (Daly 2006)."""
    restart, segment = restart_s / mean_s, (interval_s + checkpoint_s) / mean_s
    if restart + segment > 500:
        return math.inf
    return mean_s * math.exp(restart) * math.expm1(segment) / interval_s


@memoize
def _published_classes() -> dict[tuple[str, str], str]:
    """AWS's interruption class, such as `<5%`, by (machine, region)."""
    path = shipped_folder("hardware") / "prices" / "interruptions.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["machine"], row["region"]): row["share_of_month"] for row in csv.DictReader(file)}
