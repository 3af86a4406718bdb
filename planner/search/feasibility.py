"""Whether plans can run: memory of shards and servers, degrees that divide, machines there are, budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from planner.device.activations import Recompute
from planner.device.memory import (
    Footprint,
    PeakMemory,
    Shares,
    default_optimizer,
    footprint,
    host_memory_bytes,
    stored_tensors,
    training_settings,
    usable_bytes,
)
from planner.device.precision import find_optimizer, optimizer_state_bytes
from planner.errors import BadInput, Infeasible, PlannerError
from planner.flags import option_name
from planner.hardware import Device, Hardware
from planner.hardware.prices.cost import RentalCost, rental_cost
from planner.model import BYTES_PER_ELEMENT, Model
from planner.note import Fact, fact
from planner.parallel.data import Rented, Site
from planner.parallel.mesh import Mesh, data_parallel_group
from planner.parallel.plan import Plan
from planner.search.machines import owned_machine_count
from planner.search.request import Request

if TYPE_CHECKING:
    from planner.search.alternatives import Rates


class Exclusion(StrEnum):
    """Why a plan is not run, other than memory; follows the word `plans`."""

    OVER_BUDGET = "over the budget"
    INDIVISIBLE = "whose batches do not divide the global batch"
    OVER_OWN = "over the machines there are"
    OVER_MACHINES = "over the number of machines"


OUT_OF_MEMORY = "that do not fit in the memory of "  # reads on with the device


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Largest micro-batch of plans that differ only in batch and recompute."""

    device: Device
    host_bytes: float  # of a device, for what it offloads
    stages: list[tuple[frozenset[str] | None, Shares]]
    servers: str
    largest_batch: dict[Recompute, float] = field(default_factory=dict)


