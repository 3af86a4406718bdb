"""Among ways to run the recommended machines that are about as fast, the simplest is listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

import planner
from planner.answers.refine import settings_complexity
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.fsdp import Sharded
from planner.parallel.mesh import Mesh
from planner.parallel.plan import Plan
from planner.search.objectives import least_gain, setup_effort

PLAN = Plan("resnet50", 64, "p4d.24xlarge", 8, AllReduce(), workers_per_machine=8)


def test_setup_effort_orders_ddp_sharding_and_model_parallelism() -> None:
    meshed = replace(PLAN, mesh=Mesh.of(tensor=2))
    assert [setup_effort(plan) for plan in (PLAN, replace(PLAN, exchange=Sharded()), meshed)] == [0, 1, 2]


def test_least_gain_is_asked_of_more_setup_alone() -> None:
    assert [least_gain(0, 1), least_gain(1, 2), least_gain(0, 2)] == [1.10, 1.05, 1.10]
    assert least_gain(1, 1) == least_gain(2, 0) == 1.0


def test_settings_changed_prefers_less_recompute_to_fewer_micro_batches() -> None:
    assert settings_complexity(replace(PLAN, accumulate=4)) < settings_complexity(
        replace(PLAN, recompute="full")
    )


@pytest.mark.parametrize(
    "options",
    [
        {"model": "vgg11", "budget": 20},
        {"model": "resnet50", "budget": 10},
        {"model": "resnet50", "gpu": "A100", "budget": 50},
        {"model": "resnet50", "epochs": 90, "deadline": "12h", "budget": 50},
    ],
)
def test_recommend_networks_that_fit_are_trained_with_ddp(options: dict[str, object]) -> None:
    """Sharding them would gain less than 10%."""
    answer = planner.recommend(**options)  # type: ignore[arg-type]
    assert answer.chosen.plan.exchange.kind in ("alone", "allreduce")


def test_recommend_sharding_that_gains_clearly_is_listed() -> None:
    """Gradients of AlexNet take longer over PCIe than its batch takes to compute."""
    chosen = planner.recommend("alexnet", hardware="g6e.48xlarge", workers=16).chosen
    about = {"hardware": "g6e.48xlarge", "workers": 16, "batch": chosen.plan.batch, "precision": "bf16"}
    ddp = planner.simulate("alexnet", exchange="allreduce", **about)  # type: ignore[arg-type]
    assert setup_effort(chosen.plan) == 1
    assert chosen.samples_per_s > least_gain(0, 1) * ddp.scored.samples_per_s


def test_recommend_large_models_accumulate_where_exchanges_take_long() -> None:
    answer = planner.recommend("llama3-8b", hardware="p4d.24xlarge", network="tcp", workers=16)
    assert answer.chosen.plan.accumulate > 1


def test_recommend_70b_by_qlora_takes_one_node() -> None:
    answer = planner.recommend("llama3-70b", train="qlora", budget=20)
    assert answer.chosen.plan.machines == 1
    assert answer.chosen.plan.workers > 1


def test_recommend_batch_of_adapters_is_as_large_as_pays() -> None:
    """A larger one that is 5% faster at no extra cost is not left to the reader."""
    answer = planner.recommend("llama3-8b", train="qlora", budget=2)
    assert answer.chosen.plan.batch > 1
    assert not any("batch" in change.words for change in answer.changes)
