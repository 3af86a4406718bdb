"""Parts of a step that sum to it, memory by kind, MFU, and the baseline: one device at its own best batch,
rented alone or charged its share of one's own machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import planner
from planner.answers.parts import recomputed_macs
from planner.answers.questions import Simulation, parse_request, simulation_for
from planner.model.catalog import load_model
from planner.report.page import page_of
from planner.search.cases import Cases
from planner.search.feasibility import peak_memory
from planner.search.request import model_of

SCHEMA = Path(__file__).parents[2] / "docs" / "answers.schema.json"
EIGHT = {"model": "llama3-8b", "hardware": "p5.48xlarge", "exchange": "sharded", "batch": 1}


def simulated(**words: Any) -> Simulation:
    return simulation_for(parse_request(interval_width=0.1, **words))


def parts(**words: Any) -> dict[str, float]:
    return simulated(**words).as_dict()["step"]


@pytest.mark.parametrize(
    "words",
    [
        {**EIGHT, "workers": 64, "recompute": "none"},
        {**EIGHT, "workers": 16, "recompute": "full", "tensor": 4, "pipeline": 2, "accumulate": 8},
        {"model": "resnet50", "hardware": "p4d.24xlarge", "workers": 8, "exchange": "allreduce"},
        {"model": "resnet50", "hardware": "p3.2xlarge", "workers": 4, "servers": 1},
        {"model": "gpt2", "hardware": "p4d.24xlarge", "workers": 1, "exchange": "alone"},
    ],
)
def test_parts_sum_to_the_step(words: dict[str, Any]) -> None:
    result = simulated(**words)
    step = result.as_dict()["step"]
    assert sum(
        step[name] for name in ("compute_s", "communication_s", "bubble_s", "optimizer_s")
    ) == pytest.approx(result.scored.prediction.step_s)
    assert all(value >= 0 for value in step.values())
    jsonschema.validate(json.loads(json.dumps(result.as_dict())), json.loads(SCHEMA.read_text()))


def test_each_part_is_what_it_says() -> None:
    words = {**EIGHT, "workers": 16, "accumulate": 8}
    whole, again = parts(**words, recompute="none"), parts(**words, recompute="full")
    assert whole["recompute_s"] == whole["bubble_s"] == 0
    assert again["compute_s"] - again["recompute_s"] == pytest.approx(whole["compute_s"], rel=0.01)
    assert again["recompute_s"] == pytest.approx(whole["compute_s"] * 0.255, rel=0.1)  # no last product
    staged = parts(**words, recompute="none", pipeline=2)
    micro_s = (staged["compute_s"] + staged["bubble_s"]) / 9  # one of eight waits for the other stage
    assert staged["bubble_s"] == pytest.approx(micro_s, rel=0.15)
    shared = parts(**words, recompute="none", tensor=8)
    assert shared["communication_s"] / shared["step_s"] > 2 * whole["communication_s"] / whole["step_s"]
    alone = parts(model="gpt2", hardware="p4d.24xlarge", exchange="alone")
    assert alone["communication_s"] < 0.02 * alone["step_s"]


def test_slow_links_expose_communication_and_nothing_else() -> None:
    words = {**EIGHT, "workers": 16, "recompute": "none"}
    fast, slow = parts(**words), parts(**words, bandwidth="100Gbit")
    assert slow["communication_s"] > 5 * fast["communication_s"]
    assert slow["compute_s"] == pytest.approx(fast["compute_s"])
    assert slow["optimizer_s"] == pytest.approx(fast["optimizer_s"])


def test_memory_is_what_plans_are_refused_by() -> None:
    result = simulated(**EIGHT, workers=16, recompute="full", tensor=2, pipeline=2, accumulate=4)
    plan, request = result.scored.plan, result.request
    cases = Cases(request, model_of(request))
    held = peak_memory(plan, cases.model, cases.site(plan))
    memory = result.as_dict()["memory"]
    assert memory["total_bytes"] == pytest.approx(held.total_bytes)
    assert sum(memory["by_kind_bytes"].values()) == pytest.approx(memory["total_bytes"])
    assert memory["total_bytes"] < memory["usable_bytes"] < 80 * 2**30
    small = simulated(model="resnet50", hardware="p4d.24xlarge", workers=2, exchange="allreduce")
    assert small.as_dict()["memory"]["by_kind_bytes"]["activations"] > 2**30


def test_last_stage_has_the_logits() -> None:
    words = {**EIGHT, "workers": 16, "recompute": "full", "pipeline": 16, "accumulate": 16}
    request = parse_request(interval_width=0.1, **words)
    value = simulation_for(request).as_dict()["memory"]["by_kind_bytes"]
    logits = 8192 * 128256
    assert value["activation gradients"] == pytest.approx(logits * (4 + 4), rel=0.05)


def test_recompute_counts_for_hardware_utilization_and_not_for_model() -> None:
    words = {**EIGHT, "workers": 64, "seq_length": 4096}
    none, full = (simulated(**words, recompute=kind) for kind in ("none", "full"))
    assert none.details is not None
    assert full.details is not None
    assert none.details.hfu is None
    mfu, hfu = full.details.mfu or 0.0, full.details.hfu or 0.0
    model = load_model("llama3-8b").with_sequence_length(4096)
    assert hfu / mfu == pytest.approx(1 + recomputed_macs(model, "full", stops_early=True) / (3 * model.macs))
    assert 1.2 < hfu / mfu < 4 / 3
    assert (none.details.mfu or 0.0) > mfu
    attention = sum(layer.macs for layer in model if layer.kind == "attention")
    assert recomputed_macs(model, "attention") == attention > 0


def test_screen_shows_parts_and_memory() -> None:
    result = simulated(**EIGHT, workers=16, recompute="full")
    tables = {table.visible_columns()[0].heading: table for table in page_of(result).tables}
    names = [row["part"] for row in tables["step breakdown"].rows]
    assert names[0].startswith("compute (")
    assert names[1:] == ["communication, exposed", "optimizer", "step"]
    assert [row["part"] for row in tables["memory per device"].rows][-1].startswith("total, of ")
    assert "HFU" in str(tables)


SETTINGS = {"interval_width": 0.05}


def test_baseline_has_its_own_best_batch():
    """The chosen plan's batch of 32 makes one device recompute; 16 at a time is faster."""
    recommend = planner.recommend(
        "bert-large", gpu="RTX-4090:2", machines=4, budget=100, bandwidth="100Gbit", **SETTINGS
    )
    alone = recommend.baseline
    assert (alone.plan.workers, alone.plan.recompute) == (1, "none")
    for batch in (8, 16):
        rival = planner.simulate(
            "bert-large", hardware=alone.plan.machine, workers=1, batch=batch, accumulate=1, **SETTINGS
        )
        assert alone.samples_per_s >= rival.scored.samples_per_s * 0.98
    assert alone.plan.machine == "runpod-1x-rtx4090"  # what one device is rented as
    assert recommend.cheapest.plan.machine == "runpod-2x-rtx4090"  # of what was asked for


