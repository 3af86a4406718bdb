"""What a plan pays: spot where one hour of useful work is cheaper with all interruptions, else on demand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.hardware import Hardware, Market, Price
from planner.hardware.catalog import load_hardware
from planner.hardware.prices.cost import RentalCost, SpotTerms, rental_cost
from planner.hardware.prices.spot import UNKNOWN_SHARE, published_interruption, spot_run
from planner.parallel.data import Rented


def priced(on_demand: float | None, spot: float | None, *, name: str = "p4d.24xlarge") -> Hardware:
    kind = load_hardware(name)
    price = Price(on_demand, spot, "us-east-1", "2026-08-22", "published", "a test")
    return replace(kind, price=price, other_prices=())


def paid(kinds: list[tuple[Hardware, int]], terms: SpotTerms | None = None, spot: bool = True) -> RentalCost:
    rented = [Rented("workers" if not at else "servers", kind.name, n) for at, (kind, n) in enumerate(kinds)]
    return rental_cost(
        rented, Market(spot=spot, own=tuple(kind for kind, _ in kinds)), terms, state_bytes=2e9
    )


def test_spot_costs_its_price_times_what_interruptions_take() -> None:
    result = paid([(priced(20.0, 5.0), 16)])
    known = published_interruption("p4d.24xlarge", "us-east-1")
    assert known is not None
    assert result.spot is not None
    run = spot_run(16 * known.per_hour, checkpoint_s=2.0)
    assert result.usd_per_hour == (80.0,)
    assert result.time_factor == pytest.approx(run.time_factor)
    assert result.usd_per_useful_hour == pytest.approx(80 * run.time_factor)
    assert known.share_of_month in result.spot.words
    assert result.spot.as_dict()["checkpoint_interval_s"] == pytest.approx(run.interval_s)


def test_on_demand_where_spot_does_not_pay() -> None:
    result = paid([(priced(20.0, 19.99), 16)])
    assert result.spot is None
    assert result.usd_per_hour == (320.0,)
    assert result.time_factor == 1.0
    assert "on spot, $320.00 on demand" in result.refused


def test_without_a_price_of_the_other_kind_there_is_no_choice() -> None:
    assert paid([(priced(None, 5.0), 1)]).spot is not None
    only = paid([(priced(20.0, None), 1)])
    assert only.usd_per_hour == (20.0,)
    assert only.refused == "none of its machines has a spot price"


def test_server_without_a_spot_price_is_rented_on_demand_beside_the_workers() -> None:
    server = priced(1.0, None, name="c5n.large")
    result = paid([(priced(20.0, 5.0), 2), (server, 1)])
    assert result.usd_per_hour == (10.0, 1.0)
    alone = paid([(priced(20.0, 5.0), 2)])
    assert result.time_factor == alone.time_factor  # what is rented on demand is not taken away


def test_without_spot_nothing_is_counted() -> None:
    result = paid([(priced(20.0, 5.0), 2)], spot=False)
    assert result == RentalCost((40.0,))


def test_terms_that_are_given_count() -> None:
    kinds = [(priced(20.0, 5.0), 16)]
    usual = paid(kinds)
    often = paid(kinds, SpotTerms(interruptions=0.9))
    seldom = paid(kinds, SpotTerms(checkpoint_every_s=36_000))
    slow = paid(kinds, SpotTerms(restart_s=3600))
    never = paid(kinds, SpotTerms(interruptions=0.0))
    for worse in (often, seldom, slow):
        assert worse.time_factor > usual.time_factor
    assert never.time_factor == 1.0
    assert often.spot is not None
    assert "as given" in often.spot.words
    assert seldom.spot is not None
    assert seldom.spot.run.interval_s == 36_000


def test_unpublished_interruption_rate_is_assumed_and_stated() -> None:
    kind = priced(20.0, 5.0, name="a2-highgpu-1g")
    result = paid([(kind, 1)])
    assert result.spot is not None
    assert (
        f"{100 * UNKNOWN_SHARE:g}% of machines interrupted per month (assumed: not published)"
        in result.spot.words
    )
