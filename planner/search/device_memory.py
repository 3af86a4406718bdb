"""What a device of a plan holds at its peak, and whether it has room for it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from planner.device.memory import Holding, Shares, holding
from planner.device.precision import Precision
from planner.device.recompute import Recompute
from planner.model import Model
from planner.parallel.data import Site
from planner.parallel.mesh import Mesh, data_parallel_group
from planner.parallel.plan import Plan

USABLE = 0.97  # of what the driver gives; the rest is what other processes and the allocator keep


def held_by(plan: Plan, model: Model, site: Site) -> Holding:
    """What one device holds at its peak, of the stage that holds most."""
    found = (one.scaled(plan.batch, shares, plan.replicas) for one, shares in _stages(plan, model, site))
    return max(found, key=lambda held: held.total_bytes)


def _stages(plan: Plan, model: Model, site: Site) -> Iterator[tuple[Holding, Shares]]:
    """What one sample takes on the ranks that may hold most, and how much of it they hold."""
    spread = site.once(
        ("spread", plan.exchange, plan.precision, plan.accumulate), lambda: _spread(plan, model, site)
    )
    for layers, shares in spread:
        yield one_sample(model, plan.mesh.inner, layers, plan.precision, plan.recompute), shares


def _spread(plan: Plan, model: Model, site: Site) -> tuple[tuple[frozenset[str] | None, Shares], ...]:
    """How much these ranks hold, whatever is recomputed."""
    mesh = plan.mesh
    kept = site.once(
        ("held", plan.exchange, plan.precision),
        lambda: plan.exchange.held(model, plan.precision, data_parallel_group(site)),
    )
    return tuple(
        (
            share.layers,
            Shares(
                parameters=kept.parameters,
                gradients=kept.gradients,
                optimizer=kept.optimizer,
                in_flight=share.in_flight,
                buffers_bytes=kept.buffers_bytes / mesh.parameter_shards,
                cuts=mesh.groups,
            ),
        )
        for share in mesh.memory_shares(model, plan.accumulate)
    )


@lru_cache(maxsize=1024)
def one_sample(
    model: Model,
    mesh: Mesh,
    only: frozenset[str] | None,
    precision: Precision,
    recompute: Recompute,
) -> Holding:
    """What a device would hold for one sample of all that is not spread."""
    return holding(
        mesh.shard(model).model,
        1,
        precision,
        optimizer="adam" if model.sequence_length is not None else "momentum",
        recompute=recompute,
        only=only,
    )


def fits(plan: Plan, model: Model, site: Site) -> bool:
    most = usable_bytes(site)
    return all(
        one.total_for(plan.batch, shares, plan.replicas) <= most for one, shares in _stages(plan, model, site)
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
