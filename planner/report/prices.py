"""Tables of prices: those in use, imported lists, and differences between lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.hardware import Hardware, Price
from planner.hardware.prices.cost import age_days, price_age_note
from planner.hardware.prices.lists import FAR, Changes, ImportedPrices
from planner.report.page import Column, Table, hidden_column
from planner.units import money, number_sources, signed_percent


def providers_table(machines: Sequence[Hardware]) -> Table:
    """Table with one row per provider: the number of prices and their dates."""
    by_provider: dict[str, list[Price]] = {}
    counts: dict[str, int] = {}
    for machine in machines:
        if machine.ownership is None:
            by_provider.setdefault(machine.provider, []).extend(machine.prices)
            counts[machine.provider] = counts.get(machine.provider, 0) + 1
    dates: dict[str, list[Any]] = {
        provider: sorted(price.as_of for price in prices if price.as_of) or [None]
        for provider, prices in by_provider.items()
    }
    columns = (
        Column("provider", get=lambda name: name),
        Column("machines", get=counts.__getitem__),
        Column("prices", get=lambda name: len(by_provider[name])),
        Column("imported", get=lambda name: sum("imported by" in p.source for p in by_provider[name])),
        Column("oldest", get=lambda name: dates[name][0]),
        Column("newest", get=lambda name: dates[name][-1]),
        hidden_column("oldest_days", lambda name: dates[name][0] and age_days(dates[name][0])),
    )
    notes = ["A price is one machine in one region. `planner prices show NAME` lists those of a machine."]
    old = price_age_note(price.as_of for prices in by_provider.values() for price in prices)
    return Table.of(sorted(by_provider), columns, notes=[*notes, *filter(None, [old])])


def prices_table(machines: Sequence[Hardware]) -> Table:
    """Table of prices, one row per machine and region."""
    shown = [
        (machine.name, price)
        for machine in machines
        if machine.ownership is None
        for price in sorted(machine.prices, key=lambda price: price.region != machine.price.region)
    ]
    numbers = number_sources(price.source for _, price in shown)
    columns = (
        Column("name", "machine", get=lambda row: row[0]),
        Column("region", get=lambda row: row[1].region or None),
        Column("on_demand_usd_per_hour", "$/h", money, get=lambda row: row[1].on_demand_usd_per_hour),
        Column("spot_usd_per_hour", "spot", money, get=lambda row: row[1].spot_usd_per_hour),
        Column("as_of", "as of", get=lambda row: row[1].as_of or None),
        Column("age_days", "days", get=lambda row: age_days(row[1].as_of), spare=2),
        hidden_column("source", lambda row: row[1].source or None),
        Column("_ref", "source", get=lambda row: numbers[row[1].source], spare=1),
    )
    notes = [f"{number} {source}" for source, number in numbers.items() if number]
    old = price_age_note(price.as_of for _, price in shown)
    return Table.of(shown, columns, notes=[*notes, *filter(None, [old])])


def imports_table(imports: Sequence[ImportedPrices]) -> Table:
    """Table of imported price lists; its notes list what was left out."""
    columns = (
        Column("provider", get=lambda each: each.list.provider),
        Column("format", get=lambda each: each.list.format),
        Column("as_of", "as of", get=lambda each: each.as_of.isoformat()),
        Column("rows", get=lambda each: each.list.rows, spare=1),
        Column("machines", get=lambda each: len(each.list.quotes)),
        Column("prices", get=lambda each: each.list.price_count),
        Column("counting", "that count"),
        hidden_column("file", lambda each: str(each.saved)),
    )
    notes = [f"Saved as {each.saved}." for each in imports]
    for each in imports:
        left = "; ".join(f"{count} {reason}" for reason, count in each.list.left_out.items())
        older = each.list.price_count - each.counting
        said = {
            f"left out {left}.": bool(left),
            f"{older} prices are older than the catalog's, which stay.": older > 0,
            f"{each.far} prices differ from the catalog's by more than a factor of {FAR:g}; "
            "`planner prices diff shipped now` shows which.": bool(each.far),
        }
        notes += [f"{each.list.provider}: {sentence}" for sentence, holds in said.items() if holds]
    if any(each.dated_by_file for each in imports):
        notes.append("Dated by the day of the file; lists are often older than that: --as-of says otherwise.")
    return Table.of(imports, columns, notes=notes)


def changes_table(changes: Changes, old: str, new: str) -> Table:
    """Table of changed prices, in the given order."""
    columns = (
        Column("name", "machine", get=lambda change: change.machine),
        Column("region"),
        Column("kind", "price"),
        Column("old_usd_per_hour", "old $/h", money),
        Column("new_usd_per_hour", "new $/h", money),
        Column(
            "change",
            "change",
            signed_percent,
            get=lambda change: None if change.relative_change is None else round(change.relative_change, 6),
        ),
    )
    notes = [
        f"{changes.same} prices are the same; {changes.only_old} machines and regions are only in {old}, "
        f"{changes.only_new} only in {new}."
    ]
    return Table.of(changes.changed, columns, notes=notes)
