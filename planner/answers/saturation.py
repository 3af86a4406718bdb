"""`saturation`: throughput against workers, and the number of workers after which more stop paying.

The saturation point is the smallest W at which one more worker adds less than `threshold` (a tenth) of what a
single worker gives. The ceiling is what the servers' links allow however many workers there are.

Most points need only a short look: a few short runs or, for few workers, which forget slowly how they
started, the first runs that `simulate` would make. Points whose interval is wide, and those too near to each
other to judge, get all the runs that `simulate` makes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from itertools import pairwise, product

from planner.answers.assumptions import assumptions
from planner.answers.baseline import baseline_of
from planner.answers.fewest import fewest_workers, held_plan
from planner.answers.results import Saturation, SaturationPoint
from planner.errors import BadInput, Infeasible, Interrupted
from planner.hardware.prices.cluster_cost import usd_per_million_samples
from planner.parallel.plan import Plan
from planner.progress import Progress, silent
from planner.search.cases import Cases
from planner.search.limits import check_size
from planner.search.rungs import Rung, cannot_tell, gain, half_width
from planner.search.scored import ScoredPlan
from planner.search.simulations import Simulations
from planner.search.sizes import with_workers

CHUNK = 2  # points simulated at once; fixed, so that the result does not depend on the number of threads
MANY_WORKERS = 4096  # for the ceiling
FEW_WORKERS = 3  # up to so many, short runs came out up to half a percent low
CLOSER: tuple[Rung, ...] = ("half", "long")  # where a short look at servers does not tell
MANY_POINTS, FIRST_POINTS = 32, 4  # of a brief look
NEAR_POINTS = 0.1  # of the first point's workers: what fewer add in a brief look is hardly told from nothing
WIDE = 0.03  # half the width of an interval, relative


def saturation_of(
    plan: Plan,
    simulations: Simulations,
    pool: Executor,
    *,
    threshold: float = 0.1,
    max_workers: int = 32,
    extra: int = 2,
    all_workers: bool = False,
    sizes: bool = False,
    brief: bool = False,
    progress: Progress = silent,
) -> Saturation:
    """Points from the fewest workers that hold the model on, until `extra` points past saturation or, with
    `all_workers`, to the end. `sizes` asks too how many the exchange wants of what it can have more of, as
    servers. `brief`: of near points one, of many the first few and then every doubling."""
    if not 0 < threshold < 1:
        raise BadInput(f"--threshold is {threshold:g}; it must lie between 0 and 1")
    check_size(max_workers)
    cases = simulations.cases
    per_machine = plan.workers_per_machine
    first = 1 if per_machine == 1 or plan.workers < per_machine else per_machine
    first = max(first, plan.mesh.size)
    fewest = fewest_workers(replace(plan, workers=first), cases.market).workers
    batch = simulations.request.global_batch
    shared = [with_workers(plan, w, batch) for w in _counts(fewest, max_workers, first, per_machine)]
    sized = [one for one in shared if one is not None]
    if not sized:
        raise BadInput(
            f"--max-workers is {max_workers}, but {plan.cluster_text} has at least {fewest} workers"
            + (f" that share --global-batch {batch}" if batch else "")
        )
    # sharded over more workers a model may fit that does not over few
    held = [one for each in sized if (one := held_plan(each, cases)) is not None]
    if not held:
        more = range(max_workers // first * first + first, plan.workers + 1, first)
        larger = (with_workers(plan, workers, batch) for workers in more)
        enough = next((one.workers for one in larger if one is not None and held_plan(one, cases)), None)
        raise Infeasible(
            f"{plan.model} does not fit on {sized[-1].workers} workers or fewer of {plan.machine}; "
            + (f"{enough} hold it: raise --max-workers" if enough else "take more")
        )
    by_count = {one.workers: one for one in held}
    counts = _few(list(by_count)) if brief else list(by_count)
    most = _most(plan, first, batch)
    most = held_plan(most, cases) or most
    if refused(most, cases):
        raise BadInput(f"{plan.exchange.title} does not grow with workers; take another --exchange")
    # all at once: they have a step in common
    cases.bounds([most, *(by_count[w] for w in counts)])
    scored: list[ScoredPlan] = []
    partial, found = False, None
    try:
        wanted = len(counts)
        while len(scored) < wanted:
            ahead = counts[len(scored) : min(wanted, len(scored) + CHUNK)]
            scored += _looked_at([by_count[w] for w in ahead], simulations, pool)
            scored = _settled(scored, threshold, simulations, pool)
            found = _saturated(scored, threshold)
            progress("adding workers", len(scored), len(counts))
            if found is not None and not all_workers:
                wanted = min(wanted, found + 1 + extra)
        scored = scored[:wanted]
    except KeyboardInterrupt:
        partial = True
        for workers in counts[len(scored) : len(scored) + CHUNK]:  # what was under way counts too
            one = by_count[workers]
            if (prediction := simulations.known(one)) is None:
                break
            scored.append(cases.scored(one, prediction))
    if not scored:
        raise Interrupted(
            "interrupted before a simulation ended; by the bounds, throughput is at most "
            f"{cases.bound(by_count[counts[0]]):.4g} samples/s with the fewest workers "
            f"({counts[0]}) and {cases.bound(most):.4g} with any number of them"
        )
    last = scored[-1] if found is None else scored[found]
    beyond = last if found is None else scored[min(found + 1, len(scored) - 1)]  # meets what is full
    asked = with_workers(last.plan, plan.workers, batch) if plan.workers > 1 else None
    by_size: list[tuple[int, ScoredPlan]] = []
    baseline = None
    try:
        if sizes and not partial:
            by_size = _by_size(asked or last.plan, simulations, pool, threshold)
        if not partial:
            baseline = baseline_of(last, simulations, pool)
    except KeyboardInterrupt:
        partial = True
    return Saturation(
        request=simulations.request,
        points=_points(scored),
        saturation_workers=None if found is None else scored[found].plan.workers,
        ceiling_samples_per_s=cases.bound(most),
        bottleneck=beyond.prediction.bottleneck,
        threshold=threshold,
        sizes=by_size,
        size_advised=_advised(by_size, threshold),
        assumptions=assumptions([last.plan], cases),
        partial=partial,
        baseline=baseline,
    )


def _most(plan: Plan, step: int, batch: int | None) -> Plan:
    """The plan with more workers than anybody has; with a global batch, as many as can share it."""
    if batch is None:
        return replace(plan, workers=MANY_WORKERS * step)
    share = range(batch // plan.batch * plan.mesh.size // step * step, 0, -step)
    sized = (with_workers(plan, workers, batch) for workers in share)
    return next((one for one in sized if one is not None), plan)


def refused(plan: Plan, cases: Cases) -> str:
    """Why the plan's exchange cannot be run with so many workers; empty if it can."""
    return plan.exchange.refusal(cases.site(plan))


