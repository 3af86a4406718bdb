"""Imported prices count instead of older ones, and nothing changes when an import fails."""

import shutil
from datetime import date
from pathlib import Path

import pytest

from planner.errors import BadInput
from planner.hardware import Price
from planner.hardware.catalog import load_hardware
from planner.hardware.prices import book
from planner.hardware.prices.cost import age_days, price_age_note
from planner.hardware.prices.lists import compare_prices, import_lists, load_named_prices

DATA = Path(__file__).parents[2] / "data/prices"
TODAY = date(2026, 11, 17)


def quote(usd: float | None, spot: float | None = None, as_of: str = "") -> Price:
    return Price(usd, spot, "x", as_of, "published", "somewhere")


def imported(path: Path, as_of: str = "2026-11-16", provider: str | None = None) -> None:
    import_lists(path, provider, as_of, TODAY)


def test_newer_prices_count_and_new_regions_are_added(home: Path) -> None:
    before = load_hardware("g5.48xlarge")
    imported(DATA / "v8/aws/vms.csv")
    after = load_hardware("g5.48xlarge")
    assert (home / "prices/aws-2026-11-16.csv").is_file()
    assert before.price.spot_usd_per_hour == 9.6848
    assert (after.price.on_demand_usd_per_hour, after.price.spot_usd_per_hour) == (16.288, 7.1)
    assert (after.price.as_of, after.price.region) == ("2026-11-16", "us-east-1")
    assert "imported" in after.price.source
    assert after.sources["spot"].as_of == "2026-11-16"
    new = after.price_in("sa-east-1")
    assert new is not None
    assert (new.on_demand_usd_per_hour, new.spot_usd_per_hour) == (17.9, None)
    assert after.price_in("eu-central-1") == before.price_in("eu-central-1")  # not in the list
    assert load_hardware("p5.48xlarge") == load_hardware("p5.48xlarge")
    assert load_hardware("p5.48xlarge").price.as_of == "2026-08-22"


def test_older_prices_do_not_count() -> None:
    before = load_hardware("g5.48xlarge")
    (done,) = import_lists(DATA / "v8/aws/vms.csv", None, "2025-01-01", TODAY)
    assert done.counting == 1  # a region that the catalog lacks
    after = load_hardware("g5.48xlarge")
    assert after.price == before.price
    assert after.price_in("sa-east-1") is not None


def test_prices_far_from_the_catalog_are_counted(tmp_path: Path) -> None:
    head = "InstanceType,Price,Region\n"
    (tmp_path / "vms.csv").write_text(head + "p5.48xlarge,18,us-east-1\np4d.24xlarge,22,us-east-1\n")
    (done,) = import_lists(tmp_path / "vms.csv", "aws", "2026-11-16", TODAY)
    assert (done.counting, done.far) == (2, 1)


def test_newer_of_two_price_imports_counts_in_any_order() -> None:
    imported(DATA / "v8/aws/vms.csv", "2026-11-16")
    imported(DATA / "v8/aws/vms.csv", "2026-11-10")
    assert load_hardware("c5.18xlarge").price.as_of == "2026-11-16"
    assert [path.name for path in book.price_files()] == ["aws-2026-11-10.csv", "aws-2026-11-16.csv"]


def test_one_price_everywhere() -> None:
    imported(DATA / "v8/lambda/vms.csv")
    machine = load_hardware("lambda-8x-h100-sxm5")
    assert (machine.price.region, machine.price.on_demand_usd_per_hour) == ("any", 33.52)
    assert machine.price_in("europe-central-1") is not None


def test_hardware_files_of_ones_own_keep_their_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(DATA / "v8/aws/vms.csv")
    (tmp_path / "mine").mkdir()
    text = '[machines."g5.48xlarge"]\ndevice = "A10G"\ndevice_count = 8\non_demand_usd_per_hour = 9\n'
    (tmp_path / "mine/g5.toml").write_text(text)
    monkeypatch.setenv("PLANNER_PATH", str(tmp_path / "mine"))
    assert load_hardware("g5.48xlarge").price.on_demand_usd_per_hour == 9


def test_failed_import_leaves_everything(tmp_path: Path, home: Path) -> None:
    imported(DATA / "v8/aws/vms.csv")
    before = {path.name: path.read_bytes() for path in (home / "prices").iterdir()}
    shutil.copytree(DATA / "v8", tmp_path / "lists")
    (tmp_path / "lists/verda/vms.csv").write_text("InstanceType,Price,Region\n1A100.22V,-1,FIN-02\n")
    with pytest.raises(BadInput, match=r"vms\.csv:2: column Price"):
        imported(tmp_path / "lists")
    assert {path.name: path.read_bytes() for path in (home / "prices").iterdir()} == before


