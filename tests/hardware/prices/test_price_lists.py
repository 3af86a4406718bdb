"""Lists of SkyPilot, gpuhunt and AWS and of two columns, as prices of the machines of the catalog."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import BadInput
from planner.hardware import Price
from planner.hardware.prices.lists import read_list, read_lists

DATA = Path(__file__).parents[2] / "data/prices"
SKY = DATA / "v8"
HUNT = DATA / "gpuhunt"


def usd(price: Price) -> tuple[float | None, float | None]:
    return price.on_demand_usd_per_hour, price.spot_usd_per_hour


def by_region(prices: Mapping[str, Price]) -> dict[str, tuple[float | None, float | None]]:
    return {region: usd(price) for region, price in prices.items()}


def test_spot_is_the_median_over_zones() -> None:
    aws = read_list(SKY / "aws/vms.csv")
    assert (aws.format, aws.provider, aws.rows) == ("SkyPilot", "aws", 7)
    assert usd(aws.quotes["g5.48xlarge"]["us-east-1"]) == (16.288, 7.1)
    assert usd(aws.quotes["g5.48xlarge"]["sa-east-1"]) == (17.9, None)
    assert aws.quotes["c5.18xlarge"]["us-east-1"].on_demand_usd_per_hour == 3.11
    assert usd(aws.quotes["p5e.48xlarge"]["us-east-2"]) == (None, 24.5)  # sold as spot alone
    assert aws.left_out == {"of machines that the catalog lacks": 1}


def test_google_sells_hosts_and_accelerators_apart() -> None:
    gcp = read_list(SKY / "gcp/vms.csv").quotes
    assert gcp["a3-highgpu-8g"]["us-central1"].on_demand_usd_per_hour == pytest.approx(9.46006 + 78.3724)
    assert gcp["a3-highgpu-8g"]["us-central1"].spot_usd_per_hour == pytest.approx(5.6759 + 47.0232)
    assert gcp["a3-megagpu-8g"]["us-central1"].on_demand_usd_per_hour == pytest.approx(9.46006 + 82.7542)
    assert gcp["a4-highgpu-8g"]["us-central1"].on_demand_usd_per_hour == 90.216  # a host for nothing
    # the accelerator is in two zones, the host in one
    assert usd(gcp["n1-standard-8+1xT4"]["us-central1"]) == (0.73, 0.37)
    assert "g2-standard-96" not in gcp


def test_on_demand_below_spot_is_a_slip() -> None:
    result = read_list(SKY / "gcp/vms.csv")
    assert result.quotes["g2-standard-4"]["us-central1"].on_demand_usd_per_hour is None
    assert result.quotes["g2-standard-4"]["us-central1"].spot_usd_per_hour == pytest.approx(0.9)
    assert result.left_out["on demand below spot"] == 1


def test_version_7_of_google_is_not_believed_of_h100(tmp_path: Path) -> None:
    (tmp_path / "v7/gcp").mkdir(parents=True)
    shutil.copy(SKY / "gcp/vms.csv", tmp_path / "v7/gcp/vms.csv")
    quotes = read_list(tmp_path / "v7/gcp/vms.csv").quotes
    assert "a3-highgpu-8g" not in quotes
    assert "a3-megagpu-8g" in quotes


def test_spot_price_like_the_other_is_none_outside_aws() -> None:
    assert by_region(read_list(SKY / "azure/vms.csv").quotes["Standard_ND96isr_H100_v5"]) == {
        "eastus": (98.32, None)
    }
    assert usd(read_list(SKY / "runpod/vms.csv").quotes["runpod-1x-l4"]["CA"]) == (0.55, None)
    assert usd(read_list(SKY / "verda/vms.csv").quotes["verda-2x-rtxpro6000"]["FIN-02"]) == (None, 1.95)


def test_gpuhunt() -> None:
    aws = read_list(HUNT / "aws.csv")
    assert (aws.format, aws.provider) == ("gpuhunt", "aws")
    assert by_region(aws.quotes["p5.48xlarge"]) == {
        "us-east-1": (55.04, 21.5),
        "us-west-2": (55.04, None),
    }
    assert aws.left_out == {
        "of machines that the catalog lacks": 1,
        "of rows that lack a required value": 1,
    }
    gcp = read_list(HUNT / "gcp.csv").quotes
    assert by_region(gcp["a2-highgpu-8g"]) == {"us-central1": (29.4, 17.1)}  # zones of one region
    assert usd(gcp["n1-standard-8+1xT4"]["us-central1"]) == (0.74, None)
    assert usd(read_list(HUNT / "nebius.csv").quotes["nebius-8x-h100-sxm"]["eu-north1"]) == (37.6, None)


def test_folder_of_either() -> None:
    assert [entry.provider for entry in read_lists(SKY)] == [
        "aws",
        "azure",
        "gcp",
        "lambda",
        "runpod",
        "verda",
    ]
    assert [entry.provider for entry in read_lists(HUNT)] == ["aws", "gcp", "nebius"]


def test_provider_may_be_given(tmp_path: Path) -> None:
    shutil.copy(SKY / "aws/vms.csv", tmp_path / "mine.csv")
    with pytest.raises(BadInput, match="--provider"):
        read_list(tmp_path / "mine.csv")
    assert read_list(tmp_path / "mine.csv", "aws").price_count == 4
    with pytest.raises(BadInput, match="nearest: aws"):
        read_list(tmp_path / "mine.csv", "asw")
    with pytest.raises(BadInput, match="another provider"):
        read_list(tmp_path / "mine.csv", "lambda")


HEAD = "InstanceType,Region,Price,SpotPrice,AvailabilityZone\n"
GOOD = "g5.xlarge,us-east-1,1.1,0.5,a\n"
BAD = {
    "another format": ("name,usd,day\na,1,2\n", ":1", "SkyPilot"),
    "empty": ("", ":1", "gpuhunt"),
    "no region": ("InstanceType,Price\ng5.xlarge,1\n", ":1", "no column Region"),
    "negative": (HEAD + GOOD + "g5.xlarge,us-east-1,-1.1,0.5,b\n", ":3: column Price", "above 0"),
    "nothing": (HEAD + "g5.xlarge,us-east-1,0,0.5,b\n", ":2: column Price", "above 0"),
    "absurd": (HEAD + GOOD + "g5.xlarge,us-east-2,1e6,0.5,b\n", ":3: column Price", "absurd"),
    "not a number": (HEAD + "g5.xlarge,us-east-1,1.1,cheap,a\n", ":2: column SpotPrice", "'cheap'"),
    "nan": (HEAD + "g5.xlarge,us-east-1,nan,,a\n", ":2: column Price", "above 0"),
    "infinite": (HEAD + "g5.xlarge,us-east-1,1.0,inf,a\n", ":2: column SpotPrice", "above 0"),
    "no name": (HEAD + ",us-east-1,1.1,0.5,a\n", ":2: column InstanceType", "empty"),
    "no place": (HEAD + "g5.xlarge,,1.1,0.5,a\n", ":2: column Region", "empty"),
    "contradiction": (HEAD + GOOD + "g5.xlarge,us-east-1,1.2,0.5,a\n", ":3: column Price", "line 2"),
    "cut off": (HEAD + GOOD + "g5.xlarge,us-ea\n", ":3", "2 fields, the header has 5"),
    "quotes": (HEAD + GOOD + '"g5.xlarge,us-east-1,1.1,0.5,a\n', "vms.csv:", "not CSV"),
    "twice": ("InstanceType,Price,Price,Region\n", ":1", "twice"),
}


@pytest.mark.parametrize("case", BAD)
def test_damaged_lists_are_refused_with_line_and_column(tmp_path: Path, case: str) -> None:
    text, where, what = BAD[case]
    path = tmp_path / "vms.csv"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_list(path, "aws")
    message = str(caught.value)
    assert message.startswith(str(path)), message
    assert where in message
    assert what in message
    assert "\n" not in message


HUNT_HEAD = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,spot\n"
HUNT_BAD = {
    "negative": ("p5.48xlarge,us-east-1,-3,192,2048,8,H100,False\n", ":2: column price", "above 0"),
    "spot": ("p5.48xlarge,us-east-1,3,192,2048,8,H100,maybe\n", ":2: column spot", "neither"),
    "contradiction": (
        "p5.48xlarge,us-east-1,3,192,2048,8,H100,False\np5.48xlarge,us-east-1,4,192,2048,8,H100,False\n",
        ":3: column price",
        "line 2",
    ),
}


@pytest.mark.parametrize("case", HUNT_BAD)
def test_damaged_lists_of_gpuhunt(tmp_path: Path, case: str) -> None:
    text, where, what = HUNT_BAD[case]
    (tmp_path / "aws.csv").write_text(HUNT_HEAD + text)
    with pytest.raises(BadInput) as caught:
        read_list(tmp_path / "aws.csv")
    assert where in str(caught.value)
    assert what in str(caught.value)


def test_file_without_prices_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    for path, words in (
        (tmp_path / "none.csv", "cannot read"),
        (tmp_path / "binary.csv", "UTF-8"),
    ):
        with pytest.raises(BadInput, match=words):
            read_list(path, "aws")
    (tmp_path / "binary.csv").unlink()
    with pytest.raises(BadInput, match="no price list in it"):
        read_lists(tmp_path)


def test_two_lists_of_one_provider(tmp_path: Path) -> None:
    (tmp_path / "aws").mkdir()
    shutil.copy(SKY / "aws/vms.csv", tmp_path / "aws/vms.csv")
    shutil.copy(HUNT / "aws.csv", tmp_path / "aws.csv")
    with pytest.raises(BadInput, match="two lists of aws"):
        read_lists(tmp_path)


LISTS = [SKY / "aws/vms.csv", SKY / "gcp/vms.csv", HUNT / "aws.csv"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(LISTS),
    st.one_of(
        st.text(max_size=20), st.sampled_from(["nan", "inf", "-1", "1e999", '"', ",", "\n", "\x00", "Ⅷ"])
    ),
    st.floats(0, 1),
    st.integers(0, 30),
)
def test_any_text_is_read_or_refused(tmp_path: Path, path: Path, noise: str, where: float, cut: int) -> None:
    text = path.read_text()
    at = int(where * len(text))
    target = tmp_path / "vms.csv"
    target.write_bytes((text[:at] + noise + text[at + cut :]).encode("utf-8", "replace"))
    message = ""
    try:
        result = read_list(target, "gcp" if "gcp" in path.parts else "aws")
        assert all(
            0 < (q.on_demand_usd_per_hour or 1) <= 1e4 for r in result.quotes.values() for q in r.values()
        )
    except BadInput as error:
        message = str(error)
    assert not message or message.startswith(str(target))


def test_tpu_slices_of_any_price_are_left_out_and_counted(tmp_path: Path) -> None:
    """Google's list has slices of thousands of chips for more than 10,000 USD per hour."""
    text = (SKY / "gcp/vms.csv").read_text()
    tpu = "tpu-v5p-8192,,,tpu-v5p-8192,1,,us-east5,us-east5-a,17203.2,\n"
    path = tmp_path / "gcp" / "vms.csv"
    path.parent.mkdir()
    path.write_text(text.rstrip("\n") + "\n" + tpu)
    with_slices, without = read_list(path), read_list(SKY / "gcp/vms.csv")
    assert with_slices.quotes == without.quotes
    assert with_slices.left_out["TPU slices"] == 1 + without.left_out.get("TPU slices", 0)


