"""Whether a baseline plan beats any answer of `recommend`: `python benchmarks/robustness/domination.py
[--all]`.

For each model and kind of machine, `recommend` chooses the fastest plan of up to four machines and the
cheapest per sample. They are compared with simulations of one device, and of all-reduce over the devices of
one machine. An answer is dominated if a baseline is faster and cheaper per hour, or better by the objective,
beyond the intervals. Dominated answers are listed, with exit status 1. By default a few machines per model
are drawn from the catalog; `--all` takes every rentable machine, `--models` some models, `--part 2/4` the
second quarter.

One machine stands for all with equal figures (`alike`), as names and providers affect only random seeds, and
another price scales all costs. Cheap hosts of servers must be equal, too, at the same share of the price.

One answer serves for both objectives if the last rung holds no plan with diminishing returns
(`planner.search.objectives`); otherwise the other objective is searched on its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace

from planner.answers.recommend import recommend_for
from planner.answers.results import Recommendation
from planner.errors import BadInput, Infeasible, PlannerError
from planner.hardware import Hardware, Market
from planner.hardware.catalog import hardware_names, load_hardware
from planner.model.catalog import model_names
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.single import Alone
from planner.parallel.mesh import WHOLE
from planner.search.cases import Cases
from planner.search.flag_values import Objective
from planner.search.objectives import discounts
from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan
from planner.servers.lowering import cheap_servers

MACHINES = 3  # of each model, unless all are asked for
MOST = 4  # machines that an answer may have
OBJECTIVES: tuple[Objective, ...] = ("fastest", "cheapest")
WIDTH = 0.03  # half of an interval


@dataclass
class Count:
    """Numbers of answers, of models x machines they cover, and of those without an answer."""

    answers: int = 0
    stood_for: int = 0
    unanswered: int = 0
    beaten: list[str] = field(default_factory=list)

    def add(self, found: list[str] | None, machines: int) -> None:
        if found is None:
            self.unanswered += machines
            return
        self.answers += len(OBJECTIVES)
        self.stood_for += machines
        self.beaten += found

    def __str__(self) -> str:
        return (
            f"{self.answers:,} answers stand for {self.stood_for:,} models x machines, {len(self.beaten)} "
            f"dominated; {self.unanswered:,} more have no answer"
        )


def rented() -> list[Hardware]:
    """GPU machines for rent with a price."""
    kinds = map(load_hardware, hardware_names())
    return [
        kind
        for kind in kinds
        if kind.standing == "rentable"
        and kind.device.kind == "gpu"
        and kind.price.on_demand_usd_per_hour is not None
    ]


def alike(kind: Hardware, market: Market) -> Hashable:
    """All that plans on a machine ask of it. One without a network figure is never joined with others and
    never serves, so that neither its host nor its network is asked for anything."""
    links = kind.fabric and replace(kind.fabric, basis="published", source="", as_of="")
    inside = (kind.device, kind.kernels, kind.device_count, links, kind.calibration)
    if market.nic_bytes_per_s(kind) is None:
        return repr(inside)
    price = market.usd_per_hour(kind) or 0.0
    hosts = [(host.name, (market.usd_per_hour(host) or 0.0) / price) for host in cheap_servers(kind, market)]
    host = (kind.vcpus, kind.memory_bytes, hosts)
    flows = (market.nic_bytes_per_s(kind), kind.flow_bytes_per_s, kind.placement_group_flow_bytes_per_s)
    rdma = (kind.rdma, kind.rdma_kind, kind.rdma_bytes_per_s, kind.nics, kind.network_curves)
    return repr((inside, host, flows, rdma))


def classes(kinds: list[Hardware]) -> list[list[str]]:
    """Names of equivalent machines, in the order of the first of each."""
    market, result = Market(), dict[Hashable, list[str]]()
    for kind in kinds:
        result.setdefault(alike(kind, market), []).append(kind.name)
    return list(result.values())


def plain(answer: ScoredPlan, cases: Cases) -> Iterator[ScoredPlan]:
    """The baselines of an answer: one device, and all-reduce in one machine with all else equal."""
    devices = cases.market.find_machine(answer.plan.machine).device_count
    for workers, exchange in ((1, Alone()), (devices, AllReduce())):
        changed = replace(answer.plan, workers=workers, exchange=exchange, mesh=WHOLE)
        if changed == answer.plan or (workers == 1 and exchange.kind == "allreduce"):
            continue
        if (
            exchange.infeasibility(cases.site(changed))
            or cases.feasibility.out_of_memory(changed) is not None
        ):
            continue
        yield cases.score_plan(changed, cases.predict(changed))


def worse(answer: ScoredPlan, other: ScoredPlan, objective: Objective) -> bool:
    """Whether the other plan should have been the answer for any random seed."""
    mine, its = answer.prediction.samples_per_s_high, other.prediction.samples_per_s_low
    if its > mine and other.usd_per_hour <= answer.usd_per_hour:
        return True
    if objective == "fastest":
        return its > mine
    return other.usd_per_hour / its < answer.usd_per_hour / mine


def answers(request: Request) -> Iterator[tuple[Objective, ScoredPlan]]:
    """The answers of `recommend` for each objective."""
    first, *others = OBJECTIVES
    recommend = recommend_for(replace(request, objective=first), jobs=1, advice=False)
    yield first, recommend.chosen
    for objective in others:
        yield objective, end_of(recommend, replace(request, objective=objective))


def end_of(found: Recommendation, request: Request) -> ScoredPlan:
    """The answer for another objective, from the same search."""
    if any(discounts([scored.plan for scored in found.everything], request) != 1.0):
        return recommend_for(request, jobs=1, advice=False).chosen
    return next(plan for plan in found.plans if request.objective in plan.marks)


def dominated(model: str, machine: str) -> list[str] | None:
    """The plans that beat the answers, in words; None without an answer."""
    parts = []
    request = Request(model=model, hardware=(machine,), machines=MOST, interval_width=WIDTH)
    cases = Cases(request, model_of(request))
    try:
        for objective, answer in answers(request):
            for other in plain(answer, cases):
                if worse(answer, other, objective):
                    parts.append(
                        f"{model}, {objective}: {answer.plan.key} {answer.samples_per_s:.4g} samples/s at "
                        f"${answer.usd_per_hour:.2f}/h, but {other.plan.key} {other.samples_per_s:.4g} at "
                        f"${other.usd_per_hour:.2f}/h"
                    )
    except Infeasible:
        return None
    return parts


def part_of(models: list[str], part: str) -> list[str]:
    """Parse `2/4`: every fourth model from the second on."""
    at, _, of = part.partition("/")
    if not (at.isdigit() and of.isdigit() and 1 <= int(at) <= int(of)):
        raise BadInput(f"--part {part}; it is 1/4 to 4/4 where there are four")
    return models[int(at) - 1 :: int(of)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="every machine for every model")
    parser.add_argument("--models", help="only these, as resnet50,vgg11")
    parser.add_argument("--part", default="1/1", help="only every so manieth model, as 2/4")
    asked = parser.parse_args()
    kinds = classes(rented())
    names = asked.models.split(",") if asked.models else model_names()
    models, total = part_of(names, asked.part), Count()
    began = time.process_time()
    for at, model in enumerate(models):
        step = len(kinds) / MACHINES
        some = [kinds[int(at + step * entry) % len(kinds)] for entry in range(MACHINES)]
        of_model = Count()
        for machines in kinds if asked.all else some:
            try:
                result = dominated(model, machines[0])
            except PlannerError as error:
                print(f"{model} on {machines[0]}: {error}")
                result = None
            of_model.add(result, len(machines))
            total.add(result, len(machines))
            for line in result or ():
                print(line, flush=True)
        took = f"{time.process_time() - began:.0f} s of CPU so far"
        print(f"{at + 1} of {len(models)}, {model}: {of_model}; {took}", flush=True)
    print(total)
    return bool(total.beaten)


if __name__ == "__main__":
    sys.exit(main())
