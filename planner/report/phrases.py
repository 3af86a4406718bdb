"""How a plan is named and described: machines, strategy, speed, cost, what limits it, which limit it misses.

Every answer uses these; a sentence about a plan is made here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.report.format import (
    count,
    format_seconds,
    limit_usd,
    listed,
    money,
    percent,
    rate,
    ratio,
    span,
    usd,
    usd_span,
)
from planner.report.page import CHOICE, Column, Figure
from planner.search.input import INPUT
from planner.simulator.cluster import COMPUTATION, Resource
from planner.units import format_span

if TYPE_CHECKING:
    from planner.answers.jobs import Training
    from planner.parallel.plan import Plan
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan

FULL = 0.8  # a resource used less is not what limits
CLOSE = 0.02  # a difference in speed or cost that nobody chooses by
TIED_NAMED = 2  # tied plans that a sentence names
ENERGY = (
    Column("kwh_per_million_samples", "kWh/M", show=lambda v: f"{v:.3g}"),
    Column("kg_co2e_per_million_samples", "kg CO2e/M", show=lambda v: f"{v:.3g}"),
)


def resource_words(resource: Resource, plan: Plan) -> str:
    """`uplink[0]` as `gradients arriving at server 0`, in the terms of the plan's exchange."""
    words = {**plan.exchange.labels().resources, COMPUTATION: "compute", INPUT: "the input pipeline"}
    known = words.get(resource.unnumbered)
    return str(resource) if known is None else known.format(resource.number)


def devices_words(plan: Plan, request: Request) -> str:
    """`16 GPUs`, `4 CPU machines`."""
    kind = request.market.machine(plan.machine).device.kind
    return count(plan.workers, "GPU" if kind == "gpu" else "CPU machine")


def strategy_words(plan: Plan) -> str:
    """`DDP`, `FSDP`, `async, 2 servers on c5n.large`; with the degrees of tensor and pipeline parallelism,
    `tensor 8 x pipeline 4 x data 2, DDP`; empty for one device."""
    words = plan.exchange.labels()
    name = "" if plan.workers == 1 and words.aside else words.name or words.run.partition("{}")[0].strip()
    name = name or ("" if words.aside else words.cell)
    if not plan.mesh.is_sharded:
        return name
    degrees = plan.mesh.label if plan.replicas == 1 else f"{plan.mesh.label} x data {plan.replicas}, {name}"
    return f"{degrees}{plan.mesh.detail}"


def run_words(plan: Plan, request: Request) -> str:
    """`DDP, 16 GPUs`; `1 GPU`; `tensor 8 x pipeline 8 x data 2, DDP, 128 GPUs`."""
    strategy, devices = strategy_words(plan), devices_words(plan, request)
    return ", ".join(filter(None, [strategy, devices]))


def batch_words(plan: Plan) -> str:
    """`batch 64`; of replicas that step together, `global batch 2,048 (256 per replica)`."""
    together = plan.replicas > 1 and not plan.exchange.is_asynchronous
    if not together:
        return f"batch {plan.samples_per_step:,}"
    return f"global batch {plan.samples_per_step * plan.replicas:,} ({plan.samples_per_step:,} per replica)"


def machines_words(plan: Plan, request: Request) -> str:
    """`2 x p4d.24xlarge (16 x A100-SXM4-40GB) + 1 server on c5n.large`."""
    device = request.market.machine(plan.machine).device
    devices = f" ({plan.workers} x {device.name})" if device.kind == "gpu" else ""
    return f"{plan.machines} x {plan.machine}{devices}{plan.exchange.labels().added}"


def cluster_words(plan: Plan) -> str:
    """`2 x p4d.24xlarge + 1 server on c5n.large`, in a sentence."""
    return f"{plan.machines} x {plan.machine}{plan.exchange.labels().added}"


def headline(plan: Plan, request: Request) -> str:
    """What to run on which machines, in one line."""
    from planner.answers.assumptions import no_longer_sold

    added = plan.exchange.labels().added.removeprefix(" + ")
    strategy = strategy_words(plan).removesuffix(f", {added}")
    parts = [machines_words(plan, request), strategy, plan.computed, batch_words(plan)]
    retired = [f"{name} is retired" for name in no_longer_sold(plan, request)]
    return ", ".join(filter(None, [*parts, *retired]))


