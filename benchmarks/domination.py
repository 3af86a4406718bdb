"""Is any answer of `recommend` beaten by a plain plan? `python benchmarks/domination.py [--all]`.

For each model and kind of machine `recommend` is asked for the fastest plan of up to four such machines and
for the cheapest sample. Beside it stand, simulated on their own, one device alone and all-reduce over the
devices of one machine, as far as they fit in memory. An answer is dominated if one of these is faster and
costs less an hour, or is what was asked for more than the answer is, beyond what the intervals leave open.
Lists what is dominated; the exit code is 1 if anything is. A few machines for each model, spread over the
catalogue, take some CPU minutes; `--all` takes every machine that can be rented, `--models` only some models.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from planner.answers.recommend import recommend_for
from planner.catalog import hardware_names, load_hardware, model_names
from planner.errors import Infeasible, PlannerError
from planner.exchange import AllReduce, Alone
from planner.search.cases import Cases
from planner.search.request import Objective, Request, model_of
from planner.search.scored import ScoredPlan
from planner.search.simulations import Simulations

MACHINES = 3  # of each model, unless all are asked for
MOST = 4  # machines that an answer may have
OBJECTIVES: tuple[Objective, ...] = ("fastest", "cheapest")
WIDTH = 0.03  # half of an interval


def rented() -> list[str]:
    """GPU machines that can be rented, with a price and a network."""
    kinds = map(load_hardware, hardware_names())
    return [
        kind.name
        for kind in kinds
        if kind.standing == "rentable"
        and kind.device.kind == "gpu"
        and kind.price.on_demand_usd_per_hour is not None
        and kind.nic_bytes_per_s("baseline") is not None
    ]


def plain(answer: ScoredPlan, cases: Cases, simulations: Simulations) -> Iterator[ScoredPlan]:
    """One device alone, and all-reduce in one machine, with all else as in the answer."""
    devices = cases.market.machine(answer.plan.machine).device_count
    for workers, exchange in ((1, Alone()), (devices, AllReduce())):
        one = replace(answer.plan, workers=workers, exchange=exchange)
        if one == answer.plan or (workers == 1 and exchange.kind == "allreduce"):
            continue
        if exchange.refusal(cases.site(one)) or cases.fitting.misfit(one) is not None:
            continue
        yield cases.scored(one, simulations.predict(one))


def worse(answer: ScoredPlan, other: ScoredPlan, objective: Objective) -> bool:
    """Whether the other plan should have been the answer, whatever the runs drew."""
    mine, its = answer.prediction.samples_per_s_high, other.prediction.samples_per_s_low
    if its > mine and other.usd_per_hour <= answer.usd_per_hour:
        return True
    if objective == "fastest":
        return its > mine
    return other.usd_per_hour / its < answer.usd_per_hour / mine


def dominated(model: str, machine: str) -> list[str] | None:
    """What beats the answers, in words; None if nothing can be answered."""
    found = []
    for objective in OBJECTIVES:
        request = Request(
            model=model, hardware=(machine,), machines=MOST, objective=objective, interval_width=WIDTH
        )
        try:
            answer = recommend_for(request, jobs=1, advice=False).chosen
        except Infeasible:
            return None
        cases = Cases(request, model_of(request))
        for other in plain(answer, cases, Simulations(cases)):
            if worse(answer, other, objective):
                found.append(
                    f"{model}, {objective}: {answer.plan.key} {answer.samples_per_s:.4g} samples/s at "
                    f"${answer.usd_per_hour:.2f}/h, but {other.plan.key} {other.samples_per_s:.4g} at "
                    f"${other.usd_per_hour:.2f}/h"
                )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="every machine for every model")
    parser.add_argument("--models", help="only these, as resnet50,vgg11")
    asked = parser.parse_args()
    machines = rented()
    models = asked.models.split(",") if asked.models else model_names()
    answers, beaten, began = 0, [], time.process_time()
    for at, model in enumerate(models):
        step = len(machines) / MACHINES
        some = [machines[int(at + step * one) % len(machines)] for one in range(MACHINES)]
        for machine in machines if asked.all else some:
            try:
                found = dominated(model, machine)
            except PlannerError as error:
                print(f"{model} on {machine}: {error}")
                continue
            answers += len(OBJECTIVES) * (found is not None)
            for line in found or ():
                print(line, flush=True)
                beaten.append(line)
    took = time.process_time() - began
    print(f"{answers} answers over {len(models)} models, {len(beaten)} dominated; {took:.0f} s of CPU")
    return bool(beaten)


if __name__ == "__main__":
    sys.exit(main())
