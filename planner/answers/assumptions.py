"""What an answer rests on, as facts: prices, bandwidth, compute times, batches, what is not sold now.

Facts are values; `report.assumed` says them in sentences. Where a part of the model describes itself (a
strategy, a rate table, a recording), its own note stands among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isinf

from planner.hardware import GIVEN_PRICE, Hardware
from planner.model import Experts
from planner.note import Fact, Note, Topic
from planner.parallel.plan import Plan, flow_limit_bytes_per_s, network_figure
from planner.search.cases import Cases, decoded_per_vcpu
from planner.search.feasibility import offloaded
from planner.search.machines import own_machine_facts
from planner.search.request import Request
from planner.search.scored import usual_job
from planner.search.sizes import MOST_SAMPLES, MOST_TOKENS, is_batch_open
from planner.search.training import usual_length


@dataclass(frozen=True, slots=True)
class UsualJob(Fact):
    """The default job, if neither the request nor an epoch gives one."""

    topic = Topic.JOB
    words: str  # the job, as `1 billion tokens`
    model: str
    epoch_tokens: float | None
    sample_tokens: int | None = None  # where a training method chose the length


@dataclass(frozen=True, slots=True)
class MachinesOf(Fact):
    """Providers considered, if the request names neither machines nor providers."""

    topic = Topic.MACHINES
    device: str | None


@dataclass(frozen=True, slots=True)
class UsualMachine(Fact):
    """The default machine, if the request names none."""

    topic = Topic.MACHINES
    machine: str


@dataclass(frozen=True, slots=True)
class BudgetLimit(Fact):
    topic = Topic.BUDGET
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """How machines are paid; `owned`: estimated from capital, lifetime and energy; `given`: by --price."""

    spot: bool = False
    region: str = ""
    as_of: str = ""
    basis: str = ""
    owned: bool = False
    given: bool = False


@dataclass(frozen=True, slots=True)
class MachinePrice(Fact):
    topic = Topic.PRICE
    machine: str
    usd_per_hour: float
    terms: PriceTerms


@dataclass(frozen=True, slots=True)
class PriceDates(Fact):
    """The dates of the prices paid."""

    topic = Topic.PRICES
    as_of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountedSpot(Fact):
    """How spot interruptions are priced, and plans that are not cheaper on spot."""

    topic = Topic.SPOT
    machines: str
    course: str  # how interruptions were counted; empty where spot is refused
    refused: str | None
    on_demand: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GivenBandwidth(Fact):
    topic = Topic.NETWORK
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class UnknownNetwork(Fact):
    topic = Topic.WARNING
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlowLimit(Fact):
    topic = Topic.NETWORK
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class ProfileTimes(Fact):
    """Compute times from a recording."""

    topic = Topic.COMPUTE
    source: str
    steps: int
    scaled: str  # how they were taken to the plan's batch and device


@dataclass(frozen=True, slots=True)
class ComputeSource(Fact):
    topic = Topic.COMPUTE
    source: str
    basis: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class AllExperts(Fact):
    """A mixture of experts, which is not spread over devices."""

    topic = Topic.WARNING
    experts: int


@dataclass(frozen=True, slots=True)
class FrameworkHint(Fact):
    """`cpus`: --framework does not apply to them; else large models have a more usual framework."""

    topic = Topic.WARNING
    cpus: bool


@dataclass(frozen=True, slots=True)
class ChosenBatch(Fact):
    """The batch chosen by the search; `fewer`: batches below the default, where that does not fit."""

    topic = Topic.BATCH
    own: int
    limit: int
    tokens: bool
    searched: bool
    fewer: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class InputPipeline(Fact):
    """Images that a vCPU decodes per second, None if nothing is decoded there; `unknown` are machines without
    a known number of vCPUs."""

    topic = Topic.INPUT
    images_per_s: float | None
    source: str | float = "jpeg"
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Corrected(Fact):
    """A device whose predictions are corrected by measured runs."""

    topic = Topic.MEASURED
    device: str
    factor: str


@dataclass(frozen=True, slots=True)
class ModelParallel(Fact):
    """How devices share a replica, with the role of each axis."""

    topic = Topic.REPLICAS
    devices: int
    roles: str


@dataclass(frozen=True, slots=True)
class PartitionedReplica(Fact):
    """Workers that share a replica by the partition search."""

    topic = Topic.REPLICAS
    workers: int
    samples: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Retired(Fact):
    """A machine no longer sold, and the nearest current one."""

    topic = Topic.WARNING
    machine: str
    nearest: str = ""
    reason: str = ""


def assumptions(plans: Iterable[Plan], cases: Cases, *, searched: bool = False) -> list[Note | Fact]:
    """Collects what an answer assumes about its plans; `searched`: it chose among others."""
    plans, request = list(plans), cases.request
    kinds = _machines_used(plans, request)
    return [
        *_job_facts(request),
        *(_provider_facts(request) if searched else []),
        *own_machine_facts(kinds, request, searched=searched),
        *_price_facts(plans, kinds, cases),
        *_network_facts(kinds, request),
        *_compute_facts(plans, cases),
        *[fact for plan in plans[:1] if (fact := offloaded(plan, cases.model, cases.site(plan)))],
        *_batch_facts(plans, cases, searched=searched),
        *_input_facts(kinds, cases),
        *_correction_facts(plans, cases),
        *_strategy_facts(plans, cases),
        *_retired_facts(kinds),
    ]


def no_longer_sold(plan: Plan, request: Request) -> list[str]:
    """Names of a plan's machines that can no longer be rented."""
    return [kind.name for kind in _machines_used([plan], request) if not kind.still_sold]


