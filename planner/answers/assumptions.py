"""What an answer rests on, as facts: prices, bandwidth, compute times, batches, what is not sold now.

Facts are values; `report/assumed.toml` has their sentences. Where a part of the model describes itself (a
strategy, a rate table, a recording), its own note stands among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isinf
from typing import Any

from planner.hardware import GIVEN_PRICE, Hardware
from planner.hardware.prices.cost import price_age_note
from planner.model import Experts
from planner.note import Fact, Note, Topic, fact
from planner.parallel.plan import Plan, flow_limit_bytes_per_s, network_figure
from planner.search.cases import Cases, decode_rate_per_vcpu
from planner.search.feasibility import offload_fact
from planner.search.machines import own_machine_facts
from planner.search.request import Request
from planner.search.scored import usual_job
from planner.search.sizes import MOST_SAMPLES, MOST_TOKENS, is_batch_open
from planner.search.training import usual_length

MachinePrice = tuple[str, float]  # its name and USD per hour


def assumptions(plans: Iterable[Plan], cases: Cases, *, searched: bool = False) -> list[Note | Fact]:
    """Collects the facts that an answer assumes about its plans.

    `searched`: the answer chose among plans.
    """
    plans, request = list(plans), cases.request
    kinds = _machines_used(plans, request)
    return [
        *_job_facts(request),
        *(_provider_facts(request) if searched else []),
        *own_machine_facts(kinds, request, searched=searched),
        *_price_facts(plans, kinds, cases),
        *_network_facts(kinds, request),
        *_compute_facts(plans, cases),
        *[fact for plan in plans[:1] if (fact := offload_fact(plan, cases.model, cases.site(plan)))],
        *_batch_facts(plans, cases, searched=searched),
        *_input_facts(kinds, cases),
        *_correction_facts(plans, cases),
        *_strategy_facts(plans, cases),
        *_retired_facts(kinds),
    ]


def retired_machine_names(plan: Plan, request: Request) -> list[str]:
    """Names of a plan's machines that can no longer be rented."""
    return [kind.name for kind in _machines_used([plan], request) if not kind.still_sold]


def _machines_used(plans: Iterable[Plan], request: Request) -> list[Hardware]:
    """Worker and server machines of the plans, without duplicates."""
    market = request.market
    names = dict.fromkeys(rented.machine for plan in plans for rented in plan.rented(market))
    return [market.find_machine(name) for name in names]


def _job_facts(request: Request) -> list[Fact]:
    """Facts on the default job and its length; empty if the request names a job."""
    usual = usual_job(request)
    if usual is None:
        return []
    job, model, epoch_tokens = usual
    length = usual_length(request)
    return [fact("default-job", job=job, model=model, epoch_tokens=epoch_tokens, sample_tokens=length)]


def _provider_facts(request: Request) -> list[Fact]:
    """Facts on the providers that were searched; empty if the request names machines or providers."""
    if request.hardware is not None or request.providers is not None or request.profile is not None:
        return []
    if request.gpu is not None:
        return [fact("every-provider", device=request.gpu)]
    return [fact("default-providers")]


def _price_facts(plans: list[Plan], machines: list[Hardware], cases: Cases) -> list[Note | Fact]:
    """Facts on the budget and the prices paid, one for all machines that are paid on the same terms."""
    request = cases.request
    given: list[MachinePrice] = []
    owned: list[MachinePrice] = []
    rented: dict[tuple[str, str, str, str], list[MachinePrice]] = {}
    on_spot = _spot_machine_names(plans, cases)
    for kind in machines:
        price = request.market.price(kind)
        if price is None:
            continue
        spot = kind.name in on_spot and price.spot_usd_per_hour is not None
        paid = price.spot_usd_per_hour if spot else price.on_demand_usd_per_hour
        on_demand = price.on_demand_usd_per_hour
        if kind.ownership is not None and price is kind.price:
            owned += [] if on_demand is None else [(kind.name, on_demand)]
        elif on_demand is not None and price.source == GIVEN_PRICE:
            given.append((kind.name, on_demand))
        elif paid is not None:
            dated = price.spot_as_of if spot and price.spot_as_of else price.as_of
            terms = "spot" if spot else "on demand", price.region, dated, price.basis
            rented.setdefault(terms, []).append((kind.name, paid))
    out: list[Note | Fact] = []
    if request.budget_usd_per_hour is not None:
        out.append(fact("budget", usd_per_hour=request.budget_usd_per_hour))
    if given:
        out.append(fact("given-price", prices=given))
    for (market, region, as_of, basis), prices in rented.items():
        where = "any region" if region == "any" else region
        details = ", ".join(filter(None, [as_of, basis]))
        out.append(
            fact("price", prices=prices, market=market, region=where, details=details, dated=as_of or basis)
        )
    dates = [as_of for (_, _, as_of, _), prices in rented.items() for _ in prices]
    if words := price_age_note(dates):
        out.append(Note(Topic.PRICES, words))
    out += _spot_facts(plans, cases)
    return [*out, fact("owned-price", prices=owned)] if owned else out


def _spot_machine_names(plans: list[Plan], cases: Cases) -> set[str]:
    """Names of the machines that the plans rent on the spot market."""
    if not cases.request.spot:
        return set()
    spot = [plan for plan in plans if cases.rental_cost(plan).spot is not None]
    return {rented.machine for plan in spot for rented in plan.rented(cases.market)}


def _spot_facts(plans: list[Plan], cases: Cases) -> list[Fact]:
    """Facts on the spot interruptions assumed and on plans that stay on demand; empty without --spot."""
    if not cases.request.spot or not plans:
        return []
    first = cases.rental_cost(plans[0])
    refused = f"{plans[0].machines_text} on demand: {first.refused}"
    counted = refused if first.spot is None else first.spot.words
    others = [plan.machines_text for plan in plans[1:] if cases.rental_cost(plan).spot is None]
    return [fact("spot", first=counted, on_demand=others)]


