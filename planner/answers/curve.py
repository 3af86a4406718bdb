"""The curve of throughput by number of workers: where it begins, which numbers are tried, where it turns.

It begins with the fewest workers that hold the model. Numbers are doubled until throughput no longer grows;
then what lies around the turns is looked at until neighbours are within a tenth or one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import inf

from planner.errors import BadInput, Infeasible
from planner.hardware import Market
from planner.model import Model
from planner.note import Note, Progress, Topic
from planner.parallel.data import EXCHANGES, Tier
from planner.parallel.data.fsdp import memory_saving_variants
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.flag_values import MOST_WORKERS
from planner.search.request import Request
from planner.search.scored import ScoredPlan
from planner.search.simulations import Simulations, half_width
from planner.search.sizes import MAX_LARGE_WORKERS, recompute_options, with_workers

FEW_POINTS = 8  # that are all looked at
CHUNK = 2  # points simulated at once; fixed, so that the result does not depend on the number of threads
FEW_WORKERS = 3  # up to so many, short runs came out up to half a percent low
WIDE = 0.03  # half the width of an interval, relative
APART = 1.1  # neighbours of a number that is answered are looked at until they are as near as this
DOUBLED = 2.0  # times the least cost of a sample
FLAT = 0.005  # by which a doubling of workers must raise throughput to go on


@dataclass(eq=False)
class WorkersCurve:
    """Throughput by number of workers: a plan for each count, and the scored ones."""

    asked: Mapping[int, Plan]
    simulations: Simulations
    known: dict[int, ScoredPlan | None] = field(default_factory=dict)

    @cached_property
    def counts(self) -> list[int]:
        """Worker counts that may be scored, in ascending order."""
        return list(self.asked)

    def score_counts(self, counts: Sequence[int]) -> None:
        """Scores the plans of these worker counts that are not scored yet, and adds them to the curve."""
        cases = self.simulations.cases
        plans = {count: fitting_plan(self.asked[count], cases) for count in counts if count not in self.known}
        self.known |= {count: None for count, plan in plans.items() if plan is None}
        held = {count: plan for count, plan in plans.items() if plan is not None}
        try:
            scored = score_points(list(held.values()), self.simulations)
            self.known.update(zip(held, scored, strict=True))
        except KeyboardInterrupt:
            for count, plan in held.items():
                if (ended := self.simulations.longest_prediction(plan)) is not None:
                    self.known[count] = self.simulations.cases.score_plan(plan, ended)
            raise

    @property
    def points(self) -> list[ScoredPlan]:
        """Scored plans sorted by number of workers."""
        return [scored for _, scored in sorted(self.known.items()) if scored is not None]

    def middle_count(self, low: int, high: int) -> int | None:
        """Unscored or feasible count nearest to the geometric mean of two others; None if they are close."""
        if high <= low * APART:
            return None
        inside = [
            count for count in self.counts if low < count < high and self.known.get(count, 0) is not None
        ]
        return min(inside, key=lambda count: abs(count - (low * high) ** 0.5), default=None)


@dataclass(frozen=True, slots=True)
class TurningPoints:
    """Indices of a curve's turning points.

    `worth` is the last point worth its cost, `doubled` the first at twice the least cost per sample, `peak`
    the fastest.
    """

    worth: int
    doubled: int | None
    peak: int


def find_turning_points(
    points: Sequence[ScoredPlan], min_marginal_efficiency: float, most_step_samples: float = inf
) -> TurningPoints:
    """Indices of the last point worth its cost, of the first that costs twice the least, and of the peak.

    Points above `most_step_samples` per step are never worth their cost.
    """
    speed = [point.samples_per_s for point in points]
    usd_per_s = [price_per_s(point) for point in points]
    cost = [usd / rate for usd, rate in zip(usd_per_s, speed, strict=True)]
    value = min(cost) / min_marginal_efficiency
    usual = [i for i, point in enumerate(points) if step_samples(point.plan) <= most_step_samples] or [0]
    worth = max(usual, key=lambda i: (value * speed[i] - usd_per_s[i], -i))
    least = cost.index(min(cost))
    doubled = next((i for i in range(least, len(cost)) if cost[i] >= DOUBLED * cost[least]), None)
    return TurningPoints(worth, doubled, speed.index(max(speed)))


def step_samples(plan: Plan) -> int:
    """Samples of all replicas per optimizer step."""
    return plan.samples_per_step * max(plan.replicas, 1)


def price_per_s(scored: ScoredPlan) -> float:
    """Price in USD per second; the number of machines for plans without a price."""
    if scored.priced:
        return scored.usd_per_hour * scored.time_factor / 3600
    return float(sum(cost.count for cost in scored.costs) or scored.plan.machines)


def worker_counts(minimum: int, maximum: int, step: int, per_machine: int) -> list[int]:
    """Worker counts to try: single devices of the first machine, then whole machines."""
    if step > 1 or per_machine == 1:
        return list(range(minimum, maximum + 1, step))
    whole = range(2 * per_machine, maximum + 1, per_machine)
    return [*range(minimum, min(per_machine, maximum) + 1), *(count for count in whole if count > minimum)]


def score_doublings(curve: WorkersCurve, progress: Progress) -> None:
    """Scores doubled worker counts, adding them to the curve, until throughput stops growing."""
    ladder = doublings(curve.counts)
    for start in range(0, len(ladder), CHUNK):
        curve.score_counts(ladder[start : start + CHUNK])
        progress("adding workers", min(start + CHUNK, len(ladder)), len(ladder) + 1)
        points = curve.points
        speeds = [point.samples_per_s for point in points]
        if len(speeds) > 2 and speeds[-1] < max(speeds[:-1]) * (1 + FLAT):
            return


def doublings(counts: Sequence[int]) -> list[int]:
    """Worker counts that are each at least twice the one before, plus the last; all of them if few."""
    if len(counts) <= FEW_POINTS:
        return list(counts)
    kept = list(counts[:1])
    for count in counts[1:]:
        if count >= 2 * kept[-1]:
            kept.append(count)
    return kept if kept[-1] == counts[-1] else [*kept, counts[-1]]


def refine_turning_points(
    curve: WorkersCurve, min_marginal_efficiency: float, most_step_samples: float, progress: Progress
) -> None:
    """Scores worker counts next to the turning points until no close neighbour is left to score."""
    while True:
        points = curve.points
        workers = [point.plan.workers for point in points]
        turns = find_turning_points(points, min_marginal_efficiency, most_step_samples)
        gaps = set[tuple[int, int]]()
        for i in (turns.worth, turns.peak) if turns.peak < len(points) - 1 else (turns.worth,):
            gaps |= set(pairwise(workers[max(i - 1, 0) : i + 2]))
        if turns.doubled is not None and turns.doubled > 0:
            gaps.add((workers[turns.doubled - 1], workers[turns.doubled]))
        new = sorted(
            {count for gap in gaps if (count := curve.middle_count(*gap)) is not None} - set(curve.known)
        )
        if not new:
            progress("adding workers", 1, 1)
            return
        curve.score_counts(new)


def score_points(plans: Sequence[Plan], simulations: Simulations) -> list[ScoredPlan]:
    """Scores plans by brief simulations, and by full ones where the interval stays wide."""
    simulations.cases.bounds(plans)
    few = [plan for plan in plans if plan.replicas <= FEW_WORKERS]
    many = [plan for plan in plans if plan.replicas > FEW_WORKERS]
    short = [*simulations.score_plans(few, "trial"), *simulations.score_plans(many, "medium")]
    wide = [entry.plan for entry in short if half_width(entry.prediction) > WIDE * entry.samples_per_s]
    by_name = {plan.plan: plan for plan in [*short, *simulations.score_plans(wide, "long")]}
    return [by_name[plan] for plan in plans]


def plan_with_minimum_workers(plan: Plan, market: Market) -> Plan:
    """Returns the plan with at least as many workers as its strategy needs.

    Parameter servers may need machines of their own.
    """
    step = max(1, plan.mesh.size)
    for more in range(0, MOST_WORKERS, step):
        enough = replace(plan, workers=plan.workers + more)
        if enough.exchange.infeasibility(enough.site(market)) is None:
            return enough
    return plan


def minimum_feasible_plan(plan: Plan, cases: Cases, plan_for: Callable[[Request], Plan]) -> Plan:
    """Smallest plan that fits in memory: the given one, or one on more machines.

    It is sharded if no strategy is named. `plan_for` makes the plan of a request.
    """
    request, market = cases.request, cases.market
    fits = cases.feasibility.out_of_memory(plan_with_minimum_workers(plan, market)) is None
    if request.workers is not None or fits or not _can_reduce_memory(plan):
        return plan
    for asked in _larger_requests(plan, request, cases.model):
        try:
            tried = plan_for(asked)
        except BadInput:  # a global batch that so many do not share, degrees that do not fit
            continue
        if cases.feasibility.out_of_memory(plan_with_minimum_workers(tried, market)) is None:
            return tried
    if request.global_batch is not None:
        raise Infeasible(
            f"no number of workers of {plan.machine} up to {MAX_LARGE_WORKERS:,} that shares --global-batch "
            f"{request.global_batch} holds {plan.model}; take another, or larger devices"
        )
    return plan


def _can_reduce_memory(plan: Plan) -> bool:
    """Whether more devices or recompute can reduce the strategy's memory per device."""
    return EXCHANGES.tier(plan.exchange) is not Tier.CONTENDER


