"""Scoring plans: profiles, clusters and policies made once each, bounds for all, simulations for some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from planner.cluster import Cluster, Node
from planner.cost.bounds_grid import Family, Plans, bound_families
from planner.cost.cluster import cluster_of, flow_limit_bytes_per_s
from planner.cost.constants import constants_for
from planner.cost.memory import memory_fit
from planner.errors import BadInput, Infeasible
from planner.hardware import Hardware
from planner.model import Model
from planner.partition.span import Span, pick, spanned, spans_of
from planner.policy import Fifo, Mode, Multiplexed, Policy
from planner.profile import Profile
from planner.progress import Progress, silent
from planner.search.front import Floats
from planner.search.heats import HEATS, LONG, Effort, Heat
from planner.search.machines import machine_of
from planner.search.plan import Plan
from planner.search.prices import check_prices, machine_price
from planner.search.request import Request
from planner.search.results import ScoredPlan
from planner.search.space import nic, span_refusal

if TYPE_CHECKING:
    from planner.simulator.prediction import Prediction
    from planner.simulator.simulate import Begun, Case
    from planner.simulator.simulate import Effort as Settings

UNRANKED: dict[str, Policy] = {"multiplexed": Multiplexed(), "fifo": Fifo()}  # take a profile as it is
T = TypeVar("T")


class _Here(Executor):
    """Runs what it is given at once, and tells how much of it is done."""

    def __init__(self, progress: Progress, done: int) -> None:
        self.progress = progress
        self.done = self.of = done

    def map(self, fn: Any, *iterables: Any, **_: Any) -> Iterator[Any]:
        calls = list(zip(*iterables, strict=True))
        self.of += len(calls)
        for arguments in calls:
            result = fn(*arguments)
            self.done += 1
            self.progress("simulating", self.done, self.of)
            yield result


def _results(tasks: Mapping[Plan, Future[T]]) -> Iterator[tuple[Plan, T]]:
    """The results in order; after Ctrl-C those that are there, then the interruption."""
    left = dict(tasks)
    try:
        for plan, task in tasks.items():
            yield plan, task.result()
            del left[plan]
    except KeyboardInterrupt:
        ended = {plan: task for plan, task in left.items() if task.done() and not task.cancelled()}
        yield from ((plan, task.result()) for plan, task in ended.items() if task.exception() is None)
        raise


class Scorer:
    """Turns plans into bounds and predictions for one request. Safe to call from several threads."""

    def __init__(self, request: Request, model: Model) -> None:
        self.request = request
        self.model = model
        self._hardware: dict[str, Hardware] = {}
        self._profiles: dict[tuple[object, ...], Profile] = {}
        self._bounds: dict[Plan, float] = {}
        self._predictions: dict[tuple[Plan, Heat], Prediction] = {}
        self._begun: dict[tuple[Plan, Effort], Begun] = {}
        self._spans: dict[tuple[str, int, int], list[Span]] = {}
        self._spanned: dict[tuple[object, ...], Profile] = {}
        self._schedules: dict[tuple[object, ...], tuple[Profile, Policy]] = {}

    def hardware(self, name: str) -> Hardware:
        if name not in self._hardware:
            self._hardware[name] = machine_of(name, self.request)
        return self._hardware[name]

    def profile(self, worker: Hardware, batch: int, servers: int, placement: str) -> Profile:
        """The user's profile moved to so many servers, or one synthesized for this device and batch."""
        key = (worker.device, batch, servers, placement if servers > 1 else "")
        if key not in self._profiles:
            if self.request.profile is not None:
                from planner.profile.servers import on_servers

                self._profiles[key] = on_servers(self.request.profile, servers, placement)
            else:
                from planner.profile.synthesis import profile_for

                self._profiles[key] = profile_for(self.model, batch, worker, servers, placement)
        return self._profiles[key]

    def profile_of(self, plan: Plan) -> Profile:
        worker = self.hardware(plan.worker_hardware)
        profile = self.profile(worker, plan.batch, plan.servers, plan.placement)
        span = self.span_of(plan)
        if span is None:
            return profile
        key = (plan.worker_hardware, plan.batch, plan.servers, plan.placement, span.cuts)
        if key not in self._spanned:
            self._spanned[key] = spanned(profile, span, self.model)
        return self._spanned[key]

    def span_of(self, plan: Plan) -> Span | None:
        """How the plan's replicas are spread over their workers; None for one worker a replica."""
        if plan.workers_per_replica == 1:
            return None
        worker = self.hardware(plan.worker_hardware)
        key = (plan.worker_hardware, plan.batch, plan.workers_per_replica)
        rate = nic(worker, self.request) or np.nan
        if key not in self._spans:
            constants = constants_for(worker, bandwidth_bytes_per_s=rate)
            alone = self.profile(worker, plan.batch, 1, self.request.placements[0])
            self._spans[key] = spans_of(self.model, worker, constants, alone, plan.workers_per_replica)
        servers = plan.servers * (nic(self.hardware(plan.server_hardware), self.request) or np.nan)
        return pick(self._spans[key], plan.replicas, rate, servers)

    def cluster_of(self, plan: Plan) -> Cluster:
        """The plan's cluster; a replica of several workers is one worker with the NICs of all of them."""
        cluster = cluster_of(
            self.hardware(plan.worker_hardware),
            plan.replicas,
            None if plan.colocated else self.hardware(plan.server_hardware),
            plan.servers,
            self.request.network_used,
            colocated=plan.colocated,
            bandwidth_bytes_per_s=self.request.bandwidth_bytes_per_s,
        )
        many = plan.workers_per_replica
        if many == 1:
            return cluster
        spread = Node(
            cluster.nodes[-1].egress_bytes_per_s * many, cluster.nodes[-1].ingress_bytes_per_s * many
        )
        return replace(
            cluster,
            nodes=(*cluster.nodes[: plan.servers], *(spread,) * plan.replicas),
            flow_bytes_per_s=cluster.flow_bytes_per_s * many,
        )

    def schedule_of(self, plan: Plan) -> tuple[Profile, Policy]:
        """What is simulated: the profile and the policy. `multiplexed` and `fifo` take the profile as it is;
        other names are ordering strategies, which may cut its transfers and need the worker's bandwidth."""
        profile = self.profile_of(plan)
        if plan.policy in UNRANKED:
            return profile, UNRANKED[plan.policy]
        worker = self.hardware(plan.worker_hardware)
        bandwidth = nic(worker, self.request)
        if bandwidth is None:
            raise BadInput(f"{worker.name}: no network figure is published; give --bandwidth")
        key = (plan.policy, id(profile), bandwidth)
        if key not in self._schedules:
            from planner.ordering import schedule

            made = schedule(profile, plan.policy, bandwidth_bytes_per_s=bandwidth, seed=self.request.seed)
            self._schedules[key] = made.profile, made.policy
        return self._schedules[key]

    def check(self, plan: Plan) -> None:
        """Refuse a plan whose machines have no price where the request rents them, or whose batch the workers
        cannot hold."""
        worker = self.hardware(plan.worker_hardware)
        check_prices([worker], self.request)
        check_prices([self.hardware(plan.server_hardware)], self.request)
        if plan.workers_per_replica > 1:
            if refusal := span_refusal(plan, self.model, worker, self.request):
                raise Infeasible(refusal)
        elif self.request.profile is None:
            fit = memory_fit(self.model, plan.batch, worker)
            if not fit.fits:
                raise Infeasible(fit.reason)

    def bounds(self, plans: Sequence[Plan]) -> Floats:
        """Upper bounds on throughput in the long run. A prediction is the mean of finite runs, so it may lie
        above its bound by its own error; the bounds are raised by the precision that is asked for."""
        out = np.zeros(len(plans))
        groups: dict[tuple[Policy | None, Mode], dict[tuple[object, ...], list[int]]] = {}
        for index, plan in enumerate(plans):
            span = self.span_of(plan)
            kind = (UNRANKED.get(plan.policy), plan.mode)
            family = (
                plan.worker_hardware,
                plan.batch,
                plan.placement,
                _deals(plan),
                span and (span.workers, span.cuts),
            )
            groups.setdefault(kind, {}).setdefault(family, []).append(index)
        for (policy, mode), by_family in groups.items():
            families = [self._family([plans[row] for row in rows]) for rows in by_family.values()]
            found = bound_families(families, policy, mode, steps="mean")
            for rows, bounds in zip(by_family.values(), found, strict=True):
                out[rows] = bounds
        out *= 1 + self.request.precision
        self._bounds.update(zip(plans, out.tolist(), strict=True))
        return out

    def _family(self, members: Sequence[Plan]) -> Family:
        """Plans that differ in workers and servers only."""
        worker = self.hardware(members[0].worker_hardware)
        profiles = {
            plan.servers: self.schedule_of(plan)[0] if _deals(plan) else self.profile_of(plan)
            for plan in sorted(members, key=lambda plan: plan.servers)
        }
        return Family(profiles, self._grid(worker, members))

    def _grid(self, worker: Hardware, members: Sequence[Plan]) -> Plans:
        servers = [self.hardware(plan.server_hardware) for plan in members]
        many = members[0].workers_per_replica
        return Plans(
            workers=[plan.replicas for plan in members],
            worker_nic_bytes_per_s=(nic(worker, self.request) or np.nan) * many,
            servers=[plan.servers for plan in members],
            server_nic_bytes_per_s=[nic(server, self.request) or np.nan for server in servers],
            workers_per_node=worker.device_count,
            colocated=[plan.colocated for plan in members],
            flow_bytes_per_s=[
                min(flow_limit_bytes_per_s(worker), flow_limit_bytes_per_s(server)) * many
                for server in servers
            ],
        )

    def submit(self, plan: Plan, executor: Executor, heat: Heat = "long") -> Future[Prediction]:
        """One simulation, begun; the same plan and seed give the same prediction whatever else is scored, and
        wherever. What is sent is the case, not the scorer: it may go to another machine."""
        from planner.simulator.simulate import finish, predict

        effort, _, _ = HEATS[heat]
        if (plan, effort) in self._begun:
            return executor.submit(finish, self._begun.pop((plan, effort)))
        return executor.submit(predict, *self._task(plan, effort))

    def _task(self, plan: Plan, effort: Effort) -> tuple[Case, Settings]:
        from planner.simulator.simulate import Case
        from planner.simulator.simulate import Effort as Settings

        profile, policy = self.schedule_of(plan)
        return (
            Case(profile=profile, cluster=self.cluster_of(plan), policy=policy, mode=plan.mode),
            Settings(
                seed=plan.seed(self.request.seed),
                precision=effort.precision or self.request.precision,
                max_steps=effort.steps(plan.workers) or self.request.max_steps,
                first_runs=effort.first_runs,
            ),
        )

    def predict(self, plan: Plan, progress: Progress = silent) -> Prediction:
        """One simulation in full, here and now; progress counts its runs."""
        from planner.simulator.simulate import begin

        case, effort = self._task(plan, LONG)
        progress("simulating", 0, effort.first_runs)
        begun = begin(case, effort, runs=1)
        progress("simulating", 1, effort.first_runs)
        return begun.finish(_Here(progress, done=1))

    def predict_all(self, plans: Iterable[Plan], executor: Executor, heat: Heat = "long") -> list[Prediction]:
        """Predictions in the order of the plans, by any executor; what is known is not simulated again."""
        plans, known = list(plans), self._predictions
        effort, runs, _ = HEATS[heat]
        for plan in plans:
            if (better := self._better(plan, heat)) is not None:
                known[plan, heat] = better
        new = [plan for plan in dict.fromkeys(plans) if (plan, heat) not in known]
        if runs is not None:
            self._begin(new, executor, heat, effort, runs)
        else:
            tasks = {plan: self.submit(plan, executor, heat) for plan in new}
            for plan, found in _results(tasks):
                known[plan, heat] = found
        return [known[plan, heat] for plan in plans]

    def known(self, plan: Plan) -> Prediction | None:
        """The best prediction of a plan so far."""
        found = (self._predictions.get((plan, heat)) for heat in reversed(HEATS))
        return next((one for one in found if one is not None), None)

    def _better(self, plan: Plan, heat: Heat) -> Prediction | None:
        """What a longer heat has said of a plan, of which a shorter one would make no more."""
        longer: tuple[Heat, ...] = ("long",) if HEATS[heat][0] is LONG else ("long", "half", "trial")
        found = (self._predictions.get((plan, other)) for other in longer)
        return next((one for one in found if one is not None), None)

    def _begin(
        self, plans: Iterable[Plan], executor: Executor, heat: Heat, effort: Effort, runs: int
    ) -> None:
        """The first runs, or some more of them."""
        from planner.simulator.simulate import begin, go_on

        tasks = {
            plan: executor.submit(go_on, self._begun[plan, effort], runs)
            if (plan, effort) in self._begun
            else executor.submit(begin, *self._task(plan, effort), runs)
            for plan in plans
        }
        for plan, begun in _results(tasks):
            self._begun[plan, effort] = begun
            self._predictions[plan, heat] = begun.prediction()

    def price(self, plan: Plan) -> tuple[float, float]:
        """US dollars an hour for the workers' machines and for those of the servers."""
        worker, server = self.hardware(plan.worker_hardware), self.hardware(plan.server_hardware)
        workers_usd = (machine_price(worker, self.request) or 0.0) * plan.machines
        servers_usd = 0.0 if plan.colocated else (machine_price(server, self.request) or 0.0) * plan.servers
        return workers_usd, servers_usd

    def scored(self, plan: Plan, prediction: Prediction) -> ScoredPlan:
        """A plan with its price and its bound beside its prediction."""
        return ScoredPlan(plan, *self.price(plan), self.bound(plan), prediction)

    def bound(self, plan: Plan) -> float:
        if plan not in self._bounds:
            self.bounds([plan])
        return self._bounds[plan]


def _deals(plan: Plan) -> bool:
    """P3 deals slices over the servers: other bytes on each than the placement says."""
    return plan.policy == "p3" and plan.servers > 1
