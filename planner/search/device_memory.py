"""What a device of a plan holds at its peak, and whether it has room for it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from planner.device.memory import Holding, Shares, holding
from planner.device.precision import Precision
from planner.device.recompute import Recompute
from planner.model import Model
from planner.model.units import chain_of
from planner.parallel.cut.stages import in_flight
from planner.parallel.cut.tensor import shared
from planner.parallel.data import Site
from planner.parallel.groups import replicas_site
from planner.parallel.plan import Plan

USABLE = 0.97  # of what the driver gives; the rest is what other processes and the allocator keep


def held_by(plan: Plan, model: Model, site: Site) -> Holding:
    """What one device holds at its peak, of the stage that holds most."""
    found = (
        one.scaled(plan.batch, shares, plan.workers // plan.cut.workers)
        for one, shares in _stages(plan, model, site)
    )
    return max(found, key=lambda held: held.total_bytes)


def _stages(plan: Plan, model: Model, site: Site) -> Iterator[tuple[Holding, Shares]]:
    """What one sample takes on the stages that may hold most, and how much of it they hold: the first, where
    most micro-batches are in flight, and the last, which has the logits."""
    cut = plan.cut
    spread = site.once(
        ("spread", plan.exchange, plan.precision, plan.accumulate), lambda: _spread(plan, model, site)
    )
    for stage, shares in spread:
        only = stage_layers(model, cut.pipeline, stage) if cut.pipeline > 1 else None
        yield one_sample(model, cut.tensor, only, plan.precision, plan.recompute), shares


def _spread(plan: Plan, model: Model, site: Site) -> tuple[tuple[int, Shares], ...]:
    """How much these stages hold, whatever is computed again."""
    cut = plan.cut
    kept = site.once(
        ("held", plan.exchange, plan.precision),
        lambda: plan.exchange.held(model, plan.precision, replicas_site(site)),
    )
    return tuple(
        (
            stage,
            Shares(
                parameters=kept.parameters,
                gradients=kept.gradients,
                optimizer=kept.optimizer,
                in_flight=in_flight(stage, cut.pipeline, plan.accumulate, cut.interleave),
                buffers_bytes=kept.buffers_bytes / cut.workers,
                cuts=(cut.tensor > 1) + (cut.pipeline > 1),
            ),
        )
        for stage in ((0, cut.pipeline - 1) if cut.pipeline > 1 else (0,))
    )


@lru_cache(maxsize=1024)
def one_sample(
    model: Model,
    tensor: int,
    only: frozenset[str] | None,
    precision: Precision,
    recompute: Recompute,
) -> Holding:
    """What a device would hold for one sample of all that is not spread."""
    return holding(
        shared(model, tensor).model,
        1,
        precision,
        optimizer="adam" if model.sequence_length is not None else "momentum",
        recompute=recompute,
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
        one.total_for(plan.batch, shares, plan.workers // plan.cut.workers) <= most
        for one, shares in _stages(plan, model, site)
    )


def usable_bytes(site: Site) -> float:
    """What training gets of a device's memory."""
    return USABLE * site.hardware.device.memory_bytes


def by_kind(held: Holding, *, gathers: bool) -> dict[str, float]:
    """What is held, in words; parts that are nothing are left out. What is held beside parameters and
    gradients are units where parameters are gathered (`gathers`), else buckets of gradients."""
    parts = {
        "parameters": held.parameters_bytes,
        "gradients": held.gradients_bytes,
        "optimizer": held.optimizer_bytes,
        "activations": held.activations_bytes,
        "gradients of activations": held.working_bytes,
        "gathered ahead" if gathers else "buckets of gradients": held.buffers_bytes,
        "framework": held.framework_bytes,
        "fragmentation": held.fragmentation_bytes,
    }
    return {name: size for name, size in parts.items() if size}
