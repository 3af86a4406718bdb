"""No answer is beaten by one device alone or by all-reduce in one machine (benchmarks/domination.py)."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from planner.answers.recommend import recommend_for
from planner.search.request import Request

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import domination


@pytest.mark.parametrize(
    ("model", "machine"),
    [("vgg11", "g5.12xlarge"), ("resnet50", "g4dn.xlarge"), ("alexnet", "p3dn.24xlarge")],
)
def test_no_answer_is_dominated(model: str, machine: str) -> None:
    assert domination.dominated(model, machine) == []


def test_what_dominates_is_noticed() -> None:
    request = Request(model="alexnet", hardware=("p3.8xlarge",), workers=(4,), interval_width=0.05)
    served, free = (
        recommend_for(one, jobs=1, advice=False).chosen
        for one in (request.but(exchanges=(("servers", {}),)), request)
    )
    assert free.plan.exchange.kind == "allreduce"
    for objective in domination.OBJECTIVES:
        assert domination.worse(served, free, objective)
        assert not domination.worse(free, served, objective)
        assert not domination.worse(free, replace(free), objective)


def test_machines_that_can_be_rented() -> None:
    found = domination.rented()
    assert len(found) > 80
    assert "p3.2xlarge" not in found
