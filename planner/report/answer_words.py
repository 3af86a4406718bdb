"""Words and rows that the answers share: figures as people read them, and what limits a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.note import Note, Topic
from planner.simulator.resource import COMPUTATION, Resource

if TYPE_CHECKING:
    from planner.answers.results import Comparison, Recommendation, Saturation
    from planner.parallel.plan import Plan
    from planner.search.scored import ScoredPlan

FULL = 0.8  # a resource used less is not what limits


def resource_words(resource: Resource, plan: Plan) -> str:
    """`uplink[0]` as `receiving gradients at server 0`, as the plan's exchange says it."""
    words = {COMPUTATION: "the workers' computation", **plan.exchange.words().resources}
    said = words.get(resource.unnumbered)
    return str(resource) if said is None else said.format(resource.number)


def rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def usd(value: float) -> str:
    return f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}"


def usd_or_never(value: float) -> str:
    return usd(value) if value < 1e6 else "-"


def interval(row: dict[str, Any]) -> str:
    return f"{rate(row['samples_per_s'])} ± {half(row):.1%}"


def half(row: dict[str, Any]) -> float:
    spread = float(row["samples_per_s_high"] - row["samples_per_s_low"])
    return spread / 2 / float(row["samples_per_s"])


def plan_row(scored: ScoredPlan) -> dict[str, Any]:
    row = scored.as_dict()
    used = row["utilisation"].get(row["bottleneck"])
    row["_interval"] = interval(row)
    row["_bottleneck"] = row["bottleneck"] + (f" {used:.0%}" if used is not None else "")
    row["_workers"], row["_exchange"] = scored.plan.workers_text, scored.plan.exchange.words().cell
    row["_marks"] = ", ".join(scored.marks)
    return row


def so_far(result: Recommendation | Comparison | Saturation) -> str:
    return "So far (interrupted): " if result.partial else ""


def is_full(scored: ScoredPlan) -> bool:
    """Whether the busiest resource is what limits; below, the chain of a step's ops does."""
    return scored.prediction.utilisation.get(scored.prediction.bottleneck, 0.0) >= FULL


def busiest(scored: ScoredPlan) -> str:
    """What to call the busiest resource of a plan."""
    return "bottleneck" if is_full(scored) else "busiest"


def bottleneck_words(scored: ScoredPlan) -> str:
    top = scored.prediction.bottleneck
    used = scored.prediction.utilisation.get(top, 0.0)
    what = resource_words(top, scored.plan)
    if is_full(scored):
        return f"The bottleneck is {what}, {used:.0%} used."
    return (
        f"No resource is full (the busiest is {what}, {used:.0%} used): what limits is the chain of "
        "transfers, computation and updates that each worker goes through in a step."
    )


def saturation_words(curve: Saturation, hardware: str) -> str:
    last = curve.points[-1]
    noun = last.scored.plan.exchange.words().size_noun
    these = f" with these {noun}s" if noun else ""
    ceiling = f"; ceiling {rate(curve.ceiling_samples_per_s)} samples/s" if noun else ""
    if curve.saturation_workers is None:
        plan, batch = last.scored.plan, curve.request.global_batch
        if batch is not None and plan.accumulate == 1:
            these = f", which is as many as share a global batch of {batch:,}"
        return f"{hardware} does not saturate up to {several(last.workers, 'worker')}{these}."
    return (
        f"{hardware} saturates at {several(curve.saturation_workers, 'worker')}{these} "
        f"(one more adds less than {curve.threshold:.0%} of a single one{ceiling})."
    )


def limit_words(curve: Saturation) -> str:
    last = curve.points[-1].scored
    if curve.saturation_workers is not None:
        return f"What saturates is {resource_words(curve.bottleneck, last.plan)}."
    link = curve.limits_next
    used = last.prediction.utilisation[link]
    return f"What would limit next is {resource_words(link, last.plan)}, {used:.0%} used so far."


def plan_words(scored: ScoredPlan) -> list[Note]:
    return [Note(Topic.PLAN, f"{scored.plan.exchange.words().plan}.")]


def several(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