def _larger_requests(plan: Plan, request: Request, model: Model) -> Iterator[Request]:
    """Yields requests that vary workers, sharding and recompute; workers grow last, recompute first."""
    exchanges = [request.exchanges]
    if request.exchanges is None and (saving := list(memory_saving_variants(plan.exchange))):
        exchanges.append(((saving[-1].exchange.kind, {}),))
    for workers in _larger_worker_counts(plan, request.global_batch):
        for exchange in exchanges:
            for again in recompute_options(request, model):
                yield replace(request, workers=(workers,), exchanges=exchange, recompute=(again,))


def _larger_worker_counts(plan: Plan, batch: int | None) -> Iterator[int]:
    """Yields worker counts: the plan's, then doublings, or all that divide the global batch."""
    step = max(plan.workers_per_machine, plan.mesh.size)
    yield plan.workers
    workers = step if plan.workers < step else plan.workers + step
    while workers <= MAX_LARGE_WORKERS:
        if batch is None or with_workers(plan, workers, batch) is not None:
            yield workers
        workers += step if batch else workers


def fitting_plan(plan: Plan, cases: Cases) -> Plan | None:
    """The plan with the least recompute that fits in memory; None if none fits."""
    again = recompute_options(cases.request, cases.model) if _can_reduce_memory(plan) else (plan.recompute,)
    tried = (replace(plan, recompute=entry) for entry in again)
    return next((entry for entry in tried if cases.feasibility.out_of_memory(entry) is None), None)


def fitting_notes(requested: Plan, plans: Sequence[Plan]) -> list[Note]:
    """Note on the settings changed so that the model fits; empty if none was."""
    first, last = plans[0], plans[-1]
    parts = []
    if first.workers > requested.workers:
        parts.append(f"points begin with {first.workers} workers")
    if first.exchange.kind != requested.exchange.kind:
        parts.append(f"by {first.exchange.labels().name or first.exchange.labels().cell}")
    if first.recompute != requested.recompute:
        parts.append(f"with {first.recompute} recompute")
    if not parts:
        return []
    if last.recompute != first.recompute:
        enough = next(plan.workers for plan in plans if plan.recompute == last.recompute)
        parts.append(f"{last.recompute} from {enough} workers on")
    many = f"{requested.workers} worker{'s' if requested.workers > 1 else ''}"
    return [
        Note(
            Topic.MEMORY,
            f"{many} of {requested.machine} cannot hold {requested.model} as it is asked for: "
            f"{', '.join(parts)} (--workers, --exchange, --recompute and --batch choose).",
        )
    ]
