"""The space of plans: everything a request allows that can be rented, afforded and held in memory.

`enumerate_plans` makes every plan; `planner.answers.sampled` lets optuna pick. A plan combines a machine, a
number of them, a batch, a mesh and a strategy. Machines are filled: one with four accelerators holds four
workers, so worker counts are multiples of its devices, unless the request names another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.device.precision import Precision
from planner.errors import BadInput
from planner.hardware import Hardware
from planner.model import Floats, Model
from planner.note import Reason
from planner.parallel.data import EXCHANGES, Exchange, Site, Tier
from planner.parallel.mesh import WHOLE, Mesh
from planner.parallel.plan import Plan
from planner.search.feasibility import Feasibility, exclusion
from planner.search.request import SERVER_WORDS, Request
from planner.search.sizes import (
    allowed_strategies,
    can_share_global_batch,
    is_batch_open,
    is_over_max_step,
    may_accumulate,
    meshes_on,
    micro_batches,
    plan_of,
    precisions,
    recompute_options,
    smaller_batches,
    strategy_settings,
    with_micro_batches,
    worker_counts,
)

if TYPE_CHECKING:
    from planner.search.screening import BoundPruner


@dataclass
class Space:
    """Feasible plans with prices, and the number of plans dropped by reason."""

    plans: list[Plan] = field(default_factory=list)
    usd_per_hour: Floats = field(default_factory=lambda: np.zeros(0))
    usd_per_useful_hour: Floats = field(default_factory=lambda: np.zeros(0))  # with what interruptions take
    dropped: Counter[str] = field(default_factory=Counter)  # plans, by the reason
    out_of_reach: Counter[str] = field(default_factory=Counter)  # of `plans`, by the reason
    left_out: dict[Reason, list[str]] = field(default_factory=dict)  # hardware, by the reason
    pruned: int = 0  # plans that were not made, as something known is faster and cheaper

    def add(self, other: Space) -> None:
        """Appends the plans and counts of another space on the same machines."""
        self.plans += other.plans
        for prices in ("usd_per_hour", "usd_per_useful_hour"):
            setattr(self, prices, np.concatenate([getattr(self, prices), getattr(other, prices)]))
        self.dropped += other.dropped
        self.pruned += other.pruned

    @property
    def considered(self) -> int:
        """Number of plans considered: feasible, dropped and pruned."""
        return len(self.plans) + sum(self.dropped.values()) + self.pruned


Kinds = tuple[str, ...] | None  # of exchanges; None: all that the request allows


def enumerate_plans(
    request: Request,
    model: Model,
    *,
    unpriced: bool = False,
    machines: Iterable[Hardware] | None = None,
    only: Kinds = None,
    pruner: BoundPruner | None = None,
) -> Space:
    """Enumerates all feasible plans of a request with their prices, and counts the excluded ones. `only`
    restricts the strategies, `unpriced` allows the machine of a recorded profile, `pruner` rejects plans
    before they are made."""
    space, feasibility = Space(), Feasibility(request, model)
    prices: list[float] = []
    useful: list[float] = []
    for worker in worker_machines(request) if machines is None else machines:
        if why := machine_exclusion_reason(worker, request, unpriced=unpriced):
            space.left_out.setdefault(why, []).append(worker.name)
            continue
        for plan in plans_on(worker, request, feasibility, pruner=pruner, only=only):
            reason, paid = exclusion(plan, request, feasibility)
            price = sum(paid.usd_per_hour)
            if reason is None:
                space.plans.append(plan)
                prices.append(price)
                useful.append(paid.usd_per_useful_hour)
                continue
            space.dropped[reason] += 1
    space.usd_per_hour, space.usd_per_useful_hour = np.array(prices), np.array(useful)
    space.pruned = 0 if pruner is None else pruner.pruned
    return space


def worker_machines(request: Request) -> tuple[Hardware, ...]:
    """The requested worker machines; raises an error if none has a price or suits the profile."""
    market = request.market
    workers = market.select_machines(request.hardware_words)
    market.check_prices(workers)
    named = [word for word in request.server_hardware or () if word not in SERVER_WORDS]
    if named:
        market.check_prices(market.select_machines(named))
    if all(map(market.missing_rdma_reason, workers)):
        raise BadInput(market.missing_rdma_reason(workers[0]))
    devices = list(dict.fromkeys(kind.device.name for kind in workers))
    recordings = request.recordings
    if recordings is not None:
        refused = next((words for kind in workers if (words := recordings.mismatch_reason(kind))), "")
        if refused:
            raise BadInput(refused)
    if recordings is not None and not recordings.first.hardware and len(devices) > 1:
        raise BadInput(
            f"--profile holds the times of one device, and --hardware names machines with {len(devices)} "
            f"({', '.join(devices[:4])}{', ...' if len(devices) > 4 else ''}); name machines with the device "
            "that it was recorded on"
        )
    return workers


def machine_exclusion_reason(worker: Hardware, request: Request, *, unpriced: bool = False) -> Reason | None:
    """Reason why the search makes no plans on a machine; None if it makes some."""
    market = request.market
    recorded = request.profile is not None and request.hardware is None and not request.may_use_any_device
    free = market.is_free(worker) and not request.is_choice_open
    if market.usd_per_hour(worker) is None and not free and not (recorded and unpriced):
        meant = "; add --hardware with the machine that is meant" if recorded else ""
        return Reason("has", market.missing_price_text + meant)
    if request.formats and not set(request.formats) & set(worker.device.formats):
        return Reason("does", f"not compute in {' or '.join(request.formats)}")
    fewest = min(request.workers) if request.workers else 1
    if market.nic_bytes_per_s(worker) is None and fewest > worker.device_count:
        return Reason("has", "no published network figure; give --bandwidth to count several in")
    if market.missing_rdma_reason(worker):
        return Reason("has", "no RDMA; --network tcp counts them in")
    return None


def plans_on(
    worker: Hardware,
    request: Request,
    feasibility: Feasibility,
    *,
    pruner: BoundPruner | None = None,
    only: Kinds = None,
) -> Iterator[Plan]:
    """Yields all plans on machines of one kind. Plans that follow from others are skipped: batches above one
    that does not fit, and all but one site that cannot share the global batch. Batches below the default are
    tried if that does not fit or needs recompute."""
    model = feasibility.model
    own = model.default_batch if is_batch_open(request, model) else None
    fewer = smaller_batches(request, model)
    asked = allowed_strategies(request)
    keeps_own = all(EXCHANGES.entry(kind).tier is Tier.CONTENDER for kind in only or asked)
    sites: dict[tuple[int, Mesh], Site] = {}
    known: dict[tuple[int, Mesh], tuple[Exchange, ...]] = {}
    for precision in precisions(request, model, worker):
        full: dict[tuple[int, Mesh], int] = {}  # the batch that did not fit
        held: set[tuple[int, Mesh]] = set()  # where no smaller batch is wanted
        for batch in (*micro_batches(request, model, worker), *fewer):
            if own is not None and keeps_own and batch != own:
                continue
            counts = sorted(
                {*single_worker_counts(request, worker, only), *worker_counts(request, worker, model)}
            )
            if pruner is not None:
                whole = {workers: site_of(request, worker, workers) for workers in counts}
                counts = [n for n in counts if pruner.machines_may_win(whole[n], batch, precision)]
            spread = [
                mesh
                for mesh in (meshes_on(request, worker, model, only or asked) if counts else ())
                if feasibility.mesh_infeasibility(mesh, batch, worker) is None
            ]
            undivided = False
            for workers in counts:
                single = workers == 1 < worker.device_count and "alone" in asked
                for mesh in [WHOLE] if single else spread:
                    if workers % mesh.size or full.get((workers, mesh), batch) < batch:
                        continue
                    if batch in fewer and (workers, mesh) in held:
                        continue
                    if (site := sites.get((workers, mesh))) is None:
                        site = sites[workers, mesh] = site_of(request, worker, workers, mesh)
                    divided = can_share_global_batch(request, batch, site)
                    if divided and pruner is not None and not pruner.site_may_win(site, batch, precision):
                        held.add((workers, mesh))
                        continue
                    if (workers, mesh) not in known:
                        named = ("alone",) if single else only
                        known[workers, mesh] = tuple(usual_strategies(request, site, model, named, asked))
                    choices = known[workers, mesh]
                    if own is not None:
                        most = not is_over_max_step(request, model, batch, site.replicas)
                        choices = tuple(
                            choice
                            for choice in choices
                            if (batch == own if EXCHANGES.tier(choice) is Tier.CONTENDER else most)
                        )
                    if not divided:
                        if not undivided and choices:
                            undivided = True
                            yield plan_of(model, batch, site, choices[0], request, precision=precision)
                        continue
                    tried = fits = plainly = False
                    about: Any = {"batch": batch, "precision": precision, "pruner": pruner}
                    for plan in plans_at(site, choices, request, feasibility, **about):
                        holds = feasibility.out_of_memory(plan) is None
                        tried, fits = True, fits or holds
                        again = plan.recompute != "none" and not request.recompute
                        again = again or plan.accumulate > (request.accumulate or 1)
                        plainly = plainly or (holds and not again)
                        yield plan
                    if tried and not fits:
                        full[workers, mesh] = batch
                    if plainly:
                        held.add((workers, mesh))


def plans_at(
    site: Site,
    choices: Sequence[Exchange],
    request: Request,
    feasibility: Feasibility,
    *,
    batch: int,
    precision: Precision,
    pruner: BoundPruner | None = None,
) -> Iterator[Plan]:
    """Yields plans for a site: each strategy with the least recompute or micro-batch splitting that fits.
    Memory-saving strategies are offered if no baseline fits or if they are named."""
    again = recompute_options(request, feasibility.model)
    accumulates = may_accumulate(request, feasibility.model)
    held = False
    for exchange in choices:
        if request.exchanges is None and held and EXCHANGES.tier(exchange) is Tier.FALLBACK:
            continue
        if pruner is not None and not pruner.option_may_win(site, exchange, batch, precision):
            continue
        plain = False
        for recompute in again:
            plan = plan_of(
                feasibility.model, batch, site, exchange, request, precision=precision, recompute=recompute
            )
            fits = feasibility.out_of_memory(plan) is None
            if fits or request.recompute or recompute == again[-1]:
                yield plan
            if fits:
                plain = plain or recompute == "none"
                held = held or EXCHANGES.tier(exchange) is Tier.BASELINE
                if not request.recompute:
                    break
        if accumulates and not plain and EXCHANGES.tier(exchange) is not Tier.CONTENDER:
            whole = plan_of(feasibility.model, batch, site, exchange, request, precision=precision)
            smaller = (with_micro_batches(whole, 2**k) for k in range(1, batch.bit_length()))
            fitting = (plan for plan in smaller if plan and not feasibility.out_of_memory(plan))
            for plan in islice(fitting, 1):
                held = held or EXCHANGES.tier(exchange) is Tier.BASELINE
                yield plan


def site_of(request: Request, worker: Hardware, workers: int, mesh: Mesh = WHOLE) -> Site:
    """Site of this many workers on machines of one kind."""
    return Site(worker, workers, request.market, mesh, seed=request.seed)


def single_worker_counts(request: Request, worker: Hardware, only: Kinds = None) -> tuple[int, ...]:
    """`(1,)` if the search also tries a single device of a machine with several; else an empty tuple."""
    several = worker.device_count > 1 and "alone" in (allowed_strategies(request) if only is None else only)
    whole = not request.is_mesh_named
    return (1,) if several and whole and (request.workers is None or 1 in request.workers) else ()


def allowed_exchanges(request: Request, site: Site, model: Model) -> Iterator[Exchange]:
    """Yields the strategies that the request allows on a site, with each of their settings."""
    for kind in allowed_strategies(request):
        if site.mesh.can_combine_with(kind):
            yield from EXCHANGES[kind].candidates(strategy_settings(request, kind), site, model)


def usual_strategies(
    request: Request, site: Site, model: Model, only: Kinds = None, asked: Kinds = None
) -> Iterator[Exchange]:
    """Yields the strategies in common use on a site, and all that the request names."""
    asked = allowed_strategies(request) if asked is None else asked
    for kind in asked if only is None else only:
        if is_considered(request, kind, site, model, asked):
            yield from EXCHANGES[kind].candidates(strategy_settings(request, kind), site, model)


def is_considered(request: Request, kind: str, site: Site, model: Model, asked: tuple[str, ...]) -> bool:
    """Whether the search tries a strategy on a site."""
    named = request.exchanges is not None or len(asked) < len(EXCHANGES)
    suits = named or EXCHANGES.entry(kind).considered(model.parameters, site)
    return suits and site.mesh.can_combine_with(kind)
