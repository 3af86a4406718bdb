"""Simulations of plans by rungs, on threads (the engine releases the GIL), Dask, or any executor.

A rung says how hard a simulation tries, from a glance to a full prediction. Rungs of one effort share their
runs: a glance is the first three runs of a short rung, a trial and a half are the first of a long one. Going
on costs only the new runs, and a plan that went through all rungs has the figures of the long rung alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.scored import ScoredPlan
from planner.simulator.run import call_stoppable

if TYPE_CHECKING:
    from planner.simulator.simulate import Case, Effort, PartialSimulation
    from planner.simulator.statistics import Prediction

T = TypeVar("T")


Rung = Literal["glance", "short", "medium", "trial", "half", "long"]  # from the roughest to the best
MANY_WORKERS = 8
FEWEST_STEPS = 72  # twelve a run


@dataclass(frozen=True, slots=True)
class RungEffort:
    """Precision and length of the simulations in a rung.

    `max_steps` are those of a worker in all runs at most; None, as for `precision`, is the request's;
    `first_runs` are made in any case; with `fewer`, many workers do fewer steps each, which say as much.
    `bias`: by how much the mean may be off whatever the interval says. Runs of a few steps do not forget how
    they start; at 12 steps a run they were off by up to 4%.
    """

    precision: float | None
    max_steps: int | None
    first_runs: int = 6
    fewer: bool = False
    bias: float = 0.0

    def steps(self, workers: int) -> int | None:
        """Maximum steps per worker at this worker count; None if the request's maximum applies."""
        if self.max_steps is None or not self.fewer or workers <= MANY_WORKERS:
            return self.max_steps
        return max(FEWEST_STEPS, self.max_steps * MANY_WORKERS // workers)


SHORT = RungEffort(0.05, 180, fewer=True, bias=0.04)
MEDIUM = RungEffort(0.02, 240, first_runs=4)
LONG = RungEffort(None, None)
# The effort of a rung, how many of its runs (None: as many as the precision takes), and by how much its
# interval is widened before it excludes a plan.
RUNGS: dict[Rung, tuple[RungEffort, int | None, float]] = {
    "glance": (SHORT, 3, 2.0),
    "short": (SHORT, 6, 2.0),
    "medium": (MEDIUM, None, 1.0),
    "trial": (LONG, 3, 1.25),
    "half": (LONG, 6, 1.25),
    "long": (LONG, None, 1.0),
}


def cautious_interval(score: Prediction, rung: Rung) -> tuple[float, float]:
    """Low and high end of the throughput interval, widened by the rung's caution factor."""
    effort, _, caution = RUNGS[rung]
    mean, off = score.samples_per_s, effort.bias * score.samples_per_s
    low = mean - max(off, caution * (mean - score.samples_per_s_low))
    return low, mean + max(off, caution * (score.samples_per_s_high - mean))


def half_width(score: Prediction) -> float:
    """Half-width of a prediction's confidence interval, in samples per second."""
    return score.samples_per_s_high - score.samples_per_s


def is_within_error(difference: float, first: Prediction, second: Prediction) -> bool:
    """Whether a difference is within the combined error of two scores."""
    return abs(difference) <= hypot(half_width(first), half_width(second))


def relative_gain(base: Prediction, other: Prediction) -> tuple[float, float]:
    """Relative gain in throughput of `other` over `base`, and its half-width."""
    ratio = other.samples_per_s / base.samples_per_s
    errors = half_width(base) / base.samples_per_s, half_width(other) / other.samples_per_s
    return ratio - 1, ratio * hypot(*errors)


def _yield_results(tasks: Mapping[Plan, Future[T]]) -> Iterator[tuple[Plan, T]]:
    """Yields results in order; after Ctrl-C the finished ones, then raises the interruption."""
    left = dict(tasks)
    try:
        for plan, task in tasks.items():
            yield plan, task.result()
            del left[plan]
    except KeyboardInterrupt:
        ended = {plan: task for plan, task in left.items() if task.done() and not task.cancelled()}
        yield from ((plan, task.result()) for plan, task in ended.items() if task.exception() is None)
        raise


class Simulations:
    """Predictions of plans by rung, each simulated once on an executor. Thread-safe."""

    def __init__(self, cases: Cases, executor: Executor) -> None:
        self.cases = cases
        self.executor = executor
        self.request = cases.request
        self._predictions: dict[tuple[Plan, Rung], Prediction] = {}
        self._begun: dict[tuple[Plan, RungEffort], PartialSimulation] = {}

    def submit(self, plan: Plan, rung: Rung = "long") -> Future[Prediction]:
        """Future with the simulated prediction of a plan, which depends only on the plan and the seed."""
        from planner.simulator.simulate import PartialSimulation, simulate_case

        effort, _, _ = RUNGS[rung]
        if (plan, effort) in self._begun:
            return self.executor.submit(PartialSimulation.finish, self._begun.pop((plan, effort)))
        return self.executor.submit(simulate_case, *self._case_and_effort(plan, effort))

    def _case_and_effort(self, plan: Plan, effort: RungEffort) -> tuple[Case, Effort]:
        """Simulator case of a plan, with the effort of a rung."""
        from planner.simulator.simulate import Effort

        return (
            self.cases.case(plan),
            Effort(
                seed=plan.simulation_seed(self.request.seed),
                precision=effort.precision or self.request.interval_width,
                max_steps=effort.steps(plan.workers) or self.request.max_steps,
                first_runs=effort.first_runs,
            ),
        )

    def predict_all(self, plans: Iterable[Plan], rung: Rung = "long") -> list[Prediction]:
        """Predictions in the order of the plans; simulates plans that have none yet."""
        plans, known = list(plans), self._predictions
        effort, runs, _ = RUNGS[rung]
        for plan in plans:
            if (better := self._longer_prediction(plan, rung)) is not None:
                known[plan, rung] = better
        new = [plan for plan in dict.fromkeys(plans) if (plan, rung) not in known]
        if runs is not None:
            self._start_runs(new, rung, effort, runs)
        else:
            tasks = {plan: self.submit(plan, rung) for plan in new}
            for plan, entry in _yield_results(tasks):
                known[plan, rung] = self.cases.correct_prediction(plan, entry)
        return [known[plan, rung] for plan in plans]

    def score_plans(self, plans: Iterable[Plan], rung: Rung = "long") -> list[ScoredPlan]:
        """Simulates plans; returns them with predictions, prices, bounds and errors."""
        plans = list(plans)
        predictions = self.predict_all(plans, rung)
        return [self.cases.score_plan(plan, found) for plan, found in zip(plans, predictions, strict=True)]

    def longest_prediction(self, plan: Plan) -> Prediction | None:
        """Prediction from the longest finished simulation of a plan; None if there is none."""
        predictions = (self._predictions.get((plan, rung)) for rung in reversed(RUNGS))
        return next((prediction for prediction in predictions if prediction is not None), None)

    def _longer_prediction(self, plan: Plan, rung: Rung) -> Prediction | None:
        """Prediction from an already finished longer rung; None if there is none."""
        longer: tuple[Rung, ...] = ("long",) if RUNGS[rung][0] is LONG else ("long", "half", "trial")
        known = (self._predictions.get((plan, other)) for other in longer)
        return next((prediction for prediction in known if prediction is not None), None)

    def _start_runs(self, plans: Iterable[Plan], rung: Rung, effort: RungEffort, runs: int) -> None:
        """Simulates each plan until it has `runs` runs at this effort, and stores the predictions."""
        from planner.simulator.simulate import begin_simulation, resume_simulation

        tasks = {
            plan: self.executor.submit(resume_simulation, self._begun[plan, effort], runs)
            if (plan, effort) in self._begun
            else self.executor.submit(begin_simulation, *self._case_and_effort(plan, effort), runs)
            for plan in plans
        }
        for plan, begun in _yield_results(tasks):
            self._begun[plan, effort] = begun
            self._predictions[plan, rung] = self.cases.correct_prediction(plan, begun.prediction())


@contextmanager
def executor_of(
    executor: Executor | None = None, jobs: int | None = None, cluster: str | None = None
) -> Iterator[Executor]:
    """Context manager for the given executor, else one on the named Dask cluster, else a thread pool. The
    pool is stopped on exit."""
    if executor is not None:
        yield executor
        return
    if cluster is not None:
        from planner.search.dask_cluster import dask_executor

        with dask_executor(cluster) as remote:
            yield remote
        return
    pool = _Threads(jobs or os.cpu_count() or 1)
    try:
        yield pool
    finally:
        pool.stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


class _Threads(ThreadPoolExecutor):
    """Thread pool whose running simulations end when `stop` is set."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.stop = threading.Event()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Submits a call, whose simulations end early once `stop` is set; returns its future."""
        return super().submit(call_stoppable, self.stop, fn, *args, **kwargs)


def slot_count(executor: Executor) -> int:
    """Number of simulations that an executor runs at once."""
    known = getattr(executor, "slots", None) or getattr(executor, "_max_workers", None)
    return int(known or os.cpu_count() or 1)
