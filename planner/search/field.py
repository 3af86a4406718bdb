"""Machines worth searching: those that can win, if the request names none.

Catalogs hold many sizes of one device. Among machines with the same devices, those that cost more without
a better network cannot win; nor can machines on which a sample costs several times what it costs elsewhere.
Both are left out before plans are made, and answers say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from planner.errors import BadInput
from planner.hardware import Hardware, Market
from planner.model import Model
from planner.note import Reason
from planner.parallel.data import Site
from planner.parallel.mesh import WHOLE
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.request import MAX_WORKERS, Request
from planner.search.sizes import LARGE_PARAMETERS, micro_batches, precisions, smaller_batches
from planner.search.space import machine_exclusion_reason, plans_at, usual_strategies, worker_machines

OUTCLASSED = 3.0  # times the cost of a sample: more than exchanges ever lose between machines that compete
REACHED = 0.9  # of its bound, which one device alone is sure to reach


@dataclass
class CandidateMachines:
    """Machines to make plans on, and those left out, by reason."""

    machines: tuple[Hardware, ...]
    left_out: dict[Reason, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _SingleDevice:
    """One device of a machine: its upper bound on throughput, and the machine's price."""

    hardware: Hardware
    samples_per_s: float
    usd_per_hour: float  # of the whole machine

    @property
    def usd_per_sample(self) -> float:
        """Least cost per sample in USD: all devices busy, and no time lost in communication."""
        return self.usd_per_hour / self.hardware.device_count / self.samples_per_s


def candidate_machines(cases: Cases) -> CandidateMachines:
    """Machines that may win, and the others with the reason why not. Those that the request names stay
    unless their rates are unknown."""
    request = cases.request
    result = CandidateMachines(worker_machines(request))
    if request.profile is not None and not request.may_use_any_device:
        return result
    usable = [kind for kind in result.machines if not machine_exclusion_reason(kind, request)]
    singles: dict[str, _SingleDevice] = {}
    unknown: dict[Reason, list[str]] = {}
    too_small: list[str] = []
    smallest = replace(request, workers=(1,), exchanges=None)
    slow = _slow_cpu_machines(usable, cases.model) if request.is_choice_open else []
    for kind in usable:
        if kind.name in slow:
            continue
        try:
            single = _bound_single_device(kind, cases, smallest)
        except BadInput:
            unknown.setdefault(Reason("has", "no known rates of computation"), []).append(kind.name)
            continue
        if single is not None:
            singles[kind.name] = single
        else:
            too_small.append(kind.name)
    gone: dict[str, Reason] = {}
    if request.is_choice_open:
        gone = dict.fromkeys(slow, Reason("computes", "on CPUs, which nobody trains a model of this size on"))
        if any(single.hardware.device.kind == "gpu" for single in singles.values()):
            small = [name for name in too_small if request.market.find_machine(name).device.kind == "cpu"]
            gone |= dict.fromkeys(small, Reason("lacks", "the memory for the model and its batch"))
        gone |= {**_find_outclassed(singles.values(), cases), **_find_dominated(usable, request.market)}
    if len(next(iter(unknown.values()), [])) == len(usable):
        return result  # the refusal of the first says more than ours
    for name, reason in gone.items():
        unknown.setdefault(reason, []).append(name)
    lost = {name for names in unknown.values() for name in names}
    return CandidateMachines(tuple(kind for kind in result.machines if kind.name not in lost), unknown)


def _slow_cpu_machines(kinds: Sequence[Hardware], model: Model) -> list[str]:
    """Names of CPU machines, if the model is large and GPUs are available; else empty."""
    by_kind = {kind.name: kind.device.kind for kind in kinds}
    if model.parameters < LARGE_PARAMETERS or "gpu" not in by_kind.values():
        return []
    return [name for name, device in by_kind.items() if device == "cpu"]


def _bound_single_device(kind: Hardware, cases: Cases, smallest: Request) -> _SingleDevice | None:
    """Price and upper bound on throughput of one device of a machine; None if it cannot hold the model."""
    site = Site(kind, 1, cases.market, WHOLE, seed=smallest.seed)
    alone = tuple(usual_strategies(smallest, site, cases.model, only=("alone",)))

    def fitting(batch: int) -> list[Plan]:
        """Plans for one device at this batch that fit in its memory."""
        plans = [
            replace(plan, accumulate=1)
            for precision in precisions(smallest, cases.model, kind)
            for plan in plans_at(site, alone, smallest, cases.feasibility, batch=batch, precision=precision)
        ]
        return [plan for plan in plans if cases.feasibility.out_of_memory(plan) is None]

    plans = [plan for batch in micro_batches(smallest, cases.model, kind) for plan in fitting(batch)]
    if not plans:
        plans = next(filter(None, map(fitting, smaller_batches(smallest, cases.model))), [])
    if not plans:
        return None
    best = max(cases.bounds(plans).tolist())
    return _SingleDevice(kind, best, cases.market.usd_per_hour(kind) or 0.0)


def _find_outclassed(singles: Iterable[_SingleDevice], cases: Cases) -> dict[str, Reason]:
    """Machines whose least cost per sample is several times the lowest, by name with the reason."""
    request, singles = cases.request, list(singles)
    budget = request.budget_usd_per_hour
    rivals = [
        single
        for single in singles
        if single.hardware.device_count == 1
        and single.usd_per_hour > 0
        and (budget is None or single.usd_per_hour <= budget)
    ]
    if not rivals:
        return {}
    best = min(rivals, key=lambda rival: rival.usd_per_sample)
    fastest = max(rival.samples_per_s for rival in rivals) * REACHED
    limit = best.usd_per_sample / REACHED * OUTCLASSED
    reason = Reason("costs", f"at least {OUTCLASSED:g} times as much per sample as {best.hardware.name}")
    out = {}
    for single in singles:
        most = MAX_WORKERS
        if budget is not None and single.usd_per_hour:
            most = min(most, int(budget / single.usd_per_hour) * single.hardware.device_count)
        slow = budget is None or most * single.samples_per_s <= fastest
        if single.hardware.ownership is None and single.usd_per_sample > limit and slow:
            out[single.hardware.name] = reason
    return out


def _find_dominated(kinds: Iterable[Hardware], market: Market) -> dict[str, Reason]:
    """Reason for each machine that costs more than another with the same devices and no slower network, by
    name."""
    out: dict[str, Reason] = {}
    groups: dict[str, list[Hardware]] = {}
    costlier = Reason("costs", "more than others with the same devices and no slower network")
    for kind in kinds:
        if kind.ownership is None:
            same = repr((kind.device, kind.kernels, kind.device_count, kind.provider, kind.fabric))
            groups.setdefault(same, []).append(kind)
    for same_devices in groups.values():
        fastest_nic = -1.0  # an unknown network counts as none
        for kind in sorted(
            same_devices, key=lambda device: (market.usd_per_hour(device) or 0.0, device.name)
        ):
            nic = market.nic_bytes_per_s(kind) or 0.0
            if nic <= fastest_nic:
                out[kind.name] = costlier
            fastest_nic = max(fastest_nic, nic)
    return out
