"""Every answer is about a job: hours, dollars and limits in the opening, the rows and the JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import planner
from planner.answers.assumptions import _job_facts
from planner.answers.questions import Simulation, simulation_for
from planner.answers.results import Comparison, Recommendation, Saturation
from planner.model.catalog import load_model
from planner.note import Topic
from planner.report.assumed import notes_of
from planner.report.output import to_json
from planner.report.page import page_of
from planner.report.terminal import fitting_columns, table_text
from planner.search.flag_values import CONFIDENCE
from planner.search.request import Request
from planner.search.scored import Limit, Training, missed_limit, training_of, usual_job
from planner.units import usd

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "answers.schema.json").read_text())
EPOCH = 1_281_167.0
ROUGH = {"interval_width": 0.05, "max_steps": 200}


@pytest.fixture(scope="module")
def compared() -> Comparison:
    return planner.compare(
        "alexnet",
        hardware=("g4dn.xlarge", "g5.xlarge", "g4dn.12xlarge"),
        workers=(1, 4),
        samples=EPOCH * 10,
        deadline="2.5h",
        **ROUGH,
    )


@pytest.fixture(scope="module")
def curve() -> Saturation:
    return planner.saturation(
        "alexnet",
        max_workers=4,
        hardware=("g5.xlarge",),
        exchange="servers",
        samples=EPOCH,
        budget=2.1,
        **ROUGH,
    )


@pytest.fixture(scope="module")
def simulated() -> Simulation:
    asked = Request(
        model="alexnet",
        hardware=("g5.xlarge",),
        workers=(2,),
        servers=(1,),
        samples=EPOCH,
        spend_usd=0.01,
        spot=True,
        **ROUGH,  # type: ignore[arg-type]
    )
    return simulation_for(asked)


def test_all_answers_open_with_what_to_run_and_what_the_job_takes(
    compared: Comparison, curve: Saturation, simulated: Simulation
) -> None:
    for answer, scored in (
        (compared, compared.chosen),
        (curve, curve.chosen.scored),
        (simulated, simulated.scored),
    ):
        page = page_of(answer)
        training = training_of(answer.request)
        assert training is not None
        assert page.headline.startswith(f"{scored.plan.machines} x {scored.plan.machine}")
        assert any("/h" in cell for cell in page.facts[0])
        assert page.facts[1][0].startswith(f"{training.words} of {scored.plan.model} in ")
        assert f" for {usd(training.usd(scored) or 0)}" in page.facts[1][0]


def test_json_has_the_job_of_every_plan(
    compared: Comparison, curve: Saturation, simulated: Simulation
) -> None:
    for kind, answer, plans in (
        ("comparison", compared, "plans"),
        ("saturation", curve, "points"),
        ("simulation", simulated, "plan"),
    ):
        data = json.loads(to_json(answer.as_dict()))
        jsonschema.validate(data, {**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{kind}"}]})
        value = data[plans] if isinstance(data[plans], list) else [data[plans]]
        for match in [*value, data["baseline"]]:
            assert match["job_samples"] == answer.request.samples
            factor = 1.0 if match["spot"] is None else match["spot"]["time_factor"]
            assert match["job_s"] == pytest.approx(match["job_samples"] / match["samples_per_s"] * factor)
            assert match["job_usd"] == pytest.approx(match["usd_per_hour"] * match["job_s"] / 3600)
            assert match["job_usd"] == pytest.approx(
                match["usd_per_million_samples"] * match["job_samples"] / 1e6
            )


def test_comparison_chooses_what_meets_the_deadline_and_marks_the_others(compared: Comparison) -> None:
    training = training_of(compared.request)
    assert training is not None
    times_s = sorted(training.confident_s(row, CONFIDENCE) for row in compared.rows)
    assert times_s[0] < times_s[1]
    tight = replace(compared, request=replace(compared.request, deadline_s=(times_s[0] + times_s[1]) / 2))
    rows = page_of(tight).tables[0].rows
    late = [row for row in rows if row["misses"] == Limit.LATE]
    assert len(late) >= len(compared.rows) - 1
    assert all(row["_label"] in ("too late", "one device") and not row["_choice"] for row in late)
    (chosen,) = [row for row in rows if row["_choice"]]
    assert not chosen["misses"]
    assert [row["misses"] for row in tight.as_dict()["plans"]].count(Limit.LATE) == len(compared.rows) - 1


def test_curve_marks_what_is_over_the_budget_and_chooses_the_most_workers_below(curve: Saturation) -> None:
    rows = page_of(curve).tables[0].rows
    over = [row["workers"] for row in rows if "over budget" in row["_label"]]
    assert over == [row["workers"] for row in rows if row["usd_per_hour"] > 2.1]
    assert over
    assert curve.chosen.workers == min(over) - 1 == curve.as_dict()["chosen_workers"]
    assert [row["workers"] for row in rows if row["_choice"]] == [curve.chosen.workers]


def test_with_a_deadline_a_curve_chooses_the_cheapest_point_in_time(curve: Saturation) -> None:

    late_s = Training(EPOCH, "").confident_s(curve.points[1].scored, CONFIDENCE)
    asked = replace(curve.request, budget_usd_per_hour=None, deadline_s=late_s * 1.01)
    result = replace(curve, request=asked).chosen
    fine = [point for point in curve.points if not missed_limit(point.scored, asked, training_of(asked))]
    assert result.scored.usd_per_million_samples == min(p.scored.usd_per_million_samples for p in fine)
    assert result.workers > 1


def test_one_plan_says_which_limit_it_misses_and_how_stale_it_is(simulated: Simulation) -> None:
    title = "\n".join(cell for cells in page_of(simulated).facts for cell in cells)
    assert "Over the spending limit of $0.01." in title
    assert simulated.as_dict()["plan"]["misses"] == Limit.SPEND
    assert f"{simulated.scored.prediction.staleness_mean:.1f} updates old on average" in title
    assert "/h (spot)" in title
    counted = [note.text for note in notes_of(simulated.assumptions) if note.topic is Topic.SPOT]
    assert len(counted) == 1
    assert "AWS Spot Advisor" in counted[0]


@pytest.fixture(scope="module")
def sequences() -> Recommendation:
    return planner.recommend(
        "bert-base", hardware=("g5.xlarge", "g6e.xlarge"), workers=(1,), exchange="alone", **ROUGH
    )


def test_networks_over_sequences_are_told_in_tokens(sequences: Recommendation) -> None:
    page = page_of(sequences)
    (table,) = page.tables
    assert {"tokens/s", "$/B tokens"} <= {column.heading for column in table.columns}
    length = sequences.chosen.sample_tokens
    assert length
    for row in table.rows:
        assert row["tokens_per_s"] == pytest.approx(row["samples_per_s"] * length)
        assert row["usd_per_billion_tokens"] == pytest.approx(
            row["usd_per_hour"] / 3600 / row["tokens_per_s"] * 1e9
        )
    assert page.facts[0][-1].endswith(" per billion tokens")
    assert page.facts[1][0].startswith("1 billion tokens of bert-base in ")
    assert "Job: 1 billion tokens by default" in sequences.as_dict()["assumptions"][0]
    assert sequences.as_dict()["recommendation"]["job_tokens"] == 1e9


@pytest.mark.parametrize(
    ("model", "asked", "words", "tokens"),
    [
        ("llama3-70b", None, "1 billion tokens", 1e9),  # its epoch would be years
        ("llama3-70b", 15e12 / 8192, "1 epoch", 15e12),
        ("llama3-70b", 300e6 / 8192, "300 million tokens", 300e6),
        ("gpt2", 1000.0, "1,000 samples", 1000 * 1024.0),
        ("gpt2", None, "1 billion tokens", 1e9),
        ("resnet50", None, "1 epoch", None),
    ],
)
def test_job_of_a_language_model_is_a_billion_tokens_where_none_is_named(
    model: str, asked: float | None, words: str, tokens: float | None
) -> None:
    request = Request(model=model, samples=asked)
    training = training_of(request)
    assert training is not None
    assert (training.words, training.tokens) == (words, tokens)
    usual = usual_job(request)
    assert (usual is not None) == (words == "1 billion tokens")
    if model == "llama3-70b" and usual:
        (note,) = notes_of(_job_facts(request))
        assert note.text.endswith("; an epoch of llama3-70b has 15 trillion.")


def test_epoch_of_fewer_tokens_is_the_job() -> None:
    few = replace(load_model("gpt2"), samples_per_epoch=50_000)
    assert few.default_job_samples == 50_000
    assert replace(few, samples_per_epoch=None).default_job_samples == 1e9 / 1024
    assert replace(few, samples_per_epoch=None, sequence_length=None).default_job_samples is None


def test_energy_is_a_column_on_request_and_in_json_always(sequences: Recommendation) -> None:
    usual, asked = (page_of(sequences, energy=energy).tables[0] for energy in (False, True))
    names = [column.heading for column in asked.columns if column not in usual.columns]
    assert names == ["kWh/M", "kg CO2e/M"]
    for plan in sequences.as_dict()["plans"]:
        # device power x host x PUE over the time per million samples
        hours = 1e6 / plan["samples_per_s"] / 3600
        watts = {"A10G": 300, "L40S": 350}[plan["device"]] * 1.8
        kwh = plan["kwh_per_million_samples"]
        assert kwh / hours / (watts / 1000) == pytest.approx(1.15, abs=0.15)
        assert plan["kg_co2e_per_million_samples"] / kwh == pytest.approx(0.38, abs=0.1)
        assert "PUE" in plan["energy_method"]
    assert any(note.topic is Topic.ENERGY for note in page_of(sequences).assumptions)


def test_close_call_is_said_in_a_curve_and_one_device_is_not_set_beside_itself(curve: Saturation) -> None:

    first = curve.points[0].scored
    asked = replace(curve.request, budget_usd_per_hour=None, deadline_s=EPOCH / first.samples_per_s * 1.001)
    near = replace(curve, request=asked, points=curve.points[:1], saturation_workers=1, sizes=())
    page = page_of(near)
    assert page.facts[1][0].endswith(": 50%")
    assert page.tables[0].rows[0]["misses"] == Limit.LATE
    assert not any("One device" in text for remark in page.why for text in remark.sentences)
    easy = page_of(replace(near, request=replace(asked, deadline_s=1e9)))
    assert easy.facts[1][0].endswith(": >99%")


def test_recommend_job_at_80_columns_keeps_the_cost_columns() -> None:
    answer = planner.recommend(
        "resnet50", hardware="g5.2xlarge,g4dn.12xlarge", epochs=90, deadline="48h", budget=20, **ROUGH
    )
    (table,) = page_of(answer).tables
    keys = {column.key for column in fitting_columns(table, 80)}
    assert {"job_s", "job_usd", "usd_per_million_samples", "samples_per_s"} <= keys
    assert not keys & {"_range", "batch", "_limit"}
    wide = {column.key for column in fitting_columns(table, 120)}
    assert keys | {"usd_per_hour", "_range"} <= wide
    assert all(len(line.plain) <= 80 for line in table_text(table, 80))
