"""SkyPilot's `vms.csv`: one row a machine and zone, on Google Cloud hosts and accelerators apart.

The provider is not in the file: it is the name of its folder. Rules and slips of the lists (of August 2026):

- Google Cloud: a machine costs its host and its accelerators in the same zone; a host may cost 0, where the
  accelerator's row holds the whole machine. Version 7 has H100 and A100-80GB far below their price.
- On demand below spot is a slip: the spot price alone counts.
- On AWS a spot price that equals the other one means no spare capacity in that zone; elsewhere (RunPod,
  Azure's H100) that there is no spot price. Zero means none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.errors import BadInput
from planner.hardware import Hardware
from planner.hardware.prices.quote import Found, over_zones, price_of
from planner.hardware.prices.table import PriceRow, rows_of

SIGN = ("InstanceType", "Price")
NEEDED = ("InstanceType", "Price", "Region")
_GCP_NEEDED = (*NEEDED, "AcceleratorName", "AcceleratorCount")

# accelerators as SkyPilot names them on Google Cloud, by ours
_GCP_NAMES = {
    "A100-SXM4-40GB": "A100",
    "A100-SXM4-80GB": "A100-80GB",
    "H100-SXM5-80GB": "H100",
    "H200-SXM-141GB": "H200",
    "B200-SXM-180GB": "B200",
    "L4": "L4",
    "T4": "T4",
    "P100-PCIE-16GB": "P100",
    "V100-SXM2-16GB": "V100",
    "RTX-PRO-6000-Blackwell-Server": "RTXPRO6000",
}
_GCP_VERSION_7 = ("H100", "A100-80GB")


@dataclass(frozen=True, slots=True)
class _Price:
    """The prices of one row."""

    on_demand: float | None
    spot: float | None
    row: PriceRow


# by what is priced, then by region and zone
_Zones = dict[tuple[str, str], dict[tuple[str, str], _Price]]


def read(path: Path, provider: str, machines: Mapping[str, Hardware]) -> Found:
    """The quotes of a list for machines by the provider's names for them."""
    result = Found()
    zones: _Zones = defaultdict(dict)
    for row in rows_of(path, _GCP_NEEDED if provider == "gcp" else NEEDED):
        result.rows += 1
        if row["AcceleratorName"].lower().startswith("tpu"):
            result.left_out["TPU slices"] += 1  # of hundreds of chips, so that a price may be any
            continue
        _add(zones, row, provider)
    if provider == "gcp":
        old = "v7" in path.resolve().parts
        for name, machine in machines.items():
            _add_quotes(result, machine, _on_google(zones, name, machine, old), provider)
    else:
        for name, machine in machines.items():
            at = zones.get((name, ""), {})
            _add_quotes(
                result, machine, ((region, p.on_demand, p.spot) for (region, _), p in at.items()), provider
            )
    known = {name.partition("+")[0] for name in machines}
    result.left_out["of machines that the catalogue lacks"] = len(
        {name for name, accelerator in zones if not accelerator and name not in known}
    )
    return result


def _add(zones: _Zones, row: PriceRow, provider: str) -> None:
    name, accelerator = row["InstanceType"], ""
    if not name:
        if provider != "gcp" or not row["AcceleratorName"]:
            raise row.error("InstanceType", "is empty")
        accelerator = f"{row['AcceleratorName']}:{_count(row)}"
    if not row["Region"]:
        raise row.error("Region", "is empty")
    zero = provider == "gcp" and not accelerator
    price = _Price(_value(row, "Price", zero=zero), _value(row, "SpotPrice", zero=True), row)
    place = row["Region"], row["AvailabilityZone"]
    said = zones[name, accelerator].setdefault(place, price)
    if (said.on_demand, said.spot) != (price.on_demand, price.spot):
        where = " ".join(filter(None, place))
        raise row.error(
            "Price", f"another price of {name or accelerator} in {where} stands in line {said.row.line}"
        )


def _count(row: PriceRow) -> int:
    try:
        return int(float(row["AcceleratorCount"]))
    except (ValueError, OverflowError):
        raise row.error("AcceleratorCount", f"{row['AcceleratorCount']!r} is no number") from None


def _value(row: PriceRow, column: str, *, zero: bool) -> float | None:
    try:
        return price_of(row[column], zero=zero)
    except ValueError as error:
        raise row.error(column, str(error)) from None


def _on_google(
    zones: _Zones, name: str, machine: Hardware, old: bool
) -> Iterator[tuple[str, float | None, float | None]]:
    """The prices of a machine in each zone that has its host and its accelerators."""
    host = name.partition("+")[0]
    device = "H100-MEGA" if host.startswith("a3-mega") else _GCP_NAMES.get(machine.device.name, "")
    if old and device in _GCP_VERSION_7:
        return
    of_devices = zones.get(("", f"{device}:{machine.device_count}"), {})
    for (region, zone), entry in zones.get((host, ""), {}).items():
        other = of_devices.get((region, zone))
        if other and other.on_demand is not None and entry.on_demand is not None:
            both = None if entry.spot is None or other.spot is None else entry.spot + other.spot
            yield region, entry.on_demand + other.on_demand, both


def _add_quotes(
    found: Found,
    machine: Hardware,
    prices: Iterator[tuple[str, float | None, float | None]],
    provider: str,
) -> None:
    regions: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for region, on_demand, spot in prices:
        if spot is not None and (spot == 0 or (spot == on_demand and provider != "aws")):
            spot = None
        if on_demand is not None and spot is not None and on_demand < spot:
            found.left_out["on demand below spot"] += 1
            on_demand = None
        lists = regions[region]
        if on_demand is not None:
            lists[0].append(on_demand)
        if spot is not None:
            lists[1].append(spot)
    for region, (on_demands, spots) in regions.items():
        if quote := over_zones(on_demands, spots):
            found.quotes[machine.name][region] = quote


def provider_of(path: Path) -> str:
    """The folder's name, as in catalogs/v8/aws/vms.csv."""
    name = path.resolve().parent.name
    if not name:
        raise BadInput(f"{path}: say whose prices these are with --provider")
    return name
