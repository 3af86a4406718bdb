"""The user's own prices: dated files in `PLANNER_HOME/prices` that replace the catalog's.

A file is a CSV with one price per line, written by `planner prices import`: `aws-2026-11-16.csv`. The newest
price of a machine in a region counts, the catalog's included. A list without spot prices leaves those as
they were.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

from planner.errors import BadInput
from planner.files.regular_file import home_folder, write_file
from planner.hardware import Hardware, Price, Source
from planner.hardware.prices.formats import read_rows
from planner.memoize import memoize

COLUMNS = ("machine", "region", "on_demand_usd_per_hour", "spot_usd_per_hour", "as_of", "source")
_NAME = re.compile(r"(?P<provider>[a-z0-9]+)-(?P<as_of>\d{4}-\d\d-\d\d)\.csv")

Prices = Mapping[str, Mapping[str, Price]]  # by machine of the catalog, then by region


def price_folder() -> Path:
    """Folder of the user's price files."""
    return home_folder() / "prices"


def save_prices(provider: str, prices: Prices, as_of: date, source: str) -> Path:
    """Writes prices to the provider's file for a day and returns its path; other prices in it stay."""
    path = price_folder() / f"{provider}-{as_of.isoformat()}.csv"
    dated = {
        name: {
            region: replace(price, as_of=as_of.isoformat(), source=source)
            for region, price in regions.items()
        }
        for name, regions in prices.items()
    }
    before = read_price_file(path) if path.is_file() else {}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name in sorted(before.keys() | dated):
        for region, price in sorted({**before.get(name, {}), **dated.get(name, {})}.items()):
            usd = price.on_demand_usd_per_hour, price.spot_usd_per_hour
            writer.writerow((name, region, *usd, price.as_of, price.source))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{path.parent}: {error.strerror}; set PLANNER_HOME to a folder of yours") from error
    write_file(path, text.getvalue())
    return path


def price_files() -> tuple[Path, ...]:
    """Paths of the user's price files, oldest first."""
    named = ((path, _NAME.fullmatch(path.name)) for path in price_folder().glob("*.csv"))
    return tuple(path for _, path in sorted((match["as_of"], path) for path, match in named if match))


def load_prices() -> Prices:
    """Loads the newest price of each machine and region in the user's files."""
    place = price_folder()
    try:
        return _load_cached(place, place.stat().st_mtime_ns)
    except OSError:
        return {}


@memoize
def _load_cached(_place: Path, _changed_ns: int) -> Prices:
    """Loads the newest prices in the user's files; cached until the folder changes."""
    book: dict[str, dict[str, Price]] = {}
    for path in price_files():
        for machine, regions in read_price_file(path).items():
            for region, price in regions.items():
                before = book.setdefault(machine, {}).get(region)
                book[machine][region] = price if before is None else _newer_price(before, price)
    return book


def read_price_file(path: Path) -> Prices:
    """Reads the prices in a file written by `save_prices`, by machine and region."""
    book: dict[str, dict[str, Price]] = {}
    for row in read_rows(path, COLUMNS):
        as_of = row["as_of"]
        parse_past_date(as_of, row.place("as_of"))
        if not row["machine"] or not row["region"]:
            raise row.error("machine", "a machine and a region must be given")
        usd = row.usd_in("on_demand_usd_per_hour"), row.usd_in("spot_usd_per_hour")
        price = Price(*usd, row["region"], as_of, "published", row["source"], as_of)
        book.setdefault(row["machine"], {})[row["region"]] = price
    return book


def parse_past_date(text: str, location: str, today: date | None = None) -> date:
    """Parses a date written as YYYY-MM-DD; raises BadInput if it is invalid or in the future."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{location}: {text!r} is not a date; write YYYY-MM-DD") from None
    if day > (today or date.today()):
        raise BadInput(f"{location}: {text} is in the future; give the day of the prices")
    return day


def _newer_price(old: Price, new: Price) -> Price:
    """Newer of two prices in a region; if it lacks a spot price, the older one's is kept."""
    if new.as_of < old.as_of:
        return old
    if new.spot_usd_per_hour is not None or old.spot_usd_per_hour is None:
        return new
    return replace(new, spot_usd_per_hour=old.spot_usd_per_hour, spot_as_of=old.spot_as_of or old.as_of)


def apply_own_prices(hardware: Hardware) -> Hardware:
    """Updates a machine with the user's prices that are at least as new as the catalog's.

    Prices in further regions are added.
    """
    mine = dict(load_prices().get(hardware.name, {}))
    if not mine:
        return hardware
    if hardware.price.region == "any":
        mine = _uniform_price(mine) | mine
    known = {price.region: price for price in hardware.prices}
    merged = known | {region: _newer_price(known.get(region, new), new) for region, new in mine.items()}
    main = merged.pop(hardware.price.region)
    sources = dict(hardware.sources)
    if main is not hardware.price:
        figures = {
            "on_demand": (main.on_demand_usd_per_hour, main.as_of),
            "spot": (main.spot_usd_per_hour, main.spot_as_of),
        }
        sources = {key: source for key, source in sources.items() if key not in figures or figures[key][0]}
        sources |= {
            key: Source(main.basis, main.source, main.as_of)
            for key, (usd, day) in figures.items()
            if usd is not None and day == main.as_of
        }
    return replace(hardware, price=main, other_prices=tuple(merged.values()), sources=sources)


def _uniform_price(prices: Mapping[str, Price]) -> dict[str, Price]:
    """`{"any": price}` if all regions have the same on-demand price; else empty."""
    first = next(iter(prices.values()))
    same = all(price.on_demand_usd_per_hour == first.on_demand_usd_per_hour for price in prices.values())
    return {"any": replace(first, region="any")} if same else {}