def verdict(scored: ScoredPlan, request: Request, word: str) -> str:
    """What stands before a headline: machines of the user's own are used, others are recommended."""
    return "Use" if request.market.machine(scored.plan.machine).standing == "own" else word


def speed_words(scored: ScoredPlan) -> str:
    """`21,300 samples/s (17,400 - 26,100)`, with tokens/s of networks over sequences first."""
    low, high = scored.range or (None, None)
    tokens = scored.tokens_per_s
    ranged = f" ({span(low, high)})" if low is not None and high is not None else ""
    if tokens is None:
        return f"{rate(scored.samples_per_s)} samples/s{ranged}"
    if low is not None and high is not None:
        scale = tokens / scored.samples_per_s
        ranged = f" ({span(low * scale, high * scale)})"
    return f"{rate(tokens)} tokens/s{ranged}"


def cost_words(scored: ScoredPlan, times: float = 1.0) -> str:
    """`$0.71 per million samples`, or per billion tokens of networks over sequences."""
    tokens = scored.usd_per_billion_tokens
    if tokens is None:
        return f"{usd(scored.usd_per_million_samples * times)} per million samples"
    return f"{usd(tokens * times)} per billion tokens"


def price_words(scored: ScoredPlan) -> list[str]:
    """`$43.92/h` and `$0.57 per million samples`; nothing where nothing has a price."""
    if not scored.priced:
        return []
    spot = " (spot)" if scored.spot is not None else ""
    return [f"{usd(scored.usd_per_hour)}/h{spot}", cost_words(scored)]


def best_so_far(scored: ScoredPlan, request: Request) -> str:
    """The best plan of a search that still runs, for its progress line."""
    return ", ".join([cluster_words(scored.plan), speed_words(scored), *price_words(scored)])


def fact_lines(scored: ScoredPlan, request: Request, training: Training | None) -> list[list[str]]:
    """The figures below a headline: speed and price, the job, what it misses."""
    lines = [[speed_words(scored), *price_words(scored)]]
    if training is not None:
        lines.append([job_words(training, scored, request)])
    lines += [[text] for text in (missed_words(scored, request, training), staleness_words(scored)) if text]
    return lines


def job_words(training: Training, scored: ScoredPlan, request: Request) -> str:
    """`90 epochs of resnet50 in 1.5 h (1.2 - 1.9 h) for $66 ($54 - $81); meets 12 h: 97%`."""
    took, cost = format_seconds(training.seconds(scored)), training.usd(scored)
    spent = "" if cost is None else f" for {usd(cost)}"
    if scored.range is not None:
        low, high = scored.range
        times = [scored.samples_per_s / high, scored.samples_per_s / low]
        took += f" ({format_span(*(training.seconds(scored) * factor for factor in times))})"
        if cost is not None:
            spent += f" ({usd_span(*(cost * factor for factor in times))})"
    late = _deadline_words(training, scored, request)
    return f"{training.words} of {scored.plan.model} in {took}{spent}{late}"


def _deadline_words(training: Training, scored: ScoredPlan, request: Request) -> str:
    """The probability with which a plan meets the deadline; empty without one."""
    if request.deadline_s is None:
        return ""
    share = training.probability_within(scored, request.deadline_s)
    chance = ">99%" if share > 0.995 else "<1%" if share < 0.005 else percent(share)
    return f"; meets {format_seconds(request.deadline_s)}: {chance}"


def missed_words(scored: ScoredPlan, request: Request, training: Training | None) -> str:
    """A sentence about the limit that a plan misses; empty if none."""
    from planner.answers.jobs import Limit, missed

    words = {
        Limit.LATE: f"Misses the deadline of {format_seconds(request.deadline_s or 0.0)}.",
        Limit.SLOW: f"Slower than the required {rate(request.min_samples_per_s or 0)} samples/s.",
        Limit.SPEND: f"Over the spending limit of {limit_usd(request.spend_usd or 0)}.",
        Limit.BUDGET: f"Over the budget of {limit_usd(request.budget_usd_per_hour or 0)}/h.",
    }
    limit = missed(scored, request, training)
    return "" if limit is None else words[limit]


def is_async(scored: ScoredPlan) -> bool:
    return scored.plan.exchange.is_asynchronous and scored.plan.replicas > 1


