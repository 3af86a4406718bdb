"""The four questions as functions of a request, and as the Python API (`planner.recommend("vgg11", ...)`)."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from planner.errors import BadInput
from planner.progress import Progress, silent
from planner.search.assumptions import assumptions
from planner.search.compare import compare_for
from planner.search.executors import executor_of
from planner.search.machines import machines_of
from planner.search.plan import Plan
from planner.search.recommend import recommend_for
from planner.search.request import Request, model_of
from planner.search.results import Comparison, Recommendation, Saturation, ScoredPlan, Shown
from planner.search.saturation import saturation_of
from planner.search.scenario import Scenario, request_from
from planner.search.score import Scorer

DEFAULT_MACHINE = "p3.2xlarge"
SERVERS_TRIED = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Simulation(Shown):
    """The answer to `simulate`: one plan with all the figures of its prediction."""

    request: Request
    scored: ScoredPlan
    samples_per_epoch: int | None
    assumptions: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        prediction = self.scored.prediction
        return {
            "request": self.request.as_dict(),
            "plan": self.scored.as_dict(),
            "prediction": {
                name: getattr(prediction, name)
                for name in prediction.__slots__
                if name not in ("timeline", "notes")
            },
            "notes": list(prediction.notes),
            "assumptions": list(self.assumptions),
        }


def one_plan(request: Request, *, default_workers: int = 1) -> Plan:
    """The single plan that a request names; several where one is needed are refused."""
    model = model_of(request)
    default = request.hardware == Request(model=request.model).hardware
    kinds = machines_of([DEFAULT_MACHINE] if default else request.hardware, request)
    for flag, values in (
        ("--hardware", [kind.name for kind in kinds]),
        ("--workers", request.workers),
        ("--batch", request.batches),
        ("--policy", request.policies),
    ):
        if len(values) > 1:
            raise BadInput(f"{flag} names {len(values)} ({', '.join(map(str, values))}); this needs one")
    spans = request.workers_per_replica
    if spans == Request(model=request.model).workers_per_replica:
        spans = (1,)
    if len(spans) > 1:
        raise BadInput(f"--workers-per-replica names {len(spans)}; this needs one")
    several = request.servers if request.servers != Request(model=request.model).servers else (1,)
    if len(several) > 1:
        raise BadInput(f"--servers names {len(several)}; this needs one")
    hosts = request.server_hardware
    colocated = hosts == ("colocated",)
    host = kinds[0].name
    if not colocated and hosts != Request(model=request.model).server_hardware and hosts != ("own",):
        named = machines_of(hosts, request)
        if len(named) > 1:
            raise BadInput(f"--server-hardware names {len(named)} machines; this needs one")
        host = named[0].name
    batch = request.profile.batch if request.profile is not None else None
    return Plan(
        model=model.name,
        batch=batch or (request.batches or (model.default_batch,))[0],
        worker_hardware=kinds[0].name,
        workers=(request.workers or (max(default_workers, spans[0]),))[0],
        server_hardware=host,
        servers=several[0],
        placement=request.placements[0],
        policy=request.policies[0],
        mode=request.mode,
        colocated=colocated,
        workers_per_machine=kinds[0].device_count,
        workers_per_replica=spans[0],
    )


def simulation_for(request: Request, *, progress: Progress = silent) -> Simulation:
    """All the figures of one plan."""
    plan = one_plan(request)
    if plan.colocated and plan.servers > plan.machines:
        raise BadInput(
            f"{plan.servers} servers beside the workers need {plan.servers} machines, one each, and "
            f"{plan.workers_text} {'is' if plan.machines == 1 else 'are'} {plan.machines}; "
            "give fewer --servers, more --workers, or --server-hardware own"
        )
    scorer = Scorer(request, model_of(request))
    scorer.check(plan)
    scored = scorer.scored(plan, scorer.predict(plan, progress))
    return Simulation(
        request,
        scored,
        scorer.model.samples_per_epoch,
        assumptions([plan], [scorer.profile_of(plan)], request),
    )


def saturation_for(
    request: Request,
    *,
    threshold: float = 0.1,
    max_workers: int | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    progress: Progress = silent,
) -> Saturation:
    """Throughput against workers for the plan that a request names, and the number of servers it wants."""
    plan = one_plan(request)
    scorer = Scorer(request, model_of(request))
    scorer.check(plan)
    with executor_of(executor, jobs) as pool:
        return saturation_of(
            plan,
            scorer,
            pool,
            threshold=threshold,
            max_workers=max_workers or 32,
            all_workers=max_workers is not None,
            server_counts=SERVERS_TRIED,
            progress=progress,
        )


def _request(model: str, about: dict[str, Any]) -> Request:
    """A request from the words of flags (`budget=20, batch="32,64"`) or from the names of `Request`."""
    names = set(Scenario.__struct_fields__)
    if set(about) <= names:
        return request_from(Scenario(model=model, **about))[0]
    return Request(model=model, **about)


def recommend(model: str, *, jobs: int | None = None, **about: Any) -> Recommendation:
    """Which cluster to rent: `planner.recommend("vgg11", budget_usd_per_hour=20)`."""
    return recommend_for(_request(model, about), jobs=jobs)


def compare(model: str, *, jobs: int | None = None, **about: Any) -> Comparison:
    """The best plan of each hardware: `planner.compare("resnet50", workers=(1, 2, 4, 8))`."""
    return compare_for(_request(model, about), jobs=jobs)


def saturation(
    model: str,
    *,
    threshold: float = 0.1,
    max_workers: int | None = None,
    jobs: int | None = None,
    **about: Any,
) -> Saturation:
    """Throughput against workers: `planner.saturation("inception3", batch=32, hardware="p3.2xlarge")`."""
    return saturation_for(_request(model, about), threshold=threshold, max_workers=max_workers, jobs=jobs)
