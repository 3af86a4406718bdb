"""`sweep`: score a whole grid of plans, keeping each result as it comes.

A sweep is a scenario (`configs/sweep.toml`) in which `model` and `mode` may be lists too. Every plan of the
grid that can be run is simulated with full effort: nothing is pruned, for the table is the result. A plan's
prediction depends on the plan and the seed alone, so it does not matter in which order, by which process or
after how many interruptions it was made. With `search = "optuna"` a sampler picks `trials` plans of each
model and mode instead; the store then remembers what it asked for.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from planner.answers.parts import VERSION, RenderableAnswer
from planner.answers.questions import check_options, parse_request
from planner.answers.refusals import no_plan_message
from planner.answers.store import Store, StoredSimulations, decode_result, run_pending
from planner.errors import BadInput, Infeasible
from planner.hardware import Hardware
from planner.model import Model
from planner.note import Progress, ignore_progress
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.request import SERVER_WORDS, Request, model_of
from planner.search.scored import ScoredPlan
from planner.search.simulations import Simulations, executor_of
from planner.search.space import allowed_exchanges, enumerate_plans, site_of
from planner.simulator.step.files import encode

MAX_PLANS = 1_000_000
MAX_REQUESTS = 1000


@dataclass(frozen=True)
class Grid:
    """Plans of a sweep, each with the evaluation context (`Cases`) of its request."""

    plans: tuple[Plan, ...]
    cases: tuple[Cases, ...]
    dropped: Mapping[str, int]

    @property
    def fingerprint(self) -> str:
        """Digest of plans, models, machines and settings, which tells sweeps apart."""
        market = self.cases[0].market
        names = sorted({rented.machine for plan in self.plans for rented in plan.rented(market)})
        return fingerprint(
            [plan.key for plan in self.plans],
            [_fingerprint_values(cases.request, cases.model) for cases in dict.fromkeys(self.cases)],
            [_without_source(market.find_machine(name)) for name in names],
        )


def _fingerprint_values(request: Request, model: Model) -> list[Any]:
    """The request, model and profiles as values for the fingerprint; files count by content."""
    words = tuple(word for word in request.server_hardware or () if word in SERVER_WORDS)
    asked = replace(
        request,
        profile=None,
        more_profiles=(),
        model=model.name,
        hardware=None,
        server_hardware=words or None,
    )
    given = () if request.profile is None else (request.profile, *request.more_profiles)
    return [asked, model, b"".join(map(encode, given))]


def _without_source(machine: Hardware) -> Hardware:
    """Copy of a machine without file path, family and price source."""
    return replace(machine, path="", family="", price=replace(machine.price, source=""))  # of a file


@dataclass(frozen=True)
class Sweep:
    """Scenarios of a sweep file; with `trials`, sampled by optuna."""

    scenarios: list[dict[str, Any]]
    trials: int | None = None


@dataclass(frozen=True)
class SweepResult(RenderableAnswer):
    """All scored plans in grid order, and the refused ones with their reasons."""

    page_maker = "planner.report.sweep.sweep_page"
    rows: list[ScoredPlan]
    refused: dict[str, str]  # plan -> why it could not be simulated
    total: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    partial: bool = False
    request: Request | None = None  # one of those that were asked, for what all of them have in common

    def as_dict(self) -> dict[str, Any]:
        """Figures under their JSON keys."""
        return {
            "version": VERSION,
            "plans": [row.as_dict() for row in self.rows],
            "refused": dict(self.refused),
            "total": self.total,
            "dropped": dict(self.dropped),
            "partial": self.partial,
        }


class _Search(msgspec.Struct):
    """Keys of a sweep file beside the scenario."""

    search: Literal["grid", "optuna"] = "grid"
    trials: Annotated[int, msgspec.Meta(ge=1, le=MAX_PLANS)] | None = None


def read_sweep(path: Path) -> Sweep:
    """Reads a sweep file; errors name file, line and key."""
    from planner.files.tomlfile import decode, read_toml

    source = read_toml(path)
    search = decode(source, source.data, _Search)
    if search.search == "grid" and search.trials is not None:
        raise source.error('a grid has no trials; add search = "optuna" or leave it out', ["trials"])
    values = {key: value for key, value in source.data.items() if key not in _Search.__struct_fields__}
    axes = {}
    for name in ("model", "mode"):
        value = source.data.get(name)
        axes[name] = value if isinstance(value, list) else [value]
        if not axes[name]:
            raise source.error("is empty; name at least one", [name])
    if (many := len(axes["model"]) * len(axes["mode"])) > MAX_REQUESTS:
        raise source.error(f"{many:,} models and modes; at most {MAX_REQUESTS:,} fit in one sweep", ["model"])
    out = []
    for model, mode in product(axes["model"], axes["mode"]):
        chosen = {name: word for name, word in (("model", model), ("mode", mode)) if word is not None}
        out.append(check_options(source, {**values, **chosen}))
    return Sweep(out, (search.trials or 500) if search.search == "optuna" else None)


def grid_of(requests: list[Request]) -> Grid:
    """All plans of the requests, without duplicates."""
    if (many := sum(map(combinations, requests))) > MAX_PLANS:
        raise BadInput(
            f"the axes of the sweep make {many:,} combinations; at most {MAX_PLANS:,} fit in one sweep: give "
            "fewer workers, servers, batches or machines"
        )
    plans: dict[str, tuple[Plan, Cases]] = {}
    dropped: Counter[str] = Counter()
    for request in requests:
        model = model_of(request)
        cases, space = Cases(request, model), enumerate_plans(request, model, unpriced=True)
        dropped.update(space.dropped)
        if not space.plans and len(requests) == 1:
            raise Infeasible(no_plan_message(space, request))
        for plan in space.plans:
            plans.setdefault(plan.key, (plan, cases))
        if len(plans) > MAX_PLANS:
            raise BadInput(f"the sweep has more than {MAX_PLANS:,} plans; narrow it")
    if not plans:
        raise Infeasible("no plan of the sweep can be run")
    every = plans.values()
    return Grid(tuple(plan for plan, _ in every), tuple(cases for _, cases in every), dropped)


def combinations(request: Request) -> int:
    """Number of combinations in a request's grid, before infeasible ones are dropped."""
    axes = (
        request.market.select_machines(request.hardware_words),
        request.workers,
        request.servers,
        request.server_hardware,
        request.batches,
        request.placements,
        request.policies,
    )
    return math.prod(max(1, len(axis)) for axis in axes if axis is not None)


