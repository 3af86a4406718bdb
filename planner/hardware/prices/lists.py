"""Published price lists: reading, importing into the user's own folder, comparing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Literal

from planner.errors import BadInput, unknown_name
from planner.files.regular_file import expand_path, open_regular_file
from planner.files.tomlfile import check_name
from planner.hardware import Hardware, Price
from planner.hardware.prices import book
from planner.hardware.prices.book import Prices
from planner.hardware.prices.formats import (
    AWS,
    GPUHUNT,
    SKYPILOT,
    TWO_COLUMNS,
    ListedPrice,
    Machines,
    PriceFormat,
    contradiction_error,
    read_header,
)
from planner.hardware.prices.offers import filter_by_provider

FAR = 3.0
HEAD_BYTES = 4096
FORMATS = (
    "SkyPilot (columns InstanceType and Price), gpuhunt (instance_name and price), AWS (JSON), "
    "or two columns, machine and USD per hour"
)


def detect_format(path: Path) -> PriceFormat | None:
    """Detects the format of a price list from its first bytes; None if unknown."""
    with open_regular_file(path) as file:
        head = file.read(HEAD_BYTES)
    if head.lstrip()[:1] == b"{":
        keys = (b'"PriceList"', b'"products"', b'"offerCode"', b'"publicationDate"')
        return AWS if any(key in head for key in keys) else None
    header = read_header(path)
    for known, columns in ((SKYPILOT, ("InstanceType", "Price")), (GPUHUNT, ("instance_name", "price"))):
        if set(columns) <= set(header):
            return known
    return TWO_COLUMNS if len(header) == 2 else None


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices of a list for machines of the catalog; `as_of`: its own date, if any."""

    path: Path
    format: str
    provider: str
    quotes: Prices
    rows: int
    left_out: Mapping[str, int]
    as_of: str = ""

    @property
    def price_count(self) -> int:
        """Number of prices of all machines and regions."""
        return sum(len(regions) for regions in self.quotes.values())


def read_lists(path: Path, provider: str | None = None) -> tuple[PriceList, ...]:
    """Reads the price list in a file, or all lists in a folder: `aws/vms.csv`, `aws.csv`, `index.json`."""
    if not path.is_dir():
        return (read_list(path, provider),)
    files = sorted({*path.glob("*.csv"), *path.glob("*/vms.csv"), *path.glob("*.json")})
    formats = {file: kind for file in files if (kind := detect_format(file)) not in (None, TWO_COLUMNS)}
    if not formats:
        raise BadInput(f"{path}: no price list in it; looked for *.csv, */vms.csv and *.json")
    providers = _machines_by_provider()
    lists: dict[str, PriceList] = {}
    for file, kind in formats.items():
        assert kind is not None
        whose = provider or kind.provider_of(file)
        if whose not in providers:
            continue  # a provider without machines in the catalog
        if whose in lists:
            raise BadInput(f"{path}: two lists of {whose}: {lists[whose].path} and {file}; import one")
        lists[whose] = read_list(file, whose)
    if not lists:
        raise BadInput(f"{path}: no list of a provider in the catalog: {', '.join(sorted(providers))}")
    return tuple(lists.values())


def read_list(path: Path, provider: str | None = None) -> PriceList:
    """Reads one price list; its content or path names the provider if none is given."""
    kind = detect_format(path)
    if kind is None:
        raise BadInput(f"{path}:1: no price list; it may be one of {FORMATS}")
    by_provider = _machines_by_provider()
    whose = provider or kind.provider_of(path)
    if not whose and kind is TWO_COLUMNS:
        machines = {name: machine for kinds in by_provider.values() for name, machine in kinds.items()}
    elif whose in by_provider:
        machines = by_provider[whose]
    else:
        hint = "" if provider else "; the list does not say whose prices it has: give --provider"
        raise BadInput(f"{path}: {unknown_name('provider', whose, by_provider)}{hint}")
    left_out: Counter[str] = Counter()
    rows = list(kind.read(path, whose, machines, left_out))
    quotes = _median_prices(rows, machines, left_out, f"{kind.name} list {path.name}")
    if not quotes:
        of = f" of {whose}; is it another provider's?" if whose else "; `planner hardware` lists their names"
        raise BadInput(f"{path}: no price of a machine that the catalog has{of}")
    owners = {machine.provider for machine in machines.values() if machine.name in quotes}
    whose = whose or (owners.pop() if len(owners) == 1 else "several")
    dates = [row.as_of for row in rows if row.as_of]
    return PriceList(path, kind.name, whose, quotes, len(rows), +left_out, min(dates, default=""))


