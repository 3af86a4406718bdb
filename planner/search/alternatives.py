"""Memory-saving alternatives: the cheapest change that makes a plan fit in memory.

Changes are tried in tiers, those with fewer settings first: other sharding, recompute and smaller
micro-batches at the same global batch; then tensor and pipeline parallelism on the same devices; then more
devices. Among equally many settings the fastest wins, by its upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from planner.device.activations import RECOMPUTE_MODES
from planner.device.memory import OFFLOADED as PARTS
from planner.device.memory import PeakMemory, host_memory_bytes, set_offload, training_settings, usable_bytes
from planner.flags import option_name
from planner.model import Model, group_into_units
from planner.parallel.data import Site
from planner.parallel.data.fsdp import memory_saving_variants
from planner.parallel.mesh import meshes
from planner.parallel.plan import Plan
from planner.search.feasibility import host_bytes, largest_batch, peak_memory
from planner.search.flag_values import MOST_WORKERS
from planner.units import format_bytes

Rates = Callable[[Sequence[Plan]], Sequence[float]]  # samples per second, at most
Sites = Callable[[Plan], Site]
Flags = dict[str, str]  # and their values
Option = tuple[Flags, dict[str, Any]]  # flags, and what they change; the first option changes nothing
BATCH = "--batch"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A changed plan, with one flag for each setting that changes."""

    flags: Flags
    plan: Plan

    def flags_text(self, *, accumulates: bool) -> str:
        """Changed flags as typed on the command line; `accumulates` adds --accumulate to --batch."""
        steps = f" --accumulate {self.plan.accumulate}" if accumulates else ""
        return " ".join(
            f"{flag} {value}{steps if flag == BATCH else ''}" for flag, value in self.flags.items()
        )


def out_of_memory_message(
    plan: Plan,
    model: Model,
    sites: Sites,
    rates: Rates,
    is_possible: Callable[[Plan], bool],
    *,
    accumulates: bool = True,
) -> str:
    """Explains why a plan runs out of memory and which change is the cheapest that makes it fit.
    `accumulates`: the number of micro-batches is free, so it is mentioned."""
    site = sites(plan)
    device = site.hardware.device
    host, limit = host_bytes(plan, model, site), host_memory_bytes(model, site.hardware, plan.workers)
    if host > limit and device.kind == "cpu":
        return f"{site.hardware.name} computes on its processors: it has no other memory to offload to"
    if host > limit:
        return (
            f"{model.name} offloads {format_bytes(host)} per device, and {site.hardware.name} has "
            f"{format_bytes(limit)} of host memory for each; offload less, or take larger machines"
        )
    memory, usable = peak_memory(plan, model, site), usable_bytes(device)
    need = (
        f"{model.name} at batch {plan.batch} needs {format_bytes(memory.required_bytes)} per device; "
        f"{device.name} has {format_bytes(usable)} usable (parameters, gradients and optimizer "
        f"{format_bytes(memory.states_bytes)}, activations "
        f"{format_bytes(memory.activations_bytes + memory.workspace_bytes)})"
    )
    if model.sequence_length is None:
        batch = largest_batch(plan, model, site)
        return f"{need}; " + (
            f"the largest batch that fits is {batch}" if batch else "not even one sample fits"
        )
    gathers = plan.exchange.memory_shares(model, plan.precision, site).parameters < 1
    if gathers and memory.buffers_bytes * memory.least_fragmentation + memory.framework_bytes > usable:
        need += f"; {_largest_unit_clause(plan, model, memory)}"
    result = cheapest_alternative(plan, model, sites, rates, is_possible)
    same_devices = result is not None and "--workers" not in result.flags
    offload = "" if same_devices else _offload_words(plan, model, site)
    if result is None:
        other = f"use larger devices: no setting makes it fit on up to {MOST_WORKERS:,} of these"
        return f"{need}; {offload or other}"
    words = result.flags_text(accumulates=accumulates)
    return f"{need}; it fits with {words}{', or ' if offload else ''}{offload}"


def cheapest_alternative(
    plan: Plan, model: Model, sites: Sites, rates: Rates, is_possible: Callable[[Plan], bool]
) -> Alternative | None:
    """Plan that fits in memory with the fewest and mildest changes; None if no change helps."""
    site = sites(plan)
    tiers = [_same_device_changes(plan), _mesh_changes(plan, model, site)]
    workers = plan.workers
    while (workers := 2 * workers) <= MOST_WORKERS:
        tiers.append(_more_workers_changes(replace(plan, workers=workers), model, site))
    for tier in tiers:
        by_changes: dict[int, list[Alternative]] = {}
        for option in tier:
            where = sites(option.plan)
            if option.plan.batch <= largest_batch(option.plan, model, where) and is_possible(option.plan):
                by_changes.setdefault(len(option.flags), []).append(option)
        if by_changes:
            fewest = by_changes[min(by_changes)]
            speeds = rates([option.plan for option in fewest])
            return max(zip(speeds, fewest, strict=True), key=lambda pair: pair[0])[1]
    return None


