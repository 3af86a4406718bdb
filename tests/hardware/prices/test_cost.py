"""Dollars per hour and a sample."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadInput
from planner.hardware import Market
from planner.hardware.catalog import hardware_names, load_hardware
from planner.hardware.prices.cost import usd_per_million_samples


def test_regions() -> None:
    nc6 = load_hardware("Standard_NC6")
    assert Market().usd_per_hour(nc6) == 0.9
    assert Market(region="southcentralus").usd_per_hour(nc6) == 1.08
    assert Market(region="eu-west-1").usd_per_hour(nc6) is None


def test_private_machine_costs_capital_and_energy() -> None:
    opteron = load_hardware("private-opteron")
    # 1,500 USD over 5 years of 8,766 hours; 0.2 kW with 1.6 at the meter at 0.12 USD/kWh
    usd = Market().usd_per_hour(opteron)
    assert usd == pytest.approx(1500 / (5 * 8766) + 0.2 * 1.6 * 0.12)
    assert Market(spot=True, region="us-east-1").usd_per_hour(opteron) == usd
    assert opteron.price.basis == "estimated"


def test_every_machine_has_a_price() -> None:
    """What is sold as spot alone has no other price."""
    for machine in map(load_hardware, hardware_names()):
        spot = machine.price.on_demand_usd_per_hour is None
        assert (Market(spot=spot).usd_per_hour(machine) or 0) > 0


@given(st.floats(0.01, 1000), st.floats(0.01, 1e6))
def test_samples_and_dollars_agree(usd_per_hour: float, samples_per_s: float) -> None:
    assert usd_per_million_samples(usd_per_hour, samples_per_s) == pytest.approx(
        1e6 / samples_per_s / 3600 * usd_per_hour
    )


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_no_throughput_no_cost(bad: float) -> None:
    with pytest.raises(BadInput, match="above zero"):
        usd_per_million_samples(1.0, bad)
