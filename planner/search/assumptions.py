"""What an answer rests on, in sentences: prices, bandwidth, compute times, policy, what is not sold now."""

from __future__ import annotations

from collections.abc import Iterable

from planner.cost.cluster import flow_limit_bytes_per_s, network_figure
from planner.hardware import Hardware
from planner.policy import DEFAULT_WINDOW_BYTES
from planner.profile import Profile
from planner.search.machines import machine_of
from planner.search.plan import Plan
from planner.search.request import Request
from planner.units import format_bandwidth, format_bytes


def assumptions(plans: Iterable[Plan], profiles: Iterable[Profile], request: Request) -> list[str]:
    """Sentences about the hardware and profiles of an answer's plans."""
    plans = list(plans)
    kinds = _kinds(plans, request)
    return [
        *_money(kinds, request),
        *_network(kinds, request),
        *_compute(profiles, request),
        *_running(plans),
        *_retired(kinds),
    ]


def no_longer_sold(plan: Plan, request: Request) -> list[str]:
    """The names of a plan's machines that nobody can rent any more."""
    return [kind.name for kind in _kinds([plan], request) if not kind.still_sold]


def _kinds(plans: Iterable[Plan], request: Request) -> list[Hardware]:
    """The machines of workers and servers, each once."""
    names = dict.fromkeys(name for p in plans for name in (p.worker_hardware, p.server_hardware))
    return [machine_of(name, request) for name in names]


def _money(kinds: list[Hardware], request: Request) -> list[str]:
    rented = [kind for kind in kinds if kind.ownership is None]
    owned = [kind for kind in kinds if kind.ownership is not None]
    out = []
    if request.budget_usd_per_hour is not None:
        usd = request.budget_usd_per_hour
        out.append(f"Budget: at most ${usd:g} an hour for the whole cluster, servers included.")
    for kind in rented:
        price = kind.price if request.region is None else kind.price_in(request.region)
        if price is None:
            continue
        paid = price.spot_usd_per_hour if request.spot else price.on_demand_usd_per_hour
        dated = price.spot_as_of if request.spot and price.spot_as_of else price.as_of
        what = "spot" if request.spot else "on demand"
        if paid is not None:
            out.append(f"Price: {kind.name} ${paid:g}/h {what} in {price.region}, {dated}, {price.basis}.")
    for kind in owned:
        paid = kind.price.on_demand_usd_per_hour
        if paid is not None:
            out.append(
                f"Price: {kind.name} ${paid:.3g}/h from capital, lifetime and energy in its file, estimated."
            )
    return out


def _network(kinds: list[Hardware], request: Request) -> list[str]:
    if request.bandwidth_bytes_per_s is not None:
        return [f"Network: {format_bandwidth(request.bandwidth_bytes_per_s)} for every NIC, as given."]
    out = [f"Network: {network_figure(kind, request.network_used).words}." for kind in kinds]
    limits = {flow_limit_bytes_per_s(kind) for kind in kinds}
    finite = [limit for limit in limits if limit < float("inf")]
    if finite:
        out.append(
            f"Network: one connection carries at most {format_bandwidth(min(finite))} "
            "(machines in one cluster placement group)."
        )
    return out


def _compute(profiles: Iterable[Profile], request: Request) -> list[str]:
    if request.profile is not None:
        source = request.profile.source or "the given profile"
        return [
            f"Compute: times from your profile ({source}), batch {request.profile.batch}, "
            f"{request.profile.steps} steps, {request.profile.basis}; the same on every hardware."
        ]
    return list(dict.fromkeys(_compute_words(profile) for profile in profiles))


def _compute_words(profile: Profile) -> str:
    return f"Compute: {profile.source or 'synthesized from the catalogue'} ({profile.basis})."


def _running(plans: list[Plan]) -> list[str]:
    modes = {plan.mode for plan in plans}
    out = []
    if modes == {"async"}:
        out.append("Training: asynchronous SGD with parameter servers; a step's gradients may be stale.")
    elif modes == {"sync"}:
        out.append("Training: synchronous SGD with parameter servers.")
    if any(plan.colocated for plan in plans):
        out.append(
            "Transfers: between a worker and a server on one machine nothing crosses the NIC, but messages "
            "are still parsed, as gRPC does over loopback."
        )
    for many in sorted({plan.workers_per_replica for plan in plans} - {1}):
        steps = " or ".join(
            str(samples)
            for samples in sorted({p.samples_per_step for p in plans if p.workers_per_replica == many})
        )
        out.append(
            f"Replicas: {many} workers share one copy of the model, cut by the partition search, and take "
            f"{steps} samples in a step; training goes as with that batch, which may need more epochs."
        )
    if any(plan.policy == "multiplexed" for plan in plans):
        out.append(
            f"Transfers: HTTP/2 streams as gRPC sends them, windows of {format_bytes(DEFAULT_WINDOW_BYTES)}."
        )
    return out


def _retired(kinds: list[Hardware]) -> list[str]:
    from planner.cost.nearest import nearest_current

    out = []
    for kind in kinds:
        if not kind.still_sold:
            near = nearest_current(kind)
            instead = f"; the nearest that is sold: {near.hardware.name} ({near.reason})" if near else ""
            out.append(f"Note: {kind.name} is no longer sold{instead}.")
    return out
