"""Relations between answers that hold for any figures, over all exchanges and precisions.

    python benchmarks/robustness/metamorphic.py                         # 2,000 plans and 200 small spaces
    python benchmarks/robustness/metamorphic.py --plans 100 --spaces 10 --seed 3

For one plan: twice the bandwidth or devices faster by a quarter are not slower beyond the intervals; doubled
times halve the throughput; the bound is not below the prediction; saturation agrees with simulate. For a
small space: more bandwidth, faster devices, lower prices or a larger budget give no worse answer; the answer
is the best of simulating every plan.

A broken relation is checked again with a narrow interval and another seed. Asynchronous workers of servers
may fall into lockstep, and a transfer that is ready earlier may delay one of higher priority (Graham's
anomalies): theory allows both, and they are counted apart.

Questions are requests for one plan, or for the best of a small space, drawn over all exchanges, precisions
and kinds of machines; infeasible ones are drawn again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.answers.questions import single_plan
from planner.answers.recommend import recommend_for
from planner.answers.saturation import saturation_for
from planner.device.precision import PRECISIONS
from planner.errors import PlannerError
from planner.hardware import Hardware, Market
from planner.parallel.data import EXCHANGES
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.flag_values import MIN_MARGINAL_EFFICIENCY, Objective
from planner.search.rank import TIED_SCORE, Contenders
from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan
from planner.simulator.simulate import Case, Effort, simulate_case
from planner.simulator.statistics import Prediction

NEAR_FASTEST = 0.02  # "fastest" is the cheapest of the plans within this of the highest throughput
NARROW = {"interval_width": 0.004, "max_steps": 4000}
ROUNDING = 1e-9
NOTHING = 1e-4  # the intervals of plans in lockstep are narrower than what is worth a word
SHORT_LOOK = 0.04  # points of a curve may be off by so much beyond their intervals (RungEffort.bias)
NETWORKS = ("mnist-adam", "alexnet", "vgg11", "googlenet", "resnet18", "resnet50", "efficientnet-b0")
TRANSFORMERS = ("gpt2", "bert-base", "vit-b16", "mpt-125m", "t5-base")
MACHINES = {  # by name, the devices of one
    **{"p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8, "g4dn.xlarge": 1, "g4dn.12xlarge": 4},
    **{"g5.xlarge": 1, "g5.12xlarge": 4, "g6.xlarge": 1, "p4d.24xlarge": 8, "p5.48xlarge": 8},
    **{"c4.8xlarge": 1, "c5.9xlarge": 1, "private-opteron": 1},
}
POLICIES = ("multiplexed", "fifo", "tic", "tac", "layer", "shuffled", "p3", "bytescheduler", "prophet")
LITTLE = {"interval_width": 0.05, "max_steps": 120}


def question(chance: random.Random, exchange: str | None = None) -> Request:
    """A random request for one plan, which may be infeasible."""
    machine = chance.choice(list(MACHINES))
    kind = exchange or chance.choice(list(EXCHANGES))
    devices = MACHINES[machine]
    many = devices * chance.choice((1, 1, 2, 3, 4)) if devices > 1 else chance.choice((1, 2, 3, 4, 6, 8, 12))
    given: dict[str, object] = {"exchanges": ((kind, {}),), "workers": (1 if kind == "alone" else many,)}
    if kind == "servers":
        given |= {
            "servers": (chance.choice((1, 1, 2, 4)),),
            "server_hardware": (chance.choice(("own", "colocated", "c5n.large")),),
            "policies": (chance.choice(POLICIES),),
            "mode": chance.choice(("async", "sync")),
            "placements": (chance.choice(("greedy", "round-robin")),),
        }
    return Request(
        model=chance.choice(NETWORKS if chance.random() < 0.6 else TRANSFORMERS),
        hardware=(machine,),
        batches=(chance.choice((1, 2, 4, 8, 16, 32)),),
        formats=(chance.choice(list(PRECISIONS)),),
        bandwidth_bytes_per_s=chance.choice((None, None, 2.5e7, 1.25e8, 1.25e9, 1.25e10)),
        seed=chance.randrange(4),
        **LITTLE,
        **given,  # type: ignore[arg-type]
    )


def planned(request: Request) -> tuple[Plan, Cases] | None:
    """The plan of a request; None if it is infeasible."""
    try:
        plan, cases = single_plan(request), Cases(request, model_of(request))
        cases.check(plan)
        cases.case(plan)
    except PlannerError:
        return None
    return plan, cases


def numbered(seed: int, number: int) -> Request:
    """The feasible question of a number, cycling through the exchanges."""
    chance = random.Random(f"{seed}/{number}")
    kinds = list(EXCHANGES)
    while True:
        request = question(chance, kinds[number % len(kinds)])
        if planned(request) is not None:
            return request


def small_space(chance: random.Random) -> Request:
    """A request with tens of plans: a few machines, counts and exchanges."""
    budget = chance.choice((None, 5.0, 20.0, 60.0))
    kinds = chance.sample(list(EXCHANGES), chance.choice((2, 3, 4)))
    served: dict[str, Any] = {
        "servers": (1, 2),
        "server_hardware": ("own",),
        "policies": ("multiplexed",),
        "placements": ("greedy",),
        "mode": chance.choice(("async", "sync")),
    }
    return Request(
        model=chance.choice(NETWORKS if chance.random() < 0.7 else TRANSFORMERS),
        hardware=tuple(chance.sample(list(MACHINES)[:-1], chance.choice((1, 2, 2)))),
        workers=(1, 2, 4, 8),
        **(served if "servers" in kinds else {}),
        exchanges=tuple((kind, {}) for kind in kinds),
        batches=(chance.choice((4, 16, 32)),),
        formats=(chance.choice(("fp32", "fp32", "fp16", "bf16")),),
        bandwidth_bytes_per_s=chance.choice((None, 1.25e8, 1.25e9)),
        budget_usd_per_hour=budget,
        objective="fastest" if budget is not None else chance.choice(("fastest", "cheapest")),
        seed=chance.randrange(4),
        **LITTLE,  # type: ignore[arg-type]
    )


@dataclass
class Count:
    """How often a relation was checked, and the outcomes."""

    tried: int = 0
    broken: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)  # by theory: phases, priorities


@dataclass
class Counts:
    by_relation: dict[str, Count] = field(default_factory=dict)
    by_exchange: Counter[str] = field(default_factory=Counter)
    by_precision: Counter[str] = field(default_factory=Counter)

    def of(self, relation: str) -> Count:
        return self.by_relation.setdefault(relation, Count())

    @property
    def broken(self) -> int:
        return sum(len(count.broken) for count in self.by_relation.values())


def in_market(request: Request, change: Callable[[Hardware], Hardware]) -> Request:
    """The request with other figures of its machines."""
    other = replace(
        request,
    )
    kinds = request.market.select_machines(request.hardware_words)
    terms = (request.network_used, request.bandwidth_bytes_per_s, request.region, request.spot)
    vars(other)["market"] = Market(*terms, own=tuple(map(change, kinds)))
    return other


def faster(machine: Hardware, factor: float = 1.25) -> Hardware:
    """The machine with devices faster by a factor."""
    device, kernels = machine.device, machine.kernels
    memory = device.memory_bytes_per_s
    quick = replace(
        device,
        flops={name: value * factor for name, value in device.flops.items()},
        matmul_flops={name: value * factor for name, value in device.matmul_flops.items()},
        memory_bytes_per_s=None if memory is None else memory * factor,
    )
    if kernels is not None:
        rates = {name: value * factor for name, value in kernels.rates.items()}
        kernels = replace(kernels, rates=rates, overhead_s=kernels.overhead_s / factor)
    return replace(machine, device=quick, kernels=kernels)


def cheaper(machine: Hardware, factor: float = 0.8) -> Hardware:
    price = machine.price
    hourly = price.on_demand_usd_per_hour
    return replace(
        machine, price=replace(price, on_demand_usd_per_hour=None if hourly is None else hourly * factor)
    )


def slower_by_two(case: Case) -> Case:
    """The plan with all times doubled: computing, latencies, overheads and seconds per byte."""
    step, cluster, policy = case.profile, case.cluster, case.policy
    down = policy.download_overhead_s
    nodes = tuple(
        replace(
            node,
            egress_bytes_per_s=node.egress_bytes_per_s / 2,
            ingress_bytes_per_s=node.ingress_bytes_per_s / 2,
        )
        for node in cluster.nodes
    )
    starts = None if step.starts_s is None else step.starts_s * 2
    return replace(
        case,
        profile=replace(
            step, durations_s=step.durations_s * 2, latency_s=step.latency_s * 2, starts_s=starts
        ),
        cluster=replace(cluster, nodes=nodes, flow_bytes_per_s=cluster.flow_bytes_per_s / 2),
        policy=replace(
            policy,
            overhead_s=policy.overhead_s * 2,
            download_overhead_s=None if down is None else down * 2,
        ),
    )


def more_bandwidth(request: Request) -> Request:
    known = [
        request.market.nic_bytes_per_s(kind)
        for kind in request.market.select_machines(request.hardware_words)
    ]
    now = request.bandwidth_bytes_per_s or max((rate for rate in known if rate), default=1.25e9)
    return replace(request, bandwidth_bytes_per_s=2 * now)


def predicted(request: Request) -> tuple[Plan, Cases, Prediction]:
    result = planned(request)
    assert result is not None
    plan, cases = result
    return plan, cases, cases.predict(plan)


def worse(before: Prediction, after: Prediction) -> float:
    """The share by which the second is below the first beyond both intervals; 0 if it is not."""
    if after.samples_per_s_high >= before.samples_per_s_low * (1 - NOTHING):
        return 0.0
    return 1 - after.samples_per_s / before.samples_per_s


CHANGES: dict[str, Callable[[Request], Request]] = {
    "twice the bandwidth": more_bandwidth,
    "devices a quarter faster": lambda item: in_market(item, faster),
}


def check_plan(request: Request, counts: Counts, relations: Sequence[str] = tuple(CHANGES)) -> None:
    """Check the relations between a plan and its variations."""
    plan, cases, before = predicted(request)
    counts.by_exchange[plan.exchange.kind] += 1
    counts.by_precision[plan.precision.name] += 1
    for relation in relations:
        count, change = counts.of(relation), CHANGES[relation]
        count.tried += 1
        if not worse(before, predicted(change(request))[2]):
            continue
        again = replace(request, seed=request.seed + 100, **NARROW)
        lost = worse(predicted(again)[2], predicted(change(again))[2])
        if lost:
            allowed = is_asynchronous(plan, cases) or has_priorities(cases.case(plan))
            (count.allowed if allowed else count.broken).append(f"{plan.key} (-{lost:.1%}) seed {again.seed}")
    bound = counts.of("the bound is not below")
    bound.tried += 1
    if before.samples_per_s_low > cases.bound(plan) * (1 + ROUNDING):
        bound.broken.append(f"{plan.key} bound {cases.bound(plan):.6g} below {before.samples_per_s_low:.6g}")
    halved = counts.of("all times doubled give half")
    halved.tried += 1
    effort = Effort(
        seed=plan.simulation_seed(request.seed), precision=1.0, max_steps=request.max_steps, first_runs=2
    )
    case = cases.case(plan)
    normal, slow = (simulate_case(c, effort).samples_per_s for c in (case, slower_by_two(case)))
    if abs(2 * slow / normal - 1) > ROUNDING:
        halved.broken.append(f"{plan.key} {slow:.9g} of {normal:.9g}")


def is_asynchronous(plan: Plan, cases: Cases) -> bool:
    return plan.exchange.is_asynchronous and not cases.case(plan).is_lockstep()


def has_priorities(case: Case) -> bool:
    return case.policy.kind in ("ordered", "sliced", "credit", "blocks")


def asked(request: Request, **more: bool) -> ScoredPlan | None:
    """The answer of a small space; None if no plan is feasible."""
    try:
        return recommend_for(request, jobs=1, advice=False, **more).chosen
    except PlannerError:
        return None


def worse_answer(before: ScoredPlan, after: ScoredPlan | None, goal: Objective) -> bool:
    """Whether the second answer is worse than the first beyond the intervals."""
    if after is None:
        return True
    first, two = before.prediction, after.prediction
    slower = two.samples_per_s_high < first.samples_per_s_low * (1 - NEAR_FASTEST)
    # of plans that are statistically tied the more certain one is chosen, though it may be a little slower
    both = Contenders([before.candidate(), after.candidate()], goal, MIN_MARGINAL_EFFICIENCY)
    slower = slower and bool(both.score_better(0)[1] <= -TIED_SCORE)
    least = after.usd_per_hour / two.samples_per_s_high
    costs_more = least > before.usd_per_hour / first.samples_per_s_low * (1 + ROUNDING)
    return {"fastest": slower, "cheapest": costs_more}.get(goal, slower and costs_more)


def check_space(request: Request, counts: Counts) -> bool:
    """Check the relations of a small space; False if it holds no plan."""
    before = asked(request)
    if before is None:
        return False
    budget = request.budget_usd_per_hour
    changes: dict[str, Callable[[Request], Request]] = {
        "an answer with twice the bandwidth": more_bandwidth,
        "an answer with faster devices": lambda item: in_market(item, faster),
        "an answer with lower prices": lambda item: in_market(item, cheaper),
    }
    if budget is not None:
        changes["an answer with a larger budget"] = lambda item: replace(
            item, budget_usd_per_hour=1.5 * budget
        )
    for relation, change in changes.items():
        count = counts.of(relation)
        count.tried += 1
        if worse_answer(before, asked(change(request)), request.goal):
            narrow = replace(request, seed=request.seed + 100, **NARROW)
            first, second = asked(narrow), asked(change(narrow))
            if first is not None and worse_answer(first, second, request.goal):
                words = f"{request.model} on {request.hardware} {request.exchanges} seed {narrow.seed}"
                allowed = first.plan.exchange.is_asynchronous
                (count.allowed if allowed else count.broken).append(f"{words}: {first.plan.key}")
    count = counts.of("the answer of simulating every plan")
    count.tried += 1
    every = asked(request, exhaustive=True)
    if every is None or every.plan != before.plan:
        count.broken.append(f"{before.plan.key} instead of {every.plan.key if every else 'none'}")
    return True


def check_saturation(request: Request, counts: Counts) -> None:
    """Check every point of a curve against `simulate` for as many workers."""
    count = counts.of("saturation says what simulate says")
    try:
        curve = saturation_for(replace(request, workers=None), max_workers=8, jobs=1)
    except PlannerError:
        return
    for point in curve.points:
        count.tried += 1
        plan, seen = point.scored.plan, point.scored.prediction
        alone = Cases(request, model_of(request)).predict(plan)
        apart = max(worse(alone, seen), worse(seen, alone))
        if apart > SHORT_LOOK:
            count.broken.append(f"{plan.key}: {seen.samples_per_s:.6g}, simulate {alone.samples_per_s:.6g}")


def spaces(seed: int) -> Iterator[Request]:
    chance = random.Random(f"spaces/{seed}")
    while True:
        yield small_space(chance)


def run(plans: int, small: int, curves: int, seed: int, say: Callable[[str], None]) -> Counts:
    """Check all relations over plans, spaces and curves."""
    counts, begin, told = Counts(), time.process_time(), set[str]()

    def tell() -> None:
        for name, count in counts.by_relation.items():
            for words in set(count.broken) - told:
                told.add(words)
                say(f"BROKEN {name}: {words}")

    for number in range(1, plans + 1):
        check_plan(numbered(seed, number), counts, [list(CHANGES)[number // 4 % len(CHANGES)]])
        tell()
        if number % 200 == 0:
            say(f"{number} plans, {time.process_time() - begin:.0f} s of CPU, {counts.broken} broken")
    endless, done = spaces(seed), 0
    while done < small:
        done += check_space(next(endless), counts)
        tell()
        if done and done % 50 == 0:
            say(f"{done} spaces, {time.process_time() - begin:.0f} s of CPU, {counts.broken} broken")
    for number in range(curves):
        check_saturation(numbered(seed + 1, number), counts)
        tell()
    return counts


def report(counts: Counts) -> None:
    print(f"{'relation':40} {'tried':>6} {'broken':>7} {'by theory':>10}")
    for name, count in counts.by_relation.items():
        print(f"{name:40} {count.tried:6,} {len(count.broken):7,} {len(count.allowed):10,}")
    print("plans by exchange:", ", ".join(f"{n} {name}" for name, n in counts.by_exchange.items()))
    print("plans by precision:", ", ".join(f"{n} {name}" for name, n in counts.by_precision.items()))
    for name, count in counts.by_relation.items():
        for words in count.allowed:
            print(f"by theory, {name}: {words}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, default=2000)
    parser.add_argument("--spaces", type=int, default=200)
    parser.add_argument("--curves", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    counts = run(args.plans, args.spaces, args.curves, args.seed, lambda words: print(words, flush=True))
    report(counts)
    return int(counts.broken > 0)


if __name__ == "__main__":
    sys.exit(main())
