"""No answer is beaten by one device alone or by all-reduce in one machine
(benchmarks/robustness/domination.py)."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.answers.recommend import recommend_for
from planner.errors import BadInput
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.search.request import Request

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks/robustness"))

import domination


@pytest.mark.parametrize(
    ("model", "machine"),
    [
        ("vgg11", "g5.12xlarge"),
        ("resnet50", "g4dn.xlarge"),
        ("alexnet", "p3dn.24xlarge"),
        ("mpt-125m", "g4dn.8xlarge"),  # its own batch fits on one device only if all is recomputed
        ("llama3-8b", "a2-ultragpu-4g"),  # a replica needs several devices: none is trained alone
    ],
)
def test_no_answer_is_dominated(model: str, machine: str) -> None:
    assert domination.dominated(model, machine) == []


def test_dominating_plan_is_reported() -> None:
    request = Request(model="alexnet", hardware=("p3.8xlarge",), workers=(4,), interval_width=0.05)
    served, free = (
        recommend_for(entry, jobs=1, advice=False).chosen
        for entry in (replace(request, exchanges=(("servers", {}),)), request)
    )
    assert free.plan.exchange.kind == "allreduce"
    for objective in domination.OBJECTIVES:
        assert domination.worse(served, free, objective)
        assert not domination.worse(free, served, objective)
        assert not domination.worse(free, replace(free), objective)


def test_machines_that_can_be_rented() -> None:
    present = {kind.name for kind in domination.rented()}
    assert len(present) > 200
    assert "p3.2xlarge" not in present


def test_one_of_machines_that_are_alike_stands_for_all() -> None:
    kinds = domination.rented()
    classes = domination.classes(kinds)
    assert sorted(name for names in classes for name in names) == sorted(kind.name for kind in kinds)
    assert len(classes) < len(kinds)


@pytest.mark.parametrize(
    ("figure", "value", "same"),
    [
        ("name", "another", True),
        ("provider", "another", False),  # of which other machines are there for servers
        ("vcpus", 2, False),
        ("nic_baseline_bytes_per_s", 1e9, False),
        ("device_count", 2, False),
        ("fabric", None, False),
    ],
)
def test_machines_differ_by_what_plans_use(figure: str, value: Any, same: bool) -> None:
    kind = load_hardware("g5.12xlarge")
    other = replace(kind, **{figure: value})
    assert (domination.alike(kind, Market()) == domination.alike(other, Market())) is same


def test_price_tells_machines_apart_beside_servers_on_others() -> None:
    for name, same in (("g5.12xlarge", False), ("a2-highgpu-2g", True)):  # Google's has no cheap hosts here
        kind = load_hardware(name)
        price = kind.price.on_demand_usd_per_hour or 0.0
        other = replace(kind, name="costlier", price=replace(kind.price, on_demand_usd_per_hour=1.5 * price))
        assert (domination.alike(kind, Market()) == domination.alike(other, Market())) is same


@pytest.mark.parametrize("model", ["alexnet", "gpt2"])
def test_one_answer_has_both_ends(model: str) -> None:
    request = Request(model=model, hardware=("g4dn.xlarge",), machines=4, interval_width=0.05)
    for objective, answer in domination.answers(request):
        asked = recommend_for(replace(request, objective=objective), jobs=1, advice=False).chosen
        assert (answer.plan, answer.samples_per_s) == (asked.plan, asked.samples_per_s)


def test_part_of_the_models() -> None:
    models = ["a", "b", "c", "d", "e"]
    assert domination.part_of(models, "2/2") == ["b", "d"]
    assert sorted(domination.part_of(models, "1/3") + models[1::3] + models[2::3]) == models
    for wrong in ("0/2", "3/2", "2"):
        with pytest.raises(BadInput, match="--part"):
            domination.part_of(models, wrong)
