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
    """What one device holds at its peak: that of the first stage, where most micro-batches are in flight."""
    one, shares = _sample_and_shares(plan, model, site)
    return one.scaled(plan.batch, shares, plan.workers)


def _sample_and_shares(plan: Plan, model: Model, site: Site) -> tuple[Holding, Shares]:
    cut = plan.cut
    kept = site.once(
        ("held", plan.exchange, plan.precision),
        lambda: plan.exchange.held(model, plan.precision, replicas_site(site)),
    )
    only, flight = None, 1.0
    if cut.pipeline > 1:
        only = stage_layers(model, cut.pipeline)
        flight = in_flight(0, cut.pipeline, plan.accumulate, cut.interleave)
    shares = Shares(
        parameters=kept.parameters,
        gradients=kept.gradients,
        optimizer=kept.optimizer,
        in_flight=flight,
        buffers_bytes=kept.buffers_bytes / cut.workers,
    )
    return one_sample(model, cut.tensor, only, plan.precision, plan.checkpointing), shares


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
def stage_layers(model: Model, stages: int) -> frozenset[str]:
    """Layers of the first of so many stages of equally many units."""
    chain = chain_of(model)
    first = -(-chain.length // stages)
    return frozenset(layer.name for layer, unit in zip(model.layers, chain.unit, strict=True) if unit < first)


def fits(plan: Plan, model: Model, site: Site) -> bool:
    one, shares = _sample_and_shares(plan, model, site)
    return one.total_for(plan.batch, shares, plan.workers) <= USABLE * site.hardware.device.memory_bytes


def misfit_words(plan: Plan, model: Model, site: Site, market: Market) -> str:
    """Why a plan does not fit, with the first remedy that would make it; empty if it fits."""
    held = held_by(plan, model, site)
    device = site.hardware.device
    room = USABLE * device.memory_bytes
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
