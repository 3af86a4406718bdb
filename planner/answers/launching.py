"""Launch settings of a chosen plan: machines, processes and the training script's environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.launch import Launch, Recipe
from planner.model.catalog import checkpoint_name, load_model
from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan
from planner.search.training import training_asked


def launch_of(scored: ScoredPlan, request: Request) -> Launch:
    """Machines, processes and settings to launch a plan; the provider is None for machines not for rent."""
    plan, market = scored.plan, request.market
    hardware = market.find_machine(plan.machine)
    rentable = hardware.standing == "rentable"
    price = market.price(hardware)
    speed = f"{scored.samples_per_s:,.4g} samples/s predicted"
    if scored.range is not None:
        speed += " ({:,.4g} to {:,.4g})".format(*scored.range)
    cost = (
        f", ${scored.usd_per_hour:.2f}/h, ${scored.usd_per_million_samples:.2f} per million samples"
        if scored.priced
        else ""
    )
    return Launch(
        name=f"{plan.model}-{plan.workers}x{hardware.device.name}",
        machine=hardware.offered_as or hardware.name,
        machines=plan.machines,
        processes_per_machine=min(plan.workers, plan.workers_per_machine),
        provider=hardware.provider if rentable else None,
        region=price.region or None if rentable and price is not None else None,
        spot=scored.spot is not None and rentable,
        fast_network=hardware.rdma is True and request.rdma is not False,
        parameter_servers=int(plan.exchange.record().get("servers") or 0),
        comments=(f"{plan.cluster_text}: {plan.exchange.labels().plan}.", f"{speed}{cost}."),
        recipe=recipe_of(scored, request),
    )


def recipe_of(scored: ScoredPlan, request: Request) -> Recipe:
    """Training settings of a plan, from which framework configurations are written."""
    plan, training, network = scored.plan, training_asked(request), model_of(request)
    name = network.name if request.profile is not None else load_model(request.model).name
    epochs = training.epochs
    if request.samples and network.samples_per_epoch:
        epochs = request.samples / network.samples_per_epoch
    return Recipe(
        model=name,
        checkpoint=checkpoint_name(request.model),
        sequence_length=network.sequence_length,
        epochs=epochs,
        strategy=_strategy_name(plan.exchange.record()),
        mesh=plan.mesh.nondefault_settings,
        precision=plan.precision.name,
        micro_batch=plan.batch,
        accumulate=plan.accumulate,
        global_batch=plan.samples_per_step * plan.replicas,
        recompute=plan.recompute,
        optimizer=training.optimizer,
        method=training.method,
        rank=training.rank,
        targets=training.targets,
        base=training.base,
        dropout=training.dropout,
        offload=training.offload,
        on_cpu=request.market.find_machine(plan.machine).device.kind == "cpu",
    )


def _strategy_name(record: Mapping[str, Any]) -> str:
    """Name of a strategy for `Recipe.strategy`, such as `ddp`, `fsdp` or `zero2`."""
    kind, stage, inside = record["kind"], record.get("stage"), record.get("within") == "machine"
    if kind == "sharded" and stage == 3:
        return "hsdp" if inside else "fsdp"
    name = {"sharded": f"zero{stage}", "owned": "zero1, whole tensors"}.get(kind)
    if name is not None:
        return f"{name} inside machines" if inside else name
    return {"alone": "single", "allreduce": "ddp"}.get(kind, str(kind))
