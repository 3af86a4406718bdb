"""Prices for people and programs: which count, what an import brought, what changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.hardware import Hardware, Price
from planner.hardware.prices.cost import age_days, old_prices
from planner.hardware.prices.lists import FAR, Changes, ImportedPrices
from planner.report.page import Column, Table


def providers_table(machines: Sequence[Hardware]) -> Table:
    """A line a provider: how many prices, and of which days."""
    by_provider: dict[str, list[Hardware]] = {}
    for machine in machines:
        if machine.ownership is None:
            by_provider.setdefault(machine.provider, []).append(machine)
    rows = []
    for provider, kinds in sorted(by_provider.items()):
        prices = [price for kind in kinds for price in _prices(kind)]
        dates = sorted(price.as_of for price in prices if price.as_of)
        own = sum("imported by the user" in price.source for price in prices)
        rows.append(
            {
                "provider": provider,
                "machines": len(kinds),
                "prices": len(prices),
                "imported": own,
                "oldest": dates[0] if dates else None,
                "newest": dates[-1] if dates else None,
                "oldest_days": age_days(dates[0]) if dates else None,
            }
        )
    columns = (
        Column("provider"),
        Column("machines"),
        Column("prices"),
        Column("imported"),
        Column("oldest"),
        Column("newest"),
    )
    notes = ["A price is one machine in one region. `planner prices show NAME` lists those of a machine."]
    all_prices = (price for kinds in by_provider.values() for kind in kinds for price in _prices(kind))
    if old := old_prices(price.as_of for price in all_prices):
        notes.append(old)
    return Table(rows, columns, notes=notes)


def prices_table(machines: Sequence[Hardware]) -> Table:
    """A line a machine and region."""
    rows: list[dict[str, Any]] = []
    shown: list[Price] = []
    for machine in machines:
        if machine.ownership is not None:
            continue
        for price in sorted(_prices(machine), key=lambda price: price.region != machine.price.region):
            shown.append(price)
            rows.append(
                {
                    "name": machine.name,
                    "region": price.region or None,
                    "on_demand_usd_per_hour": price.on_demand_usd_per_hour,
                    "spot_usd_per_hour": price.spot_usd_per_hour,
                    "as_of": price.as_of or None,
                    "age_days": age_days(price.as_of),
                    "source": price.source or None,
                }
            )
    sources = list(dict.fromkeys(row["source"] for row in rows if row["source"]))
    for row in rows:
        row["_ref"] = f"[{sources.index(row['source']) + 1}]" if row["source"] else None
    columns = (
        Column("name", "machine"),
        Column("region"),
        Column("on_demand_usd_per_hour", "USD/h", _money),
        Column("spot_usd_per_hour", "spot", _money),
        Column("as_of", "as of"),
        Column("age_days", "days"),
        Column("_ref", "source"),
    )
    notes = [f"[{at}] {source}" for at, source in enumerate(sources, 1)]
    if old := old_prices(price.as_of for price in shown):
        notes.append(old)
    return Table(rows, columns, notes=notes)


def imports_table(imports: Sequence[ImportedPrices]) -> Table:
    """What was taken over, list by list."""
    rows = [
        {
            "provider": each.list.provider,
            "format": each.list.format,
            "as_of": each.as_of.isoformat(),
            "rows": each.list.rows,
            "machines": len(each.list.quotes),
            "prices": each.list.prices,
            "counting": each.counting,
            "file": str(each.saved),
        }
        for each in imports
    ]
    columns = (
        Column("provider"),
        Column("format"),
        Column("as_of", "as of"),
        Column("rows"),
        Column("machines"),
        Column("prices"),
        Column("counting", "that count"),
    )
    notes = [f"Saved as {each.saved}." for each in imports]
    for each in imports:
        left = [f"{count} {reason}" for reason, count in each.list.left_out.items()]
        if left:
            notes.append(f"{each.list.provider}: left out {'; '.join(left)}.")
        if each.counting < each.list.prices:
            older = each.list.prices - each.counting
            notes.append(f"{each.list.provider}: {older} prices are older than the catalogue's, which stay.")
        if each.far:
            notes.append(
                f"{each.list.provider}: {each.far} prices differ from the catalogue's by more than a factor "
                f"of {FAR:g}; `planner prices diff shipped now` shows which."
            )
    if any(each.dated_by_file for each in imports):
        notes.append("Dated by the day of the file; lists are often older than that: --as-of says otherwise.")
    return Table(rows, columns, notes=notes)


def changes_table(changes: Changes, old: str, new: str) -> Table:
    """What changed, the largest change first."""
    rows = [
        {
            "name": change.machine,
            "region": change.region,
            "kind": change.kind,
            "old_usd_per_hour": change.old_usd_per_hour,
            "new_usd_per_hour": change.new_usd_per_hour,
            "change": None if change.relative is None else round(change.relative, 6),
        }
        for change in changes.changed
    ]
    columns = (
        Column("name", "machine"),
        Column("region"),
        Column("kind", "price"),
        Column("old_usd_per_hour", "old USD/h", _money),
        Column("new_usd_per_hour", "new USD/h", _money),
        Column("change", "change", lambda value: f"{value:+.1%}"),
    )
    notes = [
        f"{changes.same} prices are the same; {changes.only_old} machines and regions are only in {old}, "
        f"{changes.only_new} only in {new}."
    ]
    return Table(rows, columns, notes=notes)


def _prices(machine: Hardware) -> tuple[Price, ...]:
    return (machine.price, *machine.other_prices)


def _money(value: float) -> str:
    return f"{value:.4g}"
