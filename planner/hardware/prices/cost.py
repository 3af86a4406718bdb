"""What machines cost: per hour on demand or as spot, per sample, and how old their prices are.

On spot machines work is lost when one is taken away, and checkpoints take time
(`planner.hardware.prices.spot`): one hour of useful work takes `time_factor` hours, and all of them are paid.
Where that is no cheaper than on demand, machines are rented on demand. A machine without a spot price is
rented on demand beside the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from planner.errors import BadInput

if TYPE_CHECKING:
    from planner.hardware import Hardware, Price
    from planner.hardware.market import Market
    from planner.hardware.prices.spot import SpotCourse
    from planner.parallel.data import Rented

SECONDS_PER_HOUR = 3600.0
OLD_DAYS = 90
RENEWAL = "`planner prices import FILE` updates them"
RESTART_S = 300.0  # assumed: a new machine, its image, and the checkpoint


def usd_per_million_samples(usd_per_hour: float, samples_per_s: float) -> float:
    """Dollars for training on so many samples at a steady rate."""
    if not samples_per_s > 0:
        raise BadInput(f"samples_per_s is {samples_per_s}; it must be above zero")
    return 1e6 * (usd_per_hour / (SECONDS_PER_HOUR * samples_per_s))


def age_days(as_of: str, today: date | None = None) -> int | None:
    """Days since a date of the catalogue (2026-08-22, 2026-08, 2026); None where there is none."""
    parts = as_of.split("-")
    try:
        # of a month or a year the last day that it may be: prices are not called older than they are
        year, month = int(parts[0]), int(parts[1]) if parts[1:] else 12
        day = int(parts[2]) if parts[2:] else 28
        return max(0, ((today or date.today()) - date(year, month, day)).days)
    except ValueError:
        return None


def old_prices(dates: Iterable[str], today: date | None = None) -> str:
    """A sentence about prices of more than 90 days ago, with what to do; empty where there is none."""
    dated = [as_of for as_of in dates if as_of]
    old = [as_of for as_of in dated if (age_days(as_of, today) or 0) > OLD_DAYS]
    if not old:
        return ""
    which = "All prices are" if len(old) == len(dated) else f"{len(old)} of {len(dated)} prices are"
    if len(dated) == 1:
        which = "The price is"
    return f"{which} older than {OLD_DAYS} days, the oldest of {min(old)}; {RENEWAL}."


@dataclass(frozen=True, slots=True)
class SpotTerms:
    """How interruptions are counted. `interruptions`: the share of machines that are taken away in a month
    (None: what is known of each, else a fifth); `checkpoint_every_s` (None: as often as costs least)."""

    interruptions: float | None = None
    checkpoint_every_s: float | None = None
    restart_s: float = RESTART_S


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
        usd = ((market.usd_per_hour(market.machine(role.machine)) or 0.0) * role.count for role in rented)
        return Paid(tuple(usd))
    terms = terms or SpotTerms()
    roles = tuple((role.role, role.machine, role.count) for role in rented)
    return market.once(
        ("paid", roles, terms, state_bytes), lambda: _spot_or_not(rented, market, terms, state_bytes)
    )


def _spot_or_not(rented: Sequence[Rented], market: Market, terms: SpotTerms, state_bytes: float) -> Paid:
    from planner.hardware.prices.spot import course_of

    kinds = [market.machine(role.machine) for role in rented]
    prices = [market.price(kind) for kind in kinds]
    counts = [role.count for role in rented]
    on_demand = [_usd(kind, price, spot=False) for kind, price in zip(kinds, prices, strict=True)]
    spot = [_usd(kind, price, spot=True) for kind, price in zip(kinds, prices, strict=True)]
    dear = tuple((usd or 0.0) * count for usd, count in zip(on_demand, counts, strict=True))
    taken = [
        (kind, count, price.region if price else "")
        for kind, count, price, usd in zip(kinds, counts, prices, spot, strict=True)
        if usd is not None
    ]
    if not taken:
        return Paid(dear, refused="none of its machines has a spot price")
    cheap = tuple(
        (other or 0.0 if usd is None else usd) * count
        for usd, other, count in zip(spot, on_demand, counts, strict=True)
    )
    course = course_of(taken, terms, state_bytes)
    useful = course.run.usd_per_useful_hour(sum(cheap))
    if all(usd is not None for usd in on_demand) and useful >= sum(dear):
        words = f"one hour of useful work would cost ${useful:.2f} on spot, ${sum(dear):.2f} on demand"
        return Paid(dear, refused=words)
    return Paid(cheap, course)


def _usd(kind: Hardware, price: Price | None, *, spot: bool) -> float | None:
    """One machine for one hour; one of the user's own is never taken away."""
    if price is None or (spot and kind.ownership is not None):
        return None
    return price.spot_usd_per_hour if spot else price.on_demand_usd_per_hour
