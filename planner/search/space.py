"""The space of plans: everything a request allows, less what cannot be rented, afforded or held in memory.

Workers fill machines: a machine with four accelerators holds four workers, so worker counts are multiples of
its devices. Servers stand on the workers' own hardware, on a cheap CPU machine of the same provider, or on
the worker nodes. With one server all placement rules that cut no tensor are alike; only the first is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from planner.cost.memory import largest_batch, memory_fit
from planner.errors import BadInput
from planner.hardware import Hardware
from planner.model import Model
from planner.partition.span import can_span
from planner.search.front import Floats
from planner.search.machines import machines_of
from planner.search.plan import Plan
from planner.search.prices import check_prices, machine_price, no_price
from planner.search.request import MAX_WORKERS, SERVER_WORDS, Request

EVENLY = "mxnet"  # the placement that splits tensors over all servers
SPAN_POLICIES = ("multiplexed", "fifo")
EVERY_COUNT_TO = 64  # worker nodes above this are tried in steps of an eighth


@dataclass
class Space:
    """Plans that could be run, each with its price; and why others could not, with how many of each."""

    plans: list[Plan] = field(default_factory=list)
    usd_per_hour: Floats = field(default_factory=lambda: np.zeros(0))
    dropped: Counter[str] = field(default_factory=Counter)  # plans, by the reason
    out_of_reach: Counter[str] = field(default_factory=Counter)  # of `plans`, by the reason
    left_out: dict[str, list[str]] = field(default_factory=dict)  # hardware, by the reason
    cheapest_dropped: tuple[float, Plan] | None = None  # over the budget, but the nearest to it

    @property
    def considered(self) -> int:
        return len(self.plans) + sum(self.dropped.values())


def nic(hardware: Hardware, request: Request) -> float | None:
    """The rate of a machine's NIC that the request counts with."""
    return request.bandwidth_bytes_per_s or hardware.nic_bytes_per_s(request.network_used)


def enumerate_plans(request: Request, model: Model) -> Space:
    """All plans of a request."""
    space = Space()
    prices: list[float] = []
    for worker in worker_machines(request):
        for plan, price in _plans_on(worker, request, model, space):
            if request.budget_usd_per_hour is not None and price > request.budget_usd_per_hour:
                space.dropped["over the budget"] += 1
                if space.cheapest_dropped is None or price < space.cheapest_dropped[0]:
                    space.cheapest_dropped = (price, plan)
                continue
            space.plans.append(plan)
            prices.append(price)
    space.usd_per_hour = np.array(prices)
    return space


def worker_machines(request: Request) -> tuple[Hardware, ...]:
    """The workers' machines of a request; it is refused if none of them, or none of those that it names for
    servers, has a price where it rents them."""
    workers = machines_of(request.hardware, request)
    check_prices(workers, request)
    if named := [word for word in request.server_hardware if word not in SERVER_WORDS]:
        check_prices(machines_of(named, request), request)
    return workers


def _plans_on(worker: Hardware, request: Request, model: Model, space: Space) -> Iterator[tuple[Plan, float]]:
    worker_price = machine_price(worker, request)
    if worker_price is None:
        space.left_out.setdefault(f"have {no_price(request)}", []).append(worker.name)
        return
    if nic(worker, request) is None:
        reason = "have no published network figure; give --bandwidth to count them in"
        space.left_out.setdefault(reason, []).append(worker.name)
        return
    hosts = list(_server_hosts(worker, request))
    for batch in _batches(request, model, worker):
        fits = request.profile is not None or memory_fit(model, batch, worker).fits
        spans = [
            many
            for many in request.workers_per_replica
            if (many == 1 and fits) or (many > 1 and _may_span(model, batch, worker, many, request))
        ]
        if not fits and 1 in request.workers_per_replica:
            space.dropped[f"batch {batch} does not fit in the memory of {worker.device.name}"] += 1
        if not spans:
            continue
        for nodes in _node_counts(request, worker, worker_price):
            for servers in request.servers:
                for host, host_price in hosts:
                    if host is None and servers > nodes:
                        continue
                    machines = nodes + (0 if host is None else servers)
                    if not owned(worker, nodes, host, servers):
                        space.dropped["over the machines there are"] += 1
                        continue
                    if request.machines is not None and machines > request.machines:
                        space.dropped["over the number of machines"] += 1
                        continue
                    price = nodes * worker_price + (0.0 if host is None else servers * host_price)
                    for many, placement, policy in _ways(request, nodes, servers, host, spans):
                        plan = Plan(
                            model=model.name,
                            batch=batch,
                            worker_hardware=worker.name,
                            workers=nodes * worker.device_count,
                            server_hardware=(host or worker).name,
                            servers=servers,
                            placement=placement,
                            policy=policy,
                            mode=request.mode,
                            colocated=host is None,
                            workers_per_machine=worker.device_count,
                            workers_per_replica=many,
                        )
                        yield plan, price


def _ways(
    request: Request, nodes: int, servers: int, host: Hardware | None, spans: Iterable[int]
) -> Iterator[tuple[int, str, str]]:
    """Workers a replica, placement and policy. Replicas of several workers have their servers apart and their
    tensors split evenly, as the partition search reads them, where the request allows that."""
    rules = request.placements if servers > 1 else request.placements[:1]
    for many in spans:
        if many == 1:
            yield from ((many, placement, policy) for placement in rules for policy in request.policies)
        elif host is not None and nodes % many == 0:
            evenly = (EVENLY,) if EVENLY in rules else rules
            known = (policy for policy in request.policies if policy in SPAN_POLICIES)
            yield from ((many, placement, policy) for policy in known for placement in evenly)