def _network_facts(machines: list[Hardware], request: Request) -> list[Note | Fact]:
    """Facts on the machines' network rates and on the limit per connection."""
    if request.bandwidth_bytes_per_s is not None:
        return [fact("given-bandwidth", bytes_per_s=request.bandwidth_bytes_per_s)]
    single = tuple(kind.name for kind in machines if request.market.nic_bytes_per_s(kind) is None)
    machines = [kind for kind in machines if kind.name not in single]
    out: list[Note | Fact] = [
        Note(Topic.NETWORK, f"{network_figure(kind, request.network_used).words}.") for kind in machines
    ]
    if single:
        out.append(fact("unknown-network", machines=single))
    limits = {flow_limit_bytes_per_s(kind) for kind in machines}
    finite = [limit for limit in limits if limit < float("inf")]
    return [*out, *([fact("flow-limit", bytes_per_s=min(finite))] if finite else [])]


def _compute_facts(plans: list[Plan], cases: Cases) -> list[Fact]:
    """Facts on where compute times come from: a recording, measured kernels or published rates."""
    request = cases.request
    most = max(
        (layer.detail.experts for layer in cases.model if isinstance(layer.detail, Experts)), default=0
    )
    out = [fact("experts", experts=most)] if most else []
    if request.profile is not None and (recordings := request.recordings) is not None:
        scaled = dict.fromkeys(
            recordings.origin_text(plan.batch, request.market.find_machine(plan.machine).device)
            for plan in plans
        )
        source, steps = request.profile.source or "the given profile", request.profile.steps
        return [*out, *(fact("profile", source=source, steps=steps, scaled=words) for words in scaled)]
    computations = map(cases.computation, plans)
    for source, basis, device in dict.fromkeys(
        (each.source, each.basis, each.device) for each in computations
    ):
        source = source or "synthesized from the catalog"
        out.append(fact("compute", source=source, basis=basis, device_basis=(device, basis)))
    cpus = any(request.market.find_machine(plan.machine).device.kind == "cpu" for plan in plans)
    if request.framework is not None and cpus:
        out.append(fact("framework-on-cpus"))
    if request.framework is None and any(plan.mesh.is_sharded for plan in plans):
        out.append(fact("framework-of-large-models"))
    return out


def _batch_facts(plans: list[Plan], cases: Cases, *, searched: bool) -> list[Fact]:
    """Facts on the batches that were tried, or that were reduced to fit in GPU memory."""
    request, model = cases.request, cases.model
    own = model.default_batch
    gpus = any(request.market.find_machine(plan.machine).device.kind == "gpu" for plan in plans)
    if not is_batch_open(request, model) or not gpus:
        return []
    fewer = sorted({plan.batch for plan in plans if plan.batch < own})
    if not searched:
        return [fact("smaller-batch", batches=fewer, own=own)] if fewer else []
    limit: dict[str, Any] = {"limit": MOST_SAMPLES, "unit": "samples", "source": "Goyal et al. 2017"}
    if model.sequence_length is not None:
        limit = {"limit": MOST_TOKENS, "unit": "tokens", "source": "You et al. 2019, Llama 3"}
    return [fact("searched-batch", own=own, twice=2 * own, most=4 * own, **limit)]


def _input_facts(machines: list[Hardware], cases: Cases) -> list[Fact]:
    """Facts on the rate at which the machines' CPUs decode input."""
    if cases.request.profile is not None:
        return []
    rate = decode_rate_per_vcpu(cases.request, cases.model)
    if isinf(rate):
        return [fact("input-keeps-up")]
    if unknown := [kind.name for kind in machines if kind.vcpus is None]:
        return [fact("unknown-vcpus", machines=unknown)]
    published = "" if cases.request.input not in (None, "jpeg") else " (published runs)"
    return [fact("decoding", images_per_s=rate, published=published)]


def _correction_facts(plans: list[Plan], cases: Cases) -> list[Fact]:
    """Facts on the factors by which the user's own runs correct predictions, by device."""
    corrected = {
        (cases.market.find_machine(plan.machine).device.name, factor.words)
        for plan in plans
        if (factor := cases.correction_factor(plan)) is not None
    }
    return [fact("corrected", device=device, factor=words) for device, words in sorted(corrected)]


def _strategy_facts(plans: list[Plan], cases: Cases) -> list[Note | Fact]:
    """Facts on what the plans' exchanges and meshes assume."""
    each = (plan.exchange.labels(cases.site(plan)).assumptions for plan in plans)
    out: list[Note | Fact] = list(dict.fromkeys(note for notes in each for note in notes))
    for mesh in dict.fromkeys(plan.mesh for plan in plans if plan.mesh.is_sharded):
        out.append(fact("model-parallel", devices=mesh.size, roles=mesh.roles_text))
    for workers in sorted({plan.mesh.size for plan in plans if plan.mesh.lowered_by}):
        samples = {plan.samples_per_step for plan in plans if plan.mesh.size == workers}
        out.append(fact("partitioned-replica", workers=workers, samples=sorted(samples)))
    return out


def _retired_facts(machines: list[Hardware]) -> list[Fact]:
    """Facts on machines that are no longer sold, each with the nearest one that is."""
    out: list[Fact] = []
    for kind in (kind for kind in machines if not kind.still_sold):
        from planner.hardware.prices.offers import find_replacement

        near = find_replacement(kind)
        nearest, reason = (near.hardware.name, near.reason) if near else ("", "")
        out.append(fact("retired", machine=kind.name, nearest=nearest, reason=reason))
    return out
