"""What a device of a plan holds, and the cheapest change that would make a plan fit which does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from planner.cut.stages import in_flight
from planner.cut.tensor import shared
from planner.cut.units import chain_of
from planner.exchange import Sharded, Site
from planner.exchange.groups import replicas_site
from planner.holding import CHECKPOINTING, Checkpointing, Holding, Shares, holding
from planner.market import Market
from planner.model import Model
from planner.plan import Plan
from planner.precision import Precision
from planner.units import format_bytes

USABLE = 0.97  # of what the driver gives; the rest is what other processes and the allocator keep


def held_by(plan: Plan, model: Model, site: Site) -> Holding:
    """What one device holds at its peak, of the stage that holds most."""
    found = (one.scaled(plan.batch, shares, plan.workers) for one, shares in _stages(plan, model, site))
    return max(found, key=lambda held: held.total_bytes)


def _stages(plan: Plan, model: Model, site: Site) -> Iterator[tuple[Holding, Shares]]:
    """What one sample takes on the stages that may hold most, and how much of it they hold: the first, where
    most micro-batches are in flight, and the last, which has the logits."""
    cut = plan.cut
    kept = site.once(
        ("held", plan.exchange, plan.precision),
        lambda: plan.exchange.held(model, plan.precision, replicas_site(site)),
    )
    for stage in (0, cut.pipeline - 1) if cut.pipeline > 1 else (0,):
        only = stage_layers(model, cut.pipeline, stage) if cut.pipeline > 1 else None
        shares = Shares(
            parameters=kept.parameters,
            gradients=kept.gradients,
            optimizer=kept.optimizer,
            in_flight=in_flight(stage, cut.pipeline, plan.accumulate, cut.interleave),
            buffers_bytes=kept.buffers_bytes / cut.workers,
        )
        yield one_sample(model, cut.tensor, only, plan.precision, plan.checkpointing), shares


@lru_cache(maxsize=1024)
def one_sample(
    model: Model,
    tensor: int,
    only: frozenset[str] | None,
    precision: Precision,
    checkpointing: Checkpointing,
) -> Holding:
    """What a device would hold for one sample of all that is not spread."""
    return holding(
        shared(model, tensor).model,
        1,
        precision,
        optimizer="adam" if model.sequence_length is not None else "momentum",
        checkpointing=checkpointing,
        only=only,
    )


@lru_cache(maxsize=256)
def stage_layers(model: Model, stages: int, stage: int = 0) -> frozenset[str]:
    """Layers of one of so many stages of equally many units; the last has what is left."""
    chain = chain_of(model)
    each = -(-chain.length // stages)
    ends = (min(stage * each, chain.length - 1), (stage + 1) * each if stage < stages - 1 else chain.length)
    return frozenset(
        layer.name for layer, unit in zip(model.layers, chain.unit, strict=True) if ends[0] <= unit < ends[1]
    )


def fits(plan: Plan, model: Model, site: Site) -> bool:
    most = usable_bytes(site)
    return all(
        one.total_for(plan.batch, shares, plan.workers) <= most for one, shares in _stages(plan, model, site)
    )


def usable_bytes(site: Site) -> float:
    """What training gets of a device's memory."""
    return USABLE * site.hardware.device.memory_bytes


def by_kind(held: Holding) -> dict[str, float]:
    """What is held, in words; parts that are nothing are left out."""
    parts = {
        "parameters": held.parameters_bytes,
        "gradients": held.gradients_bytes,
        "optimizer": held.optimizer_bytes,
        "activations": held.activations_bytes,
        "gradients of activations": held.working_bytes,
        "gathered ahead": held.buffers_bytes,
        "framework": held.framework_bytes,
        "fragmentation": held.fragmentation_bytes,
    }
    return {name: size for name, size in parts.items() if size}


def misfit_words(plan: Plan, model: Model, site: Site, market: Market) -> str:
    """Why a plan does not fit, with the first remedy that would make it; empty if it fits."""
    held = held_by(plan, model, site)
    device = site.hardware.device
    room = usable_bytes(site)
    if held.total_bytes <= room:
        return ""
    what = f"{model.name} needs {format_bytes(held.total_bytes)} of {format_bytes(room)} on {device.name}"
    parts = (
        f"parameters, gradients and optimizer {format_bytes(held.states_bytes)}, "
        f"activations {format_bytes(held.activations_bytes + held.working_bytes)}"
    )
    for words, change in remedies(plan):
        if fits(change, model, change.site(market)):
            return f"{what} ({parts}); it fits with {words}"
    return f"{what} ({parts}); take more or larger devices, or cut it: --tensor, --pipeline"


def remedies(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Changes that need less memory, those that cost least first."""
    if plan.workers > 1 and plan.cut.workers == 1:
        for stage in (1, 2, 3):
            if not isinstance(plan.exchange, Sharded) or plan.exchange.stage < stage:
                yield f"--exchange sharded:stage={stage}", replace(plan, exchange=Sharded(stage=stage))
    later = CHECKPOINTING[CHECKPOINTING.index(plan.checkpointing) + 1 :]
    for kind in later:
        yield f"--checkpointing {kind}", replace(plan, checkpointing=kind)
    if plan.batch > 1:
        yield "--batch 1 and --accumulate", replace(plan, batch=1)
    most = replace(plan, batch=1, checkpointing="full")
    yield "--batch 1 --checkpointing full", most
    if plan.cut.workers == 1:
        for workers in (8, 16, 32, 64, 128, 256, 512):
            if workers > plan.workers:
                more = replace(most, workers=workers, exchange=Sharded())
                yield f"--workers {workers} --exchange sharded --batch 1 --checkpointing full", more
