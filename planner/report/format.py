"""One style for every number that people read: significant digits, thousands separators, units.

JSON and CSV carry full precision; nothing here is for programs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

SIGNIFICANT = 3


def rate(value: float) -> str:
    """Three significant digits with thousands separators: `21,300`, `98.2`, `0.0123`."""
    if not math.isfinite(value) or value == 0:
        return "-" if value else "0"
    if abs(value) < 100:
        return f"{value:.{SIGNIFICANT}g}"
    digits = SIGNIFICANT - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, min(0, digits)):,.0f}"


def signed(value: float) -> str:
    """A rate with its sign: `+1,240`, `-185`."""
    return ("-" if value < 0 else "+") + rate(abs(value))


def money(value: float) -> str:
    """Dollars without the sign, for columns: `1,761`, `43.92`, `0.012`."""
    if not math.isfinite(value):
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def usd(value: float) -> str:
    """Dollars: `$1,761`, `$43.92`, `$0.012`."""
    return f"${money(value)}"


def limit_usd(value: float) -> str:
    """Dollars as a limit was given: `$50`, `$2.5`."""
    return f"${value:,.6g}"


def usd_span(low: float, high: float) -> str:
    """`$59.51 - $173`."""
    return f"{usd(low)} - {usd(high)}"


def span(low: float, high: float) -> str:
    """`17,400 - 26,100`."""
    return f"{rate(low)} - {rate(high)}"


def percent(share: float) -> str:
    """A share without decimals: `93%`."""
    return f"{share:.0%}"


def signed_percent(share: float) -> str:
    """A difference: `+12.5%`."""
    return f"{share:+.1%}"


def bar(share: float, width: int = 24) -> str:
    """A bar of characters; an HTML page draws it."""
    return "█" * round(width * share)


def references(sources: Iterable[str | None]) -> dict[str | None, str | None]:
    """Sources by number: `[1]`, in the order in which they occur."""
    named = [source for source in dict.fromkeys(sources) if source]
    return {None: None, "": None, **{source: f"[{place}]" for place, source in enumerate(named, 1)}}


def count(number: int, noun: str) -> str:
    """`1 worker`, `4 workers`, `1,024 workers`."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def listed(names: list[str], most: int = 3) -> str:
    """`a, b and c`, or `a, b, c and 4 more`."""
    named, more = names[:most], len(names) - most
    if more > 0:
        return f"{', '.join(named)} and {more} more"
    return " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]]))


def ratio(value: float) -> str:
    """How many times, in two significant digits from 1 on: `3.1x`, `6.0x`, `12x`, `0.42x`."""
    if value < 1:
        return f"{value:.2g}x"
    return f"{value:.1f}x" if value < 9.95 else f"{value:,.0f}x"