def _machines_used(plans: Iterable[Plan], request: Request) -> list[Hardware]:
    """Worker and server machines of the plans, without duplicates."""
    market = request.market
    names = dict.fromkeys(rented.machine for plan in plans for rented in plan.rented(market))
    return [market.find_machine(name) for name in names]


def _job_facts(request: Request) -> list[Fact]:
    usual = usual_job(request)
    return [] if usual is None else [UsualJob(*usual, usual_length(request))]


def _provider_facts(request: Request) -> list[Fact]:
    if request.hardware is not None or request.providers is not None or request.profile is not None:
        return []
    return [MachinesOf(request.gpu)]


def _price_facts(plans: list[Plan], kinds: list[Hardware], cases: Cases) -> list[Fact]:
    request = cases.request
    out: list[Fact] = []
    if request.budget_usd_per_hour is not None:
        out.append(BudgetLimit(request.budget_usd_per_hour))
    on_spot = _spot_machine_names(plans, cases)
    dates = []
    given = PriceTerms(given=True)
    for kind in kinds:
        price = request.market.price(kind)
        if price is None or (kind.ownership is not None and price is kind.price):
            continue
        if price.on_demand_usd_per_hour is not None and price.source == GIVEN_PRICE:
            out.append(MachinePrice(kind.name, price.on_demand_usd_per_hour, given))
            continue
        spot = kind.name in on_spot and price.spot_usd_per_hour is not None
        paid = price.spot_usd_per_hour if spot else price.on_demand_usd_per_hour
        dated = price.spot_as_of if spot and price.spot_as_of else price.as_of
        if paid is not None:
            dates.append(dated)
            out.append(MachinePrice(kind.name, paid, PriceTerms(spot, price.region, dated, price.basis)))
    if dates:
        out.append(PriceDates(tuple(dates)))
    out += _spot_facts(plans, cases)
    for kind in kinds:
        paid = kind.price.on_demand_usd_per_hour
        if kind.ownership is not None and paid is not None and request.market.price(kind) is kind.price:
            out.append(MachinePrice(kind.name, paid, PriceTerms(owned=True)))
    return out


def _spot_machine_names(plans: list[Plan], cases: Cases) -> set[str]:
    """Names of the machines that the plans rent on the spot market."""
    if not cases.request.spot:
        return set()
    spot = [plan for plan in plans if cases.paid(plan).course is not None]
    return {rented.machine for plan in spot for rented in plan.rented(cases.market)}


def _spot_facts(plans: list[Plan], cases: Cases) -> list[Fact]:
    if not cases.request.spot or not plans:
        return []
    first = cases.paid(plans[0])
    course = "" if first.course is None else first.course.words
    others = tuple(plan.machines_text for plan in plans[1:] if cases.paid(plan).course is None)
    return [CountedSpot(plans[0].machines_text, course, first.refused, others)]