AWS = DATA / "aws"


def test_aws_offer_file_counts_linux_on_shared_machines() -> None:
    prices = read_list(AWS / "index.json")
    assert (prices.format, prices.provider, prices.as_of) == ("AWS", "aws", "2026-11-12")
    assert {name: by_region(regions) for name, regions in prices.quotes.items()} == {
        "p5.48xlarge": {"us-east-1": (54.5, None)},
        "g5.xlarge": {"us-east-1": (1.01, None)},
    }
    assert prices.left_out == {
        "of other systems, tenancies or zones": 4,
        "without a price in USD per hour": 1,
        "of machines that the catalog lacks": 1,
    }


def test_aws_get_products_is_read_like_the_offer_file() -> None:
    prices = read_list(AWS / "get-products.json")
    assert (prices.format, prices.as_of) == ("AWS", "2026-11-10")
    assert by_region(prices.quotes["p4d.24xlarge"]) == {"eu-west-1": (24.1, None), "us-east-1": (21.9, None)}


AWS_BAD = {
    "cut off": (lambda text: text[: len(text) // 2], "no AWS price list"),
    "no number": (lambda text: text.replace("54.5000000000", "cheap"), "'cheap' is not a number"),
    "negative": (lambda text: text.replace("54.5000000000", "-1"), "above 0"),
    "absurd": (lambda text: text.replace("54.5000000000", "54500"), "absurd"),
    "no region": (
        lambda text: text.replace('"regionCode": "us-east-1"', '"x": "y"'),
        "no attribute regionCode",
    ),
    "another type": (lambda text: text.replace('"USD": "54.5000000000"', '"USD": 54.5'), "no AWS price list"),
    "control character": (
        lambda text: text.replace("p5.48xlarge", "p5\\n.48xlarge"),
        "one line of printable",
    ),
}


@pytest.mark.parametrize("case", AWS_BAD)
def test_damaged_aws_lists_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    change, words = AWS_BAD[case]
    path = tmp_path / "index.json"
    path.write_text(change((AWS / "index.json").read_text()))
    with pytest.raises(BadInput) as caught:
        read_list(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert words in message
    assert "\n" not in message


def test_two_prices_of_one_aws_machine_are_refused(tmp_path: Path) -> None:
    content = json.loads((AWS / "index.json").read_text())
    content["products"]["TWIN"] = content["products"]["P5LINUX"] | {"sku": "TWIN"}
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": "55"}}
    content["terms"]["OnDemand"]["TWIN"] = {"TWIN.1": {"priceDimensions": {"TWIN.1.1": dimension}}}
    path = tmp_path / "index.json"
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput, match=r"product TWIN: another price of p5.48xlarge in us-east-1"):
        read_list(path)


def test_json_that_is_no_price_list(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"name": "value"}')
    with pytest.raises(BadInput, match="no price list; it may be one of SkyPilot"):
        read_list(path)


@pytest.mark.parametrize("head", ["", "machine,USD per hour\n", "name,price\n"])
def test_two_columns_with_and_without_a_header(tmp_path: Path, head: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(head + "P5.48xlarge, 50.5\na2-highgpu-8g,$28\nunknown,3\n")
    prices = read_list(path)
    assert (prices.format, prices.provider) == ("two-column", "several")
    assert by_region(prices.quotes["p5.48xlarge"]) == {"us-east-1": (50.5, None)}
    assert by_region(prices.quotes["a2-highgpu-8g"]) == {"us-central1": (28.0, None)}
    assert prices.left_out == {"of machines that the catalog lacks": 1}
    only = read_list(path, "aws")
    assert (only.provider, list(only.quotes)) == ("aws", ["p5.48xlarge"])


TWO_BAD = {
    "no number": ("machine,usd\np5.48xlarge,dear\n", ":2: column usd_per_hour: 'dear' is not a number"),
    "no number at first": ("p5.48xlarge,dear\n", ":1: column usd_per_hour: 'dear' is not a number"),
    "negative": ("p5.48xlarge,-1\n", ":1: column usd_per_hour: -1 is not a price"),
    "absurd": ("g5.xlarge,1\np5.48xlarge,20000\n", ":2: column usd_per_hour: 20000 USD per hour is absurd"),
    "empty": ("p5.48xlarge,\n", ":1: column usd_per_hour: is empty"),
    "no name": ("p5.48xlarge,1\n,1\n", ":2: column machine: is empty"),
    "three fields": ("p5.48xlarge,1\ng5.xlarge,1,2\n", ":2: 3 fields, the header has 2"),
    "twice": ("p5.48xlarge,1\np5.48xlarge,2\n", ":2: column usd_per_hour: another price of p5.48xlarge"),
    "unknown": ("name,usd\na,1\n", "no price of a machine that the catalog has"),
}


@pytest.mark.parametrize("case", TWO_BAD)
def test_damaged_two_column_lists_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    text, words = TWO_BAD[case]
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_list(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)