class Feasibility:
    """Memory and settings checks of one request's plans; recorded profiles have no memory check."""

    def __init__(self, request: Request, model: Model) -> None:
        self.request = request
        self.model = model
        self._limits: dict[Hashable, MemoryLimit] = {}
        self._footprints: dict[Hashable, Footprint] = {}
        self._meshes: dict[Hashable, PlannerError | None] = {}
        self._sites: dict[Hashable, Site] = {}

    def site(self, plan: Plan) -> Site:
        """Site of a plan: its machines, mesh and network, at the request's prices."""
        key = (plan.machine, plan.workers, plan.mesh)
        if key not in self._sites:
            self._sites[key] = plan.site(self.request.market, seed=self.request.seed)
        return self._sites[key]

    @cached_property
    def state_bytes(self) -> float:
        """Bytes of a checkpoint: trained parameters and optimizer state in fp32."""
        states = optimizer_state_bytes(
            find_optimizer(default_optimizer(self.model)), *stored_tensors(self.model)
        )
        return float(self.model.trained_parameters) * BYTES_PER_ELEMENT + states

    def out_of_memory(self, plan: Plan) -> str | None:
        """Explains why devices or servers run out of memory; None if they do not. The text is the same for
        many plans."""
        if self.request.profile is not None:
            return None
        in_flight = plan.accumulate if plan.mesh.is_sharded else min(plan.accumulate, 2)  # buffers of several
        key = (plan.machine, plan.workers, plan.mesh, plan.exchange, plan.precision, in_flight)
        limit = self._limits.get(key)
        if limit is None:
            limit = self._limits[key] = self._memory_limit(plan)
        batch = limit.largest_batch.get(plan.recompute)
        if batch is None:
            batch = limit.largest_batch[plan.recompute] = self._largest_batch(plan, limit)
        if plan.batch > batch:
            return OUT_OF_MEMORY + limit.device.name
        return "for which servers lack memory" if limit.servers else None

    def _memory_limit(self, plan: Plan) -> MemoryLimit:
        """Memory limits of a plan's workers and servers."""
        site = self.site(plan)
        return MemoryLimit(
            site.hardware.device,
            host_memory_bytes(self.model, site.hardware, plan.workers),
            [] if plan.mesh.lowered_by else stage_shares(plan, self.model, site),
            self._server_memory_error(plan, site),
        )

    def _server_memory_error(self, plan: Plan, site: Site) -> str:
        """Explains why server machines cannot hold their part of the model; empty string if they can."""
        error = plan.exchange.infeasibility(site, self.model)
        return str(error) if isinstance(error, Infeasible) else ""

    def _largest_batch(self, plan: Plan, limit: MemoryLimit) -> float:
        """Largest micro-batch that fits on every stage; infinite if the limit lists no stages."""
        batch = inf
        for layers, shares in limit.stages:
            key = (plan.mesh.inner_mesh, layers, plan.precision, plan.recompute)
            if key not in self._footprints:
                self._footprints[key] = shard_footprint(self.model, plan, layers)
            batch = min(batch, self._footprints[key].largest_batch(limit.device, shares, limit.host_bytes))
        return batch

    def memory(self, plan: Plan) -> tuple[dict[str, float], float] | None:
        """Peak memory of a device by part, and its usable memory, in bytes; None if unknown."""
        if self.request.profile is not None or plan.mesh.lowered_by:
            return None
        site = self.site(plan)
        gathers = plan.exchange.memory_shares(self.model, plan.precision, site).parameters < 1
        usable = usable_bytes(site.hardware.device)
        return memory_parts(peak_memory(plan, self.model, site), usable, gathers=gathers), usable

    def mesh_infeasibility(self, mesh: Mesh, batch: int, worker: Hardware) -> PlannerError | None:
        """Error that explains why a machine cannot run the mesh; None if it can."""
        key = (batch if mesh.lowered_by else 0, worker.name, mesh)
        if key not in self._meshes:
            site = Site(worker, mesh.size, self.request.market, mesh)
            self._meshes[key] = mesh.infeasibility(site, self.model, batch)
        return self._meshes[key]

    def check(self, plan: Plan, rates: Rates = lambda plans: [0.0] * len(plans)) -> None:
        """Raises an error with a remedy if a plan is infeasible. `rates` ranks the remedies by speed."""
        self._check_settings(plan)
        if self.out_of_memory(plan):
            from planner.search.alternatives import out_of_memory_message

            if servers := self._server_memory_error(plan, self.site(plan)):
                raise Infeasible(servers)
            free = self.request.global_batch is None
            about = (plan, self.model, self.site, rates, self.is_possible)
            raise Infeasible(out_of_memory_message(*about, accumulates=free))

    def is_possible(self, plan: Plan) -> bool:
        """Whether a plan fits in memory and its machines support its settings."""
        try:
            self._check_settings(plan)
        except PlannerError:
            return False
        return self.out_of_memory(plan) is None

    def _check_settings(self, plan: Plan) -> None:
        """Raises an error if the plan's machines do not support its mesh or strategy."""
        site = self.site(plan)
        self._check_mesh(plan, site.hardware)
        if error := plan.exchange.infeasibility(site):
            raise error

    def _check_mesh(self, plan: Plan, worker: Hardware) -> None:
        """Raises an error if a machine cannot run the plan's mesh."""
        mesh = plan.mesh
        if mesh.is_whole:
            return
        flags = " ".join(f"{option_name(name)} {value}" for name, value in mesh.nondefault_settings.items())
        if not mesh.can_combine_with(plan.exchange.kind):
            raise Infeasible(f"{flags} is not possible with --exchange {plan.exchange.kind}; take 1")
        if self.request.profile is not None:
            raise Infeasible(f"{flags} contradicts --profile, which is that of one worker")
        if words := mesh.partial_replica_error(plan.workers):
            raise BadInput(words)
        if (error := self.mesh_infeasibility(mesh, plan.batch, worker)) is not None:
            raise error


def exclusion(plan: Plan, request: Request, feasibility: Feasibility) -> tuple[str | None, RentalCost]:
    """Reason why a plan is excluded (None if it is feasible), and its price."""
    market = request.market
    rented = plan.rented(market)
    price = rental_cost(rented, market, request.spot_terms, feasibility.state_bytes)
    samples = plan.batch * plan.accumulate * plan.replicas
    if request.global_batch is not None and samples != request.global_batch:
        return Exclusion.INDIVISIBLE, price
    if reason := feasibility.out_of_memory(plan):
        return reason, price
    if not has_machines(rented, request):
        return Exclusion.OVER_OWN, price
    if request.machines is not None and sum(part.count for part in rented) > request.machines:
        return Exclusion.OVER_MACHINES, price
    if request.budget_usd_per_hour is not None and sum(price.usd_per_hour) > request.budget_usd_per_hour:
        return Exclusion.OVER_BUDGET, price
    return None, price


