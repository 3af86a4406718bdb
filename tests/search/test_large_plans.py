"""Number formats, accumulation, recompute and cuts in plans: what is offered, refused and predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.answers.questions import parse_request, simulation_for
from planner.answers.recommend import recommend_for
from planner.device.precision import BF16
from planner.errors import BadInput, Infeasible
from planner.flags import parse_tokens
from planner.parallel.data import EXCHANGES, Site, Tier
from planner.parallel.data.fsdp import Sharded
from planner.parallel.mesh import Mesh
from planner.parallel.plan import Plan, plan_from_dict
from planner.search.cases import Cases
from planner.search.feasibility import Feasibility
from planner.search.field import candidate_machines
from planner.search.request import Request, model_of
from planner.search.sizes import meshes_on, plan_of, worker_counts
from planner.search.space import enumerate_plans, usual_strategies, worker_machines


def asked(**words: Any) -> Request:
    return parse_request(interval_width=0.1, **words)


def plans(**words: Any) -> list[Plan]:
    request = asked(**words)
    return enumerate_plans(request, model_of(request)).plans


def rate(**words: Any) -> float:
    return simulation_for(asked(**words)).scored.samples_per_s


@pytest.mark.parametrize(
    ("model", "machine", "name"),
    [
        ("resnet50", "p3.2xlarge", "fp16"),
        ("resnet50", "g5.xlarge", "bf16"),
        ("resnet50", "p2.xlarge", "fp32"),
        ("resnet50", "c4.8xlarge", "fp32"),
        ("gpt2", "g5.xlarge", "bf16"),
        ("gpt2", "p3.2xlarge", "fp16"),
    ],
)
def test_plans_use_mixed_precision_where_the_device_has_matrix_units(
    model: str, machine: str, name: str
) -> None:
    result = plans(model=model, hardware=machine, workers=1, exchange="alone")
    assert {plan.precision.name for plan in result} == {name}


def test_format_that_the_device_lacks_is_refused_with_what_it_has() -> None:
    with pytest.raises(BadInput, match=r"V100.* does not compute in bf16; it has fp32, fp16"):
        rate(model="resnet50", hardware="p3.2xlarge", exchange="alone", precision="bf16")


def test_sixteen_bits_are_faster_on_tensor_cores() -> None:
    words = {"model": "resnet50", "hardware": "p4d.24xlarge", "workers": 1, "exchange": "alone"}
    single, half = (rate(**words, precision=name) for name in ("fp32", "fp16"))
    assert 1.5 < half / single < 5


def test_accumulation_follows_from_the_global_batch() -> None:
    words = {"model": "gpt2", "hardware": "p4d.24xlarge", "workers": 8, "exchange": "allreduce", "batch": 4}
    assert {plan.accumulate for plan in plans(**words, global_batch=256)} == {8}
    request = asked(**words, global_batch=250)
    space = enumerate_plans(request, model_of(request))
    assert not space.plans
    assert space.dropped["whose batches do not divide the global batch"] == 1
    with pytest.raises(BadInput, match="contradict"):
        asked(**words, global_batch=256, accumulate=2)


def test_accumulating_hides_the_exchange() -> None:
    words = {"model": "gpt2", "hardware": "g5.xlarge", "workers": 8, "exchange": "allreduce", "batch": 4}
    assert rate(**words, accumulate=16) > 1.5 * rate(**words)


def test_sharding_is_offered_where_nothing_plainer_fits() -> None:
    small = {plan.exchange.kind for plan in plans(model="gpt2", hardware="p4d.24xlarge", workers=8)}
    assert "sharded" not in small
    assert "allreduce" in small
    large = plans(model="llama3-8b", hardware="p5.48xlarge", workers=8, batch=1)
    whole = {plan.exchange.kind for plan in large if plan.mesh.size == 1}
    assert "sharded" in whole
    assert "allreduce" not in whole
    named = plans(model="gpt2", hardware="p4d.24xlarge", workers=8, exchange="sharded")
    assert named


def test_as_little_is_computed_again_as_fits() -> None:
    result = plans(model="llama3-8b", hardware="p5.48xlarge", workers=8, batch=1, exchange="sharded:stage=3")
    assert {plan.recompute for plan in result if plan.mesh.size == 1} <= {"none", "per-op", "full"}
    request = asked(model="llama3-8b", hardware="p5.48xlarge", batch=1)
    cases = Cases(request, model_of(request))
    for plan in result:
        if plan.recompute == "full":
            assert cases.feasibility.out_of_memory(replace(plan, recompute="none")) is not None


def every_plan(request: Request) -> dict[str, Plan]:
    """The space of a request without any shortcut, of plans that fit and deal out the global batch."""
    model, market = model_of(request), request.market
    feasibility, result = Feasibility(request, model), {}
    for machine in worker_machines(request):
        for nodes in range(1, (request.machines or 1) + 1):
            for mesh in meshes_on(request, machine, model):
                if nodes * machine.device_count % mesh.size:
                    continue
                site = Site(machine, nodes * machine.device_count, market, mesh)
                for batch in (1, 2, 4, 8, 16, 32):
                    if (request.global_batch or batch) % (batch * site.replicas):
                        continue
                    held = False
                    for exchange in usual_strategies(request, site, model):
                        if EXCHANGES.tier(exchange) is Tier.FALLBACK and held:
                            continue
                        for again in ("none", "per-op", "full"):
                            plan = plan_of(
                                model, batch, site, exchange, request, precision=BF16, recompute=again
                            )
                            if feasibility.out_of_memory(plan) is None:
                                result[plan.key] = plan
                                held = held or EXCHANGES.tier(exchange) is Tier.BASELINE
                                break
    return result


def test_micro_batches_accumulation_and_recompute_are_offered_as_memory_allows() -> None:
    request = asked(model="llama3-8b", hardware="p4d.24xlarge,p5.48xlarge", machines=2, global_batch=64)
    result = enumerate_plans(request, model_of(request)).plans
    assert {plan.key for plan in result} == set(every_plan(request))
    assert len({plan.batch for plan in result}) > 2
    assert {plan.recompute for plan in result} >= {"none", "full"}
    assert all(plan.batch * plan.accumulate * plan.replicas == 64 for plan in result)
    assert {plan.mesh.settings["pipeline"] for plan in result} >= {1, 2, 4}


def test_race_finds_what_simulating_every_plan_finds() -> None:
    kinds = "p4d.24xlarge,p5.48xlarge"
    request = asked(model="llama3-8b", hardware=kinds, machines=1, global_batch=16, budget=60.0)
    raced, all_of_them = (
        recommend_for(request, jobs=1, advice=False, exhaustive=exhaustive) for exhaustive in (False, True)
    )
    assert raced.chosen.plan == all_of_them.chosen.plan
    assert raced.simulated < all_of_them.simulated
    for scored in all_of_them.everything:
        assert scored.samples_per_s <= scored.bound_samples_per_s


def test_cpu_machines_are_left_out_for_large_models_where_there_are_gpus() -> None:
    words = {"provider": "aws", "budget": 100.0, "global_batch": 8}
    large = asked(model="llama3-8b", **words)
    lost = candidate_machines(Cases(large, model_of(large))).left_out
    (reason,) = [reason for reason in lost if "CPUs" in reason.rest]
    assert all(large.market.find_machine(name).device.kind == "cpu" for name in lost[reason])
    small = asked(model="gpt2", **words)
    assert not any(
        "CPUs" in reason.rest for reason in candidate_machines(Cases(small, model_of(small))).left_out
    )


def test_plan_out_of_memory_names_the_first_remedy() -> None:
    with pytest.raises(
        Infeasible, match=r"llama3-70b at batch 1 needs .* GiB per device; H100.*; it fits with --"
    ):
        rate(model="llama3-70b", hardware="p5.48xlarge", workers=8, batch=1, exchange="allreduce")


LLAMA = {
    "model": "llama3-8b",
    "hardware": "p5.48xlarge",
    "workers": 16,
    "batch": 1,
    "exchange": "allreduce",
}


def test_cuts_are_asked_for_and_refused_with_what_works() -> None:
    simulation = simulation_for(asked(**LLAMA, tensor=8, pipeline=2, accumulate=8, recompute="full"))
    plan = simulation.scored.plan
    assert (plan.mesh, plan.replicas) == (Mesh.of(tensor=8, pipeline=2), 1)
    assert simulation.scored.samples_per_s > 1
    with pytest.raises(BadInput, match=r"tensor degree of 3 .* nearest"):
        rate(**LLAMA, tensor=3)


def test_bubble_costs_less_with_more_micro_batches() -> None:
    words = {
        **(LLAMA | {"workers": 8}),
        **{"tensor": 2, "pipeline": 4, "recompute": "full"},
    }
    assert rate(**words, accumulate=32) > 1.3 * rate(**words, accumulate=4)


def test_range_is_wider_than_the_simulation() -> None:
    scored = simulation_for(asked(model="gpt2", hardware="p4d.24xlarge", workers=1, exchange="alone")).scored
    low, high = scored.range or (0.0, 0.0)
    assert low < scored.prediction.samples_per_s_low < scored.prediction.samples_per_s_high < high
    assert scored.as_dict()["samples_per_s_range_low"] == low


def test_tokens_are_samples_of_a_length() -> None:
    assert [parse_tokens(words, "--tokens") for words in ("15B", "300M", "2e12", 5)] == [
        15e9,
        3e8,
        2e12,
        5,
    ]
    assert asked(model="gpt2", tokens="1024M").samples == 1e6
    assert asked(model="gpt2", tokens="1024M", seq_length=512).samples == 2e6
    for wrong in ("many", "-3B", "0"):
        with pytest.raises(BadInput, match="--tokens"):
            parse_tokens(wrong, "--tokens")
    with pytest.raises(BadInput, match="no sequence"):
        asked(model="resnet50", tokens="1B")


def test_plan_is_stored_and_read_back() -> None:
    plan = Plan(
        "llama3-8b",
        2,
        "p5.48xlarge",
        64,
        Sharded(),
        BF16,
        Mesh.of(tensor=4, pipeline=2),
        8,
        accumulate=3,
        recompute="full",
    )
    assert plan_from_dict(plan.as_dict()) == plan
    assert plan.key.endswith("/t4p2v1/bf16/acc3/ckpt-full")
    assert plan.settings_text == "bf16, full recompute, 3 micro-batches of 2, tensor 4 x pipeline 2"


LARGE = {"model": "llama3-8b", "hardware": "p5.48xlarge", "batch": 1, "exchange": "sharded"}


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ({"workers": 16, "tensor": 3}, BadInput, r"tensor degree of 3 .* 32 heads .* nearest that does is 2"),
        ({"workers": 14, "tensor": 7}, BadInput, r"tensor degree of 7 .* 32 heads .* nearest that does is 8"),
        ({"workers": 16, "tensor": 16}, BadInput, r"16 does not divide the 8 devices of p5.* does is 8"),
        ({"workers": 16, "pipeline": 100}, BadInput, r"100 stages .* 34 units; .* nearest that works is 34"),
        ({"workers": 12, "tensor": 4, "pipeline": 2}, BadInput, r"12 workers .* of 8 .* 8 or 16"),
        ({"workers": 3, "tensor": 4}, BadInput, r"3 workers .* --workers 4"),
        ({"workers": 16, "global_batch": 100}, BadInput, r"100 is no multiple of 16 .* 96 or 112"),
        ({"workers": 16, "global_batch": 8, "batch": 2}, BadInput, r"micro-batch 2; .* 16 with --batch 1"),
        ({"workers": 16, "exchange": "sharded:stage=4"}, BadInput, r"it is 1, 2 or 3"),
    ],
)
def test_indivisible_global_batch_names_the_nearest(
    words: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        simulation_for(asked(**{**LARGE, **words}))


def refused(**words: Any) -> str:
    with pytest.raises(Infeasible) as handle:
        simulation_for(asked(**{**LARGE, **words}))
    return str(handle.value)


def flags_of(words: str) -> dict[str, Any]:
    """The flags of a remedy as words of a scenario."""
    said = words.partition("it fits with --")[2].partition(", or ")[0].split(" --")
    pairs = (entry.split(" ") for entry in said)
    return {name.replace("-", "_"): int(value) if value.isdigit() else value for name, value in pairs}


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ({"workers": 8, "exchange": "allreduce"}, "--exchange sharded:stage="),
        ({"workers": 64, "batch": 2}, "--batch 1 --accumulate 2"),
        ({"workers": 64, "batch": 1, "seq_length": 16384}, "--recompute per-op"),
        ({"workers": 64, "batch": 2, "global_batch": 256}, "--batch 1"),
        ({"workers": 8, "exchange": "allreduce", "batch": 4}, "--exchange sharded:stage="),
        ({"workers": 1, "exchange": "alone"}, "--workers 2 --exchange sharded:stage=3 --recompute full"),
        (
            {"model": "llama3-405b", "workers": 8, "recompute": "full"},
            "--workers 128 --tensor 4 --batch 1 --accumulate 4",
        ),
    ],
)
def test_plan_that_does_not_fit_does_with_what_is_said(words: dict[str, Any], remedy: str) -> None:
    said = refused(**words)
    assert f"it fits with {remedy}" in said
    simulation_for(asked(**{**LARGE, **words, **flags_of(said)}))


def test_fastest_remedy_is_named() -> None:
    words = {"workers": 64, "batch": 2}
    smaller = rate(**{**LARGE, **words, **flags_of(refused(**words))})
    assert smaller > rate(**{**LARGE, **words, "recompute": "full"})


def test_unit_that_is_larger_than_memory_is_named() -> None:
    said = refused(
        model="llama3-405b", hardware="g4dn.12xlarge", workers=512, exchange="sharded:prefetch=3",
        recompute="full",
    )  # fmt: skip
    assert "largest unit, model.layers.0, takes 5.94 GiB" in said
    assert "4 such are gathered at once" in said
    assert "use larger devices" in said


def test_optuna_walks_the_same_space_with_its_cuts() -> None:
    kinds = "p5.48xlarge,g5.12xlarge"  # of eight devices and of four, so that cuts differ
    request = asked(model="llama3-8b", hardware=kinds, machines=2, global_batch=32, budget=120.0)
    space = {plan.key for plan in enumerate_plans(request, model_of(request)).plans}
    best = recommend_for(request, jobs=1, advice=False).chosen
    recommend = recommend_for(request, jobs=1, advice=False, trials=400)
    plans_found = [scored.plan for scored in recommend.everything]
    whole = [
        plan for plan in plans_found if EXCHANGES.tier(plan.exchange) is Tier.BASELINE or plan.mesh.size == 1
    ]
    assert {plan.key for plan in whole} <= space
    assert len({plan.mesh for plan in plans_found}) > 2
    assert all(plan.mesh.settings["tensor"] <= plan.workers_per_machine for plan in plans_found)
    assert recommend.chosen.samples_per_s > 0.8 * best.samples_per_s


def test_empty_space_names_the_replicas_or_the_global_batch_that_would_do() -> None:
    words = {"model": "llama3-8b", "hardware": "p5.48xlarge", "machines": 2}
    with pytest.raises(Infeasible, match=r"whole replicas of pipeline 3; .* is 3 x p5.48xlarge"):
        recommend_for(asked(**words, pipeline=3), jobs=1)
    with pytest.raises(
        Infeasible, match=r"does not divide the global batch.*--global-batch 96 .*, or --global-batch 112 "
    ):
        recommend_for(asked(**words, workers=16, tensor=1, batch=1, global_batch=100), jobs=1)


def test_large_models_are_tried_on_powers_of_two_machines_too() -> None:
    request = asked(model="llama3-8b", hardware="g5.xlarge", budget=1000.0)
    counts = worker_counts(request, request.market.find_machine("g5.xlarge"), model_of(request))
    assert {128, 256, 512} <= set(counts)
    assert counts == sorted(set(counts))


def test_interleaved_stages_wait_less_and_hold_more() -> None:
    words = {**LARGE, "workers": 8, "pipeline": 4, "tensor": 2, "accumulate": 8, "recompute": "full"}
    plain, twice = (simulation_for(asked(**words, interleave=many)) for many in (1, 2))
    assert plain.details is not None
    assert twice.details is not None
    assert twice.details.parts.bubble_s == pytest.approx(plain.details.parts.bubble_s / 2, rel=0.2)
    assert twice.scored.samples_per_s > plain.scored.samples_per_s
    memory = [entry.as_dict()["memory"]["by_kind_bytes"]["activations"] for entry in (plain, twice)]
    assert memory[1] > memory[0]
    assert twice.scored.plan.settings_text.endswith(
        "tensor 2 x pipeline 4, 2 virtual pipeline stages per device"
    )
    assert twice.scored.as_dict()["interleave"] == 2


def test_interleaving_is_offered_and_refused_with_what_works() -> None:
    result = plans(model="llama3-8b", hardware="p5.48xlarge", workers=16, batch=1)
    settings = [plan.mesh.settings for plan in result]
    for pipeline, interleave in ((1, {1}), (2, {1, 4}), (8, {1, 2})):
        assert {each["interleave"] for each in settings if each["pipeline"] == pipeline} == interleave
    with pytest.raises(BadInput, match=r"12 x 4 stages .* 34 units; .* --interleave 8"):
        rate(**{**LARGE, "workers": 8, "pipeline": 4, "interleave": 12})
    with pytest.raises(BadInput, match="add it, or drop --interleave"):
        asked(**{**LARGE, "interleave": 2})