def staleness_words(scored: ScoredPlan) -> str:
    """What an asynchronous plan gives up for its speed; empty for synchronous training."""
    stale = scored.prediction.staleness_mean
    if not is_async(scored) or not stale:
        return ""
    return (
        f"Asynchronous: gradients are {stale:.1f} updates old on average, which may need more epochs than "
        "synchronous training."
    )


def beside_words(name: str, training: Training | None, other: ScoredPlan) -> str:
    """`The cheapest plan, 1 x g5.xlarge: 626 samples/s, 34 min, $0.57.`"""
    figures = [speed_words(other).partition(" (")[0]]
    if training is not None:
        cost = training.usd(other)
        figures += [format_seconds(training.seconds(other)), *([] if cost is None else [usd(cost)])]
    elif other.priced:
        figures.append(cost_words(other))
    return f"{name}, {cluster_words(other.plan)}: {', '.join(figures)}."


def compared_words(scored: ScoredPlan, other: ScoredPlan) -> str:
    """How a plan compares with another: `3.1x faster for 4% more per sample`."""
    times = scored.samples_per_s / other.samples_per_s
    faster = f"{ratio(times)} as fast" if times < 1 + CLOSE else f"{ratio(times)} faster"
    if 1 + CLOSE <= times < 1.995:
        faster = f"{percent(times - 1)} faster"
    if not (scored.priced and other.priced):
        return faster
    more = scored.usd_per_million_samples / other.usd_per_million_samples - 1
    if abs(more) < 0.005:
        return f"{faster} at the same cost per sample"
    return f"{faster} for {percent(abs(more))} {'more' if more > 0 else 'less'} per sample"


def alone_words(scored: ScoredPlan, baseline: ScoredPlan | None, training: Training | None) -> str:
    """How a plan compares with one device; empty where it is one."""
    if baseline is None or scored.plan.workers == 1:
        return ""
    removesuffix = beside_words(f"One device{_charge_words(baseline)}", training, baseline).removesuffix(".")
    return f"{removesuffix}; {count(scored.plan.workers, 'device')}: {compared_words(scored, baseline)}."


def _charge_words(baseline: ScoredPlan) -> str:
    """What a device that shares its machine with others is charged; empty for one that is rented alone."""
    devices = baseline.plan.workers_per_machine
    if devices == 1 or not baseline.priced:
        return ""
    return f" (charged {'its share' if baseline.charged_share < 1 else f'all {devices}'} of the machine)"


def tied_words(rivals: Sequence[ScoredPlan]) -> str:
    """Plans that are statistically tied with the choice; empty where none is."""
    if not rivals:
        return ""
    names = listed([cluster_words(rival.plan) for rival in rivals], TIED_NAMED)
    certain = "whose prediction is" if len(rivals) == 1 else "whose predictions are"
    return f"Statistically tied with {names}, {certain} no more certain."


def bottleneck_words(scored: ScoredPlan) -> str:
    """What limits a plan: the resource that is full, or the chain of a step."""
    top = scored.prediction.bottleneck
    used = scored.prediction.utilisation.get(top, 0.0)
    what = resource_words(top, scored.plan)
    if is_full(scored):
        return f"{what} ({percent(used)} of the step)"
    return (
        f"latency: no resource is full (busiest: {what}, {percent(used)}); each step waits for its chain of "
        "transfers, compute and updates"
    )


def is_full(scored: ScoredPlan) -> bool:
    """Whether the busiest resource is what limits; below, the chain of a step's ops does."""
    return scored.prediction.utilisation.get(scored.prediction.bottleneck, 0.0) >= FULL


def busiest(scored: ScoredPlan) -> str:
    """What to call the busiest resource of a plan."""
    return "bottleneck" if is_full(scored) else "busiest"


def busy_words(scored: ScoredPlan) -> str:
    """`compute, 76%`: the busiest resource, and how much of the time."""
    top = scored.prediction.bottleneck
    used = scored.prediction.utilisation.get(top)
    return resource_words(top, scored.plan) + (f", {percent(used)}" if used is not None else "")


def energy_words(scored: ScoredPlan) -> str:
    """Energy per million samples, and how that was counted; empty where the power is not known."""
    row = scored.as_dict()
    kwh, kg = row["kwh_per_million_samples"], row["kg_co2e_per_million_samples"]
    if kwh is None:
        return ""
    carbon = "" if kg is None else f" and {kg:.3g} kg CO2e"
    return f"{kwh:.3g} kWh{carbon} per million samples: {row['energy_method']}."


