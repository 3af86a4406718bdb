"""What would make a plan fit in memory that does not, the cheapest change first.

Changes are tried in tiers, and within one those of fewer settings first. Without paying more: another stage
of sharding, activations computed again, a smaller micro-batch with more of them (the same global batch). Then
cuts of the replica over the devices there are, which take other software. Then more devices. Of changes of as
many settings the fastest is named, by the bounds that plans are pruned with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from planner.cut import Cut
from planner.cut.tensor import degrees
from planner.cut.units import chain_of
from planner.exchange import Site
from planner.holding import CHECKPOINTING
from planner.model import Model
from planner.plan import Plan
from planner.search.device_memory import fits, held_by, usable_bytes
from planner.search.limits import MOST_WORKERS
from planner.units import format_bytes

Rates = Callable[[Sequence[Plan]], Sequence[float]]  # samples a second, at most


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of a plan as one writes it, and how many settings it touches."""

    flags: tuple[str, ...]
    plan: Plan

    @property
    def words(self) -> str:
        return " ".join(self.flags)


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
    words = found.words if accumulates else re.sub(r" --accumulate \d+", "", found.words)
    return f"{what}; it fits with {words}"


def remedy_of(plan: Plan, model: Model, sites: Callable[[Plan], Site], rates: Rates) -> Remedy | None:
    """The cheapest change that makes a plan fit."""
    site = sites(plan)
    tiers = [_settings(plan), _cuts(plan, model, site)]
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


def _settings(plan: Plan) -> Iterator[Remedy]:
    """Other settings on the same devices, each of them changed or not."""
    for sharded, again, batch in product(_shardings(plan), _checkpointings(plan), _batches(plan)):
        flags = tuple(flag for flag, _ in (sharded, again, batch) if flag)
        if flags:
            yield Remedy(flags, replace(plan, **sharded[1], **again[1], **batch[1]))


Option = tuple[str, dict[str, Any]]  # a flag, and what it changes; an empty one changes nothing


def _shardings(plan: Plan) -> Iterator[Option]:
    yield "", {}
    if plan.replicas > 1:
        for one in plan.exchange.leaner():
            yield f"--exchange {one.words}", {"exchange": one.exchange}


def _checkpointings(plan: Plan) -> Iterator[Option]:
    yield "", {}
    for kind in CHECKPOINTING[CHECKPOINTING.index(plan.checkpointing) + 1 :]:
        yield f"--checkpointing {kind}", {"checkpointing": kind}


def _batches(plan: Plan) -> Iterator[Option]:
    """Smaller micro-batches, and as many more of them."""
    yield "", {}
    for times in range(2, plan.batch + 1):
        if plan.batch % times == 0:
            batch, accumulate = plan.batch // times, plan.accumulate * times
            yield (
                f"--batch {batch} --accumulate {accumulate}",
                {"batch": batch, "accumulate": accumulate},
            )


def _least(plan: Plan) -> Remedy:
    """All settings as saving as can be."""
    *_, sharded = _shardings(plan)
    *_, again = _checkpointings(plan)
    *_, batch = _batches(plan)
    flags = tuple(flag for flag, _ in (sharded, again, batch) if flag)
    return Remedy(flags, replace(plan, **sharded[1], **again[1], **batch[1]))


def _cuts(plan: Plan, model: Model, site: Site) -> Iterator[Remedy]:
    """Replicas over several of the devices there are; the global batch stays the same."""
    if plan.cut.workers > 1 or site.hardware.device.kind == "cpu":
        return
    units = chain_of(model).length
    for tensor in degrees(model, site.devices):
        for pipeline in (2**k for k in range(5)):
            many = tensor * pipeline
            if many == 1 or pipeline > units or plan.workers % many:
                continue
            cut = replace(plan, cut=Cut.layers(tensor, pipeline), accumulate=plan.accumulate * many)
            base = (f"--tensor {tensor}",) * (tensor > 1) + (f"--pipeline {pipeline}",) * (pipeline > 1)
            for one in (Remedy((), cut), _least(cut)):
                kept = tuple(flag for flag in one.flags if not flag.startswith("--batch"))
                batch = f"--batch {one.plan.batch} --accumulate {one.plan.accumulate}"
                yield Remedy((*base, *kept, batch), one.plan)


def _with_more(plan: Plan, model: Model, site: Site) -> Iterator[Remedy]:
    """Changes of a plan that has more devices already."""
    more = f"--workers {plan.workers}"
    for one in (Remedy((), plan), _least(plan), *_cuts(plan, model, site)):
        yield Remedy((more, *one.flags), one.plan)


def _unit_words(plan: Plan, model: Model, gathered_bytes: float) -> str:
    chain = chain_of(model)
    largest = int(chain.elements.argmax())
    size = int(chain.elements[largest]) * plan.precision.parameter_bytes
    many = round(gathered_bytes * plan.cut.workers / max(size, 1))
    return (
        f"its largest unit, {chain.names[largest]}, takes {format_bytes(size)} where it computes, and "
        f"{many} such are gathered at once"
    )
