"""Smaller micro-batches with accumulation are searched where no batch is named, beside recompute."""

from dataclasses import replace

import pytest

import planner
from planner.answers.questions import parse_request
from planner.parallel.plan import Plan
from planner.search.feasibility import Feasibility
from planner.search.request import model_of
from planner.search.space import enumerate_plans

ASKED = {"gpu": "RTX-4090:2", "machines": 4, "bandwidth": "100Gbit"}


def plans(**options):
    request = parse_request("bert-large", exchange="allreduce", **ASKED, **options)
    return enumerate_plans(request, model_of(request)).plans


def test_batches_that_recompute_are_also_taken_in_micro_batches():
    result = plans()
    shapes = {(plan.batch, plan.accumulate, plan.recompute) for plan in result}
    assert (16, 2, "none") in shapes
    assert any(recompute != "none" for _, _, recompute in shapes)
    assert all(accumulate == 1 or recompute == "none" for _, accumulate, recompute in shapes)


@pytest.mark.parametrize("named", [{"accumulate": 1}, {"batch": 32}, {"recompute": "full"}])
def test_named_accumulation_is_kept(named):
    assert {plan.accumulate for plan in plans(**named)} == {1}


def test_recommend_loses_to_no_simulation_of_the_same_machines_and_global_batch():
    recommend = planner.recommend("bert-large", budget=100, interval_width=0.02, **ASKED)
    chosen = recommend.chosen
    each = chosen.plan.samples_per_step
    for batch in (8, 16):
        rival = planner.simulate(
            "bert-large",
            gpu="RTX-4090:2",
            workers=chosen.plan.workers,
            bandwidth="100Gbit",
            batch=batch,
            accumulate=each // batch,
            interval_width=0.02,
        )
        assert chosen.samples_per_s >= rival.scored.samples_per_s * 0.98


def test_memory_of_one_micro_batch_is_not_that_of_several():
    """Gradients of earlier micro-batches stay whole; a step without them may take larger ones."""
    request = parse_request(
        "qwen3-8b", gpu="A100-SXM4-80GB:1", workers=4, bandwidth="25Gbit", exchange="sharded:stage=2"
    )
    model = model_of(request)
    plan = replace(enumerate_plans(request, model).plans[0], recompute="full", accumulate=1)
    feasibility = Feasibility(request, model)
    several = largest_batch(feasibility, replace(plan, accumulate=2))
    one = largest_batch(feasibility, plan)
    assert several < one == largest_batch(Feasibility(request, model), plan)


def largest_batch(feasibility: Feasibility, plan: Plan) -> int:
    return max(size for size in range(1, 9) if feasibility.out_of_memory(replace(plan, batch=size)) is None)
