"""What machines cost per hour, on demand or spot, and what one hour of useful work on them costs.

On spot machines work is lost when one is taken away, and checkpoints take time
(`planner.hardware.prices.spot`): one hour of useful work takes `time_factor` hours, and all of them are paid.
Where that is no cheaper than on demand, machines are rented on demand. A machine without a spot price is
rented on demand beside the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.hardware.prices.spot import (
    CHECKPOINT_BYTES_PER_S,
    RESTART_S,
    Interruption,
    SpotRun,
    checkpoint_s,
    interruption_of,
    interruption_share,
    spot_run,
)
from planner.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from planner.hardware import Hardware, Price
    from planner.hardware.market import Market
    from planner.parallel.data import Rented

UNKNOWN_SHARE = 0.2  # of machines that are taken away in a month, where nobody says: assumed


@dataclass(frozen=True, slots=True)
class SpotTerms:
    """How interruptions are counted. `interruptions`: the share of machines that are taken away in a month
    (None: what is known of each, else a fifth); `checkpoint_every_s` (None: as often as costs least)."""

    interruptions: float | None = None
    checkpoint_every_s: float | None = None
    restart_s: float = RESTART_S


@dataclass(frozen=True, slots=True)
class SpotCourse:
    """A run on spot machines, and in words how it was counted."""

    run: SpotRun
    checkpoint_s: float
    restart_s: float
    words: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "interruptions_per_hour": self.run.interruptions_per_hour,
            "checkpoint_interval_s": self.run.interval_s,
            "checkpoint_s": self.checkpoint_s,
            "restart_s": self.restart_s,
            "time_factor": self.run.time_factor,
            "counted": self.words,
        }


@dataclass(frozen=True, slots=True)
class Paid:
    """US dollars per hour of each role. `course` is that of a run on spot machines, None for one on demand;
    `refused` says, where spot was asked for and does not pay, why."""

    usd_per_hour: tuple[float, ...]
    course: SpotCourse | None = None
    refused: str | None = None

    @property
    def time_factor(self) -> float:
        """Hours for one hour of useful work."""
        return 1.0 if self.course is None else self.course.run.time_factor

    @property
    def usd_per_useful_hour(self) -> float:
        return sum(self.usd_per_hour) * self.time_factor


def paid_for(
    rented: Sequence[Rented], market: Market, terms: SpotTerms | None = None, state_bytes: float = 0.0
) -> Paid:
    """What machines cost, each role by itself; nothing for those without a price. `state_bytes` is what a
    checkpoint holds."""
    if not market.spot:
        return Paid(
            tuple(
                (market.usd_per_hour(market.machine(entry.machine)) or 0.0) * entry.count for entry in rented
            )
        )
    terms = terms or SpotTerms()
    where: Hashable = (
        "paid",
        tuple((entry.role, entry.machine, entry.count) for entry in rented),
        terms,
        state_bytes,
    )
    return market.once(where, lambda: _spot_or_not(rented, market, terms, state_bytes))


def _spot_or_not(rented: Sequence[Rented], market: Market, terms: SpotTerms, state_bytes: float) -> Paid:
    kinds = [market.machine(entry.machine) for entry in rented]
    prices = [market.price(kind) for kind in kinds]
    on_demand = [_usd(kind, price, spot=False) for kind, price in zip(kinds, prices, strict=True)]
    spot = [_usd(kind, price, spot=True) for kind, price in zip(kinds, prices, strict=True)]
    counts = [entry.count for entry in rented]
    dear = tuple((usd or 0.0) * count for usd, count in zip(on_demand, counts, strict=True))
    taken = [
        (kind, count, _interruption(kind, price, terms))
        for kind, price, usd, count in zip(kinds, prices, spot, counts, strict=True)
        if usd is not None
    ]
    if not taken:
        return Paid(dear, refused="none of its machines has a spot price")
    cheap = tuple(
        (one if one is not None else other or 0.0) * count
        for one, other, count in zip(spot, on_demand, counts, strict=True)
    )
    writing_s = checkpoint_s(state_bytes)
    rate = sum(count * found.per_hour for _, count, found in taken)
    run = spot_run(
        rate, checkpoint_s=writing_s, restart_s=terms.restart_s, interval_s=terms.checkpoint_every_s
    )
    useful = run.usd_per_useful_hour(sum(cheap))
    sold = all(usd is not None for usd in on_demand)
    if sold and useful >= sum(dear):
        return Paid(
            dear,
            refused=f"one hour of useful work would cost ${useful:.2f} on spot, ${sum(dear):.2f} on demand",
        )
    words = _words(taken, run, writing_s, state_bytes, terms)
    return Paid(cheap, SpotCourse(run, writing_s, terms.restart_s, words))


def _usd(kind: Hardware, price: Price | None, *, spot: bool) -> float | None:
    """One machine for one hour; one of the user's own is never taken away."""
    if price is None or (spot and kind.ownership is not None):
        return None
    return price.spot_usd_per_hour if spot else price.on_demand_usd_per_hour


def _interruption(kind: Hardware, price: Price | None, terms: SpotTerms) -> Interruption:
    if terms.interruptions is not None:
        return interruption_share(terms.interruptions, "as given")
    known = interruption_of(kind.name, price.region if price else "")
    return known or interruption_share(UNKNOWN_SHARE, "assumed: nobody publishes it")


def _words(
    taken: Sequence[tuple[Hardware, int, Interruption]],
    run: SpotRun,
    writing_s: float,
    state_bytes: float,
    terms: SpotTerms,
) -> str:
    often = "; ".join(f"{count} x {kind.name}: {found.words}" for kind, count, found in taken)
    given = terms.checkpoint_every_s is not None
    stops = (
        f"stopped once in {format_seconds(3600 / run.interruptions_per_hour)}"
        if run.interruptions_per_hour
        else "never stopped"
    )
    return (
        f"{often}. The run is {stops}; a checkpoint ({format_bytes(state_bytes)}, "
        f"{format_seconds(writing_s)} at {CHECKPOINT_BYTES_PER_S / 1e9:g} GB/s) every "
        f"{format_seconds(run.interval_s)} ({'as given' if given else 'which costs least'}), "
        f"{format_seconds(terms.restart_s)} for a restart: {run.time_factor - 1:.1%} more time and money"
    )
