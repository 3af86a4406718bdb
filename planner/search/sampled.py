"""`--search optuna`: spaces too large to enumerate, sampled for two objectives: throughput, cost a sample.

A trial picks a worker hardware, its number of machines, servers and their host, placement, policy and batch.
What cannot be run or afforded is told as pruned; what a simulated plan already dominates by its bound is told
with its bound, which no simulation exceeds, and is not simulated: only promising trials cost time. Trials are
asked for in rounds of a fixed size, so that the result does not depend on the number of threads. A study in a
file or database can be gone on with: finished trials count, and their plans are not simulated again.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from planner.cost.memory import largest_batch, memory_fit
from planner.cost.price import usd_per_million_samples
from planner.decoding import convert
from planner.errors import BadInput, Infeasible, Interrupted
from planner.hardware import Hardware
from planner.progress import Progress, silent
from planner.search.assumptions import assumptions
from planner.search.choosing import choose, further, within
from planner.search.machines import machines_of
from planner.search.plan import Plan
from planner.search.prices import machine_price
from planner.search.request import MAX_WORKERS, Request
from planner.search.results import Change, Recommendation, ScoredPlan
from planner.search.score import Scorer
from planner.search.space import cheap_servers, nic, owned, span_refusal, worker_machines
from planner.simulator.prediction import Prediction

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

ROUND = 8
STUDY_NAME = "planner"


@dataclass
class Sampled:
    """What a study found: every plan simulated, and what became of the other trials."""

    scored: list[ScoredPlan] = field(default_factory=list)
    trials: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    pruned_by_bound: int = 0
    partial: bool = False


class _Choices:
    """The dimensions of a request's space, each a list that the sampler picks from."""

    def __init__(self, request: Request, scorer: Scorer) -> None:
        self.request = request
        self.scorer = scorer
        self.workers = {
            kind.name: kind
            for kind in worker_machines(request)
            if machine_price(kind, request) is not None and nic(kind, request) is not None
        }
        if not self.workers:
            raise BadInput(f"no hardware of {','.join(request.hardware)} has a price and a network figure")
        self.hosts = sorted({host for kind in self.workers.values() for host in self._hosts(kind)})

    def _hosts(self, worker: Hardware) -> list[str]:
        names: list[str] = []
        for word in self.request.server_hardware:
            if word in ("own", "colocated"):
                names.append(word)
            elif word == "cheap":
                names += [host.name for host in cheap_servers(worker, self.request)]
            else:
                names += [host.name for host in machines_of([word], self.request)]
        return names

    def ask(self, trial: Trial) -> Plan | str:
        """The plan of a trial, or why there is none."""
        request = self.request
        worker = self.workers[trial.suggest_categorical("worker_hardware", sorted(self.workers))]
        if request.workers:
            nodes = -(-trial.suggest_categorical("workers", request.workers) // worker.device_count)
        else:
            most = max(1, MAX_WORKERS // worker.device_count)
            nodes = trial.suggest_int("machines", 1, MAX_WORKERS, log=True)
            if nodes > most:
                return "over the number of machines"
        servers = trial.suggest_categorical("servers", request.servers)
        host_name = trial.suggest_categorical("server_hardware", self.hosts)
        placement = trial.suggest_categorical("placement", request.placements)
        policy = trial.suggest_categorical("policy", request.policies)
        batch = self._batch(trial, worker)
        many = self._workers_per_replica(trial, worker)
        colocated = host_name == "colocated"
        host = worker if host_name in ("own", "colocated") else self.scorer.hardware(host_name)
        plan = Plan(
            model=self.scorer.model.name,
            batch=batch,
            worker_hardware=worker.name,
            workers=nodes * worker.device_count,
            server_hardware=host.name,
            servers=servers,
            placement=placement if servers > 1 else request.placements[0],
            policy=policy,
            mode=request.mode,
            colocated=colocated,
            workers_per_machine=worker.device_count,
            workers_per_replica=many,
        )
        return (
            self._refused(worker, nodes, host, servers, colocated)
            or (self._misfit(worker, batch) if many == 1 else self._no_span(plan, worker))
            or plan
        )

    def _no_span(self, plan: Plan, worker: Hardware) -> str | None:
        refused = span_refusal(plan, self.scorer.model, worker, self.request)
        return "replicas that cannot span so many workers" if refused else None

    def _workers_per_replica(self, trial: Trial, worker: Hardware) -> int:
        """Only where there is something to choose, so that other spaces keep their dimensions."""
        request = self.request
        alone = worker.device.kind != "cpu" or worker.device_count > 1 or request.profile is not None
        options = (1,) if alone and 1 in request.workers_per_replica else request.workers_per_replica
        many = options[0] if len(options) == 1 else trial.suggest_categorical("workers_per_replica", options)
        return int(many)

    def _batch(self, trial: Trial, worker: Hardware) -> int:
        request = self.request
        if request.profile is not None:
            return request.profile.batch
        if request.batches == (0,):
            largest = max(8, largest_batch(self.scorer.model, worker))
            return min(trial.suggest_int("batch", 8, 1024, log=True), largest)
        if request.batches:
            return int(trial.suggest_categorical("batch", request.batches))
        return self.scorer.model.default_batch

    def _refused(
        self, worker: Hardware, nodes: int, host: Hardware, servers: int, colocated: bool
    ) -> str | None:
        if colocated and servers > nodes:
            return "more servers than machines to hold them"
        price, host_price = machine_price(worker, self.request), machine_price(host, self.request)
        if price is None or host_price is None or nic(host, self.request) is None:
            return "without a price or a network figure"
        if host.provider != worker.provider:
            return "workers and servers at different providers"
        total = nodes * price + (0.0 if colocated else servers * host_price)
        if self.request.budget_usd_per_hour is not None and total > self.request.budget_usd_per_hour:
            return "over the budget"
        machines = nodes + (0 if colocated else servers)
        if self.request.machines is not None and machines > self.request.machines:
            return "over the number of machines"
        if not owned(worker, nodes, None if colocated else host, servers):
            return "over the machines there are"
        return None

    def _misfit(self, worker: Hardware, batch: int) -> str | None:
        if self.request.profile is None and not memory_fit(self.scorer.model, batch, worker).fits:
            return f"batch {batch} does not fit in the memory of {worker.device.name}"
        return None


def open_study(storage: str | None, seed: int) -> Study:
    """A study of two objectives, in memory, in a file (`study.db`) or at a database's URL."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = storage if storage is None or "://" in storage else f"sqlite:///{storage}"
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=40, multivariate=True)
    try:
        return optuna.create_study(
            storage=url,
            study_name=STUDY_NAME,
            directions=["maximize", "minimize"],
            sampler=sampler,
            load_if_exists=True,
        )
    except Exception as error:
        raise BadInput(f"cannot open the study {storage!r}: {str(error).splitlines()[0]}") from error


def sample(
    request: Request,
    scorer: Scorer,
    pool: Executor,
    *,
    trials: int = 500,
    storage: str | None = None,
    progress: Progress = silent,
) -> Sampled:
    """Run a study until it has so many trials in all; returns every plan that was simulated."""
    from optuna.trial import TrialState

    if trials < 1:
        raise BadInput(f"--trials is {trials}; it must be at least 1")
    study = open_study(storage, request.seed)
    choices = _Choices(request, scorer)
    out = Sampled()
    scored = {one.plan.key: one for trial in study.trials if (one := _remembered(trial, scorer)) is not None}
    done = sum(trial.state.is_finished() for trial in study.trials)
    try:
        while done < trials:
            asked = [study.ask() for _ in range(min(ROUND, trials - done))]
            plans = [choices.ask(trial) for trial in asked]
            wanted: dict[str, Plan] = {}
            for plan in plans:
                if isinstance(plan, Plan) and plan.key not in scored and not _hopeless(plan, scorer, scored):
                    wanted.setdefault(plan.key, plan)
            predictions = scorer.predict_all(wanted.values(), pool)
            for plan, prediction in zip(wanted.values(), predictions, strict=True):
                scored[plan.key] = scorer.scored(plan, prediction)
            for trial, plan in zip(asked, plans, strict=True):
                if isinstance(plan, str):
                    out.dropped[plan] += 1
                    study.tell(trial, state=TrialState.PRUNED)
                elif plan.key in scored:
                    found = scored[plan.key]
                    trial.set_user_attr("scored", _as_attr(found))
                    study.tell(trial, [found.samples_per_s, found.usd_per_million_samples])
                else:
                    out.pruned_by_bound += 1
                    study.tell(trial, _at_bound(plan, scorer))
            done += len(asked)
            progress("sampling", done, trials)
    except KeyboardInterrupt:
        out.partial = True
    out.scored = list(scored.values())
    out.trials = done
    return out


def recommend_sampled(
    scorer: Scorer, pool: Executor, *, trials: int, study: str | None, progress: Progress, advice: bool
) -> Recommendation:
    """The answer from a study of optuna's instead of an enumeration."""
    request = scorer.request
    found = sample(request, scorer, pool, trials=trials, storage=study, progress=progress)
    scored = within(found.scored, request)
    if not scored and found.partial:
        raise Interrupted(f"interrupted after {found.trials} trials, before one gave a plan")
    if not scored:
        raise Infeasible(f"none of {found.trials} trials gave a plan that meets the constraints")
    shown, chosen = choose(scored, request)
    changes, curve, partial = list[Change](), None, found.partial
    try:
        if advice and not partial:
            changes, curve = further(chosen, scorer, pool, progress)
    except KeyboardInterrupt:
        partial = True
    return Recommendation(
        request=request,
        chosen=chosen,
        plans=shown,
        considered=found.trials,
        pruned={**found.dropped, "by the bound": found.pruned_by_bound},
        simulated=len(found.scored),
        assumptions=assumptions([chosen.plan], [scorer.profile_of(chosen.plan)], request),
        changes=changes,
        saturation=curve,
        everything=scored,
        partial=partial,
    )


def _hopeless(plan: Plan, scorer: Scorer, scored: dict[str, ScoredPlan]) -> bool:
    """Is some simulated plan at least as fast as this one's bound, for no more a sample?"""
    speed, cost = _at_bound(plan, scorer)
    return any(one.samples_per_s >= speed and one.usd_per_million_samples <= cost for one in scored.values())


def _at_bound(plan: Plan, scorer: Scorer) -> tuple[float, float]:
    """The most throughput and the least cost of a million samples that a plan can have."""
    bound = scorer.bound(plan)
    return bound, usd_per_million_samples(sum(scorer.price(plan)), bound)


def _as_attr(found: ScoredPlan) -> dict[str, Any]:
    """What a study keeps of a simulated plan; its timeline is not of use later."""
    prediction = asdict(found.prediction)
    prediction["timeline"] = None
    return {"plan": asdict(found.plan), "prediction": prediction}


def _remembered(trial: FrozenTrial, scorer: Scorer) -> ScoredPlan | None:
    """The plan that a trial of an earlier call simulated."""
    attr = trial.user_attrs.get("scored")
    if attr is None:
        return None
    prediction = convert(attr["prediction"], Prediction)
    return scorer.scored(Plan(**attr["plan"]), prediction)
