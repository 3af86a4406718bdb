"""How old prices are, and the words for those that are too old to rely on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from planner.hardware import Price

OLD_DAYS = 90
REMEDY = "`planner prices import FILE` renews them"


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


def old_prices(prices: Iterable[Price], today: date | None = None) -> str:
    """A sentence about those that are older than 90 days, with what to do; empty where there is none."""
    dated = [price.as_of for price in prices if price.as_of]
    old = [as_of for as_of in dated if (age_days(as_of, today) or 0) > OLD_DAYS]
    if not old:
        return ""
    which = "All prices are" if len(old) == len(dated) else f"{len(old)} of {len(dated)} prices are"
    if len(dated) == 1:
        which = "The price is"
    return f"{which} older than {OLD_DAYS} days, the oldest of {min(old)}; {REMEDY}."