def _offload_words(plan: Plan, model: Model, site: Site) -> str:
    """Clause that names the smallest --offload that makes a plan fit; empty string if none does."""
    if site.hardware.device.kind == "cpu" or training_settings(model).offload:
        return ""
    for parts in (PARTS[:1], (PARTS[0], PARTS[2]), PARTS[:2], PARTS):
        changed = set_offload(model, parts)
        for mode in dict.fromkeys((plan.recompute, RECOMPUTE_MODES[-1])):
            if plan.batch <= largest_batch(replace(plan, recompute=mode), changed, site):
                recompute = "" if mode == plan.recompute else f" --recompute {mode}"
                return f"on these devices with --offload {','.join(parts)}{recompute}, which is slow"
    return ""


def _same_device_changes(plan: Plan) -> Iterator[Alternative]:
    """Yields the plan with other sharding, recompute or micro-batches on the same devices."""
    for options in product(_sharding_options(plan), _recompute_options(plan), _batch_options(plan)):
        if any(flags for flags, _ in options):
            yield _apply_options(plan, options)


def _apply_options(plan: Plan, options: Iterable[Option]) -> Alternative:
    """Plan with these changes applied, and their flags."""
    flags: Flags = {}
    for added, changes in options:
        flags |= added
        plan = replace(plan, **changes)
    return Alternative(flags, plan)


def _sharding_options(plan: Plan) -> Iterator[Option]:
    """Yields the plan's strategy, then variants that need less memory."""
    yield {}, {}
    if plan.replicas > 1:
        for other in memory_saving_variants(plan.exchange):
            yield {"--exchange": other.label}, {"exchange": other.exchange}


def _recompute_options(plan: Plan) -> Iterator[Option]:
    """Yields the plan's recompute mode, then those that recompute more."""
    yield {}, {}
    for mode in RECOMPUTE_MODES[RECOMPUTE_MODES.index(plan.recompute) + 1 :]:
        yield {"--recompute": mode}, {"recompute": mode}


def _batch_options(plan: Plan) -> Iterator[Option]:
    """Yields the plan's micro-batch, then smaller ones that accumulate to the same batch."""
    yield {}, {}
    for times in range(2, plan.batch + 1):
        if plan.batch % times == 0:
            batch, accumulate = plan.batch // times, plan.accumulate * times
            yield {BATCH: str(batch)}, {"batch": batch, "accumulate": accumulate}


def _least_memory_change(plan: Plan) -> Alternative:
    """Plan with each setting at the value that needs the least memory."""
    ladders = (_sharding_options, _recompute_options, _batch_options)
    return _apply_options(plan, [list(ladder(plan))[-1] for ladder in ladders])


def _mesh_changes(plan: Plan, model: Model, site: Site) -> Iterator[Alternative]:
    """Yields plans whose replicas are sharded over several of the same devices, at the same global batch."""
    if not plan.mesh.is_whole or site.hardware.device.kind == "cpu":
        return
    for mesh in meshes(model, site, {}, free=True):
        if mesh.is_whole or plan.workers % mesh.size or not mesh.can_combine_with(plan.exchange.kind):
            continue
        sharded = replace(plan, mesh=mesh, accumulate=plan.accumulate * mesh.size)
        flags = {option_name(name): str(value) for name, value in mesh.nondefault_settings.items()}
        for option in (Alternative({}, sharded), _least_memory_change(sharded)):
            yield Alternative({**flags, **option.flags, BATCH: str(option.plan.batch)}, option.plan)


def _more_workers_changes(plan: Plan, model: Model, site: Site) -> Iterator[Alternative]:
    """Yields the change of --workers alone, then with least-memory settings, then with sharded meshes."""
    more = {"--workers": str(plan.workers)}
    for option in (Alternative({}, plan), _least_memory_change(plan), *_mesh_changes(plan, model, site)):
        yield Alternative(more | option.flags, option.plan)


def _largest_unit_clause(plan: Plan, model: Model, memory: PeakMemory) -> str:
    """Clause with the size of the largest gathered unit (FSDP) and the number of units gathered at once."""
    chain = group_into_units(model)
    largest = int(chain.elements.argmax())
    size = int(chain.elements[largest]) * plan.precision.parameter_bytes
    units = round(memory.buffers_bytes * plan.mesh.size / max(size, 1))
    return (
        f"its largest unit, {chain.names[largest]}, takes {format_bytes(size)} where it computes, and "
        f"{units} such are gathered at once"
    )
