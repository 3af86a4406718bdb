"""Simulating plans into a store that several processes may share; and optuna's studies from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import suppress
from functools import partial

import msgspec

from planner.answers.store import Store, StoreFailed
from planner.errors import BadInput, Infeasible, PlannerError
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.executors import slots
from planner.search.rungs import Rung
from planner.search.simulations import Simulations
from planner.simulator.prediction import Prediction

LOOK_S = 0.2  # how often to look whether others have finished, once nothing is left to claim
REFUSALS = (BadInput, Infeasible)  # what a plan itself cannot do
LOST = (MemoryError, OSError, BrokenExecutor)  # what the machine could not
Submit = Callable[[Executor], Future[Prediction]]


def fill(
    store: Store,
    tasks: Mapping[int, Submit],
    pool: Executor,
    *,
    among: Sequence[int] = (),
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """Claim, simulate and store until every plan of the store, or of those named, has a result."""
    most, flying = 2 * slots(pool), dict[Future[Prediction], int]()
    store.release()  # what an earlier attempt of this process could not give back
    try:
        while True:
            for number in store.claim(most - len(flying), among) if len(flying) < most else ():
                try:
                    flying[tasks[number](pool)] = number
                except REFUSALS as error:  # no schedule, no profile: the same in every attempt
                    store.finish(number, encoded(error))
            done, total = store.counts(among)
            progress(done, total)
            if done == total:
                return
            if not flying:
                time.sleep(LOOK_S)  # other processes have the rest; if one dies, its plans are ours
                continue
            for future in wait(flying, timeout=1.0, return_when=FIRST_COMPLETED).done:
                store.finish(flying.pop(future), _outcome(future))
    finally:
        for future in flying:
            future.cancel()
        with suppress(StoreFailed):  # which said so already; the next to come frees what is ours
            store.release()


def _outcome(future: Future[Prediction]) -> str:
    """What to store of a simulation: its prediction, or why the plan has none. What the machine could not do
    is no property of the plan: nothing is stored, and whoever goes on with the store does it again."""
    try:
        return encoded(future.result())
    except REFUSALS as error:
        return encoded(error)
    except Exception as error:
        if isinstance(error, LOST) or type(error).__module__.startswith("distributed"):
            said = f"{type(error).__name__} {error}".strip()
            raise PlannerError(
                f"the machine lost a simulation ({said}); what is done is stored, run again to go on"
            ) from error
        raise


def encoded(result: Prediction | PlannerError) -> str:
    """What a store keeps: a prediction, or why there is none."""
    if isinstance(result, PlannerError):
        return msgspec.json.encode({"refused": str(result)}).decode()
    return msgspec.json.encode({"prediction": result.record()}).decode()


def decoded(text: str) -> Prediction | str:
    """A prediction, or the reason why there is none."""
    found = msgspec.json.decode(text)
    return str(found["refused"]) if "refused" in found else Prediction.read(found["prediction"])


class RememberingSimulations(Simulations):
    """Simulations that look into the store first, and store what they did.

    A study of optuna's asks for the same plans again if it gets the same answers. So a study that was killed
    is simply begun again: as far as it got, all answers are in the store, and it ends as if undisturbed."""

    def __init__(self, cases: Cases, store: Store) -> None:
        super().__init__(cases)
        self.store = store

    def predict_all(self, plans: Iterable[Plan], executor: Executor, rung: Rung = "long") -> list[Prediction]:
        plans = list(plans)
        if not plans:
            return []
        numbers = self.store.add([plan.key for plan in plans])
        tasks = {number: partial(self.submit, plan) for number, plan in zip(numbers, plans, strict=True)}
        fill(self.store, tasks, executor, among=numbers)
        results = self.store.results(numbers)
        found = [decoded(results[number]) for number in numbers]
        for one in found:
            if isinstance(one, str):
                raise BadInput(one)
        return [one for one in found if isinstance(one, Prediction)]