def plan_row(
    scored: ScoredPlan, chosen: ScoredPlan, request: Request, training: Training | None
) -> dict[str, Any]:
    """The row of a plan: the PLAN object of JSON, and under keys with an underscore what people read."""
    from planner.answers.jobs import missed

    row = scored.as_dict()
    row |= {
        "_choice": CHOICE if scored.plan.key == chosen.plan.key else "",
        "_machines": f"{scored.plan.machines} x {scored.plan.machine}",
        "_run": run_words(scored.plan, request),
        "_how": scored.plan.computed or "fp32",
        "_paid": "on demand" if scored.spot is None else "spot",
        "_range": None if scored.range is None else span(*scored.range),
        "_limit": busy_words(scored),
    }
    if training is not None:
        row |= training.figures(scored)
    return row | {"misses": missed(scored, request, training)}


def plan_columns(
    rows: Sequence[Mapping[str, Any]],
    training: Training | None,
    request: Request,
    *,
    energy: bool = False,
    first: Sequence[Column] = (),
) -> list[Column]:
    """The columns of plans: batch and number format only where they differ, tokens for networks over
    sequences, time and cost of the job where there is one. Costs are never left out."""
    differ = [
        Column(key, title, spare=spare)
        for key, title, spare in (("batch", "batch", 3), ("_how", "precision", 3))
        if len({row[key] for row in rows}) > 1
    ]
    tokens = bool(rows) and rows[0]["tokens_per_s"] is not None
    speed = Column(
        "tokens_per_s" if tokens else "samples_per_s", f"{'tokens' if tokens else 'samples'}/s", rate
    )
    priced = any(row["usd_per_hour"] is not None for row in rows)
    unit = ("usd_per_billion_tokens", "$/B tokens") if tokens else ("usd_per_million_samples", "$/M samples")
    return [
        *first,
        Column("_machines", "machines", whole=True),
        Column("_run", "run as", whole=True, enough=16),
        *differ,
        speed,
        *([Column("_range", "range", align="right", spare=5)] if not tokens and _any(rows, "_range") else []),
        *(job_columns(priced) if training is not None else []),
        *([Column("usd_per_hour", "$/h", show=money, spare=2 * (training is not None))] if priced else []),
        *([Column("_paid", "paid")] if request.spot else []),
        *([Column(*unit, show=money)] if priced else []),
        *(ENERGY if energy else []),
        Column("_limit", "busiest", spare=6),
    ]


def _any(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return any(row.get(key) is not None for row in rows)


def job_columns(priced: bool = True) -> list[Column]:
    """What the job takes and costs."""
    time = Column("job_s", "job time", show=format_seconds, align="right")
    return [time, Column("job_usd", "job cost", show=usd)] if priced else [time]


def row_style(row: Mapping[str, Any]) -> str:
    """The choice stands out, what misses a limit too, and what lost does not."""
    if row.get("_choice") == CHOICE:
        return "bold green"
    return "red" if row.get("misses") else "dim"


def figures(scored: ScoredPlan, request: Request) -> list[Figure]:
    """The plan in boxes: how fast, what the job takes and costs, what limits."""
    from planner.answers.jobs import training_of

    training, top = training_of(request), scored.prediction.bottleneck
    low, high = scored.range or (scored.samples_per_s, scored.samples_per_s)
    ranged = scored.range is not None
    out = [Figure("samples/s", rate(scored.samples_per_s), span(low, high) if ranged else "")]
    if training is not None:
        took, cost = training.seconds(scored), training.usd(scored)
        times = [scored.samples_per_s / high, scored.samples_per_s / low]
        between = format_span(*(took * factor for factor in times)) if ranged else ""
        out.append(Figure(f"time of {training.words}", format_seconds(took), between))
        if cost is not None:
            between = usd_span(*(cost * factor for factor in times)) if ranged else ""
            out.append(Figure(f"cost of {training.words}", usd(cost), between))
    if scored.priced:
        price, _, unit = cost_words(scored).partition(" ")
        out += [Figure(unit, price), Figure("per hour", usd(scored.usd_per_hour))]
    used = scored.prediction.utilisation.get(top, 0.0)
    return [*out, Figure(busiest(scored), percent(used), resource_words(top, scored.plan))]
