"""The user's own prices: dated files in `PLANNER_HOME/prices` that count instead of the catalogue's.

A file is a CSV with one price a line, written by `planner prices import`: `aws-2026-11-16.csv`. Of two prices
for a machine in a region the newer counts, the catalogue's included.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from planner.errors import BadInput
from planner.files.folders import home
from planner.files.regular_file import write_file
from planner.hardware import Hardware, Price, Source
from planner.hardware.prices.quote import Quote, Quotes, price_of
from planner.hardware.prices.table import PriceRow, rows_of
from planner.memoize import memoize

COLUMNS = (
    "machine", "region", "on_demand_usd_per_hour", "spot_usd_per_hour", "spot_lowest_usd_per_hour",
    "spot_highest_usd_per_hour", "as_of", "source",
)  # fmt: skip
_NAME = re.compile(r"(?P<provider>[a-z0-9]+)-(?P<as_of>\d{4}-\d\d-\d\d)\.csv")


@dataclass(frozen=True, slots=True)
class Dated:
    """A quote with its date and source, as a file of the user's has it."""

    quote: Quote
    as_of: str
    source: str


Book = Mapping[str, Mapping[str, Dated]]  # by machine, then by region


def folder() -> Path:
    return home() / "prices"


def save(provider: str, quotes: Quotes, as_of: date, source: str) -> Path:
    """Write quotes as the provider's file of that day, whole or not at all."""
    path = folder() / f"{provider}-{as_of.isoformat()}.csv"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for machine, regions in sorted(quotes.items()):
        for region, quote in sorted(regions.items()):
            figures = (getattr(quote, column) for column in COLUMNS[2:6])
            writer.writerow((machine, region, *figures, as_of.isoformat(), source))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{path.parent}: {error.strerror}; set PLANNER_HOME to a folder of yours") from error
    write_file(path, text.getvalue())
    return path


def files() -> tuple[Path, ...]:
    """The user's files, oldest first."""
    kept_glob = [
        (match["as_of"], path) for path in folder().glob("*.csv") if (match := _NAME.fullmatch(path.name))
    ]
    return tuple(path for _, path in sorted(kept_glob))


def load() -> Book:
    """All prices of the user's files; of several for a machine and region the newest."""
    place = folder()
    try:
        changed = place.stat().st_mtime_ns
    except OSError:
        return {}
    return _load(place, changed)


@memoize
def _load(_place: Path, _changed_ns: int) -> Book:
    book: dict[str, dict[str, Dated]] = {}
    for path in files():
        for machine, regions in read_file(path).items():
            for region, dated in regions.items():
                before = book.setdefault(machine, {}).get(region)
                if before is None or before.as_of <= dated.as_of:
                    book[machine][region] = dated
    return book


def read_file(path: Path) -> Book:
    """One file of the form that `save` writes."""
    book: dict[str, dict[str, Dated]] = {}
    for row in rows_of(path, COLUMNS):
        day_of(row["as_of"], f"{path}:{row.line}: column as_of")
        figures = [_figure(row, column) for column in COLUMNS[2:6]]
        if not row["machine"] or not row["region"]:
            raise row.error("machine", "a machine and a region must be given")
        book.setdefault(row["machine"], {})[row["region"]] = Dated(
            Quote(*figures), row["as_of"], row["source"]
        )
    return book


def day_of(text: str, where: str, today: date | None = None) -> date:
    """A day as YYYY-MM-DD that is not in the future."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{where}: {text!r} is no day; write YYYY-MM-DD") from None
    if day > (today or date.today()):
        raise BadInput(f"{where}: {text} is in the future; give the day of which the prices are")
    return day


def with_own_prices(hardware: Hardware) -> Hardware:
    """A machine with the user's prices where they are not older than its own; new regions are added."""
    dated = load().get(hardware.name)
    if not dated:
        return hardware
    mine = {region: _price(region, entry) for region, entry in dated.items()}
    if hardware.price.region == "any":
        mine = _everywhere(mine) | mine
    known = {price.region: price for price in (hardware.price, *hardware.other_prices)}
    merged = {
        region: mine[region] if region in mine and mine[region].as_of >= price.as_of else price
        for region, price in known.items()
    }
    merged |= {region: price for region, price in mine.items() if region not in known}
    main = merged.pop(hardware.price.region)
    sources = dict(hardware.sources)
    if main is not hardware.price:
        source = Source(main.basis, main.source, main.as_of)
        figures = {"on_demand": main.on_demand_usd_per_hour, "spot": main.spot_usd_per_hour}
        sources = {key: said for key, said in sources.items() if key not in figures}
        sources |= {key: source for key, usd in figures.items() if usd is not None}
    return replace(hardware, price=main, other_prices=tuple(merged.values()), sources=sources)


def _everywhere(prices: Mapping[str, Price]) -> dict[str, Price]:
    """The price in any region, where all regions of a list have the same."""
    first = next(iter(prices.values()))
    same = all(price.on_demand_usd_per_hour == first.on_demand_usd_per_hour for price in prices.values())
    return {"any": replace(first, region="any")} if same else {}


def _price(region: str, dated: Dated) -> Price:
    quote = dated.quote
    return Price(
        quote.on_demand_usd_per_hour, quote.spot_usd_per_hour, region, dated.as_of, "published", dated.source,
        dated.as_of,
    )  # fmt: skip


def _figure(row: PriceRow, column: str) -> float | None:
    try:
        return price_of(row[column])
    except ValueError as error:
        raise row.error(column, str(error)) from None
