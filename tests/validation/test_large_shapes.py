"""Shapes that published runs of large models agree on, and simple rules beside our predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from planner.validation import large_baselines, large_shapes
from planner.validation.evidence import Compared
from planner.validation.large_baselines import Beside
from planner.validation.large_runs import LargeRun, read_runs
from planner.validation.large_steps import predicted
from planner.validation.suite import validate
from planner.validation.training import training_rows


def test_an_eighth_of_the_network_leaves_about_half_of_zero_3() -> None:
    rates = large_shapes.networks()
    assert list(rates.values()) == sorted(rates.values())
    assert 0.3 < rates[100] / rates[800] < 0.55  # 0.42 as published
    assert 0.5 < rates[200] / rates[800] < 0.9


def test_small_micro_batches_fall_with_the_number_of_devices_and_large_ones_do_not() -> None:
    small, large = (rates for _, rates in sorted(large_shapes.micro_batches((1, 16)).items()))
    assert small == sorted(small, reverse=True)
    assert small[-1] < 0.6 * small[0]
    assert large[-1] > 0.9 * large[0]


def test_shards_inside_machines_beat_shards_over_a_thousand_ranks() -> None:
    over_all, inside = large_shapes.inside_machines()
    assert inside > 1.2 * over_all
    over_few, inside_few = large_shapes.inside_machines(batch=16, devices=16)
    assert inside_few == pytest.approx(over_few, rel=0.1)


def test_shapes_are_told_in_lines() -> None:
    assert "published 42%" in large_shapes.lines()[0]


RUNS = [run for run in read_runs(training_rows())[0] if run.kind == "sharded"]


def some_run(devices: int, step_s: float) -> LargeRun:
    return replace(RUNS[0], id=f"{devices}", devices=devices, replicas=devices, step_s=step_s)


def test_linear_scaling_is_from_the_smallest_of_a_series() -> None:
    runs = [some_run(16, 1.1), some_run(8, 1.0), some_run(64, 2.0)]
    found = large_baselines.linear_s(runs)
    assert found == pytest.approx({"16": 1.0, "64": 1.0})  # each device has as much to do


def test_exposed_communication_is_what_is_left_of_a_step() -> None:
    run = RUNS[0]
    few = large_baselines.exposed_share(run, run.step_s)
    many = large_baselines.exposed_share(run, 2 * run.step_s)
    assert few is not None
    assert many is not None
    assert 0 <= few < many < 1
    assert many - few / 2 == pytest.approx(0.5, abs=0.5 * (few == 0) + 1e-9)


def test_medians_are_told_apart_by_what_communication_takes() -> None:
    run = some_run(8, 1.0)
    found = [Beside(run, 1.1, 1.3, None, 0.2), Beside(run, 1.2, 1.0, 1.5, 0.05)]
    assert [one.matters for one in found] == [True, False]
    words = large_baselines.lines(found)
    assert words[0] == "communication above 10% of the step: 1 runs"
    assert "30.0% on 1 runs, ours 0.33 of it" in words[2]
    assert large_baselines.medians(found)["linear scaling"] == pytest.approx((0.5, 1))


def test_beside_linear_scaling_ours_starts_at_the_same_run() -> None:
    runs = [some_run(8, 1.25), some_run(64, 2.5)]
    rows = [
        Compared(id=run.id, source="", part="", what="", unit="s", measured=run.step_s, predicted=predicted)
        for run, predicted in zip(runs, (1.5, 2.7), strict=True)
    ]
    small, large = large_baselines.beside(runs, rows)
    assert small.anchored_s is None
    assert large.anchored_s == pytest.approx(1.25 * 2.7 / 1.5)
    assert large_baselines.medians([large])["ours from the same smallest run"] == pytest.approx((0.1, 1))
    assert any(
        "linear scaling" in line and "ours 0.20 of it" in line for line in large_baselines.lines([large])
    )


def test_runs_without_evidence_are_left_out() -> None:
    run = RUNS[0]
    row = Compared(
        id=run.id, source=run.source, part="", what="", unit="s", measured=run.step_s, predicted=run.step_s
    )
    assert [one.run.id for one in large_baselines.beside(RUNS[:5], [row])] == [run.id]


def test_the_shapes_are_checks_that_can_be_asked_for() -> None:
    rows = validate(["large"], jobs=1)
    assert [str(row.name) for row in rows] == [
        "large/network/100",
        "large/network/200",
        "large/network/400",
        "large/micro_batch/1",
        "large/micro_batch/16",
        "large/within/1024",
        *(f"large/owners/{devices}" for devices in (16, 128, 1024)),
        "large/rules/constant_MFU",
        "large/rules/linear_scaling",
    ]
    assert [row.name.case for row in rows if not row.holds] == ["400"]  # known, with its reason
    assert rows[0].published == pytest.approx(20 / 48)


def test_shares_of_rules_count_runs_in_which_communication_matters() -> None:
    run = some_run(8, 1.0)
    found = [Beside(run, 1.1, 1.4, 1.2, 0.2, 1.05), Beside(run, 3.0, 1.0, 1.0, 0.05, 3.0)]
    assert large_baselines.shares(found) == pytest.approx({"constant MFU": 0.25, "linear scaling": 0.25})
    assert large_baselines.shares(found[1:]) == {}


def test_both_predictions_of_a_pair_have_their_source_left_out() -> None:
    runs = [some_run(8, 1.0), some_run(64, 2.0)]
    rows = [
        Compared(
            id=run.id,
            source="",
            part="",
            what="",
            unit="s",
            measured=run.step_s,
            predicted=1.0,
            left_out=left,
        )
        for run, left in zip(runs, (2.0, 3.0), strict=True)
    ]
    assert large_baselines.beside(runs, rows)[1].anchored_s == pytest.approx(1.5)


def test_owners_among_all_fall_behind_as_published() -> None:
    pairs = large_shapes.owner_pairs()
    assert list(pairs) == [16, 128, 1024]
    assert all(over_all.step_s > inside.step_s for over_all, inside in pairs.values())
    assert all(row.holds for row in validate(["large/owners", "large/rules"]))


def test_the_page_has_the_figures_of_owners() -> None:
    page = (Path(__file__).parents[2] / "docs" / "exchanges.md").read_text()
    for devices, (over_all, inside) in large_shapes.owner_pairs().items():
        ours = [step.seconds for run in (over_all, inside) if (step := predicted(run)) is not None]
        published = over_all.step_s / inside.step_s
        assert f"| {devices:,} | {published:.2f} | {ours[0] / ours[1]:.2f} |" in page
