"""The baseline: one device at its own best batch, rented alone or charged its share of one's own machine."""

import pytest

import planner
from planner.report.page import page_of

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