def _may_span(model: Model, batch: int, worker: Hardware, many: int, request: Request) -> bool:
    return (
        request.profile is None
        and worker.device.kind == "cpu"
        and worker.device_count == 1
        and can_span(model, batch, worker, many)
    )


def span_refusal(plan: Plan, model: Model, worker: Hardware, request: Request) -> str:
    """Why the replicas of a plan cannot span several workers; empty if they can."""
    many = plan.workers_per_replica
    flag = f"--workers-per-replica {many}"
    if request.profile is not None:
        return f"{flag} contradicts --profile, which is that of one worker"
    if worker.device.kind != "cpu" or worker.device_count != 1:
        return f"{flag} is for CPU machines; {worker.name} has {worker.device.name}; take 1"
    if plan.colocated:
        return f"{flag} needs servers apart from the workers; give --server-hardware"
    if plan.policy not in SPAN_POLICIES:
        return f"{flag} runs with --policy {' or '.join(SPAN_POLICIES)}, not {plan.policy}"
    if plan.workers % many:
        whole = -(-plan.workers // many) * many
        return f"{plan.workers} workers are no whole replicas of {many}; take --workers {whole}"
    if not can_span(model, plan.batch, worker, many):
        return (
            f"{model.name} at batch {plan.batch} is not worth cutting over {many} {worker.name}: its fully "
            "connected layers hold too few of the weights, or a share of it does not fit in memory"
        )
    return ""


def owned(worker: Hardware, nodes: int, host: Hardware | None, servers: int) -> bool:
    """Are there as many machines of one's own as the plan uses?"""
    used = Counter({worker.name: nodes})
    if host is not None:
        used[host.name] += servers
    limits = {kind.name: kind.ownership.machines for kind in (worker, host) if kind and kind.ownership}
    return all(most is None or used[name] <= most for name, most in limits.items())


def _batches(request: Request, model: Model, worker: Hardware) -> Iterable[int]:
    if request.profile is not None:
        return (request.profile.batch,)
    if not request.batches:
        return (model.default_batch,)
    if request.batches != (0,):
        return request.batches
    largest = largest_batch(model, worker)
    return [2**k for k in range(3, 11) if 2**k <= largest]


def _node_counts(request: Request, worker: Hardware, price: float) -> list[int]:
    """Worker machines to try: as asked, else every count within the limits, thinned out above 64."""
    if request.workers:
        return sorted({-(-count // worker.device_count) for count in request.workers})
    most = max(1, MAX_WORKERS // worker.device_count)
    if request.budget_usd_per_hour is not None and price > 0:
        # one more than the budget buys, so that the nearest plan above it is known
        most = min(most, int(request.budget_usd_per_hour / price) + 1)
    if request.machines is not None:
        most = min(most, request.machines)
    if worker.ownership is not None and worker.ownership.machines is not None:
        most = min(most, worker.ownership.machines)
    counts, count = [], 1
    while count <= most:
        counts.append(count)
        count += 1 if count < EVERY_COUNT_TO else count // 8
    return counts


def _server_hosts(worker: Hardware, request: Request) -> Iterator[tuple[Hardware | None, float]]:
    """Where servers may stand, with the price of a machine; None is on the worker nodes, at no price."""
    seen: set[str] = set()
    for word in request.server_hardware:
        if word == "colocated":
            yield None, 0.0
            continue
        if word == "own":
            hosts: Iterable[Hardware] = [worker]
        elif word == "cheap":
            hosts = cheap_servers(worker, request)
        else:
            hosts = machines_of([word], request)
        for host in hosts:
            price = machine_price(host, request)
            if host.name in seen or price is None or nic(host, request) is None:
                continue
            seen.add(host.name)
            yield host, price


def cheap_servers(worker: Hardware, request: Request) -> list[Hardware]:
    """CPU machines of the worker's provider, cheaper than it, that no other beats in both price and NIC."""
    worker_price = machine_price(worker, request)
    if worker.ownership is not None or worker_price is None:
        return []
    found: list[tuple[float, float, Hardware]] = []
    for host in machines_of(("*",), request):
        price, rate = machine_price(host, request), nic(host, request)
        if (
            host.device.kind == "cpu"
            and host.provider == worker.provider
            and host.still_sold
            and price is not None
            and rate is not None
            and price < worker_price
        ):
            found.append((price, -rate, host))
    chosen: list[Hardware] = []
    best = 0.0
    for _, negative_rate, host in sorted(found, key=lambda item: (item[0], item[1], item[2].name)):
        if -negative_rate > best:
            chosen.append(host)
            best = -negative_rate
    return chosen


def left_out_words(space: Space) -> list[str]:
    return [f"Left out: {', '.join(names)} {reason}." for reason, names in space.left_out.items()]


def no_plans(space: Space, request: Request) -> str:
    """Why a space is empty, in a sentence, and what would make it less so."""
    lost = space.dropped + space.out_of_reach
    if not lost and not space.left_out:
        raise BadInput(f"no hardware matches {','.join(request.hardware)}; see `planner hardware`")
    reasons = ", ".join(
        [
            *(f"{reason} ({count})" for reason, count in lost.most_common(3)),
            *(f"{', '.join(names)} {reason}" for reason, names in space.left_out.items()),
        ]
    )
    nearest = ""
    if space.cheapest_dropped is not None:
        price, plan = space.cheapest_dropped
        nearest = f"; the nearest plan is {plan.cluster_text} at ${price:.2f}/h"
    return f"no plan is left of {space.considered}: {reasons}{nearest}"
