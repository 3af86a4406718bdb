"""What an answer rests on, in sentences: prices, bandwidth, compute times, policy, what is not sold now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from planner.answers.jobs import usual_words
from planner.hardware import Hardware
from planner.hardware.prices.age import old_prices
from planner.note import Note, Topic
from planner.parallel.cluster_of import flow_limit_bytes_per_s, network_figure
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.request import Request
from planner.search.usual_batches import MOST_SAMPLES, MOST_TOKENS, open_batch
from planner.units import format_bandwidth


def assumptions(plans: Iterable[Plan], cases: Cases, *, searched: bool = False) -> list[Note]:
    """Sentences about the hardware and computation of an answer's plans; `searched`: it chose them among
    others."""
    plans, request = list(plans), cases.request
    kinds = _kinds(plans, request)
    return [
        *_job(request),
        *(_whose(request) if searched else []),
        *_money(plans, kinds, cases),
        *_network(kinds, request),
        *_compute(plans, cases),
        *_batch(plans, cases, searched=searched),
        *_input(cases),
        *_measured(plans, cases),
        *_running(plans, cases),
        *_retired(kinds),
    ]


def no_longer_sold(plan: Plan, request: Request) -> list[str]:
    """The names of a plan's machines that nobody can rent any more."""
    return [kind.name for kind in _kinds([plan], request) if not kind.still_sold]


def _kinds(plans: Iterable[Plan], request: Request) -> list[Hardware]:
    """The machines of workers and servers, each once."""
    market = request.market
    names = dict.fromkeys(one.machine for plan in plans for one in plan.rented(market))
    return [market.machine(name) for name in names]


def _job(request: Request) -> list[Note]:
    """What is trained, where the answer has to say it."""
    words = usual_words(request)
    return [Note(Topic.JOB, words)] if words else []


def _whose(request: Request) -> list[Note]:
    """Whose machines were looked at, where neither they nor their provider are named."""
    if request.hardware is not None or request.providers is not None or request.profile is not None:
        return []
    if request.gpu is not None:
        words = f"of every provider with {request.gpu}, as --gpu asks for; --provider aws narrows them."
    else:
        words = "of AWS, and your own; --provider gcp,azure or --gpu A100 looks at others."
    return [Note(Topic.MACHINES, words)]


def _money(plans: list[Plan], kinds: list[Hardware], cases: Cases) -> list[Note]:
    request = cases.request
    rented = [kind for kind in kinds if kind.ownership is None]
    owned = [kind for kind in kinds if kind.ownership is not None]
    out = []
    if request.budget_usd_per_hour is not None:
        usd = request.budget_usd_per_hour
        out.append(Note(Topic.BUDGET, f"at most ${usd:g} an hour for the whole cluster, servers included."))
    on_spot = _on_spot(plans, cases)
    prices = []
    for kind in rented:
        price = request.market.price(kind)
        if price is None:
            continue
        spot = kind.name in on_spot and price.spot_usd_per_hour is not None
        paid = price.spot_usd_per_hour if spot else price.on_demand_usd_per_hour
        dated = price.spot_as_of if spot and price.spot_as_of else price.as_of
        what = "spot" if spot else "on demand"
        if paid is not None:
            prices.append(replace(price, as_of=dated))
            region = {"any": "any region"}.get(price.region, price.region)
            where = f" in {region}" if region else ""
            said = ", ".join(part for part in (what + where, dated, price.basis) if part)
            out.append(Note(Topic.PRICE, f"{kind.name} ${paid:g}/h {said}."))
    if old := old_prices(prices):
        out.append(Note(Topic.PRICES, old))
    out += _spot(plans, cases)
    for kind in owned:
        paid = kind.price.on_demand_usd_per_hour
        if paid is not None:
            words = f"{kind.name} ${paid:.3g}/h from capital, lifetime and energy in its file, estimated."
            out.append(Note(Topic.PRICE, words))
    return out


def _on_spot(plans: list[Plan], cases: Cases) -> set[str]:
    """The machines that are rented as spot machines."""
    if not cases.request.spot:
        return set()
    courses = [plan for plan in plans if cases.paid(plan).course is not None]
    return {one.machine for plan in courses for one in plan.rented(cases.market)}


def _spot(plans: list[Plan], cases: Cases) -> list[Note]:
    """How interruptions were counted, of the first plan; of others whether spot pays."""
    if not cases.request.spot or not plans:
        return []
    first = cases.paid(plans[0])
    said = (
        f"{plans[0].workers_text} on demand: {first.refused}" if first.course is None else first.course.words
    )
    dear = [plan.workers_text for plan in plans[1:] if cases.paid(plan).course is None]
    others = f" On demand, as spot does not pay there: {', '.join(dear)}." if dear else ""
    return [Note(Topic.SPOT, f"{said}.{others}")]