def _median_prices(
    rows: Iterable[ListedPrice], machines: Machines, left_out: Counter[str], source: str
) -> dict[str, dict[str, Price]]:
    """Median prices over the zones of each region, by machine and region.

    A spot price of zero counts as none, as does one equal to on demand outside AWS. An on-demand price below
    the spot price is left out.
    """
    unknown = {row.name for row in rows if row.name not in machines}
    left_out["of machines that the catalog lacks"] += len(unknown)
    regions: dict[tuple[str, str], dict[str, list[ListedPrice]]] = {}
    for row in rows:
        if row.name in machines:
            check_name(row.region, f"{row.place}: region")
            regions.setdefault((row.name, row.region), {}).setdefault(row.zone, []).append(row)
    quotes: dict[str, dict[str, Price]] = {}
    for (name, region), zones in regions.items():
        machine, on_demands, spots = machines[name], [], []
        for same in zones.values():
            on_demand, spot = _zone_price(same, "on_demand"), _zone_price(same, "spot")
            if spot == 0 or (spot == on_demand and machine.provider != "aws"):
                spot = None
            if on_demand is not None and spot is not None and on_demand < spot:
                left_out["on demand below spot"] += 1
                on_demand = None
            on_demands += [] if on_demand is None else [on_demand]
            spots += [] if spot is None else [spot]
        if on_demands or spots:
            usd = _rounded_median(on_demands), _rounded_median(spots)
            quotes.setdefault(machine.name, {})[region] = Price(*usd, region, "", "published", source)
    return quotes


def _rounded_median(usd: list[float]) -> float | None:
    """Median price rounded to six decimals; None for an empty list."""
    return round(median(usd), 6) if usd else None


def _zone_price(rows: Iterable[ListedPrice], kind: Literal["on_demand", "spot"]) -> float | None:
    """Price in one zone; None if there is none, BadInput if two different ones are listed."""
    priced = [row for row in rows if getattr(row, kind) is not None]
    for row in priced[1:]:
        if getattr(row, kind) != getattr(priced[0], kind):
            raise contradiction_error(row, priced[0].line)
    return getattr(priced[0], kind) if priced else None


def _machines_by_provider() -> dict[str, dict[str, Hardware]]:
    """Machines of the catalog by provider, then by the provider's own machine name."""
    from planner.hardware.catalog import hardware_names, load_hardware

    by_name: dict[str, dict[str, Hardware]] = {}
    for machine in map(load_hardware, hardware_names()):
        if machine.standing in ("rentable", "retired"):
            by_name.setdefault(machine.provider, {})[machine.offered_as or machine.name] = machine
    return by_name


@dataclass(frozen=True, slots=True)
class ImportedPrices:
    """An imported price list: where it was saved, and how it compares with the catalog."""

    list: PriceList
    as_of: date
    dated_by_file: bool
    saved: Path
    counting: int  # prices at least as new as the catalog's
    far: int  # on-demand prices that differ from the catalog's by more than a factor of `FAR`


def import_lists(
    path: Path, provider: str | None = None, as_of: str | None = None, today: date | None = None
) -> tuple[ImportedPrices, ...]:
    """Imports price lists into the user's folder; if one is damaged, nothing is imported."""
    lists = read_lists(path, provider)
    days = [_list_date(prices, as_of, today) for prices in lists]
    imported = []
    for prices, day in zip(lists, days, strict=True):
        source = f"{prices.format} list {prices.path.name} of {prices.provider}, imported by the user"
        saved = book.save_prices(prices.provider, prices.quotes, day, source)
        dated_by_file = as_of is None and not prices.as_of
        imported.append(ImportedPrices(prices, day, dated_by_file, saved, *_count_differences(prices, day)))
    return tuple(imported)


