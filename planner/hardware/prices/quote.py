"""One price as a list says it, and many of them by machine and region."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

HIGHEST_USD_PER_HOUR = 1e4  # above which a price is a slip: the bound of hardware files


@dataclass(frozen=True, slots=True)
class Quote:
    """US dollars per hour for one machine in one region; of spot the median over its zones, and the range."""

    on_demand_usd_per_hour: float | None
    spot_usd_per_hour: float | None = None
    spot_lowest_usd_per_hour: float | None = None
    spot_highest_usd_per_hour: float | None = None


# by the name of a machine in the catalogue, then by region
Quotes = Mapping[str, Mapping[str, Quote]]


@dataclass
class Found:
    """What a list says of machines that we know, and what was left out of it and why."""

    quotes: dict[str, dict[str, Quote]] = field(default_factory=lambda: defaultdict(dict))
    rows: int = 0
    left_out: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def over_zones(on_demand: Iterable[float], spot: Iterable[float]) -> Quote | None:
    """The quote of a region from those of its zones; None where nothing is sold.

    On-demand prices are one in all zones; should a list give several, the median counts.
    """
    prices, spots = sorted(on_demand), sorted(spot)
    if not prices and not spots:
        return None
    return Quote(
        _median(prices) if prices else None,
        _median(spots) if spots else None,
        spots[0] if spots else None,
        spots[-1] if spots else None,
    )


def price_of(text: str, *, zero: bool = False) -> float | None:
    """A price as a list writes it; None if it is empty. What is no price raises ValueError, in words."""
    text = text.strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{text} is no price: it must be above 0")
    if value > HIGHEST_USD_PER_HOUR:
        raise ValueError(f"{text} USD per hour is absurd: at most {HIGHEST_USD_PER_HOUR:,.0f}")
    return value


def _median(ascending: list[float]) -> float:
    middle = len(ascending) // 2
    return round((ascending[middle] + ascending[~middle]) / 2, 6)