@pytest.mark.parametrize(("day", "words"), [("2026-11-18", "future"), ("yesterday", "YYYY-MM-DD")])
def test_days_that_cannot_be(day: str, words: str, home: Path) -> None:
    with pytest.raises(BadInput, match=words):
        imported(DATA / "v8/aws/vms.csv", day)
    assert not home.exists()


def test_damaged_file_of_ones_own_says_so(home: Path) -> None:
    imported(DATA / "v8/aws/vms.csv")
    path = home / "prices/aws-2026-11-16.csv"
    good = path.read_text()
    path.unlink()
    (home / "prices/aws-2026-11-15.csv").write_text(good.replace("3.11", "-3.11"))
    with pytest.raises(BadInput, match=r"aws-2026-11-15.csv:\d+: column on_demand_usd_per_hour"):
        load_hardware("c5.18xlarge")


def test_saved_prices_are_read_back(home: Path) -> None:
    prices = {"g5.xlarge": {"us-east-1": quote(1.0, 0.5), "eu-west-1": quote(None, 0.4)}}
    path = book.save_prices("aws", prices, date(2026, 1, 2), "a, list")
    value = book.read_price_file(path)["g5.xlarge"]
    assert {(region, p.on_demand_usd_per_hour, p.spot_usd_per_hour) for region, p in value.items()} == {
        ("us-east-1", 1.0, 0.5),
        ("eu-west-1", None, 0.4),
    }
    assert (value["us-east-1"].as_of, value["us-east-1"].source) == ("2026-01-02", "a, list")


def test_lists_of_two_regions_of_one_day_are_both_kept() -> None:
    book.save_prices("aws", {"g5.xlarge": {"us-east-1": quote(1.0)}}, date(2026, 1, 2), "a")
    path = book.save_prices("aws", {"g5.xlarge": {"eu-west-1": quote(1.2)}}, date(2026, 1, 2), "b")
    value = book.read_price_file(path)["g5.xlarge"]
    assert {region: price.on_demand_usd_per_hour for region, price in value.items()} == {
        "us-east-1": 1.0,
        "eu-west-1": 1.2,
    }


def test_changes_by_size() -> None:
    old = {"a": {"x": quote(2.0, 1.0), "y": quote(1.0)}, "b": {"x": quote(1.0)}}
    new = {"a": {"x": quote(3.0, 1.0), "y": quote(0.9)}, "c": {"x": quote(1.0)}}
    changes = compare_prices(old, new)
    assert [(c.machine, c.region, c.kind) for c in changes.changed] == [
        ("a", "x", "on demand"),
        ("a", "y", "on demand"),
    ]
    assert [c.relative_change for c in changes.changed] == [pytest.approx(0.5), pytest.approx(-0.1)]
    assert (changes.same, changes.only_old, changes.only_new) == (1, 1, 1)


def test_changes_of_a_list_against_the_catalog() -> None:
    changes = compare_prices(load_named_prices("shipped"), load_named_prices(str(DATA / "v8/aws/vms.csv")))
    by_name = {(c.machine, c.region, c.kind): c.relative_change for c in changes.changed}
    assert by_name["g5.48xlarge", "us-east-1", "spot"] == pytest.approx(7.1 / 9.6848 - 1)
    assert ("g5.48xlarge", "us-east-1", "on demand") not in by_name
    imported(DATA / "v8/aws/vms.csv")
    again = compare_prices(load_named_prices("shipped", "aws"), load_named_prices("now", "aws"))
    assert {(c.machine, c.region, c.kind) for c in again.changed} == set(by_name)
    assert again.only_new == 1  # sa-east-1


def test_ages() -> None:
    assert age_days("2026-08-22", TODAY) == 87
    assert age_days("2026-08", TODAY) == 81
    assert age_days("2025", TODAY) == 324
    assert age_days("", TODAY) is None
    assert age_days("2026-11-17", TODAY) == 0


def test_old_prices_are_said_to_be_old() -> None:
    assert price_age_note(["2026-08-22"], TODAY) == ""
    assert price_age_note(["2026-08-19"], TODAY) == ""  # 90 days
    said = price_age_note(
        ["2026-08-18", "2026-11-01", "2024-08-19"],
        TODAY,
    )
    assert said.startswith("2 of 3 prices are older than 90 days (the oldest: 2024-08-19)")
    assert "planner prices import" in said
    assert price_age_note(["2026-08-18"], TODAY).startswith("The price is")
