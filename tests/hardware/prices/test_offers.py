"""Asking by device: which machines fit, at which price, in which order."""

import pytest

from planner.errors import BadInput
from planner.hardware import Device
from planner.hardware.catalog import load_hardware, match_hardware
from planner.hardware.prices.offers import has_name, offers, parse_devices


def device(name: str) -> Device:
    return Device(name, "gpu", {"fp32": 1e12}, 1e9)


@pytest.mark.parametrize(
    ("name", "asked", "fits"),
    [
        ("H100-SXM5-80GB", "H100", True),
        ("H100-SXM5-80GB", "h100", True),
        ("H100-SXM5-80GB", "H100-SXM", True),
        ("H100-SXM5-80GB", "H100-80GB", True),
        ("H100-PCIE-80GB", "H100-SXM", False),
        ("H100-NVL-94GB", "H100", True),
        ("GH200-96GB", "H200", False),
        ("A100-SXM4-80GB", "A100-80GB", True),
        ("A100-SXM4-40GB", "A100-80GB", False),
        ("A100-SXM4-40GB", "A10", False),
        ("A10G", "A10", False),
        ("A10", "A10", True),
        ("L40S", "L4", False),
        ("RTX-4090", "RTX4090", True),
        ("RTX-4090", "RTX", True),
        ("RTX-PRO-6000-Blackwell-Server", "RTXPRO6000", True),
        ("RTX-6000-Ada", "RTX-PRO-6000", False),
    ],
)
def test_names_of_devices(name: str, asked: str, fits: bool) -> None:
    assert has_name(device(name), asked) == fits


def test_offers_come_by_the_price_of_a_device() -> None:
    result = offers("H100")
    usd = [offer.usd_per_device_hour for offer in result if offer.usd_per_device_hour is not None]
    assert usd == sorted(usd)
    assert len(usd) > 20
    assert {offer.hardware.device.name.partition("-")[0] for offer in result} == {"H100"}
    p5 = next(offer for offer in result if offer.hardware.name == "p5.48xlarge")
    assert p5.usd_per_device_hour == pytest.approx(55.04 / 8)
    assert len({offer.hardware.name for offer in result}) == len(result)
    spotty = [offer for offer in result if offer.usd_per_device_hour is None]
    assert result[-len(spotty) :] == tuple(spotty)  # sold as spot alone: last


def test_how_many_a_machine_has() -> None:
    assert {offer.hardware.device_count for offer in offers("H100:8")} == {8}
    assert {offer.hardware.name for offer in offers("A10G:4")} == {"g5.12xlarge", "g5.24xlarge"}


def test_providers_and_several_devices() -> None:
    result = offers("L4,T4", provider="aws,gcp")
    assert {offer.hardware.provider for offer in result} == {"aws", "gcp"}
    assert {offer.hardware.device.name for offer in result} == {"L4", "T4"}


def test_regions() -> None:
    inside = offers("A10G", region="eu-central-1")
    assert {offer.price.region for offer in inside} == {"eu-central-1"}
    assert next(o for o in inside if o.hardware.name == "g5.xlarge").usd_per_hour == 1.258
    cheapest = {o.hardware.name: o for o in offers("A100", region="cheapest", spot=True)}
    assert cheapest["p4d.24xlarge"].price.region == "eu-north-1"
    assert cheapest["p4d.24xlarge"].usd_per_hour == 8.1611
    # on demand two regions cost the same to the cent: the first one named
    assert load_hardware("p4d.24xlarge").price_in("cheapest").region == "us-west-2"  # type: ignore[union-attr]


def test_offers_list_rentable_machines() -> None:
    assert "p3.2xlarge" not in {offer.hardware.name for offer in offers("V100")}
    assert "p3.2xlarge" in {offer.hardware.name for offer in offers("V100", sold=False)}
    names = {offer.hardware.name for offer in offers(sold=True)}
    assert not {name for name in names if name.startswith("private")}
    assert all(load_hardware(name).standing == "rentable" for name in names)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpu": "H1000"}, "nearest: H100"),
        ({"gpu": "H100:3"}, "there are machines with 1, 2, 4, 8"),
        ({"gpu": "H100:x"}, "is not a number of devices"),
        ({"gpu": "H100:0"}, "is not a number of devices"),
        ({"gpu": " , "}, "names no device"),
        ({"provider": "asw"}, "nearest: aws"),
        ({"gpu": "T4", "region": "eu-north1"}, "nearest: eu-north-1"),
    ],
)
def test_names_that_nothing_has(asked: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        offers(**asked)  # type: ignore[arg-type]


def test_offers_of_given_machines_exclude_others() -> None:
    assert offers("T4", machines=match_hardware("g4dn.*,g5.*"))[0].hardware.name == "g4dn.xlarge"
    assert [(want.words, want.count) for want in parse_devices("H100:8, L4")] == [("H100", 8), ("L4", None)]
