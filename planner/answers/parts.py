"""What answers share: how they are shown, step breakdown, memory, utilization, single-device baseline.

The step breakdown is read from the simulated case: the simulator measures the share of time that workers are
busy, and the roles of their ops (`planner.simulator.step.OpRole`) divide it into compute, recompute,
optimizer, pipeline bubbles, input waits and blocking communication. An idle worker waits for transfers or for
slower workers, which is exposed communication too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from planner.device.activations import Recompute, recompute_flags
from planner.device.precision import Precision
from planner.device.rates.times import find_framework
from planner.errors import BadInput
from planner.hardware import Device, Hardware
from planner.model import Model
from planner.model.layers import layers_with_gradient, trains_weights
from planner.note import Fact, Note
from planner.parallel.data.single import Alone
from planner.parallel.mesh import WHOLE
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.machines import single_device_machines
from planner.search.scored import ScoredPlan
from planner.search.sizes import is_batch_open, micro_batches, recompute_options, smaller_batches
from planner.simulator.cluster import COMPUTATION
from planner.simulator.statistics import Prediction
from planner.simulator.step import OpRole, Profile

if TYPE_CHECKING:
    from planner.search.simulations import Simulations

VERSION = 2


class RenderableAnswer:
    """Base of answers, which render themselves in terminals and notebooks."""

    page_maker: ClassVar[str]  # the dotted name of the function that makes its page

    def __rich_console__(self, console: Any, options: Any) -> Any:
        """Yields the lines of the terminal screen, for rich."""
        from planner.report.page import page_of
        from planner.report.terminal import screen_lines

        yield from screen_lines(page_of(self), options.max_width)

    def _repr_html_(self) -> str:
        """HTML of the answer, for notebooks."""
        from planner.report.html import notebook_html

        return notebook_html(self)

    def to_html(self, path: Path | str) -> None:
        """Writes the answer as one page with charts, as `--html` does."""
        from planner.report.html import write_page
        from planner.report.page import page_of

        write_page(page_of(self), path)

    def to_pandas(self) -> Any:
        """The alternatives as a DataFrame, with the rows and columns of `--format csv`."""
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise BadInput("to_pandas needs pandas, which is not installed: pip install pandas") from error
        from planner.report.page import page_of

        return pandas.json_normalize(page_of(self).tables[0].plain_rows())


def assumption_sentences(assumed: Iterable[Note | Fact]) -> list[str]:
    """Sentences of notes and facts, for the JSON answers."""
    from planner.report.assumed import notes_of

    return list(map(str, notes_of(assumed)))


FLOPS_A_MAC = 2
PASSES = 3  # forward, and twice as much backward; recompute does not count


def model_flops_utilization(
    model: Model, samples_per_s: float, devices: int, device: Device, precision: Precision
) -> float | None:
    """Model FLOPs utilization (MFU as in PaLM), a fraction of the devices' peak; None if that is unknown."""
    peak = device.flops.get(precision.compute)
    if not peak or not model.macs:
        return None
    return FLOPS_A_MAC * training_passes(model) * model.macs * samples_per_s / (devices * peak)


def training_passes(model: Model) -> float:
    """Multiply-adds of a training step relative to its forward pass: 3, less with frozen weights."""
    if not model.has_frozen:
        return PASSES
    with_gradient = layers_with_gradient(model)
    macs = 0
    for layer in model.layers:
        gradients = 2 if trains_weights(layer) else 1
        macs += layer.macs * (1 + (gradients if layer.name in with_gradient else 0))
    return macs / max(model.macs, 1)


def recomputed_macs(model: Model, recompute: Recompute, stops_early: bool = False) -> int:
    """Multiply-adds per sample that are recomputed in the backward pass."""
    again = recompute_flags(model, recompute, stops_early)
    return sum(layer.macs for layer, twice in zip(model.layers, again.tolist(), strict=True) if twice)


