"""Which machines a request means, and which of them are worth looking at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import planner
from planner.answers.recommend import recommend_for
from planner.errors import BadInput, Infeasible, PlannerError
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.note import Reason
from planner.report.assumed import notes_of
from planner.report.recommend import recommendation_page
from planner.search.cases import Cases
from planner.search.field import candidate_machines
from planner.search.machines import machine_names
from planner.search.request import Request, model_of
from planner.search.sizes import worker_counts
from planner.search.space import enumerate_plans


def test_without_names_only_what_can_be_rented_of_aws_is_meant() -> None:
    kinds = [load_hardware(name) for name in machine_names(Market())]
    assert {kind.provider for kind in kinds} == {"aws"}
    assert {kind.standing for kind in kinds} == {"rentable"}
    assert {"g5.xlarge", "p5.48xlarge", "c5.large"} <= {kind.name for kind in kinds}


def test_retired_and_example_machines_come_when_asked_for() -> None:
    everything = set(machine_names(Market(), sold=False))
    assert {"p3.2xlarge", "private-opteron", "g5.xlarge"} <= everything
    assert "a2-highgpu-1g" not in everything  # another provider's
    assert "p3.2xlarge" in machine_names(Market(), words=("p3.*",))
    with pytest.raises(Infeasible, match=r"p3.2xlarge.* can no longer be rented; --all"):
        machine_names(Market(), words=("p3.2xlarge",), sold=True)


def test_device_is_looked_for_at_every_provider_unless_one_is_named() -> None:
    kinds = [load_hardware(name) for name in machine_names(Market(), gpu="H100:8")]
    assert {kind.device_count for kind in kinds} == {8}
    assert all(kind.device.name.startswith("H100") for kind in kinds)
    assert len({kind.provider for kind in kinds}) > 2
    ours = machine_names(Market(), gpu="H100", providers=("aws",))
    assert ours == ("p5.4xlarge", "p5.48xlarge")


def test_names_of_nothing_are_refused_with_the_nearest() -> None:
    with pytest.raises(PlannerError, match="H100"):
        machine_names(Market(), gpu="H10O")
    with pytest.raises(BadInput, match="aws"):
        machine_names(Market(), providers=("awss",))


def test_machine_of_a_folder_of_ones_own_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "mine.toml").write_text(
        '[machines."mine-t4"]\ndevice = "T4"\ndevice_count = 1\nnic_baseline_gbit_per_s = 25\n'
        "on_demand_usd_per_hour = 0.1\n"
    )
    monkeypatch.setenv("PLANNER_PATH", str(tmp_path))
    assert "mine-t4" in machine_names(Market())
    assert "mine-t4" not in machine_names(Market(), providers=("aws",))


def test_cheapest_region_counts_where_it_is_asked_for() -> None:
    kind = load_hardware("g5.xlarge")
    prices = [kind.price, *kind.other_prices]
    least = min(price.on_demand_usd_per_hour or 1e9 for price in prices)
    assert Market(region="cheapest").usd_per_hour(kind) == least


def test_machines_that_cannot_win_are_left_out_unless_named() -> None:
    request = Request(model="vgg11", budget_usd_per_hour=20)
    field = candidate_machines(Cases(request, model_of(request)))
    names = {kind.name for kind in field.machines}
    reasons = {name: reason.rest for reason, gone in field.left_out.items() for name in gone}
    assert {"g5.xlarge", "g5.2xlarge"} <= names  # costlier, with twice the network
    assert "no slower network" in reasons["g5.16xlarge"]  # the same as g5.8xlarge but for its price
    assert "3 times as much per sample" in reasons["c5.24xlarge"]
    named = replace(request, hardware=("g5.*", "c5.24xlarge"))
    assert not candidate_machines(Cases(named, model_of(named))).left_out


def test_machines_over_budget_outclass_nothing() -> None:
    request = Request(model="vgg11", budget_usd_per_hour=0.4)
    field = candidate_machines(Cases(request, model_of(request)))
    assert any(kind.device.kind == "cpu" for kind in field.machines)


def test_one_machine_is_counted_where_nobody_has_published_its_network() -> None:
    """A machine of eight GPUs, or one, needs no network; servers on others and several machines do."""
    names = ("lambda-8x-h100-sxm5", "lambda-1x-a10")
    request = Request(model="alexnet", hardware=names)
    space = enumerate_plans(request, model_of(request))
    assert {(plan.machine, plan.workers) for plan in space.plans} == {
        ("lambda-8x-h100-sxm5", 8), ("lambda-8x-h100-sxm5", 1), ("lambda-1x-a10", 1)
    }  # fmt: skip
    assert "servers" not in {plan.exchange.kind for plan in space.plans}
    assert {name: worker_counts(request, load_hardware(name), model_of(request)) for name in names} == {
        "lambda-8x-h100-sxm5": [8],
        "lambda-1x-a10": [1],
    }  # others would be made to be refused
    told = enumerate_plans(
        replace(request, bandwidth_bytes_per_s=12.5e9, budget_usd_per_hour=100.0), model_of(request)
    )
    assert max(plan.workers for plan in told.plans) > 8
    both = enumerate_plans(replace(request, workers=(2,)), model_of(request))
    assert both.left_out == {
        Reason("has", "no published network figure; give --bandwidth to count several in"): ["lambda-1x-a10"]
    }
    for trials in (None, 40):
        answer = recommend_for(request, jobs=1, advice=False, trials=trials)
        assert answer.chosen.plan.machine in names
        assert {scored.plan.workers for scored in answer.everything} <= {1, 8}
    texts = [note.text for note in notes_of(answer.assumptions)]
    assert any("no network bandwidth is published for lambda-" in text for text in texts)


def test_worker_counts_keep_the_requested_number() -> None:
    """Of several requested numbers, those that fill machines suffice."""
    p4d, model = load_hardware("p4d.24xlarge"), model_of(Request(model="resnet50"))
    asked = {
        workers: worker_counts(Request(model="resnet50", workers=workers), p4d, model)
        for workers in ((1,), (3,), (12,), (8, 16), (1, 2, 4, 8))
    }
    assert asked == {(1,): [1], (3,): [3], (12,): [12], (8, 16): [8, 16], (1, 2, 4, 8): [8]}
    request = Request(model="resnet50", workers=(3, 9), fills_machines=True)
    assert worker_counts(request, p4d, model) == [8, 16]


def test_recommend_three_workers_of_eight_states_idle_devices() -> None:
    answer = planner.recommend("resnet50", hardware="p4d.24xlarge", workers=3)
    assert (answer.chosen.plan.workers, answer.chosen.plan.machines) == (3, 1)
    assert "5 of the 8 devices are idle but charged." in recommendation_page(answer).why[0].sentences
    filled = next(change for change in answer.changes if change.kind == "workers")
    assert filled.scored.plan.workers == 8
    assert filled.usd_per_hour == 0
    compared = planner.compare("resnet50", hardware="p4d.24xlarge", workers=3)
    assert {row.plan.workers for row in compared.rows} == {3}


def test_recommend_names_no_cheapest_plan_that_shows_a_higher_cost() -> None:
    answer = planner.recommend("resnet50", workers=3, machines=1, budget=30)
    assert answer.cheapest is not None
    assert answer.fastest is not None
    assert answer.cheapest.usd_per_million_samples <= answer.chosen.usd_per_million_samples
    assert answer.fastest.samples_per_s >= answer.chosen.samples_per_s
    assert "1 of the 4 devices is idle but charged." in recommendation_page(answer).why[0].sentences
