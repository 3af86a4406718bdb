from dataclasses import replace

import numpy as np
import pytest

from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.search.cases import Cases
from planner.search.request import Request
from planner.search.space import enumerate_plans
from planner.servers.lowering import cheap_servers


def test_default_space_of_vgg11_is_large_and_within_the_budget():
    request = Request(model="vgg11", budget_usd_per_hour=20)
    space = enumerate_plans(request, load_model("vgg11"))
    assert len(space.plans) >= 1000
    assert len({plan.key for plan in space.plans}) == len(space.plans)
    assert (space.usd_per_hour <= 20).all()
    families = {plan.machine.split(".")[0].split("-")[0] for plan in space.plans}
    assert {"g4dn", "g5", "g6", "c5", "m5"} <= families
    assert not families & {"p3", "private"}  # nobody can rent them
    assert any(plan.exchange.record().get("host") is None for plan in space.plans)


def test_machine_with_four_devices_is_filled():
    request = Request(model="resnet50", hardware=("p3.8xlarge",), budget_usd_per_hour=40, batches=(64,))
    space = enumerate_plans(request, load_model("resnet50"))
    lone = [plan for plan in space.plans if plan.exchange.kind == "alone"]
    assert [(plan.workers, plan.machines) for plan in lone] == [(1, 1)]
    assert {plan.workers % 4 for plan in space.plans if plan not in lone} == {0}
    result = enumerate_plans(replace(request, workers=(1,)), load_model("resnet50")).plans
    assert {plan.workers for plan in result} == {1}
    result = enumerate_plans(replace(request, workers=(1, 2, 4)), load_model("resnet50")).plans
    assert {plan.workers for plan in result} == {1, 4}


def test_batch_that_does_not_fit_is_dropped_with_its_reason():
    request = Request(model="vgg16", hardware=("p3.2xlarge",), batches=(4096,), budget_usd_per_hour=40)
    space = enumerate_plans(request, load_model("vgg16"))
    assert not space.plans
    assert any("memory" in reason for reason in space.dropped)


def test_machines_limit_counts_servers():
    request = Request(model="resnet50", hardware=("p3.2xlarge",), machines=3, workers=(1, 2, 3), mode="async")
    space = enumerate_plans(request, load_model("resnet50"))
    assert space.plans
    for plan in space.plans:
        assert plan.workers + (0 if plan.exchange.host is None else plan.exchange.servers) <= 3


def test_cluster_of_ones_own_is_not_larger_than_it_is():
    request = Request(model="alexnet", hardware=("private-opteron",), server_hardware=("own",))
    space = enumerate_plans(request, load_model("alexnet"))
    assert max(plan.workers + plan.exchange.servers for plan in space.plans) == 8


def test_cheap_servers_are_not_beaten_in_price_and_nic():
    market = Request(model="resnet50").market
    hosts = cheap_servers(load_hardware("p3.2xlarge"), market)
    prices = [market.usd_per_hour(host) for host in hosts]
    rates = [market.nic_bytes_per_s(host) for host in hosts]
    assert len(hosts) >= 3
    assert prices == sorted(prices)
    assert rates == sorted(rates)
    assert all(price < 3.06 for price in prices)


def test_unknown_hardware():
    with pytest.raises(BadInput):
        enumerate_plans(Request(model="vgg11", hardware=("p33.*",)), load_model("vgg11"))


def test_bounds_of_a_family_grow_with_workers():
    request = Request(model="resnet50")
    cases = Cases(request, load_model("resnet50"))
    space = enumerate_plans(
        replace(
            request,
            hardware=("p3.2xlarge",),
            workers=tuple(range(1, 9)),
            servers=(1,),
            server_hardware=("own",),
        ),
        load_model("resnet50"),
    )
    bounds = cases.bounds(space.plans)
    assert (np.diff(bounds) >= -1e-9).all()
    assert bounds[0] > 0


def test_machines_without_a_price_get_no_cheap_servers():
    """Nor do machines of one's own: what is rented beside them would stand elsewhere."""
    request = Request(model="alexnet", hardware=("p3.2xlarge",), servers=(1,))
    worker = load_hardware("p3.2xlarge")
    assert cheap_servers(worker, request.market)
    unpriced = replace(worker, name="mine", price=replace(worker.price, on_demand_usd_per_hour=None))
    assert not cheap_servers(unpriced, request.market)
    owned = load_hardware("private-opteron")
    beside = replace(worker, name="lab", ownership=owned.ownership)
    assert request.market.usd_per_hour(beside) is not None
    assert not cheap_servers(beside, request.market)
