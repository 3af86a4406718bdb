"""The decision that opens an answer, and why other plans lost."""

from __future__ import annotations

import pytest

import planner
from planner.answers.jobs import training_of
from planner.answers.results import Recommendation
from planner.report.decision import run_words, verb
from planner.report.folding import folded
from planner.report.recommendation import recommendation_tables
from planner.search.request import Request


@pytest.fixture(scope="module")
def answer() -> Recommendation:
    return planner.recommend(
        "alexnet",
        hardware=("g4dn.xlarge", "g4dn.12xlarge"),
        workers=(1, 4),
        samples=1_281_167.0 * 2,
        deadline_s=3 * 3600.0,
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
    few = {table.title: table.notes for table in folded(tables, explain=False)}
    all_of_them = {table.title: table.notes for table in folded(tables, explain=True)}
    assert "Looked at" in all_of_them
    assert "Looked at" not in few
    assert any(note.startswith("Price:") for note in few["Assumed"])
    assert not any(note.startswith("Network:") for note in few["Assumed"])
    assert few["Assumed"][-1].endswith("--explain, and all names.")
