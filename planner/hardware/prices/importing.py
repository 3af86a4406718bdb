"""Price lists of others into the user's own folder: all of them or none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from planner.errors import BadInput
from planner.hardware.prices import book
from planner.hardware.prices.lists import PriceList, read_lists

FAR = 3.0


@dataclass(frozen=True, slots=True)
class ImportedPrices:
    """A list that was taken over, and what of it counts."""

    list: PriceList
    as_of: date
    dated_by_file: bool
    saved: Path
    counting: int  # prices that are not older than the catalogue's
    far: int  # prices on demand that are more than `FAR` times the catalogue's, or less than that part of it


def import_lists(
    path: Path, provider: str | None = None, as_of: str | None = None, today: date | None = None
) -> tuple[ImportedPrices, ...]:
    """Read all lists first, so that one that is damaged leaves every price as it was; then save them."""
    lists = read_lists(path, provider)
    days = [_day(found.path, as_of, today) for found in lists]
    saved = []
    for found, day in zip(lists, days, strict=True):
        source = f"{found.format} list {found.path.name} of {found.provider}, imported by the user"
        saved.append(book.save(found.provider, found.quotes, day, source))
    return tuple(
        ImportedPrices(found, day, as_of is None, file, *_compared(found, day))
        for found, day, file in zip(lists, days, saved, strict=True)
    )


def _day(path: Path, as_of: str | None, today: date | None) -> date:
    """The day of a list: as the user says, else that of the file, which may be younger than its prices."""
    if as_of is not None:
        return book.day_of(as_of, "--as-of", today)
    try:
        changed = date.fromtimestamp(path.stat().st_mtime)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    return book.day_of(changed.isoformat(), f"{path}: the day of the file", today)


def _compared(found: PriceList, day: date) -> tuple[int, int]:
    """How many prices count against the catalogue's, and how many are far from them."""
    from planner.hardware.prices.changes import shipped_machine

    counting = far = 0
    for name, regions in found.quotes.items():
        machine = shipped_machine(name)
        known = {price.region: price for price in (machine.price, *machine.other_prices)}
        for region, quote in regions.items():
            price = known.get(region) or known.get("any")
            counting += price is None or day.isoformat() >= price.as_of
            if price and price.on_demand_usd_per_hour and quote.on_demand_usd_per_hour:
                ratio = quote.on_demand_usd_per_hour / price.on_demand_usd_per_hour
                far += not 1 / FAR <= ratio <= FAR
    return counting, far
