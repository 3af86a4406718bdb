"""The anatomy of a plan: where the seconds of a step go, what a device holds, how much of it is used.

The parts of a step sum to it. A device computes, some of it for the second time because activations were not
kept; it updates its share of the parameters; it waits for other stages of a pipeline. All that is left is
communication that nothing hides: sums among devices that share layers, transfers that the next op waits for,
the slower pace of computation beside collectives, and the wait for the slowest of all at each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from planner.device.computation import RECOMPUTE, SUM, WAIT
from planner.device.mfu import hardware_flop_use, model_flop_use
from planner.device.rates.times import framework_named
from planner.parallel.contention import mean_s
from planner.parallel.groups import replicas_site
from planner.search.cases import Cases
from planner.search.scored import ScoredPlan


@dataclass(frozen=True, slots=True)
class StepParts:
    """Seconds of a step, by what a device does; `recompute_s` is a part of `compute_s`."""

    compute_s: float
    recompute_s: float
    communication_s: float  # exposed
    bubble_s: float
    optimizer_s: float

    @property
    def step_s(self) -> float:
        return self.compute_s + self.communication_s + self.bubble_s + self.optimizer_s


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a device holds at its peak, by kind, and what it has to give."""

    bytes_by_kind: Mapping[str, float]
    usable_bytes: float

    @property
    def total_bytes(self) -> float:
        return sum(self.bytes_by_kind.values())


@dataclass(frozen=True, slots=True)
class Anatomy:
    """`memory` is None where nobody knows, as with a profile. `mfu` and `hfu`: floating operations of the
    model, and with those that are done twice, over what the devices could do; None where their peak is not
    known, `hfu` also where nothing is done twice."""

    parts: StepParts
    memory: DeviceMemory | None
    mfu: float | None
    hfu: float | None

    def as_dict(self) -> dict[str, Any]:
        """The keys of the JSON answer."""
        parts, memory = asdict(self.parts), self.memory
        return {
            "step": {"step_s": self.parts.step_s, **parts},
            "memory": None
            if memory is None
            else {
                "by_kind_bytes": dict(memory.bytes_by_kind),
                "total_bytes": memory.total_bytes,
                "usable_bytes": memory.usable_bytes,
            },
            "model_flop_use": self.mfu,
            "hardware_flop_use": self.hfu,
        }


def anatomy_of(scored: ScoredPlan, cases: Cases) -> Anatomy:
    """The anatomy of a plan that was simulated."""
    plan, model = scored.plan, cases.model
    mfu = hfu = None
    device = cases.market.machine(plan.machine).device
    if cases.request.profile is None and device.kind == "gpu":
        rate, of = scored.samples_per_s, (plan.workers, device, plan.precision)
        mfu = model_flop_use(model, rate, *of)
        if plan.recompute != "none":
            hfu = hardware_flop_use(
                model,
                rate,
                *of,
                recompute=plan.recompute,
                stops_early=framework_named(cases.request.framework).stops_early,
            )
    return Anatomy(parts_of(scored, cases), memory_of(scored, cases), mfu, hfu)


def parts_of(scored: ScoredPlan, cases: Cases) -> StepParts:
    """Where the seconds of a simulated step go."""
    plan, computation = scored.plan, cases.computation(scored.plan)
    site = replicas_site(cases.site(plan))
    step_s = scored.prediction.step_s
    faster = 1.0 if scored.measured is None else scored.measured.value  # as real runs correct it
    spent_s = mean_s(computation) / faster
    summed = bubble = again = 0.0
    if (work := computation.work) is not None:
        summed, bubble, again = (float(spent_s[work == kind].sum()) for kind in (SUM, WAIT, RECOMPUTE))
    share = plan.exchange.held(cases.model, plan.precision, site).optimizer  # whoever holds it updates it
    optimizer = computation.optimizer_s * share / faster
    compute = float(spent_s.sum()) - summed - bubble
    # a step may be a little shorter than its mean where chance made it so: then nothing is exposed
    compute = min(compute, max(step_s - optimizer - bubble, 0.0))
    rest = max(step_s - compute - bubble - optimizer, 0.0)
    return StepParts(compute, min(again, compute), rest, bubble, optimizer)


def memory_of(scored: ScoredPlan, cases: Cases) -> DeviceMemory | None:
    """What a device of the plan holds at its peak."""
    found = cases.fitting.memory(scored.plan)
    return None if found is None else DeviceMemory(*found)
