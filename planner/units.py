"""Quantities as people read and write them. Inside the package everything is in bytes, seconds and dollars.

Bits per second appear only in files, flags and tables; MB is 10**6 bytes, MiB is 2**20. Every number that
people read has one style: significant digits, thousands separators, units. JSON and CSV have full precision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from planner.errors import BadInput

MIB = 2**20
GBIT_BYTES_PER_S = 1e9 / 8
LEAST_KBIT, MOST_GBIT = 1, 100_000  # per second: a slow modem, thirty times the NICs of a p5

_NUMBER = r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*"
_BYTES = {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 2.0**10, "MIB": 2.0**20, "GIB": 2.0**30}
_BITS_PER_S = {"BIT": 1.0, "KBIT": 1e3, "MBIT": 1e6, "GBIT": 1e9}


def parse_bandwidth(text: str) -> float:
    """Parses `3Gbit`, `100 Mbit/s` or `2.5gbps` into bytes per second; refuses a bare number."""
    match = re.fullmatch(_NUMBER + r"([KMG]?)(?:bit/s|bit|bps|b/s)", text, flags=re.IGNORECASE)
    if not match:
        raise BadInput(f"bandwidth {text!r} is not understood; write it with its unit, as 10Gbit or 100Mbit")
    value = float(match[1]) * _BITS_PER_S[match[2].upper() + "BIT"] / 8
    if not LEAST_KBIT * 1e3 / 8 <= value <= MOST_GBIT * GBIT_BYTES_PER_S:
        raise BadInput(f"bandwidth {text!r} must lie between {LEAST_KBIT}kbit and {MOST_GBIT}Gbit")
    return value


LARGEST_SIZE_BYTES = 2**50


def parse_size(text: str) -> int:
    """Parses `4MiB`, `64KiB` or `4000000` into bytes."""
    match = re.fullmatch(_NUMBER + r"([KMG]?I?B?)", text, flags=re.IGNORECASE)
    if not match or match[2].upper() not in _BYTES:
        raise BadInput(f"size {text!r} is not understood; write it as 4MiB, 64KiB or a number of bytes")
    value = float(match[1]) * _BYTES[match[2].upper()]
    if not (math.isfinite(value) and value >= 1):
        raise BadInput(f"size {text!r} must be at least one byte")
    if value > LARGEST_SIZE_BYTES:
        raise BadInput(f"size {text!r} is more than 1 PiB; no tensor is so large")
    return round(value)


def format_bandwidth(bytes_per_s: float) -> str:
    """Formats bytes per second in bits, as `10 Gbit/s`."""
    bits = bytes_per_s * 8
    for unit, scale in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits >= scale:
            return f"{bits / scale:.4g} {unit}"
    return f"{bits:.4g} bit/s"


def format_bytes(value: float) -> str:
    """Formats bytes in three significant digits, as `97.5 MiB` or `1,512 GiB`."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale:
            return f"{three_digits(value / scale)} {unit}"
    return f"{value:.0f} B"


def format_count(value: float) -> str:
    """Formats a large number as `15.6 trillion`, a small one as `61,440`."""
    for name, scale in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if value >= 0.9995 * scale:
            return f"{value / scale:.3g} {name}"
    return f"{value:,.0f}"


def format_seconds(value: float) -> str:
    """Formats seconds to three significant digits: `340 ms`, `2.10 h`, `9.80 years`, `12 h`."""
    return " ".join(_seconds_figure_and_unit(value))


def format_span(low: float, high: float) -> str:
    """Formats a range of seconds as `21.8 - 39.3 min`, writing a common unit once."""
    (least, first), (most, other) = _seconds_figure_and_unit(low), _seconds_figure_and_unit(high)
    return f"{least} - {most} {other}" if first == other else f"{least} {first} - {most} {other}"


def _seconds_figure_and_unit(value: float) -> tuple[str, str]:
    """Figure and unit of a number of seconds; hours are used up to three days."""
    for unit, scale, least in _TIMES:
        if value >= 0.9995 * least:
            return three_digits(value / scale), unit
    return three_digits(value * 1e9), "ns"


_DAY = 86400.0
_TIMES = (  # unit, its seconds, and from how many seconds on it is used
    ("years", 365.25 * _DAY, 1000 * _DAY),
    ("d", _DAY, 3 * _DAY),
    ("h", 3600.0, 3600.0),
    ("min", 60.0, 60.0),
    ("s", 1.0, 1.0),
    ("ms", 1e-3, 1e-3),
    ("us", 1e-6, 1e-6),
)


def three_digits(value: float) -> str:
    """Number to three significant digits: `4.30`, `22.2`, `1,250`; whole ones without decimals."""
    if not math.isfinite(value):
        return f"{value:g}"
    if value <= 0 or math.isclose(value, round(value), rel_tol=1e-9):
        return f"{value:,.0f}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}"


SIGNIFICANT = 3


def rate(value: float) -> str:
    """Rate as text, to three significant digits: `21,300`, `98.2`."""
    if not math.isfinite(value) or value == 0:
        return "-" if value else "0"
    if abs(value) < 100:
        return f"{value:.{SIGNIFICANT}g}"
    digits = SIGNIFICANT - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, min(0, digits)):,.0f}"


def signed_rate(value: float) -> str:
    """Rate as text with its sign: `+1,240`, `-185`."""
    return ("-" if value < 0 else "+") + rate(abs(value))


def money(value: float) -> str:
    """US dollars as text without the dollar sign, for columns: `1,761`, `43.92`, `0.012`."""
    if not math.isfinite(value):
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def usd(value: float) -> str:
    """US dollars as text: `$1,761`, `$43.92`, `$0.012`."""
    return f"${money(value)}"


def limit_usd(value: float) -> str:
    """Limit in US dollars as text, to six significant digits: `$50`, `$2.5`."""
    return f"${value:,.6g}"


def usd_span(low: float, high: float) -> str:
    """Range of US dollars as text: `$59.51 - $173`."""
    return f"{usd(low)} - {usd(high)}"


def span(low: float, high: float) -> str:
    """Range of numbers as text: `17,400 - 26,100`."""
    return f"{rate(low)} - {rate(high)}"


def percent(share: float) -> str:
    """Fraction as a whole percentage: `93%`."""
    return f"{share:.0%}"


def signed_percent(share: float) -> str:
    """Fraction as a percentage with its sign: `+12.5%`."""
    return f"{share:+.1%}"


def text_bar(share: float, width: int = 24) -> str:
    """Fraction of `width` as a text bar of block characters."""
    return "█" * round(width * share)


def number_sources(sources: Iterable[str | None]) -> dict[str | None, str | None]:
    """Label of each source, as `[1]`, numbered by first occurrence; None for empty sources."""
    named = [source for source in dict.fromkeys(sources) if source]
    return {None: None, "": None, **{source: f"[{place}]" for place, source in enumerate(named, 1)}}


def count(number: int, noun: str) -> str:
    """Number and noun: `1 worker`, `4 workers`, `1,024 workers`."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def listing(names: list[str], most: int = 3) -> str:
    """Names as one phrase: `a, b and c`, or `a, b, c and 4 more`."""
    named, more = names[:most], len(names) - most
    if more > 0:
        return f"{', '.join(named)} and {more} more"
    return " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]]))


def ratio(value: float) -> str:
    """Ratio as text, to two significant digits: `3.1x`, `6.0x`, `0.42x`; from 10 on as `12x`."""
    if value < 1:
        return f"{value:.2g}x"
    return f"{value:.1f}x" if value < 9.95 else f"{value:,.0f}x"
