"""Machines without a price where they are to be rented: refused in a line, with the regions there are."""

import json

import pytest
from typer.testing import CliRunner

from planner.answers.questions import simulation_for
from planner.cli._app import app
from planner.errors import BadInput
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.search.request import Request

FILE = """
[machines.lab]
device = "T4"
nic_baseline_gbit_per_s = 25
"""
OWNED = """
[machines.lab.ownership]
capital_usd = 1e4
lifetime_years = 4
power_watts = 1
energy_usd_per_kwh = 0
"""


def machine(tmp_path, more):
    path = tmp_path / "lab.toml"
    path.write_text(FILE + more)
    return load_hardware(str(path))


@pytest.mark.parametrize("command", ["simulate", "saturation", "recommend", "compare"])
@pytest.mark.parametrize("servers", [(), ("--server-hardware", "c5n.large")])
def test_unknown_region_is_refused_with_those_there_are(command, servers):
    args = ("--model", "resnet50", "--hardware", "p3.2xlarge", "--region", "mars", *servers)
    refused = CliRunner().invoke(app, [command, *args])
    assert isinstance(refused.exception, BadInput)
    words = "p3.2xlarge has no on-demand price in region 'mars'; it has prices in us-east-1"
    assert str(refused.exception) == words


@pytest.mark.parametrize("command", ["simulate", "compare", "recommend", "recommend --search optuna"])
def test_servers_without_a_price_are_refused_too(tmp_path, command):
    (tmp_path / "lab.toml").write_text(FILE + 'region = "here"\non_demand_usd_per_hour = 2\n')
    args = (
        "--hardware",
        "p3.2xlarge",
        "--region",
        "us-east-1",
        "--server-hardware",
        str(tmp_path / "lab.toml"),
    )
    refused = CliRunner().invoke(app, [*command.split(), "--model", "resnet50", *args])
    assert isinstance(refused.exception, BadInput)
    assert str(refused.exception).startswith("lab has no on-demand price in region 'us-east-1'; it has")


def test_several_machines_are_refused_only_where_none_has_a_price():
    kinds = [load_hardware("p3.2xlarge"), load_hardware("c4.8xlarge")]
    Market(region="us-east-1").check_prices(kinds)
    with pytest.raises(BadInput, match="the 2 machines asked for"):
        Market(region="mars").check_prices(kinds)


def test_without_a_spot_price_a_machine_is_rented_on_demand(tmp_path):
    kind = machine(tmp_path, "on_demand_usd_per_hour = 2\n")
    Market(spot=True).check_prices([kind])
    assert Market(spot=True).usd_per_hour(kind) == 2


def test_lower_of_two_prices_counts_for_spot(tmp_path):
    kind = machine(tmp_path, "on_demand_usd_per_hour = 2\nspot_usd_per_hour = 0.5\n")
    assert Market(spot=True).usd_per_hour(kind) == 0.5
    assert Market().usd_per_hour(kind) == 2


def test_only_a_spot_price_is_said_to_be_one(tmp_path):
    kind = machine(tmp_path, "spot_usd_per_hour = 0.5\n")
    with pytest.raises(BadInput, match="lab has no on-demand price; take --spot"):
        Market().check_prices([kind])


def test_machine_of_ones_own_costs_the_same_everywhere(tmp_path):
    kind, market = machine(tmp_path, OWNED), Market(region="mars", spot=True)
    market.check_prices([kind])
    assert market.usd_per_hour(kind) == kind.ownership.usd_per_hour


@pytest.mark.parametrize(("command", "more"), [("simulate", ()), ("saturation", ("--max-workers", "2"))])
def test_machine_without_any_price_shows_none(tmp_path, command, more):
    machine(tmp_path, "")
    args = (
        "--model",
        "alexnet",
        "--batch",
        "16",
        "--hardware",
        str(tmp_path / "lab.toml"),
        "--interval-width",
        "0.1",
    )
    shown = CliRunner().invoke(app, [command, *args, *more])
    assert shown.exit_code == 0
    assert "$" not in shown.stdout
    assert "USD" not in shown.stdout
    page = tmp_path / "page.html"
    invoke = CliRunner().invoke(app, [command, *args, *more, "--format", "json", "--html", str(page)])
    data = json.loads(invoke.stdout)
    for plan in data.get("points") or [data["plan"]]:
        prices = {key: value for key, value in plan.items() if "usd" in key}
        assert set(prices.values()) == {None}
    assert "per hour, $" not in page.read_text()
    assert ">USD per hour<" not in page.read_text()


def test_servers_cost_what_they_cost_and_not_what_a_subtraction_leaves():
    request = Request(
        model="alexnet", hardware=("p3.2xlarge",), workers=(2,), servers=(1,), interval_width=0.1
    )
    plan = simulation_for(request).scored.as_dict()
    assert plan["server_usd_per_hour"] == 3.06
    assert plan["worker_usd_per_hour"] == 2 * 3.06
    assert plan["usd_per_hour"] == 3 * 3.06