@dataclass(frozen=True, slots=True)
class StepParts:
    """Seconds of a step by activity; `recompute_s` is part of `compute_s`."""

    compute_s: float
    recompute_s: float
    communication_s: float  # exposed
    bubble_s: float
    input_s: float
    optimizer_s: float

    @property
    def step_s(self) -> float:
        """Seconds of the whole step."""
        return self.compute_s + self.communication_s + self.bubble_s + self.input_s + self.optimizer_s


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Peak memory of a device by kind, and its usable memory."""

    bytes_by_kind: Mapping[str, float]
    usable_bytes: float

    @property
    def total_bytes(self) -> float:
        """Peak memory of all kinds together."""
        return sum(self.bytes_by_kind.values())


@dataclass(frozen=True, slots=True)
class StepDetails:
    """Step breakdown, peak memory and utilization of a simulated plan.

    Memory is None with a profile; utilization is None if the peak is unknown or nothing is recomputed.
    """

    parts: StepParts
    memory: DeviceMemory | None
    mfu: float | None
    hfu: float | None

    def as_dict(self) -> dict[str, Any]:
        """The `step`, `memory` and utilization keys of the JSON answer."""
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


def step_details(scored: ScoredPlan, cases: Cases) -> StepDetails:
    """Step breakdown, peak memory and utilization of a simulated plan."""
    plan, model = scored.plan, cases.model
    mfu = hfu = None
    device = cases.market.find_machine(plan.machine).device
    if cases.request.profile is None and device.kind == "gpu":
        mfu = model_flops_utilization(model, scored.samples_per_s, plan.workers, device, plan.precision)
    if mfu is not None and plan.recompute != "none":  # HFU counts recomputed operations twice
        stops_early = find_framework(cases.request.framework).stops_early
        recomputed = recomputed_macs(model, plan.recompute, stops_early)
        hfu = mfu * (1 + recomputed / (training_passes(model) * model.macs))
    parts = step_breakdown(cases.case(plan).profile, scored.prediction)
    return StepDetails(parts, memory_of(scored, cases), mfu, hfu)


def step_breakdown(profile: Profile, prediction: Prediction) -> StepParts:
    """Seconds of a simulated step by activity, from the roles of its ops."""
    by_role = profile.worker_s_by_role()
    busy_s = prediction.step_s * min(prediction.utilisation[COMPUTATION], 1.0)
    scale = busy_s / max(sum(by_role.values()), 1e-12)  # as simulated: slower workers, corrected predictions
    spent_s = {role: seconds * scale for role, seconds in by_role.items()}
    recompute_s = spent_s[OpRole.RECOMPUTE]
    passes_s = spent_s[OpRole.FORWARD] + spent_s[OpRole.BACKWARD] + spent_s[OpRole.OTHER]
    blocking_s = spent_s[OpRole.COMMUNICATION] + spent_s[OpRole.PARSE]
    return StepParts(
        compute_s=passes_s + recompute_s,
        recompute_s=recompute_s,
        communication_s=blocking_s + prediction.step_s - busy_s - prediction.input_s,
        bubble_s=spent_s[OpRole.BUBBLE],
        input_s=spent_s[OpRole.INPUT] + prediction.input_s,
        optimizer_s=spent_s[OpRole.OPTIMIZER],
    )


def memory_of(scored: ScoredPlan, cases: Cases) -> DeviceMemory | None:
    """Peak memory of one of the plan's devices, in bytes by part; None if unknown."""
    result = cases.feasibility.memory(scored.plan)
    return None if result is None else DeviceMemory(*result)


def single_device_plan(plan: Plan, cases: Cases, *, searched: bool = False) -> Plan | None:
    """Plan for one device of the same kind, on the cheapest machine that has it.

    If `searched`, the fastest over batches and recompute modes. None if the model does not fit.
    """
    machine = _find_cheapest(cases.market.find_machine(plan.machine), cases)
    alone = replace(
        plan,
        machine=machine.name,
        workers=1,
        workers_per_machine=machine.device_count,
        exchange=Alone(),
        mesh=WHOLE,
        accumulate=1,
    )
    tried = [alone, *(_settings_to_try(alone, machine, cases) if searched else ())]
    options = {option.key: option for option in tried if cases.feasibility.is_possible(option)}
    plans = [options[key] for key in sorted(options)]
    return plans[int(np.argmax(cases.bounds(plans)))] if plans else None


def _settings_to_try(single: Plan, machine: Hardware, cases: Cases) -> Iterator[Plan]:
    """Yields the single-device plan with each batch and recompute mode that a search would try."""
    request, model = cases.request, cases.model
    if not is_batch_open(request, model):
        return
    for batch in {*micro_batches(request, model, machine), *smaller_batches(request, model)}:
        for recompute in recompute_options(request, model):
            yield replace(single, batch=batch, recompute=recompute)


def _find_cheapest(machine: Hardware, cases: Cases) -> Hardware:
    """The cheapest machine with the same device, among the requested and single-device machines."""
    request, market = cases.request, cases.market
    if request.profile is not None or machine.device_count == 1 or machine.standing == "own":
        return machine
    known = [*market.select_machines(request.hardware_words), *single_device_machines(request, machine)]
    alike = [
        kind
        for kind in known
        if kind.device == machine.device and kind.kernels == machine.kernels and market.usd_per_hour(kind)
    ]
    return min([machine, *alike], key=lambda kind: (market.usd_per_hour(kind) or inf, kind.name))


def baseline_of(scored: ScoredPlan, simulations: Simulations, *, searched: bool = False) -> ScoredPlan | None:
    """Scored single-device plan to compare a plan with; at its best batch if the answer `searched`."""
    cases = simulations.cases
    alone = single_device_plan(scored.plan, cases, searched=searched)
    if alone is None or alone == scored.plan:
        return None if alone is None else scored
    return _charge_device_share(simulations.score_plans([alone], "medium")[0], cases)


def _charge_device_share(baseline: ScoredPlan, cases: Cases) -> ScoredPlan:
    """Charges one device's share of an own machine's price; rented machines are charged in full."""
    machine = cases.market.find_machine(baseline.plan.machine)
    if machine.standing != "own" or machine.device_count == 1:
        return baseline
    share = 1 / machine.device_count
    costs = tuple(replace(cost, usd_per_hour=cost.usd_per_hour * share) for cost in baseline.costs)
    return replace(baseline, costs=costs, charged_share=share)
