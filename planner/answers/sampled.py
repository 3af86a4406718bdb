"""`--search optuna`: sample spaces too large to enumerate, for throughput and cost per sample.

A trial picks a plan one dimension at a time. Infeasible plans are pruned; a plan whose bound a simulated plan
dominates is reported with its bound instead of being simulated. Trials are drawn in rounds of a fixed size,
so that the result does not depend on the number of threads. A study in a file or database can be resumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from planner.answers.assumptions import assumptions
from planner.answers.choice import changes_and_saturation, choose
from planner.answers.parts import baseline_of
from planner.answers.results import Recommendation, extend_answer
from planner.errors import BadInput, Infeasible, Interrupted
from planner.hardware import Hardware
from planner.hardware.prices.cost import usd_per_million_samples
from planner.note import Progress, ignore_progress
from planner.parallel.data import Exchange, Site
from planner.parallel.plan import Plan, plan_from_dict
from planner.search.cases import Cases
from planner.search.feasibility import exclusion
from planner.search.field import candidate_machines
from planner.search.request import MAX_WORKERS
from planner.search.scored import ScoredPlan, plans_within_limits
from planner.search.simulations import Simulations
from planner.search.sizes import (
    LARGE_PARAMETERS,
    can_span_machines,
    largest_single_device_batch,
    meshes_on,
    micro_batches,
    plan_of,
    precisions,
    recompute_options,
    worker_counts,
)
from planner.search.space import machine_exclusion_reason, site_of, usual_strategies, worker_machines
from planner.simulator.statistics import Prediction

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

ROUND = 8
STUDY_NAME = "planner"
OWN = "own"  # instead of the name of the workers' machine: the same choice on every kind of machine
T = TypeVar("T")


@dataclass
class SampledPlans:
    """Outcome of a study: simulated plans, and counts of other trials."""

    scored: list[ScoredPlan] = field(default_factory=list)
    trials: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    pruned_by_bound: int = 0
    partial: bool = False


class _SampledSpace:
    """The search space as dimensions for optuna's sampler; combinations that no site offers are pruned."""

    def __init__(self, cases: Cases) -> None:
        self.request, self.cases = cases.request, cases
        large = cases.model.parameters >= LARGE_PARAMETERS
        kinds = candidate_machines(cases).machines if large else worker_machines(self.request)
        self.workers = {kind.name: kind for kind in kinds if not machine_exclusion_reason(kind, self.request)}
        if not self.workers:
            words = ",".join(self.request.hardware_words)
            raise BadInput(f"no hardware of {words} has a price and a network figure")
        self.meshes = {
            name: meshes_on(self.request, worker, cases.model) for name, worker in self.workers.items()
        }
        self.ways = list(dict.fromkeys(mesh for ways in self.meshes.values() for mesh in ways))
        self.counts = self._dividing_counts()
        self.choices = self._collect_settings()

    def _dividing_counts(self) -> list[int]:
        """Machine counts that divide the global batch; empty if every count is allowed."""
        request, counts = self.request, set[int]()
        if request.global_batch is None or request.workers:
            return []
        for name, worker in self.workers.items():
            replicas = {
                (workers // worker.device_count, workers // mesh.size)
                for workers in worker_counts(request, worker, self.cases.model)
                for mesh in self.meshes[name]
                if workers % mesh.size == 0
            }
            counts |= {nodes for nodes, many in replicas if request.global_batch % max(many, 1) == 0}
        return sorted(counts)

    def _collect_settings(self) -> dict[str, dict[str, list[Any]]]:
        """Possible values of each strategy's settings, collected from the smallest and largest sites."""
        by_name: dict[str, dict[str, dict[Any, None]]] = {}
        for worker in self.workers.values():
            for mesh in self.meshes[worker.name]:
                for nodes in {mesh.size, max(mesh.size, MAX_WORKERS // worker.device_count)}:
                    site = site_of(self.request, worker, nodes * worker.device_count, mesh)
                    for exchange in usual_strategies(self.request, site, self.cases.model):
                        values = by_name.setdefault(exchange.kind, {})
                        for name, value in exchange.record().items():
                            own = value == worker.name  # the same choice on every machine
                            values.setdefault(name, {})[OWN if own else value] = None
        return {kind: {name: list(v) for name, v in values.items()} for kind, values in by_name.items()}

    def ask(self, trial: Trial) -> Plan | str:
        """Plan that a trial samples, or text with the reason why it is infeasible."""
        request = self.request
        worker = self.workers[_draw(trial, "worker_hardware", sorted(self.workers))]
        if request.workers:
            workers = _draw(trial, "workers", request.workers)
        elif self.counts:
            workers = _draw(trial, "machines", self.counts) * worker.device_count
        else:
            nodes = trial.suggest_int("machines", 1, MAX_WORKERS, log=True)
            if nodes > max(1, MAX_WORKERS // worker.device_count):
                return "over the number of machines"
            workers = nodes * worker.device_count
        if workers > worker.device_count and not can_span_machines(request, worker):
            return "over the number of machines"
        batch = self._sample_batch(trial, worker)
        mesh = _draw(trial, "workers_per_replica", self.ways, lambda item: item.key or item.size)
        spans = mesh in self.meshes[worker.name] and workers % mesh.size == 0
        if not spans or self.cases.feasibility.mesh_infeasibility(mesh, batch, worker) is not None:
            return "replicas that cannot span so many workers"
        site = site_of(request, worker, workers, mesh)
        exchange = self._sample_exchange(trial, site)
        if exchange is None:
            return "that their machines do not allow"
        return self._fitting_plan(site, exchange, batch)

    def _fitting_plan(self, site: Site, exchange: Exchange, batch: int) -> Plan | str:
        """The plan with the least recompute that fits, or the reason why none does."""
        request, model = self.request, self.cases.model
        modes = recompute_options(request, model)
        reason = ""
        for recompute in modes:
            plan = plan_of(
                model,
                batch,
                site,
                exchange,
                request,
                precision=precisions(request, model, site.hardware)[0],
                recompute=recompute,
            )
            result, _ = exclusion(plan, request, self.cases.feasibility)
            if result is None:
                return plan
            reason = result
        return reason

    def _sample_exchange(self, trial: Trial, site: Site) -> Exchange | None:
        """Samples a strategy, one setting at a time; None if the site does not offer the combination."""
        kind = _draw(trial, "exchange", list(self.choices))
        left = [
            option for option in usual_strategies(self.request, site, self.cases.model) if option.kind == kind
        ]
        for name, values in self.choices[kind].items():
            picked = _draw(trial, f"{kind}.{name}", values)
            wanted = site.hardware.name if picked == OWN else picked
            chosen = [option for option in left if option.record()[name] == wanted]
            if not chosen and len({option.record()[name] for option in left}) > 1:
                return None
            left = chosen or left
        return left[0] if left else None

    def _sample_batch(self, trial: Trial, worker: Hardware) -> int:
        """Samples a micro-batch, at most the largest that fits alone."""
        request = self.request
        if request.profile is None and request.batches == "auto" and not self.cases.model.sequence_length:
            largest = max(8, largest_single_device_batch(self.cases.model, worker))
            return min(trial.suggest_int("batch", 8, 1024, log=True), largest)
        return int(_draw(trial, "batch", list(micro_batches(request, self.cases.model, worker))))


def _draw(trial: Trial, name: str, options: Sequence[T], key: Callable[[T], Any] = lambda value: value) -> T:
    """Samples one of several options; a single option is returned without asking the study."""
    if len(options) == 1:
        return options[0]
    by_name = {key(option): option for option in options}
    return by_name[trial.suggest_categorical(name, list(by_name))]


def open_study(storage: str | None, seed: int) -> Study:
    """Opens a study of two objectives in memory, in a file or at a database URL."""
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


def sample_plans(
    simulations: Simulations,
    *,
    trials: int = 500,
    storage: str | None = None,
    progress: Progress = ignore_progress,
) -> SampledPlans:
    """Runs trials of a study until it has this many, and returns the simulated plans."""
    from optuna.trial import TrialState

    if trials < 1:
        raise BadInput(f"--trials is {trials}; it must be at least 1")
    cases = simulations.cases
    study = open_study(storage, cases.request.seed)
    walk = _SampledSpace(cases)
    out = SampledPlans()
    earlier = (_stored_plan(trial, cases) for trial in study.trials)
    scored = {known.plan.key: known for known in earlier if known is not None}
    done = sum(trial.state.is_finished() for trial in study.trials)
    try:
        while done < trials:
            asked = [study.ask() for _ in range(min(ROUND, trials - done))]
            plans = [walk.ask(trial) for trial in asked]
            wanted: dict[str, Plan] = {}
            for plan in plans:
                if (
                    isinstance(plan, Plan)
                    and plan.key not in scored
                    and not _is_dominated(plan, cases, scored)
                ):
                    wanted.setdefault(plan.key, plan)
            predictions = simulations.predict_all(wanted.values())
            for plan, prediction in zip(wanted.values(), predictions, strict=True):
                scored[plan.key] = cases.score_plan(plan, prediction)
            for trial, plan in zip(asked, plans, strict=True):
                if isinstance(plan, str):
                    out.dropped[plan] += 1
                    study.tell(trial, state=TrialState.PRUNED)
                elif plan.key in scored:
                    outcome = scored[plan.key]
                    record = {"plan": outcome.plan.as_dict(), "prediction": outcome.prediction.record()}
                    trial.set_user_attr("scored", record)
                    study.tell(trial, [outcome.samples_per_s, outcome.usd_per_million_samples])
                else:
                    out.pruned_by_bound += 1
                    study.tell(trial, _bound_objectives(plan, cases))
            done += len(asked)
            progress("sampling", done, trials)
    except KeyboardInterrupt:
        out.partial = True
    out.scored = list(scored.values())
    out.trials = done
    return out


def recommend_sampled(
    simulations: Simulations, *, trials: int, study: str | None, progress: Progress, advice: bool
) -> Recommendation:
    """Recommends a plan from the trials of an optuna study."""
    request = simulations.request
    outcome = sample_plans(simulations, trials=trials, storage=study, progress=progress)
    scored = plans_within_limits(outcome.scored, request)
    if not scored and outcome.partial:
        raise Interrupted(f"interrupted after {outcome.trials} trials, before one gave a plan")
    if not scored:
        raise Infeasible(f"none of {outcome.trials} trials gave a plan that meets the constraints")
    decision = choose(scored, request)
    chosen = decision.recommended
    answer = Recommendation(
        request=request,
        chosen=chosen,
        plans=decision.shown,
        considered=outcome.trials,
        pruned={**outcome.dropped, "by the bound": outcome.pruned_by_bound},
        simulated=len(outcome.scored),
        assumptions=assumptions([chosen.plan], simulations.cases, searched=True),
        everything=scored,
        partial=outcome.partial,
        cheapest=decision.cheapest,
        fastest=decision.fastest,
        tied=decision.tied,
    )
    return extend_answer(
        answer,
        lambda: {"baseline": baseline_of(chosen, simulations, searched=True)},
        lambda: changes_and_saturation(chosen, simulations, progress) if advice else {},
    )


def _is_dominated(plan: Plan, cases: Cases, scored: dict[str, ScoredPlan]) -> bool:
    """Whether a plan in `scored` is at least as fast and cheap as this plan can be at best."""
    speed, cost = _bound_objectives(plan, cases)
    return any(
        known.samples_per_s >= speed and known.usd_per_million_samples <= cost for known in scored.values()
    )


def _bound_objectives(plan: Plan, cases: Cases) -> tuple[float, float]:
    """Upper bound on samples per second, and lower bound on USD per million samples."""
    bound = cases.bound(plan)
    return bound, usd_per_million_samples(cases.usd_per_useful_hour(plan), bound)


def _stored_plan(trial: FrozenTrial, cases: Cases) -> ScoredPlan | None:
    """Scored plan of a trial in the storage; None if it simulated none."""
    attr = trial.user_attrs.get("scored")
    if attr is None:
        return None
    if "exchange" not in attr["plan"]:
        raise BadInput("the study is of an older version of planner; name another --study")
    return cases.score_plan(plan_from_dict(attr["plan"]), Prediction.from_record(attr["prediction"]))
