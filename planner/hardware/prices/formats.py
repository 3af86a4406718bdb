"""Price lists: one reader per format, all with rows of one type.

- SkyPilot's `vms.csv`: one row per machine and zone; the folder names the provider. On Google Cloud,
  hosts and accelerators have separate rows, and a machine costs both in the same zone; a host costs 0 where
  the accelerator's row holds the whole machine. Version 7 has H100 and A100-80GB far below their price.
- gpuhunt's CSV (dstack): one row per offer, spot in separate rows; the file names the provider. Rows without
  a required column are left out, as gpuhunt does; `location` is a region or one of its zones.
- Two columns: a machine by the catalog's or its provider's name, and USD per hour, in its first region.
- The AWS Price List in JSON, Linux on shared machines, on demand: the offer file of a service in a region
  (`products`, `terms.OnDemand`), and the output of `aws pricing get-products` (`PriceList`, a list of JSON
  texts). The list has its date of publication.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from planner.errors import BadInput
from planner.files.regular_file import open_regular_file
from planner.files.tomlfile import check_name, from_json
from planner.hardware import Hardware
from planner.hardware.catalog import device_names

LARGEST_BYTES = 256 * 2**20  # the largest published CSV has a tenth of it
HIGHEST_USD_PER_HOUR = 1e4  # above which a price is a slip: the bound of hardware files
KEPT = "; nothing was imported"


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """Price of a machine in a zone of a region, in USD per hour, as listed by a provider.

    `place` is the file with line and column, `as_of` the day of the list, if any.
    """

    place: str
    line: int
    name: str
    region: str
    zone: str = ""
    on_demand: float | None = None
    spot: float | None = None
    as_of: str = ""


Machines = Mapping[str, Hardware]  # of a provider, by its own names for them
Reader = Callable[[Path, str, Machines, Counter[str]], Iterable[ListedPrice]]


@dataclass(frozen=True, slots=True)
class PriceFormat:
    """A price list format: how a path names its provider, and the reader.

    The reader takes the path, the provider, its machines, and a counter of rows left out.
    """

    name: str
    provider_of: Callable[[Path], str]
    read: Reader


class PriceRow(dict[str, str]):
    """One line of a CSV by column; absent columns are empty."""

    def __init__(self, path: Path, line: int, fields: Iterable[tuple[str, str]]) -> None:
        super().__init__(fields)
        self.path, self.line = path, line

    def __missing__(self, column: str) -> str:
        """Empty text, for a column that the file lacks."""
        return ""

    def place(self, column: str) -> str:
        """Location of a column of this row for error messages."""
        return f"{self.path}:{self.line}: column {column}"

    def error(self, column: str, message: str) -> BadInput:
        """Builds the error for a column of this row."""
        return BadInput(f"{self.place(column)}: {message}{KEPT}")

    def usd_in(self, column: str, *, zero: bool = False) -> float | None:
        """Price in a column of this row in USD per hour; None if the field is empty."""
        return parse_usd_per_hour(self[column], self.place(column), zero=zero)


def parse_usd_per_hour(text: str, location: str, *, zero: bool = False) -> float | None:
    """Parses a price in USD per hour; None for an empty text, BadInput if implausible."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise BadInput(f"{location}: {text!r} is not a number{KEPT}") from None
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise BadInput(f"{location}: {text} is not a price: give a number above 0{KEPT}")
    if value > HIGHEST_USD_PER_HOUR:
        raise BadInput(
            f"{location}: {text} USD per hour is absurd: at most {HIGHEST_USD_PER_HOUR:,.0f}{KEPT}"
        )
    return value


def read_header(path: Path) -> tuple[str, ...]:
    """Column names in the first line of a CSV file; empty for an empty file."""
    with _open_text(path) as text:
        return tuple(name.strip() for name in next(_csv_lines(path, text), []))


