"""The AWS Price List in JSON: Linux on shared machines, on demand.

Two forms: the offer file of a service in a region (`products`, `terms.OnDemand`), and what `aws pricing
get-products` prints (`PriceList`, a list of JSON texts). The list says on which day it was published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from planner.errors import BadInput
from planner.files.regular_file import opened
from planner.files.tomlfile import check_name, from_json
from planner.hardware.prices.formats import KEPT, ListedPrice, Machines, PriceFormat, usd_per_hour

LARGEST_JSON_BYTES = 640 * 2**20  # the offer file of EC2 in us-east-1 has about 400 MB


class _Attributes(msgspec.Struct):
    instanceType: str = ""
    regionCode: str = ""
    locationType: str = "AWS Region"
    operatingSystem: str = ""
    tenancy: str = "Shared"
    preInstalledSw: str = "NA"
    capacitystatus: str = "Used"
    marketoption: str = "OnDemand"


class _Product(msgspec.Struct):
    sku: str = ""
    attributes: _Attributes = msgspec.field(default_factory=_Attributes)


class _Dimension(msgspec.Struct):
    unit: str = ""
    pricePerUnit: dict[str, str] = {}


class _Term(msgspec.Struct):
    priceDimensions: dict[str, _Dimension] = {}


class _ProductTerms(msgspec.Struct):
    OnDemand: dict[str, _Term] = {}


class _PricedProduct(msgspec.Struct):
    product: _Product
    terms: _ProductTerms = msgspec.field(default_factory=_ProductTerms)
    publicationDate: str = ""


class _OfferTerms(msgspec.Struct):
    OnDemand: dict[str, dict[str, _Term]] = {}


class _AwsFile(msgspec.Struct):
    products: dict[str, _Product] = {}
    terms: _OfferTerms = msgspec.field(default_factory=_OfferTerms)
    PriceList: list[str | _PricedProduct] = []
    publicationDate: str = ""


_LINUX = ("AWS Region", "Linux", "Shared", "NA", "Used", "OnDemand")


def _read_aws(
    path: Path, _provider: str, _machines: Machines, left_out: Counter[str]
) -> Iterator[ListedPrice]:
    for product, terms, published in _aws_products(path):
        about = product.attributes
        said = (about.locationType, about.operatingSystem, about.tenancy, about.preInstalledSw)
        if (*said, about.capacitystatus, about.marketoption) != _LINUX:
            left_out["of other systems, tenancies or zones"] += 1
            continue
        place = f"{path}: product {product.sku or about.instanceType}"
        for key in ("instanceType", "regionCode"):
            if not getattr(about, key):
                raise BadInput(f"{place}: no attribute {key}{KEPT}")
            check_name(getattr(about, key), f"{place}: {key}")
        dimensions = [entry for term in terms for entry in term.priceDimensions.values()]
        prices = [entry.pricePerUnit.get("USD", "") for entry in dimensions if entry.unit in ("Hrs", "Hours")]
        usd = next((usd_per_hour(price, place, zero=True) for price in prices if price), None)
        if not usd:
            left_out["without a price in USD per hour"] += 1
            continue
        yield ListedPrice(place, 0, about.instanceType, about.regionCode, on_demand=usd, as_of=published)


def _aws_products(path: Path) -> Iterator[tuple[_Product, Iterable[_Term], str]]:
    """Products with their on-demand terms and the day on which the list was published."""
    with opened(path) as file:
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
