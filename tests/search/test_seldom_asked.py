"""What the search says and does where few questions come: each rule by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.answers.answer_files import _shown_text
from planner.answers.assumptions import _provider_facts
from planner.answers.questions import simulation_for, single_plan
from planner.answers.recommend import recommend_for
from planner.errors import Infeasible
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.report.assumed import fact_note
from planner.search.request import Request
from planner.search.scored import Limit, ScoredPlan, Training, missed_limit
from planner.search.sizes import MICRO_BATCHES, batches
from planner.servers.order_request import OrderRequest, _strategy_options

SMALL = Request(model="alexnet", hardware=("p3.2xlarge",), workers=(1,), interval_width=0.1, max_steps=200)


@pytest.fixture(scope="module")
def scored() -> ScoredPlan:
    return simulation_for(SMALL).scored


def test_plan_misses_the_first_limit_that_it_does_not_keep(scored: ScoredPlan) -> None:
    speed, price = scored.samples_per_s, scored.usd_per_hour
    job = Training(speed * 3600, "one hour")
    assert job.seconds(scored) == pytest.approx(3600)
    assert job.usd(scored) == pytest.approx(price)
    late_s = job.confident_s(scored, 0.9)
    assert late_s > 3600
    for limits, reason in (
        ({"budget_usd_per_hour": price * 0.99}, Limit.BUDGET),
        ({"budget_usd_per_hour": price}, None),
        ({"min_samples_per_s": speed * 1.01}, Limit.SLOW),
        ({"min_samples_per_s": speed}, None),
        ({"deadline_s": late_s * 0.999}, Limit.LATE),
        ({"deadline_s": late_s * 1.001}, None),
        ({"spend_usd": price * late_s / 3600 * 0.999}, Limit.SPEND),
        ({"spend_usd": price * late_s / 3600 * 1.001}, None),
        ({"budget_usd_per_hour": price * 0.99, "deadline_s": 1.0}, Limit.BUDGET),
    ):
        asked = replace(SMALL, samples=job.samples, **limits)
        assert missed_limit(scored, asked, job) is reason
        kept = reason if reason in (Limit.BUDGET, Limit.SLOW) else None  # the others are about a job
        assert missed_limit(scored, asked, None) is kept


def test_where_no_plan_is_fast_enough_the_fastest_is_named() -> None:
    asked = replace(SMALL, workers=(2,), batches=(512,), exchanges=(("allreduce", {}),))
    two = simulation_for(asked).scored
    between = (two.samples_per_s + two.bound_samples_per_s) / 2  # only simulations tell
    with pytest.raises(Infeasible) as refused:
        recommend_for(replace(asked, min_samples_per_s=between), jobs=1, advice=False)
    said = str(refused.value)
    assert said.startswith("no plan meets the limits with 90% probability; the fastest is ")
    assert two.plan.cluster_text in said
    assert f"for ${two.usd_per_hour:.2f}/h" in said
    with pytest.raises(Infeasible, match="candidate plan misses --min-throughput"):
        recommend_for(replace(asked, min_samples_per_s=1e9), jobs=1, advice=False)


def test_whose_machines_were_looked_at_is_said_where_nobody_named_them() -> None:
    (note,) = _provider_facts(Request(model="alexnet"))
    assert fact_note(note).text.startswith("of AWS, and your own;")
    (note,) = _provider_facts(Request(model="alexnet", gpu="A100"))
    assert fact_note(note).text.startswith("of every provider with A100;")
    assert _provider_facts(Request(model="alexnet", providers=("gcp",))) == []
    assert _provider_facts(SMALL) == []


def test_settings_of_two_answers_are_compared_in_words() -> None:
    assert [_shown_text(value) for value in (True, False, None, 3)] == ["yes", "no", "-", "3"]


def test_sizes_of_slices_are_given_to_those_who_cut() -> None:
    def options(**sizes: str) -> dict[str, dict[str, object]]:
        return _strategy_options(OrderRequest(model="alexnet", hardware="p3.2xlarge", **sizes))

    assert options() == {}
    assert options(slice_size="1MB") == {"p3": {"slice_bytes": 1_000_000}}
    cut = options(partition_size="2MB")
    assert cut["prophet"] == {"partition_bytes": 2_000_000}
    assert cut["bytescheduler"] == {"partition_bytes": 2_000_000, "credit_bytes": 10_000_000}
    both = options(partition_size="2MB", credit_size="3MB")["bytescheduler"]
    assert both == {"partition_bytes": 2_000_000, "credit_bytes": 3_000_000}
    assert options(credit_size="3MB") == {"bytescheduler": {"credit_bytes": 3_000_000}}


def test_batches_are_the_models_own_those_named_or_powers_of_two_that_fit() -> None:
    model, worker = load_model("alexnet"), load_hardware("p3.2xlarge")
    assert list(batches(SMALL, model, worker)) == [model.default_batch]
    assert list(batches(replace(SMALL, batches=(3, 5)), model, worker)) == [3, 5]
    result = list(batches(replace(SMALL, batches="auto"), model, worker))
    assert result == [2**k for k in range(3, 3 + len(result))]
    assert result
    text = load_model("gpt2")
    assert text.sequence_length is not None
    tried = list(batches(replace(SMALL, model="gpt2", batches="auto"), text, worker))
    assert tried == [2**k for k in range(MICRO_BATCHES + 1)]
    assert single_plan(SMALL).batch == model.default_batch