def read_rows(path: Path, needed: Sequence[str], names: Sequence[str] | None = None) -> Iterator[PriceRow]:
    """Yields the rows of a CSV file with the columns `needed`; `names` replaces an absent header."""
    with _open_text(path) as text:
        lines = _csv_lines(path, text)
        header = [name.strip() for name in next(lines, [])] if names is None else list(names)
        if twice := next((name for name, count in Counter(header).items() if count > 1), None):
            raise BadInput(f"{path}:1: column {twice} appears twice{KEPT}")
        if lacking := next((name for name in needed if name not in header), None):
            raise BadInput(f"{path}:1: no column {lacking}; it needs {', '.join(needed)}")
        for line, fields in enumerate(lines, 2 if names is None else 1):
            if not fields:
                continue
            if len(fields) != len(header):
                message = f"{len(fields)} fields, the header has {len(header)}"
                raise BadInput(f"{path}:{line}: {message}{KEPT}")
            for field in fields:
                if not field.isprintable():
                    check_name(field.strip(), f"{path}:{line}")
            yield PriceRow(path, line, zip(header, map(str.strip, fields), strict=True))


def _open_text(path: Path) -> io.TextIOWrapper:
    """Opens a price list as text; raises BadInput if it is larger than any published list."""
    file = open_regular_file(path)
    file.seek(0, io.SEEK_END)
    if file.tell() > LARGEST_BYTES:
        raise BadInput(f"{path}: larger than {LARGEST_BYTES // 2**20} MiB; no price list is")
    file.seek(0)
    return io.TextIOWrapper(file, encoding="utf-8-sig", newline="")