def sweep_for(
    requests: list[Request],
    store_path: Path | str,
    *,
    trials: int | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    progress: Progress = ignore_progress,
) -> SweepResult:
    """Simulates plans that the store lacks; returns all results. With `trials`, optuna samples the plans."""
    store = Store(store_path)
    try:
        with executor_of(executor, jobs) as pool:
            if trials is not None:
                return _sample_requests(requests, store, pool, trials, progress)
            return _score_grid(grid_of(requests), store, pool, progress)
    finally:
        store.close()


def _score_grid(grid: Grid, store: Store, pool: Executor, progress: Progress) -> SweepResult:
    """Simulates the plans that the store lacks; an interruption gives a partial result."""
    store.prepare([plan.key for plan in grid.plans], grid.fingerprint)
    simulations = {cases: Simulations(cases, pool) for cases in dict.fromkeys(grid.cases)}
    tasks = {
        number: partial(simulations[cases].submit, plan)
        for number, (plan, cases) in enumerate(zip(grid.plans, grid.cases, strict=True))
    }
    partly = False
    try:
        run_pending(store, tasks, pool, progress=partial(progress, "simulating"))
    except KeyboardInterrupt:
        partly = True
    return _sweep_result(grid, store, partly)


def _sample_requests(
    requests: list[Request], store: Store, pool: Executor, trials: int, progress: Progress
) -> SweepResult:
    """Runs one in-memory study per request, with its simulations in the store."""
    from planner.answers.sampled import sample_plans

    models = [model_of(request) for request in requests]
    asked = [
        [_fingerprint_values(request, model), [_without_source(kind) for kind in _possible_machines(request)]]
        for request, model in zip(requests, models, strict=True)
    ]
    store.prepare([], fingerprint(f"optuna {trials}", asked))
    rows: dict[str, ScoredPlan] = {}
    dropped: Counter[str] = Counter()
    partly = False
    for request, model in zip(requests, models, strict=True):
        simulations = StoredSimulations(Cases(request, model), pool, store)
        outcome = sample_plans(simulations, trials=trials, progress=progress)
        rows.update({scored.plan.key: scored for scored in outcome.scored})
        dropped.update(outcome.dropped)
        if outcome.partial:
            partly = True
            break
    if not rows and partly:
        raise KeyboardInterrupt
    return SweepResult(list(rows.values()), {}, len(rows), dropped, partly, requests[0])


def _possible_machines(request: Request) -> list[Hardware]:
    """Worker and server machines that plans of the request may use."""
    market, model = request.market, model_of(request)
    workers = market.select_machines(request.hardware_words)
    hosts = {
        rented.machine: None
        for worker in workers
        for exchange in allowed_exchanges(request, site_of(request, worker, worker.device_count), model)
        for rented in exchange.rented(site_of(request, worker, worker.device_count))
    }
    return [*workers, *(market.find_machine(name) for name in hosts)]


def _sweep_result(grid: Grid, store: Store, partial: bool) -> SweepResult:
    """Result of a sweep from the stored rows."""
    rows: list[ScoredPlan] = []
    refused: dict[str, str] = {}
    for number, text in store.results().items():
        plan, outcome = grid.plans[number], decode_result(text)
        if isinstance(outcome, str):
            refused[plan.key] = outcome
        else:
            rows.append(grid.cases[number].score_plan(plan, outcome))
    if not rows and partial:
        raise KeyboardInterrupt
    return SweepResult(rows, refused, len(grid.plans), grid.dropped, partial, grid.cases[0].request)


def requests_from(scenarios: list[dict[str, Any]]) -> list[Request]:
    """Parses scenarios into requests; a replica has one worker unless the sweep sets more."""
    return [parse_request(**({"workers_per_replica": 1} | scenario)) for scenario in scenarios]


def sweep(
    config: Path | str,
    store: Path | str = "sweep.db",
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    progress: Progress = ignore_progress,
) -> SweepResult:
    """Scores the plans of a sweep file into a store, here or on a Dask cluster."""
    asked = read_sweep(Path(config))
    requests = requests_from(asked.scenarios)
    with executor_of(None, jobs, cluster) as pool:
        return sweep_for(requests, store, trials=asked.trials, executor=pool, progress=progress)


def fingerprint(*values: Any) -> str:
    """SHA-256 digest of the values' repr."""
    return hashlib.sha256(repr(values).encode()).hexdigest()
