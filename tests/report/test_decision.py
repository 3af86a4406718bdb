"""The decision that opens an answer, and why other plans lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import planner
from planner.answers.refusals import left_out_notes
from planner.answers.results import Recommendation
from planner.device.rates import constants
from planner.note import Note, Reason, Topic
from planner.parallel.data.ddp import AllReduce
from planner.parallel.mesh import Mesh
from planner.report.assumed import brief_notes, notes_of
from planner.report.page import page_of
from planner.report.phrases import (
    run_words,
    single_device_sentence,
    strategy_words,
    tied_plans_sentence,
)
from planner.report.recommend import _next_sentences
from planner.search.scored import training_of
from planner.search.space import Space
from planner.units import ratio, usd


@pytest.fixture(scope="module")
def answer() -> Recommendation:
    return planner.recommend(
        "alexnet",
        hardware=("g4dn.xlarge", "g4dn.12xlarge"),
        workers=(1, 4),
        samples=1_281_167.0 * 2,
        deadline="3h",
        interval_width=0.05,
        max_steps=200,
    )


def test_recommendation_page_opens_with_plan_and_job(answer: Recommendation) -> None:
    page = page_of(answer)
    plan = answer.chosen.plan
    assert page.verdict == "Recommended"
    assert page.headline.startswith(f"{plan.machines} x {plan.machine} (")
    assert strategy_words(plan) in page.headline
    training = training_of(answer.request)
    assert training is not None
    assert training.words == "2 epochs"
    speed, job, *_ = page.facts
    assert f"{usd(answer.chosen.usd_per_hour)}/h" in speed
    assert job[0].startswith("2 epochs of alexnet in ")
    assert f"for {usd(training.usd(answer.chosen) or 0)}" in job[0]


@pytest.mark.parametrize(
    ("mesh", "workers", "words"),
    [
        (Mesh.of(tensor=2, pipeline=4), 8, "TP2 + PP4, 8 GPUs"),
        (Mesh.of(tensor=2, pipeline=4, interleave=3), 8, "TP2 + PP4, 8 GPUs"),
        (Mesh.of(tensor=8), 16, "DDP + TP8, 16 GPUs"),
        (Mesh(), 2, "DDP, 2 GPUs"),
    ],
)
def test_run_words_of_a_sharded_replica_name_its_mesh(
    answer: Recommendation, mesh: Mesh, workers: int, words: str
) -> None:
    plan = replace(answer.chosen.plan, mesh=mesh, workers=workers, exchange=AllReduce())
    assert run_words(plan, answer.request) == words


def test_without_a_change_it_is_said_that_none_pays_unless_the_search_was_stopped(
    answer: Recommendation,
) -> None:
    none = "No single change makes it at least 2% faster."
    bare = replace(answer, changes=[], saturation=None)
    assert _next_sentences(bare) == [none]
    assert _next_sentences(replace(bare, partial=True)) == []
    if answer.changes:
        assert none not in _next_sentences(answer)
        change = answer.changes[0]
        assert _next_sentences(answer)[0].startswith(f"{change.words}: {change.gain:.0%} faster ")


def test_every_candidate_has_hours_dollars_and_a_reason(answer: Recommendation) -> None:
    rows = page_of(answer).tables[0].rows
    assert 2 <= len(rows) <= 10
    chosen = [row for row in rows if row["_choice"]]
    assert [row["cluster"] for row in chosen] == [answer.chosen.plan.cluster_text]
    for row in rows:
        assert row["job_s"] == pytest.approx(answer.request.samples / row["samples_per_s"])
        assert row["job_usd"] == pytest.approx(row["usd_per_hour"] * row["job_s"] / 3600)
        assert ("too late" in row["_label"]) == bool(row["misses"])
        assert (row["_label"] == "> recommended") == bool(row["_choice"])


def test_brief_notes_keep_prices_and_count_the_others(answer: Recommendation) -> None:
    notes = page_of(answer).assumptions
    assert any("plans considered" in str(note) for note in notes)
    first, *_, last = brief_notes(notes)
    assert "plans considered" not in first
    assert f"{answer.chosen.plan.machine} $" in first
    assert last == f"--explain lists all {len(notes)} assumptions."


def test_brief_notes_count_the_machines_that_were_left_out() -> None:
    reasons = {Reason("has", "no price"): ["a", "b"], Reason("costs", "too much"): ["d", "e", "f", "g"]}
    left = left_out_notes(Space(left_out=reasons))
    assert brief_notes([Note(Topic.PRICE, "a at $1.00/h."), *left])[0] == "a at $1.00/h; 6 machines left out."


def test_one_machine_that_is_left_out_has_a_verb_of_its_own() -> None:
    reasons = [Reason("has", "no price"), Reason("lacks", "memory"), Reason("does", "not compute")]
    space = Space(left_out=dict(zip(reasons, (["one"], ["two"], ["x", "y"]), strict=True)))
    assert list(map(str, left_out_notes(space))) == [
        "Left out: one has no price.",
        "Left out: two lacks memory.",
        "Left out: x, y do not compute.",
    ]


def test_brief_notes_with_energy_say_how_it_was_counted() -> None:
    said = [Note(Topic.ENERGY, "2 kWh."), Note(Topic.NETWORK, "10 Gbit/s.")]
    assert "Energy: 2 kWh." in brief_notes(said, energy=True)
    assert "Energy: 2 kWh." not in brief_notes(said)


def test_one_device_alone_is_rented_where_it_is_cheapest() -> None:
    answer = planner.compare(
        "alexnet", hardware="g4dn.xlarge,g4dn.12xlarge", workers=4, interval_width=0.05, max_steps=200
    )
    assert answer.baseline is not None
    assert answer.baseline.plan.machine == "g4dn.xlarge"  # not one of the four of the other
    several = next(row for row in answer.rows if row.plan.machine == "g4dn.12xlarge")
    words = single_device_sentence(several, answer.baseline, None)
    assert words.endswith("per sample.")
    times = several.samples_per_s / answer.baseline.samples_per_s
    assert f"; 4 devices are {ratio(times)} faster " in words


def test_deadline_is_met_with_a_stated_probability(answer: Recommendation) -> None:
    training = training_of(answer.request)
    assert training is not None
    result = answer.chosen
    for share, said in ((1.0, "50%"), (4.0, ">99%"), (0.25, "<1%")):
        request = replace(answer.request, deadline_s=share * training.seconds(result))
        assert page_of(replace(answer, request=request)).facts[1][0].endswith(f": {said}")
    free = replace(answer, request=replace(answer.request, deadline_s=None))
    assert "meets" not in page_of(free).facts[1][0]
    late_s = training.confident_s(result, 0.9)
    assert training.probability_within(result, late_s) == pytest.approx(0.9)


def test_input_assumption_is_stated(answer: Recommendation) -> None:
    (said,) = [note.text for note in notes_of(answer.assumptions) if note.topic is Topic.INPUT]
    rate = constants().loader_images_per_s
    assert f"each vCPU decodes {rate / 8:.0f} images/s" in said
    documented = (Path(__file__).parents[2] / "docs/compute.md").read_text()
    assert f"{rate / 8:.0f} images/s per vCPU" in documented
    assert f"{rate:,.0f} images/s in published runs" in documented


def test_tied_plans_sentence_states_why_the_choice_is_preferred(answer: Recommendation) -> None:
    chosen = answer.chosen
    assert chosen.error is not None
    wider = replace(chosen, error=replace(chosen.error, q90=chosen.error.q90 + 0.2))
    (rented, *more) = chosen.costs
    larger = replace(chosen, costs=(replace(rented, count=rented.count + 1), *more))
    assert tied_plans_sentence(chosen, []) == ""
    assert tied_plans_sentence(chosen, [wider]).endswith("; preferred for its narrower range.")
    assert tied_plans_sentence(chosen, [larger]).endswith("; preferred for fewer machines.")
    both = tied_plans_sentence(chosen, [wider, larger])
    assert both.endswith("; preferred for its narrower range and fewer machines.")
    assert tied_plans_sentence(chosen, [chosen]).endswith("; preferred for its expected speed and cost.")