def _list_date(prices: PriceList, as_of: str | None, today: date | None) -> date:
    """Date of a price list: as given, else as stated in the list, else the file's modification date."""
    if as_of is not None:
        return book.parse_past_date(as_of, "--as-of", today)
    if prices.as_of:
        return book.parse_past_date(prices.as_of, f"{prices.path}: publicationDate", today)
    try:
        changed = date.fromtimestamp(prices.path.stat().st_mtime)
    except OSError as error:
        raise BadInput(f"cannot read {prices.path}: {error.strerror}") from error
    return book.parse_past_date(changed.isoformat(), f"{prices.path}: the day of the file", today)


def _count_differences(prices: PriceList, day: date) -> tuple[int, int]:
    """Two counts: prices at least as new as the catalog's, and prices far from the catalog's."""
    counting = far = 0
    shipped = load_named_prices("shipped")
    for name, regions in prices.quotes.items():
        for region, quote in regions.items():
            known = shipped[name].get(region) or shipped[name].get("any")
            counting += known is None or day.isoformat() >= known.as_of
            if known and known.on_demand_usd_per_hour and quote.on_demand_usd_per_hour:
                ratio = quote.on_demand_usd_per_hour / known.on_demand_usd_per_hour
                far += not 1 / FAR <= ratio <= FAR
    return counting, far


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A price of a machine in a region that differs between two lists."""

    machine: str
    region: str
    kind: str  # `on demand` or `spot`
    old_usd_per_hour: float | None
    new_usd_per_hour: float | None

    @property
    def relative_change(self) -> float | None:
        """Change as a fraction of the old price; None if either price is missing."""
        if self.old_usd_per_hour is None or self.new_usd_per_hour is None:
            return None
        return self.new_usd_per_hour / self.old_usd_per_hour - 1


@dataclass(frozen=True, slots=True)
class Changes:
    """Changed prices, the largest change first, and counts of the others."""

    changed: tuple[PriceChange, ...]
    same: int
    only_old: int  # machines and regions
    only_new: int


def compare_prices(old: Prices, new: Prices) -> Changes:
    """Compares price lists: changed prices of machines and regions in both, and counts of all others."""
    before, after = (
        {(name, region): price for name, regions in prices.items() for region, price in regions.items()}
        for prices in (old, new)
    )
    both = [key for key in before if key in after]
    pairs = [
        PriceChange(*key, kind, was, now)
        for key in both
        for kind, was, now in (
            ("on demand", before[key].on_demand_usd_per_hour, after[key].on_demand_usd_per_hour),
            ("spot", before[key].spot_usd_per_hour, after[key].spot_usd_per_hour),
        )
        if not was is now is None
    ]
    changed = [pair for pair in pairs if pair.old_usd_per_hour != pair.new_usd_per_hour]
    changed.sort(key=lambda pair: (-abs(pair.relative_change or 0.0), pair.machine, pair.region, pair.kind))
    same = len(pairs) - len(changed)
    return Changes(tuple(changed), same, len(before) - len(both), len(after) - len(both))


def load_named_prices(word: str, provider: str | None = None) -> Prices:
    """Prices by machine and region from `shipped`, `now`, an imported file or a published list."""
    if word in ("shipped", "now"):
        from planner.hardware.catalog import hardware_names, load_hardware, load_with_file_prices

        load = load_hardware if word == "now" else load_with_file_prices
        machines = tuple(load(name) for name in hardware_names())
        chosen = machines if provider is None else filter_by_provider(machines, provider)
        return {machine.name: {price.region: price for price in machine.prices} for machine in chosen}
    path = expand_path(word)
    is_ours = detect_format(path) is None and set(book.COLUMNS) <= set(read_header(path))
    return book.read_price_file(path) if is_ours else read_list(path, provider).quotes
