"""gpuhunt's CSV (dstack): one row an offer, spot in rows of its own, the provider in the name of the file.

Rows without one of the columns that it requires are left out, as gpuhunt itself does; `location` is a region
or one of its zones.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from planner.hardware import Hardware
from planner.hardware.prices.quote import Found, over_zones, price_of
from planner.hardware.prices.table import PriceRow, rows_of

SIGN = ("instance_name", "price")
NEEDED = ("instance_name", "location", "price", "spot")
_REQUIRED = ("instance_name", "location", "price", "cpu", "memory", "gpu_count", "spot")
PROVIDERS = {"lambdalabs": "lambda", "datacrunch": "verda"}  # its names, by ours
_ZONES = {"gcp": re.compile(r"-[a-z]$"), "aws": re.compile(r"(?<=\d)[a-z]$")}


def read(path: Path, provider: str, machines: Mapping[str, Hardware]) -> Found:
    """The quotes of a list for machines by the provider's names for them."""
    known = {_plain(name): machine for name, machine in machines.items()}
    prices: dict[tuple[str, str], dict[bool, dict[str, tuple[float, int]]]] = defaultdict(
        lambda: {False: {}, True: {}}
    )
    result, unknown = Found(), set()
    for row in rows_of(path, NEEDED):
        result.rows += 1
        if not all(row[column] for column in _REQUIRED):
            result.left_out["of rows that lack a required value"] += 1
            continue
        usd, spot = _usd(row), _truth(row)
        name = _name(row, known)
        if name not in known:
            unknown.add(row["instance_name"])
            continue
        location = row["location"]
        zones = prices[name, _region(location, provider)][spot]
        before, line = zones.setdefault(location, (usd, row.line))
        if before != usd:
            said = f"another price of {row['instance_name']} in {location} stands in line {line}"
            raise row.error("price", said)
    for (name, region), kinds in prices.items():
        quote = over_zones(*([usd for usd, _ in kinds[spot].values()] for spot in (False, True)))
        if quote:
            result.quotes[known[name].name][region] = quote
    result.left_out["of machines that the catalogue lacks"] = len(unknown)
    return result


def provider_of(path: Path) -> str:
    return PROVIDERS.get(path.stem, path.stem)


def _usd(row: PriceRow) -> float:
    try:
        value = price_of(row["price"])
    except ValueError as error:
        raise row.error("price", str(error)) from None
    assert value is not None  # an empty one was left out
    return value


def _truth(row: PriceRow) -> bool:
    text = row["spot"].lower()
    if text not in ("true", "false"):
        raise row.error("spot", f"{row['spot']!r} is neither True nor False")
    return text == "true"


def _name(row: PriceRow, known: Mapping[str, Hardware]) -> str:
    """The machine of a row; accelerators attached to a general host are part of our names for it."""
    name = _plain(row["instance_name"])
    attached = _plain(f"{row['instance_name']}+{row['gpu_count']}x{row['gpu_name']}")
    return attached if attached in known else name


def _plain(name: str) -> str:
    """Names differ in what stands between their words: `gpu-h100-sxm 8gpu-128vcpu-1600gb`."""
    return re.sub(r"[ _]", "-", name).lower()


def _region(location: str, provider: str) -> str:
    return _ZONES[provider].sub("", location) if provider in _ZONES else location
