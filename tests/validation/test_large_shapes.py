"""Shapes that published runs of large models agree on, and simple rules beside our predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from planner.validation import large, validate
from planner.validation.evidence import Compared
from planner.validation.predict import RunStep, predict_step
from planner.validation.reader import published_runs
from planner.validation.rules import rule_errors, smallest_runs
from planner.validation.run import Run


def test_eighth_of_the_network_leaves_about_half_of_zero_3() -> None:
    rates = large.network_rates()
    assert list(rates.values()) == sorted(rates.values())
    assert 0.3 < rates[100] / rates[800] < 0.55  # 0.42 as published
    assert 0.5 < rates[200] / rates[800] < 0.9


def test_small_micro_batches_fall_with_the_number_of_devices_and_large_ones_do_not() -> None:
    small, big = (rates for _, rates in sorted(large.micro_batch_rates((1, 16)).items()))
    assert small == sorted(small, reverse=True)
    assert small[-1] < 0.6 * small[0]
    assert big[-1] > 0.9 * big[0]


def test_shards_inside_machines_beat_shards_over_a_thousand_ranks() -> None:
    over_all, inside = large.global_and_local_sharding_rates()
    assert inside > 1.2 * over_all
    over_few, inside_few = large.global_and_local_sharding_rates(batch=16, devices=16)
    assert inside_few == pytest.approx(over_few, rel=0.1)


# FSDP over slow links: communication is above a tenth of the step
RUNS = [
    run
    for run in published_runs()[0]
    if run.layout is not None and run.layout.kind == "sharded" and run.arch == "llm"
]
SLOW = next(run for run in RUNS if isinstance(step := predict_step(run), RunStep) and step.exposed > 0.1)


def some_run(devices: int) -> Run:
    assert SLOW.layout is not None
    return replace(SLOW, id=f"{devices}", devices=devices, layout=replace(SLOW.layout, replicas=devices))


def row(run: Run, measured: float, predicted: float, **more: float) -> Compared:
    return Compared(
        id=run.id, source="", part="", what="", unit="s", measured=measured, predicted=predicted, **more
    )


def test_linear_scaling_is_from_the_smallest_of_a_series() -> None:
    runs = [some_run(devices) for devices in (64, 32, 128)]
    assert {id: least.id for id, least in smallest_runs(runs).items()} == {"64": "32", "128": "32"}


def test_beside_linear_scaling_ours_starts_at_the_same_run() -> None:
    runs = [some_run(64), some_run(128)]
    rows = [row(runs[0], 1.25, 1.5, rule=2.5), row(runs[1], 2.5, 2.7)]
    small, several = rule_errors(runs, rows)
    assert (small.linear, small.anchored, small.constant_mfu) == (None, None, pytest.approx(1.0))
    assert several.constant_mfu is None
    assert several.linear == pytest.approx(0.5)  # each device has as much to do: 1.25 s
    assert several.anchored == pytest.approx(abs(1.25 * 2.7 / 1.5 / 2.5 - 1))


def test_both_predictions_of_a_pair_have_their_source_left_out() -> None:
    runs = [some_run(64), some_run(128)]
    rows = [row(runs[0], 1.0, 1.0, left_out=2.0), row(runs[1], 2.0, 1.0, left_out=3.0)]
    assert rule_errors(runs, rows)[1].anchored == pytest.approx(abs(1.5 / 2.0 - 1))


def test_rules_are_held_against_runs_in_which_communication_matters() -> None:
    few = next(run for run in RUNS if isinstance(step := predict_step(run), RunStep) and step.exposed < 0.1)
    assert rule_errors([few], [row(few, 1.0, 1.0)]) == []


def test_shapes_are_checks_that_can_be_asked_for() -> None:
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


def test_owners_among_all_fall_behind_as_published() -> None:
    pairs = large.whole_tensor_run_pairs()
    assert list(pairs) == [16, 128, 1024]
    assert all((a.step_s or 0.0) > (b.step_s or 1e9) for a, b in pairs.values())
    assert all(row.holds for row in validate(["large/owners", "large/rules"]))


def test_page_has_the_figures_of_owners() -> None:
    page = (Path(__file__).parents[2] / "docs" / "communication.md").read_text()
    for devices, (over_all, inside) in large.whole_tensor_run_pairs().items():
        ours = [step.seconds for run in (over_all, inside) if isinstance(step := predict_step(run), RunStep)]
        assert over_all.step_s is not None
        assert inside.step_s is not None
        published = over_all.step_s / inside.step_s
        assert f"| {devices:,} | {published:.2f} | {ours[0] / ours[1]:.2f} |" in page
