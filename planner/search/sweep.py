"""`sweep`: score a whole grid of plans, keeping each result as it comes.

A sweep is a scenario (`configs/sweep.toml`) in which `model` and `mode` may be lists too. Every plan of the
grid that can be run is simulated with full effort: nothing is pruned, for the table is the result. A plan's
prediction depends on the plan and the seed alone, so it does not matter in which order, by which process or
after how many interruptions it was made.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

import planner
from planner.errors import BadInput, Infeasible, PlannerError
from planner.profile.files import encode
from planner.search.executors import executor_of, slots
from planner.search.plan import Plan
from planner.search.request import Request
from planner.search.results import ScoredPlan, Shown
from planner.search.scenario import Scenario, request_from
from planner.search.score import Scorer
from planner.search.space import enumerate_plans, no_plans
from planner.search.store import Store
from planner.simulator.prediction import Prediction

MAX_PLANS = 1_000_000
MAX_REQUESTS = 1000
LOOK_S = 0.2  # how often to look whether others have finished, once nothing is left to claim
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Grid:
    """The plans of a sweep, in order, each with the scorer that its model and mode need."""

    plans: tuple[Plan, ...]
    scorers: tuple[Scorer, ...]
    dropped: Mapping[str, int]

    @property
    def fingerprint(self) -> str:
        """Tells sweeps apart whose results would differ: plans, models, machines, settings, version."""
        digest = hashlib.sha256(planner.__version__.encode())
        for plan in self.plans:
            digest.update(plan.key.encode() + b"\n")
        for scorer in dict.fromkeys(self.scorers):
            request = scorer.request
            digest.update(repr((request.but(profile=None), scorer.model)).encode())
            digest.update(encode(request.profile) if request.profile is not None else b"")
        names = {name for plan in self.plans for name in (plan.worker_hardware, plan.server_hardware)}
        for name in sorted(names):
            digest.update(repr(self.scorers[0].hardware(name)).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class SweepResult(Shown):
    """Every plan that was scored, in the order of the grid, and why others were not."""

    rows: list[ScoredPlan]
    refused: dict[str, str]  # plan -> why it could not be simulated
    total: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    partial: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "plans": [row.as_dict() for row in self.rows],
            "refused": dict(self.refused),
            "total": self.total,
            "dropped": dict(self.dropped),
            "partial": self.partial,
        }


def read_sweep(path: Path) -> list[Scenario]:
    """The scenarios of a sweep file: one for each of its models and modes."""
    from planner.tomlfile import decode, read

    source = read(path)
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
        scenario = decode(source, {**source.data, **chosen}, Scenario)
        if scenario.profile is not None:
            scenario.profile = str(path.parent / scenario.profile)
        out.append(scenario)
    return out


def grid_of(requests: list[Request]) -> Grid:
    """All plans that the requests allow, each once."""
    from planner.catalog import load_model

    plans: dict[str, tuple[Plan, Scorer]] = {}
    dropped: Counter[str] = Counter()
    for request in requests:
        model = load_model(request.model)
        scorer, space = Scorer(request, model), enumerate_plans(request, model)
        dropped.update(space.dropped)
        if not space.plans and len(requests) == 1:
            raise Infeasible(no_plans(space, request))
        for plan in space.plans:
            plans.setdefault(plan.key, (plan, scorer))
        if len(plans) > MAX_PLANS:
            raise BadInput(f"the sweep has more than {MAX_PLANS:,} plans; narrow it")
    if not plans:
        raise Infeasible("no plan of the sweep can be run")
    return Grid(tuple(p for p, _ in plans.values()), tuple(s for _, s in plans.values()), dropped)


def sweep_for(
    requests: list[Request],
    store_path: Path | str,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    progress: Progress = lambda stage, done, of: None,
) -> SweepResult:
    """Score the plans that the store does not have yet; returns all."""
    grid = grid_of(requests)
    store = Store(store_path)
    try:
        store.prepare([plan.key for plan in grid.plans], grid.fingerprint)
        with executor_of(executor, jobs) as pool:
            partial = _work(grid, store, pool, 2 * slots(pool), progress)
        return _result(grid, store, partial)
    finally:
        store.close()


def _work(grid: Grid, store: Store, pool: Executor, most: int, progress: Progress) -> bool:
    """Claim, simulate and store until nothing is left; True if interrupted."""
    flying: dict[Future[Prediction], int] = {}
    try:
        while True:
            if len(flying) < most:
                for number in store.claim(most - len(flying)):
                    try:
                        plan, scorer = grid.plans[number], grid.scorers[number]
                        flying[scorer.submit(plan, pool)] = number
                    except PlannerError as error:  # no schedule, no profile: the same in every attempt
                        store.finish(number, _encoded(error))
            done, total = store.counts()
            progress("simulating", done, total)
            if done == total:
                return False
            if not flying:
                time.sleep(LOOK_S)  # other processes have the rest; if one dies, its plans are ours
                continue
            for future in wait(flying, timeout=1.0, return_when=FIRST_COMPLETED).done:
                number = flying.pop(future)
                try:
                    store.finish(number, _encoded(future.result()))
                except PlannerError as error:
                    store.finish(number, _encoded(error))
    except KeyboardInterrupt:
        return True
    finally:
        for future in flying:
            future.cancel()
        store.release()


def _encoded(result: Prediction | PlannerError) -> str:
    if isinstance(result, PlannerError):
        return msgspec.json.encode({"refused": str(result)}).decode()
    return msgspec.json.encode({"prediction": asdict(replace(result, timeline=None))}).decode()


def _result(grid: Grid, store: Store, partial: bool) -> SweepResult:
    rows: list[ScoredPlan] = []
    refused: dict[str, str] = {}
    for number, text in store.results().items():
        plan, found = grid.plans[number], msgspec.json.decode(text)
        if "refused" in found:
            refused[plan.key] = found["refused"]
        else:
            prediction = msgspec.convert(found["prediction"], Prediction)
            rows.append(grid.scorers[number].scored(plan, prediction))
    if not rows and partial:
        raise KeyboardInterrupt
    return SweepResult(rows, refused, len(grid.plans), grid.dropped, partial)


def requests_from(scenarios: list[Scenario]) -> list[Request]:
    """The requests that the scenarios of a sweep mean. A grid is the product of its axes: replicas of several
    workers are in it only where the sweep names them."""
    alone = {"workers_per_replica": 1}
    return [
        request_from(msgspec.structs.replace(s, **alone) if s.workers_per_replica is None else s)[0]
        for s in scenarios
    ]
