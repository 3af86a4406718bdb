"""The decision that opens an answer: what to run, how fast, what the job takes and costs, and beside what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.report.answer_words import plan_row, rate, resource_words, several, usd
from planner.report.output import CHOICE, Column
from planner.units import format_seconds, format_span

if TYPE_CHECKING:
    from planner.answers.jobs import Training
    from planner.parallel.plan import Plan
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan

CLOSE = 0.02  # a difference in speed that nobody chooses by
CLOSE_NAMED = 2  # plans of other devices that are named where ranges do not tell them apart


def devices_words(plan: Plan, request: Request) -> str:
    """`16 GPUs`, `4 CPU machines`."""
    kind = request.market.machine(plan.machine).device.kind
    return several(plan.workers, "GPU" if kind == "gpu" else "CPU machine")


def run_words(plan: Plan, request: Request) -> str:
    """`DDP on 16 GPUs`, `FSDP on 16 GPUs`, `async, 2 servers on c5n.large`; of sharded replicas
    `tensor 8 x pipeline 8 x data 2 on 128 GPUs`, with what joins them where there are several."""
    words = plan.exchange.words()
    if plan.mesh.is_sharded:
        mesh = plan.mesh
        if plan.replicas == 1:
            return f"{mesh.label} on {devices_words(plan, request)}{mesh.detail}"
        name = words.name or words.cell
        return f"{mesh.label} x data {plan.replicas} on {devices_words(plan, request)}{mesh.detail}, {name}"
    if words.run:
        return words.run.format(devices_words(plan, request))
    return f"{words.name} on {devices_words(plan, request)}" if words.name else words.cell


def batch_words(plan: Plan) -> str:
    """`batch 64`; of several devices that take a step together, `batch 256, 2,048 in all`."""
    in_all = plan.batch * plan.accumulate * plan.replicas
    together = plan.replicas > 1 and not plan.exchange.takes_turns
    return f"batch {plan.batch}" + (f", {in_all:,} in all" if together else "")


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


def price_words(scored: ScoredPlan) -> str:
    """` for $1.86 an hour, $0.71 a million samples`; empty where nothing has a price."""
    if not scored.priced:
        return ""
    kind = " on spot machines" if scored.spot is not None else ""
    return f" for ${scored.usd_per_hour:.2f} an hour{kind}, {cost_words(scored)}"


def cost_words(scored: ScoredPlan, times: float = 1.0) -> str:
    """`$0.71 a million samples`, or so much a billion tokens of networks over sequences."""
    tokens = scored.usd_per_billion_tokens
    if tokens is None:
        return f"${usd(scored.usd_per_million_samples * times)} a million samples"
    return f"${usd(tokens * times)} a billion tokens"


def best_words(scored: ScoredPlan, request: Request) -> str:
    """What looks best before all is known."""
    return f"{verb(scored.plan, request)} {scored.plan.machines_text}: {rates(scored)}{price_words(scored)}"


def rates(scored: ScoredPlan) -> str:
    """`1,990 (1,700 to 2,300) samples/s`, and tokens/s of networks over sequences."""
    tokens = scored.tokens_per_s
    return f"{speed(scored)} samples/s" + ("" if tokens is None else f" ({rate(tokens)} tokens/s)")


def decision_lines(
    one: ScoredPlan,
    request: Request,
    training: Training | None,
    *,
    why: str = "",
    baseline: ScoredPlan | None = None,
) -> list[str]:
    """What to run, how fast, what the job takes, and what one device alone gives; a sentence a line."""
    from planner.answers.assumptions import no_longer_sold

    gone = " and ".join(no_longer_sold(one.plan, request))
    warning = f" ({gone} no longer sold: see Note)" if gone else ""
    how = f", {one.plan.computed}" if one.plan.computed else ""
    run = f"{run_words(one.plan, request)}{how}"
    lines = [
        f"{verb(one.plan, request)} {one.plan.machines_text}{warning}: {run}, {rates(one)} of "
        f"{one.plan.model} ({batch_words(one.plan)}){price_words(one)}{why and '; ' + why}."
    ]
    if training is not None:
        lines.append(job_words(training, one))
    lines += filter(None, [missed_words(one, request, training)])
    if training is not None:
        lines += filter(None, [deadline_words(one, request, training)])
    if baseline is not None and one.plan.workers > 1:
        lines.append(alone_words(one, baseline, training))
    return [*lines, *filter(None, [staleness_words(one)])]


def deadline_words(one: ScoredPlan, request: Request, training: Training) -> str:
    """The probability with which a plan meets the deadline; empty without one."""
    if request.deadline_s is None:
        return ""
    share = training.probability_within(one, request.deadline_s)
    said = ">99%" if share > 0.995 else "<1%" if share < 0.005 else f"{share:.0%}"
    return f"Meets the deadline of {format_seconds(request.deadline_s)} with probability {said}."


def missed_words(one: ScoredPlan, request: Request, training: Training | None) -> str:
    """A sentence about the limit that a plan misses; empty if none."""
    from planner.answers.jobs import Limit, missed

    late = format_seconds(request.deadline_s or 0.0)
    words = {
        Limit.LATE: f"It misses the deadline of {late}.",
        Limit.SLOW: f"It is slower than the {request.min_samples_per_s or 0:g} samples/s asked for.",
        Limit.SPEND: f"It costs more than the ${request.spend_usd or 0:g} that may be spent.",
        Limit.BUDGET: f"It costs more than the budget of ${request.budget_usd_per_hour or 0:g} an hour.",
    }
    limit = missed(one, request, training)
    return "" if limit is None else words[limit]


def job_words(training: Training, scored: ScoredPlan) -> str:
    """`One epoch takes 1.49 h (1.2 to 1.9 h) and costs $1.06 ($0.90 to $1.30)`, by the range of the speed."""
    took, cost = format_seconds(training.seconds(scored)), training.usd(scored)
    money = "" if cost is None else f"${usd(cost)}"
    if scored.range is not None:
        low, high = scored.range
        times = [scored.samples_per_s / high, scored.samples_per_s / low]
        took += f" ({format_span(*(training.seconds(scored) * by for by in times))})"
        if cost is not None:
            money += " (${} to ${})".format(*(usd(cost * by) for by in times))
    paid = f" and {'cost' if training.several else 'costs'} {money}" if money else ""
    return f"{training.words} {'take' if training.several else 'takes'} {took}{paid}."


def alone_words(one: ScoredPlan, baseline: ScoredPlan, training: Training | None) -> str:
    """What one device alone gives, and how many times that a plan is."""
    times = one.samples_per_s / baseline.samples_per_s
    cost = ""
    if one.priced and baseline.priced:
        ratio = one.usd_per_million_samples / baseline.usd_per_million_samples
        cost = f" at {ratio:.2g} times its cost a sample"
    said = _figures_words("One device alone", training, baseline)
    many = f"{several(one.plan.workers, 'device')} {'are' if one.plan.workers > 1 else 'is'}"
    return f"{said}; {many} {times:.3g} times as fast{cost}."


def beside_words(name: str, training: Training | None, other: ScoredPlan) -> str:
    """`The cheapest (1 x g5.xlarge): 626 samples/s, 34 min, $0.57.`"""
    return f"{_figures_words(name, training, other)}."


def _figures_words(name: str, training: Training | None, other: ScoredPlan) -> str:
    said = [f"{rate(other.samples_per_s)} samples/s"]
    if training is not None:
        said.append(format_seconds(training.seconds(other)))
        cost = training.usd(other)
        said += [] if cost is None else [f"${usd(cost)}"]
    elif other.priced:
        said.append(f"${usd(other.usd_per_million_samples)} a million samples")
    return f"{name} ({other.plan.machines_text}): {', '.join(said)}"


def close_words(chosen: ScoredPlan, rivals: Sequence[ScoredPlan], request: Request) -> str:
    """Plans that are statistically tied with the choice; empty where none is."""
    if not rivals:
        return ""
    names = [one.plan.machines_text for one in rivals[:CLOSE_NAMED]]
    more = len(rivals) - len(names)
    listed = ", ".join(names) + (f" and {more} more" if more else "")
    return f"Statistically tied with {listed}, whose predictions are no more certain."


def lost_words(one: ScoredPlan, chosen: ScoredPlan, request: Request, training: Training | None) -> str:
    """Why a plan was not chosen, in a word or two."""
    from planner.answers.jobs import missed

    if limit := missed(one, request, training):
        return limit.value
    if one.plan.key == chosen.plan.key:
        return "choice"
    slower = one.samples_per_s < chosen.samples_per_s * (1 - CLOSE)
    dearer = one.priced and one.usd_per_million_samples > chosen.usd_per_million_samples * (1 + CLOSE)
    first, second = ("slower", "dearer") if request.goal == "fastest" else ("dearer", "slower")
    held = {"slower": slower, "dearer": dearer}
    said = [word for word in (first, second) if held[word]]
    if not said and one.samples_per_s > chosen.samples_per_s * (1 + CLOSE):
        said = ["faster, extra samples cost too much"]
    return ", ".join(said or ["no better"])


def job_columns(priced: bool = True) -> list[Column]:
    """What the job takes and costs."""
    time = Column("job_s", "job time", show=format_seconds, align="right", whole=True)
    return [time, Column("job_usd", "job USD", show=usd)] if priced else [time]


def why_style(row: Mapping[str, Any]) -> str:
    """The choice stands out, what misses a limit too, and what lost does not."""
    if row.get("_choice") == CHOICE:
        return "bold green"
    return "red" if row.get("misses") else "dim"


def busy_words(one: ScoredPlan) -> str:
    """`receiving gradients at server 0, 76%`: the busiest resource, and how much of the time."""
    top = one.prediction.bottleneck
    used = one.prediction.utilisation.get(top)
    return resource_words(top, one.plan) + (f", {used:.0%}" if used is not None else "")


def decision_row(
    one: ScoredPlan, chosen: ScoredPlan, request: Request, training: Training | None
) -> dict[str, Any]:
    """The row of a candidate, with what people read in it."""
    from planner.answers.jobs import missed

    row = plan_row(one)
    row |= {
        "_choice": CHOICE if one.plan.key == chosen.plan.key else "",
        "_run": run_words(one.plan, request),
        "_how": one.plan.computed or "fp32",
        "_paid": "on demand" if one.spot is None else "spot",
        "_range": None if one.range is None else "{} to {}".format(*map(rate, one.range)),
        "_limit": busy_words(one),
        "_why": lost_words(one, chosen, request, training),
    }
    if training is not None:
        row |= training.figures(one)
    return row | {"misses": missed(one, request, training)}


def is_async(scored: ScoredPlan) -> bool:
    return scored.plan.exchange.takes_turns and scored.plan.replicas > 1


def staleness_words(scored: ScoredPlan) -> str:
    """What a plan gives up for its speed; empty for synchronous training."""
    stale = scored.prediction.staleness_mean
    if not is_async(scored) or not stale:
        return ""
    return (
        f"It trains asynchronously: gradients are {stale:.1f} updates old on average, which may need more "
        "epochs than synchronous plans of the same speed."
    )