def _csv_lines(path: Path, text: io.TextIOWrapper) -> Iterator[list[str]]:
    """Yields the fields of each CSV line; raises BadInput for malformed CSV and bad encoding."""
    reader = csv.reader(text, strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise BadInput(f"{path}:{reader.line_num}: not CSV: {error}{KEPT}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not text in UTF-8; a price list is a CSV or JSON file") from error


# SkyPilot ---------------------------------------------------------------------------------------------------

_GCP_VERSION_7 = ("H100", "A100-80GB")


def _read_skypilot(
    path: Path, provider: str, machines: Machines, left_out: Counter[str]
) -> Iterable[ListedPrice]:
    """Reads a SkyPilot CSV; on Google Cloud, the prices of hosts and accelerators are added."""
    rows = _skypilot_rows(path, provider == "gcp", left_out)
    return _google_prices(list(rows), machines, path) if provider == "gcp" else rows


def _skypilot_rows(path: Path, is_google: bool, left_out: Counter[str]) -> Iterator[ListedPrice]:
    """Yields the prices in a SkyPilot CSV row by row, without TPU slices."""
    needed = ["InstanceType", "Price", "Region"]
    for row in read_rows(path, needed + ["AcceleratorName", "AcceleratorCount"] * is_google):
        if row["AcceleratorName"].lower().startswith("tpu"):
            left_out["TPU slices"] += 1
            continue
        name = row["InstanceType"]
        is_accelerator = is_google and not name
        if is_accelerator and row["AcceleratorName"]:
            name = f"{row['AcceleratorName']}:{_accelerator_count(row)}"
        for column, value in (("InstanceType", name), ("Region", row["Region"])):
            if not value:
                raise row.error(column, "is empty")
        on_demand = row.usd_in("Price", zero=is_google and not is_accelerator)
        spot = row.usd_in("SpotPrice", zero=True)
        zone = row["AvailabilityZone"]
        yield ListedPrice(row.place("Price"), row.line, name, row["Region"], zone, on_demand, spot)


def _accelerator_count(row: PriceRow) -> int:
    """Number of accelerators in a SkyPilot row; raises an error if it is no number."""
    try:
        return int(float(row["AcceleratorCount"]))
    except (ValueError, OverflowError):
        raise row.error("AcceleratorCount", f"{row['AcceleratorCount']!r} is not a number") from None


def _google_prices(rows: Iterable[ListedPrice], machines: Machines, path: Path) -> Iterator[ListedPrice]:
    """Yields Google Cloud machine prices by zone: the host's price plus that of its accelerators."""
    zones: dict[str, dict[tuple[str, str], ListedPrice]] = {}
    for row in rows:
        first = zones.setdefault(row.name, {}).setdefault((row.region, row.zone), row)
        if (first.on_demand, first.spot) != (row.on_demand, row.spot):
            raise contradiction_error(row, first.line)
    is_old, names = "v7" in path.resolve().parts, device_names("skypilot")
    hosts = set()
    for name, machine in machines.items():
        host = name.partition("+")[0]
        hosts.add(host)
        device = "H100-MEGA" if host.startswith("a3-mega") else names.get(machine.device.name, "")
        if is_old and device in _GCP_VERSION_7:
            continue
        devices = zones.get(f"{device}:{machine.device_count}", {})
        for zone, row in zones.get(host, {}).items():
            other = devices.get(zone)
            if other and other.on_demand is not None and row.on_demand is not None:
                spot = None if row.spot is None or other.spot is None else row.spot + other.spot
                yield ListedPrice(row.place, row.line, name, *zone, row.on_demand + other.on_demand, spot)
    for name in zones.keys() - hosts:
        if ":" not in name:
            row = next(iter(zones[name].values()))
            yield ListedPrice(row.place, row.line, name, row.region)


def contradiction_error(row: ListedPrice, line: int) -> BadInput:
    """Builds the error for two different prices of one machine in one zone."""
    where = " ".join(filter(None, (row.region, row.zone)))
    message = f"another price of {row.name} in {where}" + (f" stands in line {line}" if line else "")
    return BadInput(f"{row.place}: {message}{KEPT}")


# gpuhunt ----------------------------------------------------------------------------------------------------

_HUNT_REQUIRED = ("instance_name", "location", "price", "cpu", "memory", "gpu_count", "spot")
_HUNT_PROVIDERS = {"lambdalabs": "lambda", "datacrunch": "verda"}  # its names, by the catalog's
_HUNT_ZONES = {"gcp": re.compile(r"-[a-z]$"), "aws": re.compile(r"(?<=\d)[a-z]$")}


def _read_gpuhunt(
    path: Path, provider: str, machines: Machines, left_out: Counter[str]
) -> Iterator[ListedPrice]:
    """Reads a gpuhunt CSV: one offer per row, with accelerators added to hosts' names."""
    known = {_normalize_machine_name(name): name for name in machines}
    for row in read_rows(path, ("instance_name", "location", "price", "spot")):
        if not all(row[column] for column in _HUNT_REQUIRED):
            left_out["of rows that lack a required value"] += 1
            continue
        usd, is_spot = row.usd_in("price"), row["spot"].lower()
        if is_spot not in ("true", "false"):
            raise row.error("spot", f"{row['spot']!r} is neither True nor False")
        # accelerators attached to a general host are part of the catalog's names
        host = row["instance_name"]
        attached = _normalize_machine_name(f"{host}+{row['gpu_count']}x{row['gpu_name']}")
        name = known.get(attached) or known.get(_normalize_machine_name(host), host)
        location = row["location"]
        region = _HUNT_ZONES[provider].sub("", location) if provider in _HUNT_ZONES else location
        both = (None, usd) if is_spot == "true" else (usd, None)
        yield ListedPrice(row.place("price"), row.line, name, region, location, *both)


def _normalize_machine_name(name: str) -> str:
    """Converts a machine name to lower case with hyphens as the only separator."""
    return re.sub(r"[ _]", "-", name).lower()


# Two columns ------------------------------------------------------------------------------------------------

_TWO = ("machine", "usd_per_hour")


def _read_two_columns(
    path: Path, _provider: str, machines: Machines, _left_out: Counter[str]
) -> Iterator[ListedPrice]:
    """Reads a CSV of machine and USD per hour, with or without a header."""
    known = {called.lower(): name for name, kind in machines.items() for called in (name, kind.name)}
    for row in read_rows(path, _TWO, _TWO):
        words, name = row["usd_per_hour"].removeprefix("$"), known.get(row["machine"].lower(), row["machine"])
        if row.line == 1 and name not in machines and not re.match(r"[\d.+-]", words):
            continue  # a header
        usd = parse_usd_per_hour(words, row.place("usd_per_hour"))
        if not name or usd is None:
            raise row.error("usd_per_hour" if name else "machine", "is empty")
        region = machines[name].price.region if name in machines else ""
        yield ListedPrice(row.place("usd_per_hour"), row.line, name, region or "any", on_demand=usd)


SKYPILOT = PriceFormat("SkyPilot", lambda path: path.resolve().parent.name, _read_skypilot)
GPUHUNT = PriceFormat("gpuhunt", lambda path: _HUNT_PROVIDERS.get(path.stem, path.stem), _read_gpuhunt)
TWO_COLUMNS = PriceFormat("two-column", lambda path: "", _read_two_columns)


T = TypeVar("T")
LARGEST_JSON_BYTES = 640 * 2**20  # the offer file of EC2 in us-east-1 has about 400 MB


class _Attributes(msgspec.Struct):
    """Attributes of a product that select on-demand Linux machines."""

    instanceType: str = ""
    regionCode: str = ""
    locationType: str = "AWS Region"
    operatingSystem: str = ""
    tenancy: str = "Shared"
    preInstalledSw: str = "NA"
    capacitystatus: str = "Used"
    marketoption: str = "OnDemand"


class _Product(msgspec.Struct):
    """A product: one machine type in one region and operating system."""

    sku: str = ""
    attributes: _Attributes = msgspec.field(default_factory=_Attributes)


class _Dimension(msgspec.Struct):
    """A price by currency, with its unit."""

    unit: str = ""
    pricePerUnit: dict[str, str] = {}


class _Term(msgspec.Struct):
    """Terms of an offer: its prices."""

    priceDimensions: dict[str, _Dimension] = {}


class _Terms(msgspec.Struct, Generic[T]):
    """Offers by kind of terms; on-demand ones are read."""

    OnDemand: dict[str, T] = {}


class _PricedProduct(msgspec.Struct):
    """A product with its offers, as the Price List API returns it."""

    product: _Product
    terms: _Terms[_Term] = msgspec.field(default_factory=_Terms)
    publicationDate: str = ""


class _AwsFile(msgspec.Struct):
    """An AWS offer file, or an answer of the Price List API."""

    products: dict[str, _Product] = {}
    terms: _Terms[dict[str, _Term]] = msgspec.field(default_factory=_Terms)
    PriceList: list[str | _PricedProduct] = []
    publicationDate: str = ""


_LINUX = _Attributes(operatingSystem="Linux")


def _read_aws(
    path: Path, _provider: str, _machines: Machines, left_out: Counter[str]
) -> Iterator[ListedPrice]:
    """Reads the on-demand prices of shared Linux machines in an AWS price list."""
    for product, terms, published in _aws_products(path):
        about = product.attributes
        if msgspec.structs.replace(about, instanceType="", regionCode="") != _LINUX:
            left_out["of other systems, tenancies or zones"] += 1
            continue
        place = f"{path}: product {product.sku or about.instanceType}"
        for key in ("instanceType", "regionCode"):
            if not getattr(about, key):
                raise BadInput(f"{place}: no attribute {key}{KEPT}")
            check_name(getattr(about, key), f"{place}: {key}")
        dimensions = [entry for term in terms for entry in term.priceDimensions.values()]
        prices = [entry.pricePerUnit.get("USD", "") for entry in dimensions if entry.unit in ("Hrs", "Hours")]
        usd = next((parse_usd_per_hour(price, place, zero=True) for price in prices if price), None)
        if not usd:
            left_out["without a price in USD per hour"] += 1
            continue
        yield ListedPrice(place, 0, about.instanceType, about.regionCode, on_demand=usd, as_of=published)


def _aws_products(path: Path) -> Iterator[tuple[_Product, Iterable[_Term], str]]:
    """Yields the products of an AWS price list with their on-demand terms and the publication date."""
    with open_regular_file(path) as file:
        data = file.read(LARGEST_JSON_BYTES + 1)
    if len(data) > LARGEST_JSON_BYTES:
        raise BadInput(f"{path}: larger than {LARGEST_JSON_BYTES // 2**20} MiB; take the list of one region")
    try:
        content = from_json(data, _AwsFile)
        for entry in content.PriceList:
            priced = from_json(entry.encode(), _PricedProduct) if isinstance(entry, str) else entry
            yield priced.product, priced.terms.OnDemand.values(), priced.publicationDate[:10]
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadInput(f"{path}: no AWS price list: {error}{KEPT}") from error
    for sku, product in content.products.items():
        yield product, content.terms.OnDemand.get(sku, {}).values(), content.publicationDate[:10]


AWS = PriceFormat("AWS", lambda path: "aws", _read_aws)