def _network(kinds: list[Hardware], request: Request) -> list[Note]:
    if request.bandwidth_bytes_per_s is not None:
        given = format_bandwidth(request.bandwidth_bytes_per_s)
        return [Note(Topic.NETWORK, f"{given} for every NIC, as given.")]
    single = [kind.name for kind in kinds if request.market.nic_bytes_per_s(kind) is None]
    kinds = [kind for kind in kinds if kind.name not in single]
    out = [Note(Topic.NETWORK, f"{network_figure(kind, request.network_used).words}.") for kind in kinds]
    if single:
        names = ", ".join(single[:3]) + (", ..." if len(single) > 3 else "")
        words = f"no network figure is published of {names}: one machine; --bandwidth counts several in."
        out.append(Note(Topic.WARNING, words))
    limits = {flow_limit_bytes_per_s(kind) for kind in kinds}
    finite = [limit for limit in limits if limit < float("inf")]
    if finite:
        words = f"one connection carries at most {format_bandwidth(min(finite))}"
        out.append(Note(Topic.NETWORK, f"{words} (machines in one cluster placement group)."))
    return out


def _compute(plans: list[Plan], cases: Cases) -> list[Note]:
    request = cases.request
    if request.profile is not None and (recordings := request.recordings) is not None:
        source = request.profile.source or "the given profile"
        said = dict.fromkeys(
            recordings.words(plan.batch, request.market.machine(plan.machine).device) for plan in plans
        )
        times = f"times from your profile ({source}), {request.profile.steps} steps"
        return [Note(Topic.COMPUTE, f"{times}: {words}.") for words in said]
    made = map(cases.computation, plans)
    sources = dict.fromkeys(
        f"{one.source or 'synthesized from the catalogue'} ({one.basis})." for one in made
    )
    notes = [Note(Topic.COMPUTE, words) for words in sources]
    cpus = any(request.market.machine(plan.machine).device.kind == "cpu" for plan in plans)
    if request.framework is not None and cpus:
        notes.append(Note(Topic.WARNING, "--framework says nothing of CPUs, which have rates of their own."))
    if request.framework is None and any(plan.mesh.is_sharded for plan in plans):
        words = (
            "sharded models are mostly trained with Megatron-Core or NeMo: --framework transformer-engine."
        )
        notes.append(Note(Topic.COMPUTE, words))
    return notes


def _batch(plans: list[Plan], cases: Cases, *, searched: bool) -> list[Note]:
    """How the batch of a device was chosen, where nobody named one."""
    request, model = cases.request, cases.model
    own = model.default_batch
    gpus = any(request.market.machine(plan.machine).device.kind == "gpu" for plan in plans)
    if not open_batch(request, model) or not gpus:
        return []
    fewer = sorted({plan.batch for plan in plans if plan.batch < own})
    if not searched:
        few = ", ".join(map(str, fewer))
        return [Note(Topic.BATCH, f"{few}, as the model's own {own} does not fit in memory.")] if few else []
    tokens = model.sequence_length is not None
    source = "You et al. 2019, Llama 3" if tokens else "Goyal et al. 2017"
    what = f"{MOST_TOKENS:,} tokens" if tokens else f"{MOST_SAMPLES:,} samples"
    words = (
        f"a GPU takes the model's own {own}, or {2 * own} or {4 * own} where each doubling brings 2%, less "
        f"where memory is short; all of them at most {what} a step ({source}); --batch {own} keeps it."
    )
    return [Note(Topic.BATCH, words)]


def _input(cases: Cases) -> list[Note]:
    """What is assumed of the data, which decides fast networks over images."""
    if cases.request.profile is not None:
        return []
    from planner.device.rates.constants import constants
    from planner.device.rates.kernels import network_of

    limit = ""
    if network_of(cases.model) == "cnn":
        limit = (
            "; JPEG files that eight processes of the host decode give a device at most "
            f"{constants().loader_images_per_s:,.0f} images/s"
        )
    return [Note(Topic.INPUT, f"no device waits for data, as with DALI or synthetic data{limit}.")]


def _measured(plans: list[Plan], cases: Cases) -> list[Note]:
    """Which devices were corrected by real runs."""
    found = {
        f"{cases.market.machine(plan.machine).device.name}, {factor.words} (`planner check --list`)"
        for plan in plans
        if (factor := cases.factor(plan)) is not None
    }
    return [Note(Topic.MEASURED, f"{words}.") for words in sorted(found)]


def _running(plans: list[Plan], cases: Cases) -> list[Note]:
    out = list(dict.fromkeys(words for plan in plans for words in plan.exchange.words().assumptions))
    out += dict.fromkeys(words for plan in plans for words in plan.exchange.assumed(cases.site(plan)))
    for mesh in dict.fromkeys(plan.mesh for plan in plans if plan.mesh.is_sharded):
        words = (
            f"{mesh.size} devices hold one copy of the model: {mesh.roles}; one device of the slowest stage "
            "stands for all, with the wait for the others."
        )
        out.append(Note(Topic.REPLICAS, words))
    for many in sorted({plan.mesh.size for plan in plans if plan.mesh.lowered_by}):
        steps = " or ".join(
            str(samples) for samples in sorted({p.samples_per_step for p in plans if p.mesh.size == many})
        )
        words = (
            f"{many} workers share one copy of the model, split by the partition search, and take "
            f"{steps} samples in a step; training goes as with that batch, which may need more epochs."
        )
        out.append(Note(Topic.REPLICAS, words))
    return out


def _retired(kinds: list[Hardware]) -> list[Note]:
    from planner.hardware.still_sold import nearest_current

    out = []
    for kind in kinds:
        if not kind.still_sold:
            near = nearest_current(kind)
            instead = f"; the nearest that is sold: {near.hardware.name} ({near.reason})" if near else ""
            out.append(Note(Topic.WARNING, f"{kind.name} is no longer sold{instead}."))
    return out
