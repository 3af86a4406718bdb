"""Batches where nobody names one: the model's own, twice and four times it, never more than usual."""

from dataclasses import replace

import pytest

from planner.answers.questions import parse_request, recommend, simulation_for, single_plan
from planner.answers.recommend import recommend_for
from planner.answers.refine import same_step_plans
from planner.errors import PlannerError
from planner.model.catalog import load_model
from planner.report.assumed import notes_of
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.search.sizes import MOST_SAMPLES, MOST_TOKENS, batch_discount, max_step_samples
from planner.search.space import enumerate_plans

RESNET = load_model("resnet50")  # its own batch is 64


def space(**about):
    request = Request(**({"model": "resnet50"} | about))
    return enumerate_plans(request, load_model(request.model)).plans


def test_gpu_takes_the_own_batch_and_larger_ones():
    assert {plan.batch for plan in space(hardware=("p5.48xlarge",), workers=(8,))} == {64, 128, 256}


def test_contenders_take_the_own_batch_only():
    plans = space(hardware=("c5.9xlarge",), workers=(8,))
    assert {plan.batch for plan in plans if plan.exchange.kind == "servers"} == {64}
    assert {plan.batch for plan in space(hardware=("c5.4xlarge",), workers=(2,))} == {64}


def test_named_batch_is_the_only_one():
    words = {"hardware": ("p5.48xlarge",), "workers": (8,)}
    assert {plan.batch for plan in space(**words, batches=(32,))} == {32}


def test_global_batch_is_split_into_micro_batches_that_divide_it():
    plans = space(hardware=("p5.48xlarge",), workers=(8,), global_batch=512)
    assert {plan.samples_per_step * plan.replicas for plan in plans} == {512}
    assert {plan.batch for plan in plans} == {1, 2, 4, 8, 16, 32, 64}


def test_named_batch_of_an_image_model_that_does_not_fit_is_recomputed():
    words = {"hardware": ("p3.2xlarge",), "workers": (2,)}
    named = space(model="vit-b16", batches=(256,), **words)
    assert {plan.recompute for plan in named} & {"per-op", "full"}
    assert all(plan.recompute == "none" for plan in space(model="vit-b16", **words))
    assert all(plan.recompute == "none" for plan in space(model="alexnet", batches=(4096,), **words))


def test_all_devices_take_no_more_than_people_train_with():
    plans = [
        plan
        for plan in space(hardware=("g5.xlarge",), workers=(32, 64, 128), formats=("tf32",))
        if plan.exchange.kind != "servers"
    ]
    assert {(plan.workers, plan.batch) for plan in plans} == {
        (32, 64),
        (32, 128),
        (64, 64),
        (64, 128),
        (128, 64),
    }
    large = space(model="alexnet", hardware=("p4d.24xlarge",), workers=(64,))  # its own batch is 512
    assert {plan.batch for plan in large if plan.exchange.kind != "servers"} == {128}
    assert max_step_samples(RESNET) == MOST_SAMPLES
    assert max_step_samples(load_model("bert-large")) * 512 == MOST_TOKENS


def test_where_the_own_batch_does_not_fit_the_largest_that_does_is_taken():
    plans = space(model="resnext101-32x4d", hardware=("g4dn.xlarge",), workers=(1,), formats=("fp32",))
    assert {plan.batch for plan in plans} == {64}
    simulation = simulation_for(
        Request(model="resnext101-32x4d", hardware=("g4dn.xlarge",), formats=("fp32",))
    )
    assert simulation.scored.plan.batch == 64
    assert any(
        "the model's default of 128 does not fit" in str(note) for note in notes_of(simulation.assumptions)
    )


def test_one_plan_keeps_the_own_batch():
    assert single_plan(Request(model="resnet50", hardware=("p5.48xlarge",), workers=(8,))).batch == 64


def test_doubling_must_bring_a_fiftieth():
    assert batch_discount(64, RESNET) == batch_discount(32, RESNET) == 1.0
    assert batch_discount(256, RESNET) == pytest.approx(0.98**2)


def test_answer_says_what_all_take_and_how_it_was_chosen():
    request = parse_request(model="resnet50", hardware="p5.48xlarge", workers="8")
    answer = recommend_for(request, advice=False)
    assert answer.chosen.plan.batch == 256
    said = [str(note) for note in notes_of(answer.assumptions) if str(note).startswith("Batch")]
    assert len(said) == 1
    assert "default of 64 per GPU, or 128 or 256" in said[0]
    assert "8,192 samples (Goyal et al. 2017)" in said[0]
    from planner.report.phrases import batch_words

    assert batch_words(answer.chosen.plan) == "global batch 2,048 (256 per replica)"
    kept = recommend("resnet50", hardware="p5.48xlarge", workers="8", batch="64")
    assert kept.chosen.plan.batch == 64
    assert not any(str(note).startswith("Batch") for note in notes_of(kept.assumptions))


def test_smaller_batch_is_tried_where_the_own_one_fits_only_if_all_is_computed_again() -> None:
    request = Request(model="mpt-125m", hardware=("g4dn.8xlarge",), workers=(1,))
    present = {(plan.batch, plan.recompute) for plan in enumerate_plans(request, model_of(request)).plans}
    assert (8, "full") in present
    assert (4, "none") in present
    assert not any(batch < 4 for batch, _ in present)
    named = replace(request, recompute=("full",))
    assert {plan.batch for plan in enumerate_plans(named, model_of(named)).plans} == {8}


def same_step(plan, **about):
    return list(same_step_plans(plan, Cases(Request(model="resnet50", **about), RESNET)))


def test_same_step_plans_keep_the_samples_of_a_step_and_respect_named_batches():
    plan = next(plan for plan in space(hardware=("p5.48xlarge",), workers=(8,)) if plan.batch == 256)
    result = same_step(plan)
    assert {other.batch * other.accumulate * other.replicas for other in result} == {8 * 256}
    assert {other.batch for other in result} == {64, 128, 256}
    assert {other.exchange.kind for other in result} >= {"allreduce", "sharded"}
    assert {other.precision for other in result} == {plan.precision}
    assert {other.batch for other in same_step(plan, batches=(64,))} == {64}
    assert {other.accumulate for other in same_step(plan, accumulate=1)} == {1}
    assert {other.exchange.kind for other in same_step(plan, exchanges=(("sharded", {}),))} == {"sharded"}


def test_recommend_finds_what_simulate_can_run_on_its_machines():
    """Sharding sends 16-bit gradients where DDP sends 32: on slow links that is faster, though it fits."""
    words = {"model": "bert-large", "hardware": "g4dn.xlarge", "workers": 4, "interval_width": 0.02}
    chosen = recommend_for(parse_request(**words), jobs=1, advice=False).chosen
    plan = chosen.plan
    total = plan.batch * plan.accumulate * plan.replicas
    for exchange in ("sharded", "sharded:stage=2", "allreduce"):
        asked = parse_request(**words, exchange=exchange, global_batch=total, batch=plan.batch)
        try:
            other = simulation_for(asked).scored
        except PlannerError:
            continue
        assert other.samples_per_s <= chosen.samples_per_s * 1.02
