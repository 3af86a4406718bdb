"""From scored plans to a decision: apply the rule, settle ties, and look at what comes next.

Shared by the enumerated search (`recommend`), the sampled one (`sampled`) and `compare`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.answers.advise import next_changes
from planner.answers.saturation import most_step_samples, saturation_of, strategy_error
from planner.device.precision import FP32
from planner.errors import Interrupted
from planner.hardware.prices.cost import usd_per_million_samples
from planner.note import Progress
from planner.parallel.data import EXCHANGES, Tier
from planner.parallel.plan import Plan
from planner.search.feasibility import has_machines
from planner.search.flag_values import MOST_WORKERS
from planner.search.objectives import Contest, discounts
from planner.search.race import Evaluate, Floats, Outcome, pareto_front
from planner.search.rank import Contenders, rank
from planner.search.request import Request
from planner.search.scored import Candidate, ScoredPlan, plans_within_limits
from planner.search.simulations import Simulations, cautious_interval
from planner.search.sizes import with_micro_batches
from planner.simulator.statistics import Prediction

if TYPE_CHECKING:
    from planner.search.cases import Cases

MOST_TIE_ROUNDS = 100
FEW_WORKERS = 32  # of strategies that take long to simulate
TIE_ROUND = 8  # plans looked at briefly at a time


@dataclass(frozen=True)
class Decision:
    """Plans to show, by cost per sample; the recommended, cheapest, fastest and tied ones."""

    shown: list[ScoredPlan]
    recommended: ScoredPlan
    cheapest: ScoredPlan
    fastest: ScoredPlan
    tied: list[ScoredPlan]


def choose(scored: Sequence[ScoredPlan], request: Request) -> Decision:
    """Chooses among feasible plans by the decision rule (`planner.search.rank`) and returns the decision."""
    scored = sorted(scored, key=lambda plan: plan.plan.key)
    discount = discounts([plan.plan for plan in scored], request)
    candidates = [plan.candidate(share) for plan, share in zip(scored, discount.tolist(), strict=True)]
    ranking = rank(candidates, request.goal, min_marginal_efficiency=request.min_marginal_efficiency)
    speed = np.array([candidate.effective_samples_per_s for candidate in candidates])
    cost = np.array([candidate.expected_usd_per_sample for candidate in candidates])
    by_machine: dict[str, int] = {}
    for i in np.lexsort((np.arange(len(scored)), cost)).tolist():
        by_machine.setdefault(scored[i].plan.machine, i)
    chosen = ranking.recommended
    # the rule counts a wide range as a cost; the medians that answers show may rank the choice first
    cheapest = min((ranking.cheapest, chosen), key=lambda i: scored[i].usd_per_million_samples)
    fastest = max((ranking.fastest, chosen), key=lambda i: scored[i].samples_per_s)
    named = {"recommended": chosen, "cheapest": cheapest, "fastest": fastest}
    shown = {*pareto_front(speed, cost), *by_machine.values(), *named.values()}
    marked = {i: replace(scored[i], marks=tuple(name for name, j in named.items() if i == j)) for i in shown}
    best_tied: dict[str, int] = {}  # one per machine: the others are neighbours of these
    for i in sorted(ranking.tied, key=lambda i: -speed[i]):
        best_tied.setdefault(scored[i].plan.machine, i)
    return Decision(
        shown=[marked[i] for i in sorted(shown, key=lambda i: (cost[i], i))],
        recommended=marked[chosen],
        cheapest=marked[cheapest],
        fastest=marked[fastest],
        tied=[scored[i] for i in best_tied.values() if i != chosen],
    )


def settle_ties(outcome: Outcome, contest: Contest, cases: Cases, evaluate: Evaluate) -> None:
    """Simulates plans that may tie with the best, first briefly, then in full; updates `outcome`."""
    looked: set[int] = set(outcome.long)
    among: set[int] | None = None
    simulated: dict[int, Candidate | None] = {}
    for _ in range(MOST_TIE_ROUNDS):
        for i in outcome.long - simulated.keys():
            simulated[i] = _feasible_candidate(cases, contest.plans[i], outcome.scores[i])
        known = [candidate for _, candidate in sorted(simulated.items()) if candidate is not None]
        pending = possible_ties(outcome, contest, cases, known, among) if known else []
        if not pending and among is None:
            return
        among = set(pending) or None  # once these are settled, all are looked at again
        if not pending:
            continue
        fresh = [i for i in pending if i not in looked][:TIE_ROUND]
        if fresh:
            looked.update(fresh)
            outcome.scores.update(zip(fresh, evaluate(fresh, "short"), strict=True))
            continue
        outcome.scores.update(zip(pending[:1], evaluate(pending[:1], "long"), strict=True))
        outcome.long.update(pending[:1])


def _feasible_candidate(cases: Cases, plan: Plan, prediction: Prediction) -> Candidate | None:
    """Input of the decision rule for a simulated plan; None if it misses a limit."""
    if prediction.samples_per_s <= 0:
        return None
    scored = cases.score_plan(plan, prediction)
    if not plans_within_limits([scored], cases.request):
        return None
    return scored.candidate(float(discounts([plan], cases.request)[0]))


def possible_ties(
    outcome: Outcome,
    contest: Contest,
    cases: Cases,
    known: Sequence[Candidate],
    among: Collection[int] | None = None,
) -> list[int]:
    """Indices of plans not yet simulated in full that could tie with the best and win at their upper bounds.

    `known` are the feasible plans simulated in full. The narrowest range comes first; `among` restricts the
    plans.
    """
    request, worth = cases.request, contest.worth
    choice = Contenders(known, request.goal, request.min_marginal_efficiency).choice()
    ceiling = contest.bound_samples_per_s.copy()
    for i in outcome.scores.keys() - outcome.long:
        ceiling[i] = min(ceiling[i], cautious_interval(outcome.scores[i], "short")[1])
    feasible_at_bound: list[int] = np.flatnonzero(ceiling * worth >= contest.least_samples_per_s).tolist()
    left = [i for i in feasible_at_bound if i not in outcome.long and (among is None or i in among)]
    hopeful = [
        Candidate(
            cases.market.find_machine(plan.machine).device.name,
            float(ceiling[i] * worth[i]) * exp(contest.sigma[i] ** 2 / 2),
            float(contest.usd_per_hour[i]),
            float(contest.sigma[i]),
            machines=plan.machines,
        )
        for i in left
        for plan in (contest.plans[i],)
    ]
    plans = Contenders([*known, *hopeful], request.goal, request.min_marginal_efficiency, decided=len(known))
    return [left[k - len(known)] for k in plans.possible_replacements(choice)]


def fp32_variant(chosen: ScoredPlan, simulations: Simulations) -> ScoredPlan | None:
    """Scores the chosen plan in fp32, in smaller micro-batches if needed.

    None if the request names a format or fp32 does not fit.
    """
    request, plan = simulations.request, replace(chosen.plan, precision=FP32)
    if request.formats is not None or request.profile is not None or chosen.plan.precision == FP32:
        return None
    smaller = (with_micro_batches(plan, 2**k) for k in range(plan.batch.bit_length()))
    possible = simulations.cases.feasibility.is_possible
    held = next((other for other in smaller if other is not None and possible(other)), None)
    return None if held is None else simulations.score_plans([held], "trial")[0]


def changes_and_saturation(
    chosen: ScoredPlan, simulations: Simulations, progress: Progress
) -> dict[str, Any]:
    """Two answer fields: `changes` that improve the chosen plan, and its machine's `saturation` curve."""
    progress("exploring changes", 0, 2)
    changes = next_changes(chosen, simulations)
    progress("exploring changes", 1, 2)
    plan, request, cases = chosen.plan, simulations.request, simulations.cases
    more = replace(plan, workers=2 * plan.workers)
    if strategy_error(more, cases) or not has_machines(more.rented(request.market), request):
        return {"changes": changes}
    most = max(FEW_WORKERS, plan.workers)
    if EXCHANGES.tier(plan.exchange) is not Tier.CONTENDER:  # of which many take long to simulate
        samples = most_step_samples(request, cases.model) // plan.samples_per_step * plan.mesh.size
        most = int(max(plan.workers, min(samples, MOST_WORKERS)))
    curve = saturation_of(plan, simulations, max_workers=most)
    progress("exploring changes", 2, 2)
    return {"changes": changes, "saturation": curve}


def count_unfinished(outcome: Outcome, plans: Sequence[Plan], simulations: Simulations) -> None:
    """Adds the longest prediction so far of each plan to the outcome of an interrupted search."""
    found = {i: simulations.longest_prediction(plan) for i, plan in enumerate(plans)}
    outcome.scores.update({i: score for i, score in found.items() if score is not None})


def interruption_error(plans: Sequence[Plan], bounds: Floats, usd_per_hour: Floats) -> Interrupted:
    """Builds the error for an interruption before any simulation ended; it names the best bounds."""
    fastest, cheapest = int(np.argmax(bounds)), int(np.argmin(usd_per_hour / bounds))
    least_usd = usd_per_million_samples(float(usd_per_hour[cheapest]), float(bounds[cheapest]))
    return Interrupted(
        f"interrupted before a simulation ended; of {len(plans):,} plans, by their bounds, the fastest is "
        f"{plans[fastest].rental_text} (at most {bounds[fastest]:.4g} samples/s), the cheapest "
        f"{plans[cheapest].rental_text} (at least ${least_usd:.2f} per million samples)"
    )