def has_machines(rented: Iterable[Rented], request: Request) -> bool:
    """Whether the user owns enough machines; always true for rented ones."""
    used: Counter[str] = Counter()
    for part in rented:
        used[part.machine] += part.count
    for name, count in used.items():
        owned = owned_machine_count(request, request.market.find_machine(name))
        if owned is not None and count > owned:
            return False
    return True


def peak_memory(plan: Plan, model: Model, site: Site) -> PeakMemory:
    """Peak memory of the device in a plan that needs the most."""
    kind = site.hardware.device.kind
    peaks = (
        shard_footprint(model, plan, layers).peak(plan.batch, shares, kind)
        for layers, shares in stage_shares(plan, model, site)
    )
    return max(peaks, key=lambda peak: peak.required_bytes)


def largest_batch(plan: Plan, model: Model, site: Site) -> int:
    """Largest micro-batch that fits on every device of a plan; 0 if none does."""
    device, host_bytes = site.hardware.device, host_memory_bytes(model, site.hardware, plan.workers)
    return min(
        shard_footprint(model, plan, layers).largest_batch(device, shares, host_bytes)
        for layers, shares in stage_shares(plan, model, site)
    )


def host_bytes(plan: Plan, model: Model, site: Site) -> float:
    """Host memory in bytes that a plan's offload needs per device."""
    return max(
        shard_footprint(model, plan, layers).host_bytes(plan.batch, shares)
        for layers, shares in stage_shares(plan, model, site)
    )


def offload_fact(plan: Plan, model: Model, site: Site) -> Fact | None:
    """Fact on the training state that a plan keeps in host memory; None without offload."""
    parts = training_settings(model).offload
    if not parts:
        return None
    from planner.device.offload import host_link

    devices = min(plan.workers, site.devices)
    link = host_link(site.hardware, plan.workers)
    return fact(
        "offload",
        parts=parts,
        host_bytes=host_bytes(plan, model, site) * devices,
        machine_bytes=site.hardware.memory_bytes,
        billion_per_s=link.updates_per_s * devices / 1e9,
        copy_gb_per_s=link.copy_bytes_per_s / 1e9,
    )


def stage_shares(plan: Plan, model: Model, site: Site) -> list[tuple[frozenset[str] | None, Shares]]:
    """Layers (None: all) and memory shares of each rank that may be the fullest."""
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
                communicators=shares.communicators + len(mesh.axes),
                accumulates=shares.accumulates,
            ),
        )
        for share in mesh.memory_shares(model, plan.accumulate)
    ]


def shard_footprint(model: Model, plan: Plan, layers: frozenset[str] | None) -> Footprint:
    """Memory footprint of one rank's shard, restricted to `layers` for a pipeline stage."""
    shard = plan.mesh.inner_mesh.shard(model).model if plan.mesh.is_sharded else model
    return footprint(shard, plan.precision, recompute=plan.recompute, only=layers)


def memory_parts(memory: PeakMemory, usable_bytes: float, *, gathers: bool) -> dict[str, float]:
    """Bytes of peak memory by part, without empty parts. `gathers`: buffers hold gathered parameters instead
    of gradient buckets. An allocator that runs short of memory returns its cache."""
    fragmentation = memory.fragmentation_bytes
    if memory.required_bytes <= usable_bytes < memory.total_bytes:
        fragmentation -= memory.total_bytes - usable_bytes
    parts = {
        "parameters": memory.parameters_bytes,
        "gradients": memory.gradients_bytes,
        "optimizer": memory.optimizer_bytes,
        "activations": memory.activations_bytes,
        "activation gradients": memory.workspace_bytes,
        "prefetched parameters" if gathers else "gradient buckets": memory.buffers_bytes,
        "framework": memory.framework_bytes,
        "fragmentation": fragmentation,
    }
    return {name: size for name, size in parts.items() if size}
