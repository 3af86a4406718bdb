"""Tables of prices: those in use, imported lists, and differences between lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.hardware import Hardware, Price
from planner.hardware.prices.cost import age_days, price_age_note
from planner.hardware.prices.lists import FAR, Changes, ImportedPrices, PriceChange
from planner.report.page import Table, columns_of
from planner.units import number_sources


def providers_table(machines: Sequence[Hardware]) -> Table:
    """Table with one row per provider: the number of prices and their dates."""
    by_provider: dict[str, list[Price]] = {}
    counts: dict[str, int] = {}
    for machine in machines:
        if machine.ownership is None:
            by_provider.setdefault(machine.provider, []).extend(machine.prices)
            counts[machine.provider] = counts.get(machine.provider, 0) + 1
    rows = []
    for provider, prices in sorted(by_provider.items()):
        dates: list[Any] = sorted(price.as_of for price in prices if price.as_of) or [None]
        rows.append(
            {
                "provider": provider,
                "machines": counts[provider],
                "prices": len(prices),
                "imported": sum("imported by" in price.source for price in prices),
                "oldest": dates[0],
                "newest": dates[-1],
                "oldest_days": dates[0] and age_days(dates[0]),
            }
        )
    notes = ["A price is one machine in one region. `planner prices show NAME` lists those of a machine."]
    old = price_age_note(price.as_of for prices in by_provider.values() for price in prices)
    return Table(rows, columns_of("providers"), notes=[*notes, *filter(None, [old])])


def prices_table(machines: Sequence[Hardware]) -> Table:
    """Table of prices, one row per machine and region."""
    shown: list[dict[str, Any]] = [
        {"machine": machine, "price": price}
        for machine in machines
        if machine.ownership is None
        for price in sorted(machine.prices, key=lambda price: price.region != machine.price.region)
    ]
    numbers = number_sources(row["price"].source for row in shown)
    computed = {
        "age_days": lambda row: age_days(row["price"].as_of),
        "_ref": lambda row: numbers[row["price"].source],
    }
    notes = [f"{number} {source}" for source, number in numbers.items() if number]
    old = price_age_note(row["price"].as_of for row in shown)
    return Table.of(shown, columns_of("prices", computed), notes=[*notes, *filter(None, [old])])


def imports_table(imports: Sequence[ImportedPrices]) -> Table:
    """Table of imported price lists; its notes list what was left out."""
    computed = {
        "as_of": lambda each: each.as_of.isoformat(),
        "machines": lambda each: len(each.list.quotes),
        "file": lambda each: str(each.saved),
    }
    notes = [f"Saved as {each.saved}." for each in imports]
    for each in imports:
        left = "; ".join(f"{count} {reason}" for reason, count in each.list.left_out.items())
        older = each.list.price_count - each.counting
        said = {
            f"left out {left}.": bool(left),
            f"{older} prices are older than the catalog's, which stay in use.": older > 0,
            f"{each.far} prices differ from the catalog's by more than a factor of {FAR:g}; "
            "`planner prices diff shipped now` shows which.": bool(each.far),
        }
        notes += [f"{each.list.provider}: {sentence}" for sentence, holds in said.items() if holds]
    if any(each.dated_by_file for each in imports):
        notes.append("Dated by the day of the file. Lists are often older: --as-of sets their day.")
    return Table.of(imports, columns_of("price_imports", computed), notes=notes)


def changes_table(changes: Changes, old: str, new: str) -> Table:
    """Table of changed prices, in the given order."""

    def rounded_change(change: PriceChange) -> float | None:
        """Relative price change, rounded; None if unknown."""
        return None if change.relative_change is None else round(change.relative_change, 6)

    notes = [
        f"{changes.same} prices are the same; {changes.only_old} machines and regions are only in {old}, "
        f"{changes.only_new} only in {new}."
    ]
    return Table.of(changes.changed, columns_of("price_changes", {"change": rounded_change}), notes=notes)
