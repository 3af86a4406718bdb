"""The decision that opens an answer, and why other plans lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

import planner
from planner.answers.jobs import training_of
from planner.answers.results import Recommendation
from planner.note import LeftOut, Note, Reason, Topic, Verb
from planner.parallel.data.ddp import AllReduce
from planner.parallel.mesh import Mesh
from planner.report.decision import alone_words, run_words, verb
from planner.report.folding import folded
from planner.report.output import Section, Table
from planner.report.recommendation import _next, recommendation_tables
from planner.search.left_out import left_out_notes
from planner.search.request import Request
from planner.search.space import Space


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


def test_it_opens_with_what_to_run_and_what_the_job_takes(answer: Recommendation) -> None:
    title = recommendation_tables(answer)[0].title
    first, second, *_ = title.splitlines()
    assert first.startswith("Rent ")
    assert run_words(answer.chosen.plan, answer.request) in first
    training = training_of(answer.request)
    assert training is not None
    assert training.words == "2 epochs"
    assert second.startswith("2 epochs take ")
    assert f"cost ${training.usd(answer.chosen):.2f}" in second


@pytest.mark.parametrize(
    ("mesh", "workers", "words"),
    [
        (Mesh.of(tensor=2, pipeline=4), 8, "tensor 2 x pipeline 4 on 8 GPUs"),
        (
            Mesh.of(tensor=2, pipeline=4, interleave=3),
            8,
            "tensor 2 x pipeline 4 on 8 GPUs, 3 virtual pipeline stages per device",
        ),
        (Mesh.of(tensor=8), 16, "tensor 8 x data 2 on 16 GPUs, DDP"),
        (Mesh(), 2, "DDP on 2 GPUs"),
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
    assert _next(bare)[1:] == [none]
    assert _next(replace(bare, partial=True))[1:] == []
    if answer.changes:
        assert none not in _next(answer)
        assert _next(answer)[-len(answer.changes)] == f"Next best change: {answer.changes[0]}."


def test_every_candidate_has_hours_dollars_and_a_reason(answer: Recommendation) -> None:
    rows = recommendation_tables(answer)[0].rows
    assert 2 <= len(rows) <= 10
    chosen = [row for row in rows if row["_choice"]]
    assert [row["cluster"] for row in chosen] == [answer.chosen.plan.cluster_text]
    for row in rows:
        assert row["job_s"] == pytest.approx(answer.request.samples / row["samples_per_s"])
        assert row["job_usd"] == pytest.approx(row["usd_per_hour"] * row["job_s"] / 3600)
        late = row["job_s"] > 3 * 3600
        assert ("misses the deadline" in row["_why"]) == late
        assert late or row["_choice"] or row["_why"].startswith(("dearer", "slower", "no better"))


def test_nobody_is_told_to_rent_what_nobody_rents_out() -> None:
    for machine, words in (("p3.2xlarge", "Run on"), ("private-opteron", "Run on"), ("g5.xlarge", "Rent")):
        request = Request(model="alexnet", hardware=(machine,))
        from planner.answers.questions import one_plan

        assert verb(one_plan(request), request) == words


def test_assumptions_are_folded_to_what_matters(answer: Recommendation) -> None:
    tables = recommendation_tables(answer)
    few = {table.section: table.notes for table in folded(tables, explain=False)}
    all_of_them = {table.section: table.notes for table in folded(tables, explain=True)}
    assert Section.LOOKED_AT in all_of_them
    assert Section.LOOKED_AT not in few
    *kept, more = few[Section.ASSUMED]
    assert Topic.PRICE in {note.topic for note in kept if isinstance(note, Note)}
    assert Topic.NETWORK not in {note.topic for note in kept if isinstance(note, Note)}
    assert str(more).endswith("--explain, and all names.")


def test_what_was_left_out_is_one_sentence_with_the_most_first() -> None:
    left = [
        LeftOut.because(["a", "b"], Reason(Verb.HAVE, "no price")),
        LeftOut.because(["c"], Reason(Verb.HAVE, "no published network figure; give --bandwidth")),
        LeftOut.because(["d", "e", "f", "g"], Reason(Verb.COST, "too much")),
    ]
    said = [Note(Topic.PRICE, "1."), *left]
    (table,) = folded([Table.of_notes(Section.ASSUMED, said)], explain=False)
    assert table.sentences[-1] == (
        "Left out: 7 machines: 4 (d, ...) cost too much; 2 (a, ...) have no price; "
        "c has no published network figure; give --bandwidth."
    )
    (whole,) = folded([Table.of_notes(Section.ASSUMED, left)], explain=True)
    assert list(whole.notes) == left
    (few,) = folded([Table.of_notes(Section.ASSUMED, left[:1])], explain=False)
    assert few.sentences == ["Left out: a, b have no price."]


def test_one_machine_that_is_left_out_has_a_verb_of_its_own() -> None:
    reasons = [Reason(Verb.HAVE, "no price"), Reason(Verb.LACK, "memory"), Reason(Verb.DO, "not compute")]
    space = Space(left_out=dict(zip(reasons, (["one"], ["two"], ["x", "y"]), strict=True)))
    assert list(map(str, left_out_notes(space))) == [
        "Left out: one has no price.",
        "Left out: two lacks memory.",
        "Left out: x, y do not compute.",
    ]


def test_energy_is_told_where_it_is_shown() -> None:
    said = [Note(Topic.ENERGY, "2 kWh."), Note(Topic.NETWORK, "10 Gbit/s.")]
    tables = [Table.of_notes(Section.ASSUMED, said)]
    assert "Energy: 2 kWh." in folded(tables, explain=False, energy=True)[0].sentences
    assert "Energy: 2 kWh." not in folded(tables, explain=False)[0].sentences


def test_one_device_alone_is_rented_where_it_is_cheapest() -> None:
    answer = planner.compare(
        "alexnet", hardware="g4dn.xlarge,g4dn.12xlarge", workers=4, interval_width=0.05, max_steps=200
    )
    assert answer.baseline is not None
    assert answer.baseline.plan.machine == "g4dn.xlarge"  # not one of the four of the other
    several = next(row for row in answer.rows if row.plan.machine == "g4dn.12xlarge")
    words = alone_words(several, answer.baseline, None)
    assert words.endswith("times its cost a sample.")
    assert f"4 devices are {several.samples_per_s / answer.baseline.samples_per_s:.3g} times as fast" in words


def test_deadline_is_met_with_a_stated_probability(answer: Recommendation) -> None:
    training = training_of(answer.request)
    assert training is not None
    one = answer.chosen
    for share, said in ((1.0, "50%"), (4.0, ">99%"), (0.25, "<1%")):
        request = replace(answer.request, deadline_s=share * training.seconds(one))
        title = recommendation_tables(replace(answer, request=request))[0].title
        assert f"with probability {said}." in title
    free = replace(answer, request=replace(answer.request, deadline_s=None))
    assert "probability" not in recommendation_tables(free)[0].title
    late_s = training.confident_s(one, 0.9)
    assert training.probability_within(one, late_s) == pytest.approx(0.9)


def test_what_is_assumed_of_the_input_is_said(answer: Recommendation) -> None:
    (said,) = [note.text for note in answer.assumptions if note.topic is Topic.INPUT]
    assert "DALI" in said
    assert "2,204 images/s" in said