def _looked_at(plans: list[Plan], simulations: Simulations, pool: Executor) -> list[ScoredPlan]:
    """The plans after a short look, or a long one where a short one says too little."""
    few = [plan for plan in plans if plan.replicas <= FEW_WORKERS]
    many = [plan for plan in plans if plan.replicas > FEW_WORKERS]
    short = [*simulations.scored(few, pool, "trial"), *simulations.scored(many, pool, "medium")]
    wide = [one.plan for one in short if half_width(one.prediction) > WIDE * one.samples_per_s]
    found = {one.plan: one for one in [*short, *simulations.scored(wide, pool, "long")]}
    return [found[plan] for plan in plans]


def _settled(
    scored: list[ScoredPlan], threshold: float, simulations: Simulations, pool: Executor
) -> list[ScoredPlan]:
    """The points, those simulated at length whose difference could be either side of what is worth it."""
    long: set[Plan] = set()
    while True:
        unclear = {
            one.plan
            for now, more in pairwise(scored)
            if cannot_tell(
                more.samples_per_s - now.samples_per_s - _worth(scored[0], now, more, threshold),
                now.prediction,
                more.prediction,
            )
            for one in (now, more)
        }
        if unclear <= long:
            return scored
        long |= unclear
        closer = {one.plan: one for one in simulations.scored(list(unclear), pool, "long")}
        scored = [closer.get(one.plan, one) for one in scored]


