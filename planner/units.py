"""Quantities as people write them. Inside the package everything is in bytes, seconds and dollars.

Bits per second appear only in files, flags and tables; MB is 10**6 bytes, MiB is 2**20.
"""

from __future__ import annotations

import math
import re

from planner.errors import BadInput

MIB = 2**20
GBIT_BYTES_PER_S = 1e9 / 8
LEAST_KBIT, MOST_GBIT = 1, 100_000  # per second: a slow modem, thirty times the NICs of a p5

_NUMBER = r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*"
_BYTES = {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 2.0**10, "MIB": 2.0**20, "GIB": 2.0**30}
_BITS_PER_S = {"BIT": 1.0, "KBIT": 1e3, "MBIT": 1e6, "GBIT": 1e9}


def bandwidth_bytes_per_s(text: str) -> float:
    """`3Gbit`, `100 Mbit/s`, `2.5gbps` as bytes a second; a bare number is refused, for it has no unit."""
    match = re.fullmatch(_NUMBER + r"([KMG]?)(?:bit/s|bit|bps|b/s)", text, flags=re.IGNORECASE)
    if not match:
        raise BadInput(f"bandwidth {text!r} is not understood; write it with its unit, as 10Gbit or 100Mbit")
    value = float(match[1]) * _BITS_PER_S[match[2].upper() + "BIT"] / 8
    if not LEAST_KBIT * 1e3 / 8 <= value <= MOST_GBIT * GBIT_BYTES_PER_S:
        raise BadInput(f"bandwidth {text!r} must lie between {LEAST_KBIT}kbit and {MOST_GBIT}Gbit")
    return value


LARGEST_SIZE_BYTES = 2**50


def size_bytes(text: str) -> int:
    """`4MiB`, `64KiB`, `4000000` as bytes."""
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
    """Bytes a second as `10 Gbit/s`."""
    bits = bytes_per_s * 8
    for unit, scale in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits >= scale:
            return f"{bits / scale:.4g} {unit}"
    return f"{bits:.4g} bit/s"


def format_bytes(value: float) -> str:
    """Bytes as `97.50 MiB`."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale:
            return f"{value / scale:.2f} {unit}"
    return f"{value:.0f} B"


def format_count(value: float) -> str:
    """A large number as `15.6 trillion`, a small one as `61,440`."""
    for name, scale in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if value >= 0.9995 * scale:
            return f"{value / scale:.3g} {name}"
    return f"{value:,.0f}"


def format_seconds(value: float) -> str:
    """Seconds in three significant digits, `340 ms`, `2.10 h`, `9.80 years`, round ones as `12 h`."""
    return " ".join(_seconds(value))


def format_span(low: float, high: float) -> str:
    """Seconds from one to another as `21.8 - 39.3 min`: a unit that both have is said once."""
    (least, first), (most, other) = _seconds(low), _seconds(high)
    return f"{least} - {most} {other}" if first == other else f"{least} {first} - {most} {other}"


def _seconds(value: float) -> tuple[str, str]:
    """The figure and its unit; hours up to three days, so that times near a day compare at a glance."""
    for unit, scale, least in _TIMES:
        if value >= 0.9995 * least:
            return _three_digits(value / scale), unit
    return _three_digits(value * 1e9), "ns"


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


def _three_digits(value: float) -> str:
    """`4.30`, `22.2`, `1,250`; a whole number without decimals."""
    if not math.isfinite(value):
        return f"{value:g}"
    if value <= 0 or math.isclose(value, round(value), rel_tol=1e-9):
        return f"{value:,.0f}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}"
