"""How fast plans of large models are bounded, answered and simulated, in seconds of CPU.

    python benchmarks/speed/large_space.py             all of it, about half a minute of CPU
    python benchmarks/speed/large_space.py --quick     without the whole answer

Bounded: every plan of the space (machines x devices x tensor x pipeline x micro-batch x accumulation x
recompute x exchange) is made, its memory counted and its throughput bounded. Targets: 5,000 plans of
llama3-70b a second, the answer below 10 s, one simulated step of llama3-405b on 1,024 devices below 1 s.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from planner.answers.questions import parse_request, single_plan
from planner.answers.recommend import recommend_for
from planner.search.cases import Cases
from planner.search.field import candidate_machines
from planner.search.request import model_of
from planner.search.space import enumerate_plans
from planner.simulator.simulate import Effort, simulate_case

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What work gives, and its seconds of CPU in all threads."""
    before = time.process_time()
    result = work()
    return result, time.process_time() - before


def bounded(model: str, budget: float, global_batch: int) -> None:
    request = parse_request(model=model, budget=budget, global_batch=global_batch)
    cases = Cases(request, model_of(request))
    field, field_s = timed(lambda: candidate_machines(cases))
    space, made_s = timed(lambda: enumerate_plans(request, cases.model, machines=field.machines))
    _, bounds_s = timed(lambda: cases.bounds(space.plans))
    plans, looked = len(space.plans), space.considered
    print(
        f"{model}, ${budget:g} per hour, global batch {global_batch}: {looked:,} plans, {plans:,} fit\n"
        f"  machines {field_s:.2f} s, plans and memory {made_s:.2f} s, bounds {bounds_s:.2f} s of CPU\n"
        f"  {looked / (made_s + bounds_s):,.0f} plans a second made, fitted and bounded; "
        f"{plans / bounds_s:,.0f} bounds a second"
    )
    again = Cases(request, cases.model)
    _, warm_s = timed(lambda: again.bounds(space.plans))
    print(f"  with what follows from the model known: {plans / warm_s:,.0f} bounds a second")


def answered(model: str, budget: float, global_batch: int) -> None:
    request = parse_request(model=model, budget=budget, global_batch=global_batch)
    result, seconds = timed(lambda: recommend_for(request, jobs=1))
    plan = result.chosen.plan
    print(
        f"recommend {model}: {seconds:.2f} s of CPU; {plan.cluster_text}, {plan.exchange.labels().cell}, "
        f"{plan.settings_text}"
    )


def stepped(workers: int, **words: str | int) -> None:
    request = parse_request(
        model="llama3-405b",
        hardware="p5.48xlarge",
        workers=workers,
        recompute="full",
        batch=1,
        **words,  # type: ignore[arg-type]
    )
    cases = Cases(request, model_of(request))
    plan = single_plan(request)
    case, lowered_s = timed(lambda: cases.case(plan))
    prediction, seconds = timed(lambda: simulate_case(case, Effort(max_steps=1, precision=0.5)))
    steps = prediction.steps / case.cluster.workers
    print(
        f"one step of llama3-405b on {workers:,} devices, {plan.settings_text}: "
        f"{seconds / max(steps, 1):.3f} s of CPU "
        f"({seconds:.2f} s for {steps:g} steps, {prediction.events:,} events; lowered in {lowered_s:.2f} s)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="without the whole answer")
    asked = parser.parse_args()
    bounded("llama3-70b", 500, 1024)
    stepped(1024, exchange="sharded")
    stepped(1024, exchange="sharded:stage=2", tensor=8, pipeline=16, global_batch=1024)
    if not asked.quick:
        answered("llama3-70b", 500, 1024)
    return 0


if __name__ == "__main__":
    sys.exit(main())
