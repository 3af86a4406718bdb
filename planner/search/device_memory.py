"""Memory of a plan's devices: the footprint of its shards, scaled by how the plan shards it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from planner.device.memory import Footprint, PeakMemory, Shares, footprint, host_memory_bytes, settings_of
from planner.model import Model
from planner.note import Fact, Topic
from planner.parallel.data import Site
from planner.parallel.mesh import data_parallel_group
from planner.parallel.plan import Plan

if TYPE_CHECKING:
    from planner.device.offload import HostLink


def peak_memory(plan: Plan, model: Model, site: Site) -> PeakMemory:
    """Peak memory of the fullest device of a plan."""
    kind = site.hardware.device.kind
    peaks = (
        shard_footprint(model, plan, layers).peak(plan.batch, shares, kind)
        for layers, shares in stage_shares(plan, model, site)
    )
    return max(peaks, key=lambda peak: peak.required_bytes)


def largest_batch(plan: Plan, model: Model, site: Site) -> int:
    """The largest micro-batch with which a plan fits in its devices; 0 if none does."""
    device, host_bytes = site.hardware.device, host_memory_bytes(model, site.hardware, plan.workers)
    return min(
        shard_footprint(model, plan, layers).largest_batch(device, shares, host_bytes)
        for layers, shares in stage_shares(plan, model, site)
    )


def host_bytes(plan: Plan, model: Model, site: Site) -> float:
    """Host memory that the fullest device of a plan needs for what it offloads."""
    return max(
        shard_footprint(model, plan, layers).host_bytes(plan.batch, shares)
        for layers, shares in stage_shares(plan, model, site)
    )


@dataclass(frozen=True, slots=True)
class Offloaded(Fact):
    """Parts of training in host memory: bytes of a machine's, and what its devices get of it."""

    topic = Topic.WARNING
    parts: tuple[str, ...]
    host_bytes: float
    machine_bytes: float | None
    link: HostLink
    devices: int


def offloaded(plan: Plan, model: Model, site: Site) -> Offloaded | None:
    """What a plan has in host memory; None where nothing is."""
    parts = settings_of(model).offload
    if not parts:
        return None
    from planner.device.offload import host_link

    devices = min(plan.workers, site.devices)
    link = host_link(site.hardware, plan.workers)
    on_host = host_bytes(plan, model, site) * devices
    return Offloaded(parts, on_host, site.hardware.memory_bytes, link, devices)


def stage_shares(plan: Plan, model: Model, site: Site) -> list[tuple[frozenset[str] | None, Shares]]:
    """The shares of the ranks that may be the fullest, whatever the recompute, each with its layers (None:
    all)."""
    mesh = plan.mesh
    shares = replace(
        plan.exchange.memory_shares(model, plan.precision, data_parallel_group(site)),
        accumulates=plan.accumulate > 1,
    )
    if not mesh.is_sharded:
        return [(None, shares)]
    return [
        (
            share.layers,
            Shares(
                parameters=shares.parameters,
                gradients=shares.gradients,
                optimizer=shares.optimizer,
                in_flight=share.in_flight,
                buffers_bytes=shares.buffers_bytes / mesh.parameter_shards,
                communicators=shares.communicators + mesh.groups,
                accumulates=shares.accumulates,
            ),
        )
        for share in mesh.memory_shares(model, plan.accumulate)
    ]


def shard_footprint(model: Model, plan: Plan, layers: frozenset[str] | None) -> Footprint:
    """The footprint of one rank's shard of a model, or of a pipeline stage with these layers."""
    shard = plan.mesh.inner.shard(model).model if plan.mesh.is_sharded else model
    return footprint(shard, plan.precision, recompute=plan.recompute, only=layers)


def memory_parts(memory: PeakMemory, usable_bytes: float, *, gathers: bool) -> dict[str, float]:
    """Parts of a peak by name, without empty ones. Buffers are units where parameters are gathered
    (`gathers`), else buckets of gradients. An allocator that runs short of memory returns its cache."""
    fragmentation = memory.fragmentation_bytes
    if memory.required_bytes <= usable_bytes < memory.total_bytes:
        fragmentation -= memory.total_bytes - usable_bytes
    parts = {
        "parameters": memory.parameters_bytes,
        "gradients": memory.gradients_bytes,
        "optimizer": memory.optimizer_bytes,
        "activations": memory.activations_bytes,
        "gradients of activations": memory.workspace_bytes,
        "gathered ahead" if gathers else "buckets of gradients": memory.buffers_bytes,
        "framework": memory.framework_bytes,
        "fragmentation": fragmentation,
    }
    return {name: size for name, size in parts.items() if size}
