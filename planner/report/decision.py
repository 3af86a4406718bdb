"""The decision that opens an answer: what to run, how fast, what the job takes and costs, and beside what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.report.answer_words import plan_row, rate, resource_words, several, usd
from planner.units import format_seconds

if TYPE_CHECKING:
    from planner.answers.jobs import Training
    from planner.plan import Plan
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan

CHOICE = ">"
CLOSE = 0.02  # a difference in speed that nobody chooses by


def devices_words(plan: Plan, request: Request) -> str:
    """`16 GPUs`, `4 CPU machines`."""
    kind = request.market.machine(plan.machine).device.kind
    return several(plan.workers, "GPU" if kind == "gpu" else "CPU machine")


def run_words(plan: Plan, request: Request) -> str:
    """`DDP on 16 GPUs`, `FSDP on 16 GPUs`, `async, 2 servers on c5n.large`."""
    words = plan.exchange.words()
    return words.run.format(devices_words(plan, request)) if words.run else words.cell


def verb(plan: Plan, request: Request) -> str:
    """Rent what can be rented, use what is one's own; what nobody rents out can only be run on."""
    market = request.market
    standings = {market.machine(one.machine).standing for one in plan.rented(market)}
    if standings <= {"rentable"}:
        return "Rent"
    return "Use" if standings <= {"rentable", "own"} else "Run on"


def speed(scored: ScoredPlan) -> str:
    """`1,990 (1,700 to 2,300)`: the prediction, and between what nine of ten runs would be."""
    if scored.range is None:
        return rate(scored.samples_per_s)
    low, high = scored.range
    return f"{rate(scored.samples_per_s)} ({rate(low)} to {rate(high)})"


def job_words(training: Training, scored: ScoredPlan) -> str:
    """`One epoch takes 1.49 h (1.2 to 1.9 h) and costs $1.06 ($0.90 to $1.30)`, by the range of the speed."""
    took, cost = format_seconds(training.seconds(scored)), training.usd(scored)
    money = "" if cost is None else f"${usd(cost)}"
    if scored.range is not None:
        low, high = scored.range
        times = [scored.samples_per_s / high, scored.samples_per_s / low]
        took += " ({} to {})".format(*(format_seconds(training.seconds(scored) * by) for by in times))
        if cost is not None:
            money += " (${} to ${})".format(*(usd(cost * by) for by in times))
    plural = training.words[0].isdigit()
    paid = f" and {'cost' if plural else 'costs'} {money}" if money else ""
    return f"{training.words} {'take' if plural else 'takes'} {took}{paid}."


def beside_words(name: str, training: Training | None, other: ScoredPlan, request: Request) -> str:
    """`One device alone (1 x g5.xlarge): 626 samples/s, 34 min, $0.57.`"""
    said = [f"{rate(other.samples_per_s)} samples/s"]
    if training is not None:
        said.append(format_seconds(training.seconds(other)))
        cost = training.usd(other)
        said += [] if cost is None else [f"${usd(cost)}"]
    elif other.priced:
        said.append(f"${usd(other.usd_per_million_samples)} a million samples")
    machines = other.plan.cluster_text.removesuffix(" alone")
    return f"{name} ({machines}): {', '.join(said)}."


def lost_words(one: ScoredPlan, chosen: ScoredPlan, request: Request, training: Training | None) -> str:
    """Why a plan was not chosen, in a word or two."""
    if training is not None and (missed := training.missed(one, request)):
        return missed
    if one.plan.key == chosen.plan.key:
        return "choice"
    slower = one.samples_per_s < chosen.samples_per_s * (1 - CLOSE)
    dearer = one.priced and one.usd_per_million_samples > chosen.usd_per_million_samples * (1 + CLOSE)
    first, second = ("slower", "dearer") if request.goal == "fastest" else ("dearer", "slower")
    held = {"slower": slower, "dearer": dearer}
    said = [word for word in (first, second) if held[word]]
    if not said:
        said = [{"value": "less value"}.get(request.goal, "no better")]
    return ", ".join(said)


def decision_row(
    one: ScoredPlan, chosen: ScoredPlan, request: Request, training: Training | None
) -> dict[str, Any]:
    """The row of a candidate, with what people read in it."""
    row = plan_row(one)
    top = one.prediction.bottleneck
    used = one.prediction.utilisation.get(top)
    row |= {
        "_choice": CHOICE if one.plan.key == chosen.plan.key else "",
        "_run": run_words(one.plan, request),
        "_how": one.plan.how or "fp32",
        "_range": None if one.range is None else "{} to {}".format(*map(rate, one.range)),
        "_limit": resource_words(top, one.plan) + (f" {used:.0%}" if used is not None else ""),
        "_why": lost_words(one, chosen, request, training),
    }
    if training is not None:
        row |= training.figures(one)
    return row


def staleness_words(scored: ScoredPlan) -> str:
    """What a plan gives up for its speed; empty for synchronous training."""
    stale = scored.prediction.staleness_mean
    if scored.plan.exchange.record().get("mode") != "async" or not stale:
        return ""
    return (
        f"It trains asynchronously: gradients are {stale:.1f} updates old on average, which may need more "
        "epochs than synchronous plans of the same speed."
    )