def _counts(fewest: int, most: int, step: int, per_machine: int) -> list[int]:
    """How many workers to look at: step by step inside the first machine, whole machines after it, because
    nobody rents a machine for one of its devices."""
    if step > 1 or per_machine == 1:
        return list(range(fewest, most + 1, step))
    whole = range(2 * per_machine, most + 1, per_machine)
    return [*range(fewest, min(per_machine, most) + 1), *(count for count in whole if count > fewest)]


def _few(counts: list[int]) -> list[int]:
    """All of a few that are apart; of many the first of them, every doubling after it, and the last."""
    counts = _spread(counts, lambda last: last + NEAR_POINTS * counts[0])
    if len(counts) <= MANY_POINTS:
        return counts
    first = counts[: FIRST_POINTS - 1]
    return first + _spread(counts[FIRST_POINTS - 1 :], lambda last: 2 * last)


def _spread(counts: list[int], least_after: Callable[[int], float]) -> list[int]:
    """The first, each that is far enough from the one before, and the last."""
    kept = counts[:1]
    for count in counts[1:]:
        if count >= least_after(kept[-1]) or count == counts[-1]:
            kept.append(count)
    return kept


def _worth(first: ScoredPlan, now: ScoredPlan, more: ScoredPlan, threshold: float) -> float:
    """What the workers of one more point must add: a share of as many where nothing is in their way. Servers
    beside workers need so many machines that the first point may have more."""
    return threshold * first.samples_per_s * (more.plan.workers - now.plan.workers) / first.plan.workers


def _saturated(scored: list[ScoredPlan], threshold: float) -> int | None:
    """Index of the first point after which one more worker adds too little."""
    for at, (now, more) in enumerate(pairwise(scored)):
        if more.samples_per_s - now.samples_per_s < _worth(scored[0], now, more, threshold):
            return at
    return None


def _points(scored: list[ScoredPlan]) -> list[SaturationPoint]:
    points = []
    one = scored[0].samples_per_s / scored[0].plan.workers
    for at, now in enumerate(scored):
        gain = now.samples_per_s - (scored[at - 1].samples_per_s if at else 0.0)
        price = now.usd_per_hour - (scored[at - 1].usd_per_hour if at else 0.0)
        points.append(
            SaturationPoint(
                workers=now.plan.workers,
                scored=now,
                efficiency=now.samples_per_s / (one * now.plan.workers),
                marginal_samples_per_s=gain,
                marginal_usd_per_million_samples=(
                    usd_per_million_samples(price, gain) if gain > 0 else float("inf")
                ),
            )
        )
    return points


def _by_size(
    plan: Plan, simulations: Simulations, pool: Executor, threshold: float
) -> list[tuple[int, ScoredPlan]]:
    """The plan with more and more servers, each in its best way, until one adds too little."""
    best: list[tuple[int, ScoredPlan]] = []
    for size in plan.exchange.sizes(simulations.cases.site(plan)):
        count, plans = size.count, [replace(plan, exchange=one) for one in size.options]
        plans = [one for one in plans if simulations.cases.feasibility.out_of_memory(one) is None]
        if not plans:
            continue
        scored = _looked_at(plans, simulations, pool)
        best.append((count, max(scored, key=lambda one: one.samples_per_s)))
        wider_first = sorted(range(len(best))[-2:], key=lambda at: -half_width(best[at][1].prediction))
        for at, rung in product(wider_first, CLOSER):
            if _unclear_sizes(best, threshold):
                fewer, one = best[at]
                best[at] = fewer, simulations.scored([one.plan], pool, rung)[0]
        if _advised(best, threshold) != count:
            break
    return best


def _advised(by_size: list[tuple[int, ScoredPlan]], threshold: float) -> int | None:
    """The fewest servers after which one more adds less than `threshold` to throughput; None if the intervals
    are too wide to say."""
    if _unclear_sizes(by_size, threshold):
        return None
    for (count, now), (_, more) in pairwise(by_size):
        if gain(now.prediction, more.prediction)[0] < threshold:
            return count
    return by_size[-1][0] if by_size else None


def _unclear_sizes(by_size: list[tuple[int, ScoredPlan]], threshold: float) -> bool:
    """Whether the last servers could add more than `threshold` or less."""
    if len(by_size) < 2:
        return False
    (_, now), (_, more) = by_size[-2:]
    added, error = gain(now.prediction, more.prediction)
    return abs(added - threshold) <= error
