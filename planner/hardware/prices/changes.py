"""What changed between two sets of prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from planner.errors import BadInput
from planner.files.regular_file import expanded
from planner.hardware import Hardware
from planner.hardware.prices import book
from planner.hardware.prices.lists import read_list
from planner.hardware.prices.quote import Quote, Quotes
from planner.hardware.prices.table import header_of


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A price of a machine in a region that is not the same in both."""

    machine: str
    region: str
    kind: Literal["on demand", "spot"]
    old_usd_per_hour: float | None
    new_usd_per_hour: float | None

    @property
    def relative(self) -> float | None:
        """The change as a share of the old price; None where one is missing."""
        if self.old_usd_per_hour is None or self.new_usd_per_hour is None:
            return None
        return self.new_usd_per_hour / self.old_usd_per_hour - 1


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes by size, and how many prices of machines and regions that both have are the same."""

    changed: tuple[PriceChange, ...]
    same: int
    only_old: int  # machines and regions
    only_new: int


def changes_between(old: Quotes, new: Quotes) -> Changes:
    """What differs where both sets have a machine in a region, the largest change first."""
    before, after = _flat(old), _flat(new)
    both = [key for key in before if key in after]
    parts = []
    same = 0
    for machine, region in both:
        first, other = before[machine, region], after[machine, region]
        pairs = (
            ("on demand", first.on_demand_usd_per_hour, other.on_demand_usd_per_hour),
            ("spot", first.spot_usd_per_hour, other.spot_usd_per_hour),
        )
        for kind, was, now in pairs:
            if was is None and now is None:
                continue
            if was == now:
                same += 1
            else:
                parts.append(PriceChange(machine, region, kind, was, now))  # type: ignore[arg-type]
    parts.sort(key=lambda change: (-abs(change.relative or 0.0), change.machine, change.region, change.kind))
    return Changes(tuple(parts), same, len(before) - len(both), len(after) - len(both))


def prices_named(word: str, provider: str | None = None) -> Quotes:
    """Prices by a word: `shipped`, `now`, a file that `import` wrote, or a list that it reads."""
    if word in ("shipped", "now"):
        machines = _catalogue(now=word == "now")
        chosen = [machine for machine in machines if provider in (None, machine.provider)]
        if not chosen:
            known = ", ".join(sorted({machine.provider for machine in machines}))
            raise BadInput(f"no machine of provider {provider!r}; known: {known}")
        return {machine.name: quotes_of(machine) for machine in chosen}
    path = expanded(word)
    if set(book.COLUMNS) <= set(header_of(path)):
        own = book.read_file(path)
        return {
            name: {region: dated.quote for region, dated in regions.items()} for name, regions in own.items()
        }
    return read_list(path, provider).quotes


def quotes_of(machine: Hardware) -> Mapping[str, Quote]:
    """The prices of a machine by region."""
    return {
        price.region: Quote(price.on_demand_usd_per_hour, price.spot_usd_per_hour)
        for price in (machine.price, *machine.other_prices)
    }


def shipped_machine(name: str) -> Hardware:
    """A machine of the catalogue with the catalogue's own prices."""
    from planner.hardware.catalog import load_shipped

    return load_shipped(name)


def _catalogue(*, now: bool) -> tuple[Hardware, ...]:
    from planner.hardware.catalog import hardware_names, load_hardware

    load = load_hardware if now else shipped_machine
    return tuple(load(name) for name in hardware_names())


def _flat(quotes: Quotes) -> dict[tuple[str, str], Quote]:
    return {
        (machine, region): quote for machine, regions in quotes.items() for region, quote in regions.items()
    }
