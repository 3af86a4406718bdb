"""What would make a plan fit in memory that does not, the cheapest change first.

Changes are tried in tiers, and within one those of fewer settings first. Without paying more: another stage
of sharding, activations computed again, a smaller micro-batch with more of them (the same global batch). Then
replicas sharded over the devices there are, which take other software. Then more devices. Of changes of as
many settings the fastest is named, by the bounds that plans are pruned with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from planner.device.recompute import RECOMPUTE_MODES
from planner.flags import option_of
from planner.model import Model
from planner.model.units import chain_of
from planner.parallel.data import Site
from planner.parallel.mesh import meshes
from planner.parallel.plan import Plan
from planner.search.device_memory import fits, held_by, usable_bytes
from planner.search.limits import MOST_WORKERS
from planner.units import format_bytes

Rates = Callable[[Sequence[Plan]], Sequence[float]]  # samples a second, at most


Flags = dict[str, str]  # and their values
BATCH = "--batch"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of a plan: the flags that ask for it, one for each setting that it touches."""

    flags: Flags
    plan: Plan

    def words(self, *, accumulates: bool) -> str:
        """As one writes it; where it `accumulates`, a batch is said with how many of them make a step."""
        many = f" --accumulate {self.plan.accumulate}" if accumulates else ""
        said = (f"{flag} {value}{many if flag == BATCH else ''}" for flag, value in self.flags.items())
        return " ".join(said)


def misfit_words(
    plan: Plan, model: Model, sites: Callable[[Plan], Site], rates: Rates, *, accumulates: bool = True
) -> str:
    """Why a plan does not fit, with the cheapest change that makes it; empty if it fits. Without
    `accumulates` the number of micro-batches follows from the global batch and is not said."""
    site = sites(plan)
    held, room = held_by(plan, model, site), usable_bytes(site)
    if held.total_bytes <= room:
        return ""
    device, states = site.hardware.device.name, format_bytes(held.states_bytes)
    what = (
        f"{model.name} needs {format_bytes(held.total_bytes)} of {format_bytes(room)} on {device} "
        f"(parameters, gradients and optimizer {states}, "
        f"activations {format_bytes(held.activations_bytes + held.working_bytes)})"
    )
    gathers = plan.exchange.held(model, plan.precision, site).parameters < 1
    if gathers and held.buffers_bytes * held.fragmentation + held.framework_bytes > room:
        what += f"; {_unit_words(plan, model, held.buffers_bytes)}"
    found = remedy_of(plan, model, sites, rates)
    if found is None:
        return f"{what}; take larger devices: nothing else makes it fit on {MOST_WORKERS:,}"
    return f"{what}; it fits with {found.words(accumulates=accumulates)}"


def remedy_of(plan: Plan, model: Model, sites: Callable[[Plan], Site], rates: Rates) -> Remedy | None:
    """The cheapest change that makes a plan fit."""
    site = sites(plan)
    tiers = [_settings(plan), _meshes(plan, model, site)]
    workers = plan.workers
    while (workers := 2 * workers) <= MOST_WORKERS:
        tiers.append(_with_more(replace(plan, workers=workers), model, site))
    for tier in tiers:
        by_changes: dict[int, list[Remedy]] = {}
        for one in tier:
            if not one.plan.exchange.refusal(sites(one.plan)) and fits(one.plan, model, sites(one.plan)):
                by_changes.setdefault(len(one.flags), []).append(one)
        if by_changes:
            fewest = by_changes[min(by_changes)]
            speeds = rates([one.plan for one in fewest])
            return max(zip(speeds, fewest, strict=True), key=lambda pair: pair[0])[1]
    return None


Option = tuple[Flags, dict[str, Any]]  # flags, and what they change; the first option changes nothing


def _settings(plan: Plan) -> Iterator[Remedy]:
    """Other settings on the same devices, each of them changed or not."""
    for options in product(_shardings(plan), _recompute_options(plan), _batches(plan)):
        if any(flags for flags, _ in options):
            yield _with(plan, options)


def _with(plan: Plan, options: Iterable[Option]) -> Remedy:
    flags: Flags = {}
    for asked, changes in options:
        flags |= asked
        plan = replace(plan, **changes)
    return Remedy(flags, plan)


def _shardings(plan: Plan) -> Iterator[Option]:
    yield {}, {}
    if plan.replicas > 1:
        for one in plan.exchange.leaner():
            yield {"--exchange": one.words}, {"exchange": one.exchange}


def _recompute_options(plan: Plan) -> Iterator[Option]:
    yield {}, {}
    for kind in RECOMPUTE_MODES[RECOMPUTE_MODES.index(plan.recompute) + 1 :]:
        yield {"--recompute": kind}, {"recompute": kind}


def _batches(plan: Plan) -> Iterator[Option]:
    """Smaller micro-batches, and as many more of them."""
    yield {}, {}
    for times in range(2, plan.batch + 1):
        if plan.batch % times == 0:
            batch, accumulate = plan.batch // times, plan.accumulate * times
            yield {BATCH: str(batch)}, {"batch": batch, "accumulate": accumulate}


def _least(plan: Plan) -> Remedy:
    """All settings as saving as can be."""
    return _with(plan, [list(each(plan))[-1] for each in (_shardings, _recompute_options, _batches)])


def _meshes(plan: Plan, model: Model, site: Site) -> Iterator[Remedy]:
    """Replicas sharded over several of the devices there are; the global batch stays the same."""
    if plan.mesh.size > 1 or site.hardware.device.kind == "cpu":
        return
    for mesh in meshes(model, site.hardware, {}, free=True):
        if mesh.size == 1 or plan.workers % mesh.size or not mesh.composes_with(plan.exchange):
            continue
        sharded = replace(plan, mesh=mesh, accumulate=plan.accumulate * mesh.size)
        flags = {option_of(name): str(value) for name, value in mesh.changed.items()}
        for one in (Remedy({}, sharded), _least(sharded)):
            yield Remedy({**flags, **one.flags, BATCH: str(one.plan.batch)}, one.plan)


def _with_more(plan: Plan, model: Model, site: Site) -> Iterator[Remedy]:
    """Changes of a plan that has more devices already."""
    more = {"--workers": str(plan.workers)}
    for one in (Remedy({}, plan), _least(plan), *_meshes(plan, model, site)):
        yield Remedy(more | one.flags, one.plan)


def _unit_words(plan: Plan, model: Model, gathered_bytes: float) -> str:
    chain = chain_of(model)
    largest = int(chain.elements.argmax())
    size = int(chain.elements[largest]) * plan.precision.parameter_bytes
    many = round(gathered_bytes * plan.mesh.size / max(size, 1))
    return (
        f"its largest unit, {chain.names[largest]}, takes {format_bytes(size)} where it computes, and "
        f"{many} such are gathered at once"
    )
