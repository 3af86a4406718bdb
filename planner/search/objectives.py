"""Which plans are simulated in full: those that the decision rule (`planner.search.rank`) may choose or name.

The cheapest plan, the plan of the highest net value and the fastest are found exactly. Between them the front
is sampled for the picture: plans within a tenth of another in speed and cost are skipped, asynchronous plans,
which take long to simulate, are tried on powers of two machines, and none runs in the last rungs.

The simulator does not know what stale gradients cost in epochs. Synchronous training converges in fewer
epochs and to better accuracies (Chen et al. 2016, Revisiting Distributed Synchronous SGD, arXiv:1604.00981).
So an asynchronous plan is discounted unless the request names the mode, and so is a batch above the model's
default unless the request names the batch (`planner.search.sizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.parallel.data import EXCHANGES, Exchange, Tier
from planner.parallel.plan import Plan
from planner.search.flag_values import Objective
from planner.search.race import ALL_RUNGS, Evaluate, Floats, Goal, Outcome, Race
from planner.search.rank import LEAST_GAIN, NEGLIGIBLE_COST, worth_per_sample
from planner.search.request import Request, model_of
from planner.search.simulations import Rung
from planner.search.sizes import allowed_strategies, batch_discount, is_batch_open

CLOSE = 0.10  # plans between the ends of the front, in speed and in cost
ROUGHLY: tuple[Rung, ...] = ("glance", "short")
CHOICE, OTHER_END, BETWEEN = "simulating the choice", "simulating the ends", "simulating the frontier"
Report = Callable[[str, int, int], None]  # stage, hundredths done, of so many


@dataclass(frozen=True)
class Contest:
    """Plans with their bounds, prices, ranking factors (`worth`) and minimum feasible speeds."""

    plans: Sequence[Plan]
    bound_samples_per_s: Floats
    usd_per_hour: Floats
    worth: Floats
    least_samples_per_s: Floats
    sigma: Floats  # of the logarithm of the speed


def simulate_contenders(
    contest: Contest,
    objective: Objective,
    evaluate: Evaluate,
    *,
    min_marginal_efficiency: float,
    report: Report,
) -> Outcome:
    """Simulates plans until the choice, the cheapest and the fastest are found; returns all scores."""
    plans, worth = contest.plans, contest.worth
    sparse = {
        i
        for i, plan in enumerate(plans)
        if not plan.exchange.is_asynchronous or plan.machines.bit_count() == 1
    }
    ceiling = contest.bound_samples_per_s * worth
    cost = contest.usd_per_hour / 3600 / ceiling

    def run(
        stage: str,
        goal: Goal,
        only: Collection[int] | None = None,
        value: float = 0.0,
        known: Outcome | None = None,
    ) -> Outcome:
        """Simulates the plans that may win for one goal; returns all their scores."""
        ladder = ALL_RUNGS if stage != BETWEEN else ROUGHLY

        def progress(rung: int, scored: int, left: int) -> None:
            """Reports the progress of this race in percent."""
            report(stage, 100 * (rung - 1) + 100 * scored // max(scored + left, 1), 100 * len(ladder))

        return Race(
            contest.bound_samples_per_s,
            contest.usd_per_hour,
            evaluate,
            goal=goal,
            tolerance=CLOSE if stage == BETWEEN else 0.0,
            worth=worth,
            progress=progress,
            ladder=ladder,
            only=only,
            known={} if known is None else {i: known.scores[i] for i in known.long},
            least_samples_per_s=contest.least_samples_per_s,
            worth_usd_per_sample=value,
        ).run()

    priced = bool(contest.usd_per_hour.any())
    first: Goal = "fastest" if objective == "fastest" or not priced else "cheapest"
    outcome = run(CHOICE, first)
    fresh = {i for i, one in enumerate(worth) if not plans[i].exchange.is_asynchronous}
    if (
        fresh and not outcome.partial and not outcome.long <= fresh
    ):  # beside which an asynchronous choice is told
        outcome = merge_outcomes(outcome, run(CHOICE, first, fresh))

    def points() -> tuple[list[int], Floats, Floats]:
        """Indices, speeds and prices per second of the feasible plans that were simulated in full."""
        done = sorted(i for i in outcome.long if outcome.scores[i].samples_per_s > 0)
        speed = np.array([outcome.scores[i].samples_per_s for i in done]) * worth[done]
        feasible = speed >= contest.least_samples_per_s[done]
        kept = [i for i, fine in zip(done, feasible, strict=True) if fine]
        return kept, speed[feasible], contest.usd_per_hour[kept] / 3600

    if first == "cheapest" and not outcome.partial:
        kept, speed, usd_per_s = points()
        if kept and objective == "balanced":
            value = worth_per_sample(objective, float((usd_per_s / speed).min()), min_marginal_efficiency)
            outcome = merge_outcomes(outcome, run(CHOICE, "balanced", value=value))
            kept, speed, usd_per_s = points()
            best = int(np.argmax(value * speed - usd_per_s))
        elif kept:
            best = int(np.argmin(usd_per_s / speed))
        if kept and not outcome.partial:  # faster for hardly more
            limit = float(usd_per_s[best] / speed[best]) * (1 + NEGLIGIBLE_COST)
            near = np.flatnonzero((cost <= limit) & (ceiling >= speed[best] * (1 + LEAST_GAIN)))
            if len(near):
                outcome = merge_outcomes(outcome, run(CHOICE, "fastest", set(near.tolist())))
    if not outcome.partial:
        outcome = merge_outcomes(outcome, run(OTHER_END, "fastest" if first == "cheapest" else "cheapest"))
    if not outcome.partial:
        outcome = merge_outcomes(outcome, run(BETWEEN, "front", sparse, known=outcome))
    outcome.pruned_by_bound = len(contest.bound_samples_per_s) - len(outcome.scores)
    return outcome


def merge_outcomes(outcome: Outcome, later: Outcome) -> Outcome:
    """Combines two outcomes, with the longer simulation of each plan."""
    scores = {**later.scores, **outcome.scores}
    scores |= {i: score for i, score in later.scores.items() if i in later.long and i not in outcome.long}
    return Outcome(scores=scores, long=outcome.long | later.long, partial=later.partial)


AHEAD = 0.10  # of a synchronous plan, which an asynchronous one must be


def staleness_discount(exchange: Exchange, replicas: int, request: Request) -> float:
    """Ranking factor: below 1 for asynchronous plans, whose stale gradients need more epochs."""
    open_mode = request.mode is None and len(allowed_strategies(request)) > 1
    return 1 / (1 + AHEAD) if open_mode and exchange.is_asynchronous and replicas > 1 else 1.0


def discounts(plans: Iterable[Plan], request: Request) -> Floats:
    """Ranking factor of each plan for stale gradients and large batches, at most 1."""
    model = model_of(request)
    chosen, free = is_batch_open(request, model), request.accumulate is None
    return np.array(
        [
            staleness_discount(plan.exchange, plan.replicas, request)
            * (batch_discount(plan.batch * (plan.accumulate if free else 1), model) if chosen else 1.0)
            for plan in plans
        ]
    )


# How much faster a way must be than one that takes less to set up, by the effort of the latter. Nine in ten
# predictions of sharded runs are within 8%, so what sharding gains over replicas that fit must be more.
LEAST_GAIN_OVER = (0.10, 0.05, 0.0)


def setup_effort(plan: Plan) -> int:
    """Effort to set up and debug: 0 for DDP, 1 for FSDP and ZeRO, 2 for tensor and pipeline parallelism."""
    return 2 if plan.mesh.is_sharded else int(EXCHANGES.tier(plan.exchange) is Tier.FALLBACK)


def least_gain(simpler: int, other: int) -> float:
    """Minimum speedup for which a setup of effort `other` replaces one of effort `simpler`."""
    return 1 + LEAST_GAIN_OVER[simpler] if other > simpler else 1.0
