"""Simulations of plans by rungs, on threads (the engine releases the GIL), Dask, or any executor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from planner.parallel.plan import Plan
from planner.progress import Progress, silent
from planner.search.cases import Cases
from planner.search.rungs import LONG, RUNGS, Rung, RungEffort
from planner.search.scored import ScoredPlan
from planner.simulator.run import stoppable

if TYPE_CHECKING:
    from planner.simulator.simulate import Case, Effort, PartialSimulation
    from planner.simulator.statistics import Prediction

T = TypeVar("T")


class _InlineExecutor(Executor):
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


class Simulations:
    """Predictions of plans. Safe to call from several threads."""

    def __init__(self, cases: Cases) -> None:
        self.cases = cases
        self.request = cases.request
        self._predictions: dict[tuple[Plan, Rung], Prediction] = {}
        self._begun: dict[tuple[Plan, RungEffort], PartialSimulation] = {}

    def submit(self, plan: Plan, executor: Executor, rung: Rung = "long") -> Future[Prediction]:
        """One simulation, begun; the same plan and seed give the same prediction whatever else is scored, and
        wherever. What is sent is the case, not the search: it may go to another machine."""
        from planner.simulator.simulate import PartialSimulation, predict

        effort, _, _ = RUNGS[rung]
        if (plan, effort) in self._begun:
            return executor.submit(PartialSimulation.finish, self._begun.pop((plan, effort)))
        return executor.submit(predict, *self._task(plan, effort))

    def _task(self, plan: Plan, effort: RungEffort) -> tuple[Case, Effort]:
        from planner.simulator.simulate import Effort

        return (
            self.cases.case(plan),
            Effort(
                seed=plan.seed(self.request.seed),
                precision=effort.precision or self.request.interval_width,
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
        return self.cases.adjusted(plan, begun.finish(_InlineExecutor(progress, done=1)))

    def predict_all(self, plans: Iterable[Plan], executor: Executor, rung: Rung = "long") -> list[Prediction]:
        """Predictions in the order of the plans, by any executor; what is known is not simulated again."""
        plans, known = list(plans), self._predictions
        effort, runs, _ = RUNGS[rung]
        for plan in plans:
            if (better := self._better(plan, rung)) is not None:
                known[plan, rung] = better
        new = [plan for plan in dict.fromkeys(plans) if (plan, rung) not in known]
        if runs is not None:
            self._begin(new, executor, rung, effort, runs)
        else:
            tasks = {plan: self.submit(plan, executor, rung) for plan in new}
            for plan, entry in _results(tasks):
                known[plan, rung] = self.cases.adjusted(plan, entry)
        return [known[plan, rung] for plan in plans]

    def scored(self, plans: Iterable[Plan], executor: Executor, rung: Rung = "long") -> list[ScoredPlan]:
        """The plans with their predictions, prices and bounds."""
        plans = list(plans)
        predictions = self.predict_all(plans, executor, rung)
        return [self.cases.scored(plan, found) for plan, found in zip(plans, predictions, strict=True)]

    def known(self, plan: Plan) -> Prediction | None:
        """The best prediction of a plan so far."""
        predictions = (self._predictions.get((plan, rung)) for rung in reversed(RUNGS))
        return next((match for match in predictions if match is not None), None)

    def _better(self, plan: Plan, rung: Rung) -> Prediction | None:
        """What a longer rung has said of a plan, of which a shorter one would make no more."""
        longer: tuple[Rung, ...] = ("long",) if RUNGS[rung][0] is LONG else ("long", "half", "trial")
        kept_longer = (self._predictions.get((plan, other)) for other in longer)
        return next((match for match in kept_longer if match is not None), None)

    def _begin(
        self, plans: Iterable[Plan], executor: Executor, rung: Rung, effort: RungEffort, runs: int
    ) -> None:
        """The first runs, or some more of them."""
        from planner.simulator.simulate import begin, resume

        tasks = {
            plan: executor.submit(resume, self._begun[plan, effort], runs)
            if (plan, effort) in self._begun
            else executor.submit(begin, *self._task(plan, effort), runs)
            for plan in plans
        }
        for plan, begun in _results(tasks):
            self._begun[plan, effort] = begun
            self._predictions[plan, rung] = self.cases.adjusted(plan, begun.prediction())


@contextmanager
def executor_of(
    executor: Executor | None = None, jobs: int | None = None, cluster: str | None = None
) -> Iterator[Executor]:
    """The given executor, left open; or that of the Dask scheduler at the address `cluster`; or a pool of
    threads that is closed at the end: what has not begun is dropped, what runs is stopped."""
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
    """Threads whose simulations end when `stop` is set: after Ctrl-C nobody waits for them."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.stop = threading.Event()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return super().submit(stoppable, self.stop, fn, *args, **kwargs)


def slots(executor: Executor) -> int:
    """How many simulations an executor runs at once, as far as it says."""
    known = getattr(executor, "slots", None) or getattr(executor, "_max_workers", None)
    return int(known or os.cpu_count() or 1)