def _network_facts(kinds: list[Hardware], request: Request) -> list[Note | Fact]:
    if request.bandwidth_bytes_per_s is not None:
        return [GivenBandwidth(request.bandwidth_bytes_per_s)]
    single = tuple(kind.name for kind in kinds if request.market.nic_bytes_per_s(kind) is None)
    kinds = [kind for kind in kinds if kind.name not in single]
    out: list[Note | Fact] = [
        Note(Topic.NETWORK, f"{network_figure(kind, request.network_used).words}.") for kind in kinds
    ]
    if single:
        out.append(UnknownNetwork(single))
    limits = {flow_limit_bytes_per_s(kind) for kind in kinds}
    finite = [limit for limit in limits if limit < float("inf")]
    return [*out, *([FlowLimit(min(finite))] if finite else [])]


def _compute_facts(plans: list[Plan], cases: Cases) -> list[Fact]:
    request = cases.request
    most = max(
        (layer.detail.experts for layer in cases.model if isinstance(layer.detail, Experts)), default=0
    )
    experts: list[Fact] = [AllExperts(most)] if most else []
    if request.profile is not None and (recordings := request.recordings) is not None:
        scaled = dict.fromkeys(
            recordings.origin_text(plan.batch, request.market.find_machine(plan.machine).device)
            for plan in plans
        )
        source = request.profile.source
        return [*experts, *(ProfileTimes(source, request.profile.steps, words) for words in scaled)]
    computations = map(cases.computation, plans)
    out = experts + list(
        dict.fromkeys(ComputeSource(each.source, each.basis, each.device) for each in computations)
    )
    cpus = any(request.market.find_machine(plan.machine).device.kind == "cpu" for plan in plans)
    if request.framework is not None and cpus:
        out.append(FrameworkHint(cpus=True))
    if request.framework is None and any(plan.mesh.is_sharded for plan in plans):
        out.append(FrameworkHint(cpus=False))
    return out


def _batch_facts(plans: list[Plan], cases: Cases, *, searched: bool) -> list[Fact]:
    request, model = cases.request, cases.model
    own = model.default_batch
    gpus = any(request.market.find_machine(plan.machine).device.kind == "gpu" for plan in plans)
    if not is_batch_open(request, model) or not gpus:
        return []
    fewer = tuple(sorted({plan.batch for plan in plans if plan.batch < own}))
    if not searched and not fewer:
        return []
    tokens = model.sequence_length is not None
    return [ChosenBatch(own, MOST_TOKENS if tokens else MOST_SAMPLES, tokens, searched, fewer)]


def _input_facts(kinds: list[Hardware], cases: Cases) -> list[Fact]:
    if cases.request.profile is not None:
        return []
    rate = decoded_per_vcpu(cases.request, cases.model)
    unknown = () if isinf(rate) else tuple(kind.name for kind in kinds if kind.vcpus is None)
    return [InputPipeline(None if isinf(rate) else rate, cases.request.input or "jpeg", unknown)]


def _correction_facts(plans: list[Plan], cases: Cases) -> list[Fact]:
    corrected = {
        (cases.market.find_machine(plan.machine).device.name, factor.words)
        for plan in plans
        if (factor := cases.factor(plan)) is not None
    }
    return [Corrected(*each) for each in sorted(corrected)]


def _strategy_facts(plans: list[Plan], cases: Cases) -> list[Note | Fact]:
    each = (plan.exchange.labels(cases.site(plan)).assumptions for plan in plans)
    out: list[Note | Fact] = list(dict.fromkeys(note for notes in each for note in notes))
    for mesh in dict.fromkeys(plan.mesh for plan in plans if plan.mesh.is_sharded):
        out.append(ModelParallel(mesh.size, mesh.roles_text))
    for workers in sorted({plan.mesh.size for plan in plans if plan.mesh.lowered_by}):
        samples = {plan.samples_per_step for plan in plans if plan.mesh.size == workers}
        out.append(PartitionedReplica(workers, tuple(sorted(samples))))
    return out


def _retired_facts(kinds: list[Hardware]) -> list[Fact]:
    out: list[Fact] = []
    for kind in (kind for kind in kinds if not kind.still_sold):
        from planner.hardware.prices.offers import find_replacement

        near = find_replacement(kind)
        out.append(Retired(kind.name, *((near.hardware.name, near.reason) if near else ())))
    return out