def test_whole_machine_is_charged_and_stated_where_no_device_is_rented_alone():
    recommend = planner.recommend("resnet50", hardware="p4d.24xlarge", machines=1, **SETTINGS)
    assert recommend.baseline.usd_per_hour == pytest.approx(21.957642)
    why = " ".join(sentence for remark in page_of(recommend).why for sentence in remark.sentences)
    assert "One device (1 x p4d.24xlarge, all 8 charged): " in why


def test_share_of_an_own_machine_is_charged(tmp_path):
    path = tmp_path / "lab.toml"
    path.write_text('[machines.lab]\ndevice = "T4"\ndevice_count = 4\nmachines = 1\n')
    recommend = planner.recommend("resnet50", hardware=str(path), price=8, **SETTINGS)
    assert recommend.chosen.usd_per_hour == 8
    assert recommend.baseline.usd_per_hour == 2
    assert recommend.cheapest.usd_per_hour == 8
    why = " ".join(sentence for remark in page_of(recommend).why for sentence in remark.sentences)
    assert "One device (1 x lab, its share charged): " in why


def test_named_batch_is_that_of_the_baseline():
    recommend = planner.recommend("resnet50", hardware="p4d.24xlarge", machines=1, batch=32, **SETTINGS)
    assert recommend.baseline.plan.batch == 32
