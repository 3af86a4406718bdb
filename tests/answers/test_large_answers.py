"""Comparisons, deadlines and exports of large models: what is chosen, named and written."""

from __future__ import annotations

import pytest

import planner
from planner.answers.launching import launch_of
from planner.answers.questions import parse_request, simulation_for
from planner.errors import BadInput, Infeasible
from planner.report.assumed import notes_of
from planner.report.page import page_of
from planner.units import usd


def test_comparison_of_a_large_model_has_every_device_that_can_hold_it() -> None:
    """Eight H100 or A100 cannot hold 70 billion parameters, several machines can; those without a network
    figure are named, as they cannot be joined."""
    words = {
        "gpu": "H100:8,A100:8,B200:8",
        "global_batch": 512,
        "provider": "aws,lambda",
        "interval_width": 0.05,
    }
    compare = planner.compare("llama3-70b", **words)
    machines = {row.plan.machine: row.plan.workers for row in compare.rows}
    assert [compare.subjects[row.plan.key] for row in compare.rows].count("A100:8") == 1
    assert set(compare.subjects.values()) == {"H100:8", "A100:8", "B200:8"}
    assert machines["p5.48xlarge"] > 8
    said = " ".join(compare.as_dict()["assumptions"])
    assert "lambda-8x-h100-sxm5" in said
    assert "do not hold it on one machine, and no network figure is published" in said


def test_machines_that_hold_nothing_that_is_asked_for_are_named() -> None:
    words = {"hardware": "p5.48xlarge,p6-b200.48xlarge", "workers": "8", "global_batch": 512}
    compare = planner.compare("llama3-70b", **words, interval_width=0.05)
    assert [row.plan.machine for row in compare.rows] == ["p6-b200.48xlarge"]
    (note,) = [str(note) for note in notes_of(compare.assumptions) if "not hold" in str(note)]
    assert "p5.48xlarge does not hold it with up to 8 workers as asked for" in note


def test_comparison_by_speed_takes_the_cheapest_of_those_that_are_as_fast() -> None:
    """Two machines with the same devices, one of them at nearly twice the price."""
    machines = "p5.48xlarge,Standard_ND96isr_H100_v5"
    compare = planner.compare("llama3-8b", hardware=machines, workers="16", budget=200, interval_width=0.02)
    assert compare.request.goal == "balanced"
    assert {row.plan.machine for row in compare.rows} == set(machines.split(","))
    assert compare.chosen.plan.machine == "p5.48xlarge"
    (table, *_) = page_of(compare).tables
    (column,) = [column for column in table.columns if column.heading.startswith("spot")]
    assert column.heading == "spot $/B"
    shown = sorted(row["_spot"] for row in table.rows if row["_spot"])
    assert shown == pytest.approx(sorted(paid / 1e6 / 8192 * 1e9 for paid in compare.spot.values()))


def test_machine_is_left_out_for_one_reason() -> None:
    compare = planner.compare(
        "llama3-70b", hardware="p5e.48xlarge,p5en.48xlarge", workers="32", interval_width=0.05
    )
    said = [str(note) for note in notes_of(compare.assumptions) if "p5e.48xlarge" in str(note)]
    assert len(said) == 1
    assert "no on-demand price" in said[0]


def test_layers_are_shared_inside_a_machine_in_all_answers() -> None:
    with pytest.raises(BadInput, match=r"16 does not divide the 8 devices of p5.48xlarge; .* is 8"):
        planner.compare("llama3-8b", hardware="p5.48xlarge", workers="16", tensor="16")


def test_deadline_that_needs_more_workers_than_were_looked_at_says_so() -> None:
    with pytest.raises(Infeasible, match=r"up to 128 workers were tried. It works with --deadline \d+"):
        planner.recommend("llama3-8b", hardware="p5.48xlarge", tokens="15T", deadline="30d")


@pytest.mark.parametrize("kind", ["sharded", "owned"])
def test_launch_of_sharded_plan_names_where_shards_stay(kind: str) -> None:
    words = {"hardware": "p5.48xlarge", "workers": 16, "batch": 1, "seq_length": 512, "recompute": "full"}
    request = parse_request(model="llama3-8b", exchange=f"{kind}:within=machine", **words)
    launch = launch_of(simulation_for(request).scored, request)
    strategies = {"sharded": "hsdp", "owned": "zero1, whole tensors inside machines"}
    assert launch.recipe.strategy == strategies[kind]


@pytest.mark.parametrize(
    ("exchange", "words"),
    [("sharded", "prefetched parameters"), ("owned", "gradient buckets"), ("allreduce", "gradient buckets")],
)
def test_buffers_are_called_what_they_are(exchange: str, words: str) -> None:
    scenario = parse_request(model="gpt2-xl", hardware="p5.48xlarge", workers=16, batch=1, exchange=exchange)
    parts = simulation_for(scenario).details.memory.bytes_by_kind
    assert {"prefetched parameters", "gradient buckets"} & parts.keys() == {words}


def test_missed_deadline_suggests_no_money() -> None:
    words = {"hardware": "p5.48xlarge", "tokens": "100B", "deadline": "1h", "budget": 100}
    with pytest.raises(Infeasible, match=r"the fastest that the budget allows is 1 x p5.48xlarge") as said:
        planner.recommend("llama3-8b", **words)
    assert "the nearest plan is" not in str(said.value)


def test_page_gives_the_cost_of_tokens_where_there_are_tokens() -> None:
    scenario = parse_request(model="gpt2", hardware="g5.xlarge", workers=1)
    answer = simulation_for(scenario)
    figures = {figure.name: figure.value for figure in page_of(answer).figures}
    assert figures["per billion tokens"] == usd(answer.scored.usd_per_billion_tokens)
    images = simulation_for(parse_request(model="resnet50", hardware="g5.xlarge", workers=1))
    figures = {figure.name: figure.value for figure in page_of(images).figures}
    assert figures["per million samples"] == usd(images.scored.usd_per_million_samples)


def test_machines_over_budget_are_not_called_too_small() -> None:
    words = {"hardware": "p5.48xlarge,p4de.24xlarge", "workers": "32", "budget": 200, "interval_width": 0.05}
    compare = planner.compare("llama3-70b", **words)
    said = " ".join(compare.as_dict()["assumptions"])
    assert "p5.48xlarge has no plan that holds it within the limits asked for" in said


def test_deadline_stands_before_machines_that_are_too_small() -> None:
    words = {"hardware": "p5.48xlarge,g5.12xlarge", "tokens": "1B", "deadline": "10min", "budget": 500}
    with pytest.raises(Infeasible, match=r"(all|none of the) [\d,]+ candidate plans .*miss the deadline"):
        planner.recommend("llama3-70b", **words)


def test_framework_says_nothing_of_cpus() -> None:
    scenario = parse_request(model="resnet50", hardware="c5.4xlarge", workers=2, framework="xla")
    said = notes_of(simulation_for(scenario).assumptions)
    assert any("--framework does not apply to CPUs" in str(note) for note in said)
