"""Describes plans in words: machines, strategy, speed, cost, bottleneck, missed limits.

All answers use these functions; sentences about plans are written nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.answers.assumptions import retired_machine_names
from planner.note import Note, Topic
from planner.parallel.plan import Plan
from planner.report.assumed import notes_of
from planner.report.page import Figure, Page
from planner.search.request import Request
from planner.search.scored import Limit, ScoredPlan, Training, missed_limit, training_of
from planner.simulator.cluster import COMPUTATION, INPUT, Resource
from planner.units import (
    count,
    format_seconds,
    format_span,
    limit_usd,
    listing,
    percent,
    rate,
    ratio,
    span,
    usd,
    usd_span,
)

FULL = 0.8  # a resource used less is not what limits
CLOSE = 0.02  # a difference in speed or cost that nobody chooses by
TIED_NAMED = 2  # tied plans that a sentence names


def plan_page(
    result: Any, scored: ScoredPlan, word: str, *, energy: bool, notes: Sequence[Note] = (), **parts: Any
) -> Page:
    """Builds the page of an answer about one plan, with headline, figures and assumptions. `parts` are
    further fields of `Page`; `word` stands before the headline."""
    request, words = result.request, energy_words(scored)
    training = training_of(request)
    return Page(
        verdict="Use" if request.market.find_machine(scored.plan.machine).standing == "own" else word,
        headline=plan_headline(scored.plan, request),
        facts=fact_lines(scored, request, training),
        assumptions=[
            Note(Topic.PLAN, f"{scored.plan.exchange.labels().plan}."),
            *([Note(Topic.ENERGY, words)] if words else []),
            *notes_of(result.assumptions),
            *notes,
        ],
        energy=energy,
        data=result.as_dict,
        **{"figures": plan_figures(scored, request), **parts},
    )


def resource_words(resource: Resource, plan: Plan) -> str:
    """Name of a resource in the strategy's terms: `gradients arriving at server 0` for `uplink[0]`."""
    words = {**plan.exchange.labels().resources, COMPUTATION: "compute", INPUT: "the input pipeline"}
    known = words.get(resource.without_number)
    return str(resource) if known is None else known.format(resource.number)


def strategy_words(plan: Plan) -> str:
    """Name of a plan's strategy, such as `DDP + TP8 + PP4` or `FSDP`; empty string for one device."""
    words = plan.exchange.labels()
    single = plan.workers == 1 and not words.added
    name = "" if single else words.name or words.run.partition("{}")[0].strip() or words.cell
    if not plan.mesh.is_sharded:
        return name
    return " + ".join([*([name] if plan.replicas > 1 else []), plan.mesh.short_label])


def run_words(plan: Plan, request: Request) -> str:
    """Strategy and device count: `DDP, 16 GPUs`; `1 GPU`; `DDP + TP8 + PP8, 128 GPUs`."""
    kind = request.market.find_machine(plan.machine).device.kind
    devices = count(plan.workers, "GPU" if kind == "gpu" else "CPU machine")
    return ", ".join(filter(None, [strategy_words(plan), devices]))


def batch_words(plan: Plan) -> str:
    """Batch of a plan: `batch 64`, or `global batch 2,048 (256 per replica)` for synchronous replicas."""
    together = plan.replicas > 1 and not plan.exchange.is_asynchronous
    if not together:
        return f"batch {plan.samples_per_step:,}"
    return f"global batch {plan.samples_per_step * plan.replicas:,} ({plan.samples_per_step:,} per replica)"


def plan_headline(plan: Plan, request: Request) -> str:
    """Headline of a plan: `2 x p4d.24xlarge (16 x A100-SXM4-40GB), DDP, bf16, global batch 2,048`."""
    device, added = request.market.find_machine(plan.machine).device, plan.exchange.labels().added
    devices = f" ({plan.workers} x {device.name.partition('-Blackwell')[0]})" if device.kind == "gpu" else ""
    strategy = strategy_words(plan).removesuffix(f", {added.removeprefix(' + ')}")
    machines = f"{plan.machines} x {plan.machine}{devices}{added}"
    retired = [f"{name} is retired" for name in retired_machine_names(plan, request)]
    virtual = plan.mesh.detail_text.removeprefix(", ") if plan.mesh.is_sharded else ""
    return ", ".join(
        filter(None, [machines, strategy, virtual, plan.compute_text, batch_words(plan), *retired])
    )


def model_words(name: str) -> str:
    """Model and method: `llama3-8b, QLoRA (rank 16, nf4)` for `llama3-8b-qlora-r16-all-linear-nf4`."""
    match = _METHOD.fullmatch(name)
    if match is None:
        return name
    settings = [f"rank {match['rank']}" if match["rank"] else "", *(match["rest"] or "").split("-")]
    said = ", ".join(each for each in settings if each not in ("", "all", "linear"))
    return f"{match['model']}, {METHODS[match['method']]}" + (f" ({said})" if said else "")


METHODS = {"qlora": "QLoRA", "lora": "LoRA", "head": "head only"}
_METHOD = re.compile(r"(?P<model>.+?)-(?P<method>qlora|lora|head)(-r(?P<rank>\d+))?(-(?P<rest>.+))?")


@dataclass(frozen=True, slots=True)
class SpeedUnit:
    """Unit of speeds and costs: samples, or tokens if the model has sequences."""

    sample_tokens: float | None = None

    @property
    def noun(self) -> str:
        """Plural noun of the unit: `samples` or `tokens`."""
        return "samples" if self.sample_tokens is None else "tokens"

    @property
    def singular(self) -> str:
        """Singular noun of the unit: `sample` or `token`."""
        return self.noun.removesuffix("s")

    @property
    def priced_amount(self) -> str:
        """Amount that costs refer to: `million samples` or `billion tokens`."""
        return "million samples" if self.sample_tokens is None else "billion tokens"

    def speed(self, samples_per_s: float) -> float:
        """Converts samples per second to this unit per second."""
        return samples_per_s * (self.sample_tokens or 1)

    def cost(self, usd_per_million_samples: float) -> float:
        """Converts USD per million samples to USD per priced amount of this unit."""
        return usd_per_million_samples * (1000 / self.sample_tokens if self.sample_tokens else 1)


def speed_unit(scored: ScoredPlan) -> SpeedUnit:
    """Unit of a plan's speed and cost."""
    return SpeedUnit(scored.sample_tokens)


def speed_words(scored: ScoredPlan) -> str:
    """Speed and its range: `21,300 samples/s (17,400 - 26,100)`; in tokens/s for models with sequences."""
    unit = speed_unit(scored)
    ranged = "" if scored.range is None else f" ({span(*map(unit.speed, scored.range))})"
    return f"{rate(unit.speed(scored.samples_per_s))} {unit.noun}/s{ranged}"


def cost_words(scored: ScoredPlan) -> str:
    """Cost of training: `$0.71 per million samples`; per billion tokens for models with sequences."""
    unit = speed_unit(scored)
    return f"{usd(unit.cost(scored.usd_per_million_samples))} per {unit.priced_amount}"


def price_words(scored: ScoredPlan) -> list[str]:
    """Price and cost: `$43.92/h` and `$0.57 per million samples`; empty list for a plan without a price."""
    if not scored.priced:
        return []
    spot = " (spot)" if scored.spot is not None else ""
    return [f"{usd(scored.usd_per_hour)}/h{spot}", cost_words(scored)]


def best_so_far(scored: ScoredPlan, request: Request) -> str:
    """Machines, speed and price of the best plan so far, for a progress line."""
    return ", ".join([scored.plan.rental_text, speed_words(scored), *price_words(scored)])


def fact_lines(scored: ScoredPlan, request: Request, training: Training | None) -> list[list[str]]:
    """Lines below a headline: speed and price, the job, a missed limit, and staleness."""
    lines = [[speed_words(scored), *price_words(scored)]]
    if training is not None:
        lines.append([job_words(training, scored, request)])
    lines += [
        [text] for text in (missed_limit_sentence(scored, request, training), staleness_words(scored)) if text
    ]
    return lines


def _job_figures(training: Training, scored: ScoredPlan) -> tuple[str, str, str, str]:
    """Time of a job, range of the time, cost and range of the cost, as text; empty if unknown."""
    took, cost = training.seconds(scored), training.usd(scored)
    spent = "" if cost is None else usd(cost)
    if scored.range is None:
        return format_seconds(took), "", spent, ""
    fast, slow = (scored.samples_per_s / end for end in reversed(scored.range))
    between = "" if cost is None else usd_span(cost * fast, cost * slow)
    return format_seconds(took), format_span(took * fast, took * slow), spent, between


def job_words(training: Training, scored: ScoredPlan, request: Request) -> str:
    """Time and cost of a job: `90 epochs of resnet50 in 1.5 h (1.2 - 1.9 h) for $66`."""
    time, times, cost, costs = (
        (f" ({words})" if place % 2 else words) if words else ""
        for place, words in enumerate(_job_figures(training, scored))
    )
    late = _deadline_words(training, scored, request)
    spent = f" for {cost}{costs}" if cost else ""
    return f"{training.words} of {model_words(scored.plan.model)} in {time}{times}{spent}{late}"


def _deadline_words(training: Training, scored: ScoredPlan, request: Request) -> str:
    """Probability of meeting the deadline, in words; empty string without a deadline."""
    if request.deadline_s is None:
        return ""
    share = training.probability_within(scored, request.deadline_s)
    chance = ">99%" if share > 0.995 else "<1%" if share < 0.005 else percent(share)
    return f"; meets {format_seconds(request.deadline_s)}: {chance}"


def missed_limit_sentence(scored: ScoredPlan, request: Request, training: Training | None) -> str:
    """Sentence on the limit that a plan misses; empty string if it meets all."""
    limit = missed_limit(scored, request, training)
    words = {
        Limit.LATE: f"Misses the deadline of {format_seconds(request.deadline_s or 0.0)}.",
        Limit.SLOW: f"Slower than the required {rate(request.min_samples_per_s or 0)} samples/s.",
        Limit.SPEND: f"Over the spending limit of {limit_usd(request.spend_usd or 0)}.",
        Limit.BUDGET: f"Over the budget of {limit_usd(request.budget_usd_per_hour or 0)}/h.",
    }
    return "" if limit is None else words[limit]


def is_async(scored: ScoredPlan) -> bool:
    """Whether a plan trains several replicas asynchronously."""
    return scored.plan.exchange.is_asynchronous and scored.plan.replicas > 1


def staleness_words(scored: ScoredPlan) -> str:
    """Sentence on the stale gradients of asynchronous training; empty string if synchronous."""
    stale = scored.prediction.staleness_mean
    if not is_async(scored) or not stale:
        return ""
    return (
        f"Asynchronous: gradients are {stale:.1f} updates old on average; training may need more epochs than "
        "with synchronous updates."
    )


def other_plan_sentence(name: str, training: Training | None, other: ScoredPlan, aside: str = "") -> str:
    """Sentence on another plan: `The cheapest plan (1 x g5.xlarge): 626 samples/s, 34.1 min, $0.57.`"""
    figures = [speed_words(other).partition(" (")[0]]
    if training is not None:
        cost = training.usd(other)
        figures += [format_seconds(training.seconds(other)), *([] if cost is None else [usd(cost)])]
    elif other.priced:
        figures.append(cost_words(other))
    return f"{name} ({other.plan.rental_text}{aside}): {', '.join(figures)}."


def comparison_words(scored: ScoredPlan, other: ScoredPlan, than: str = "") -> str:
    """Speed and cost of a plan relative to another, named `than`: `3.1x faster for 4% more per sample`."""
    times = scored.samples_per_s / other.samples_per_s
    if abs(times - 1) < 0.005:
        faster, conjunction = "as fast", "as"
    elif times > 1:
        faster, conjunction = f"{ratio(times) if times >= 1.995 else percent(times - 1)} faster", "than"
    elif times > 0.5:
        faster, conjunction = f"{percent(1 - times)} slower", "than"
    else:
        faster, conjunction = f"{ratio(times)} as fast", "as"
    if than:
        faster += f" {conjunction} {than}"
    if not (scored.priced and other.priced):
        return faster
    unit = speed_unit(scored).singular
    cost = scored.usd_per_million_samples / other.usd_per_million_samples
    if abs(cost - 1) < 0.005:
        return f"{faster} at the same cost per {unit}"
    if cost >= 1.995:
        return f"{faster} at {ratio(cost)} the cost per {unit}"
    return f"{faster} for {percent(abs(cost - 1))} {'more' if cost > 1 else 'less'} per {unit}"


def single_device_sentence(scored: ScoredPlan, baseline: ScoredPlan | None, training: Training | None) -> str:
    """Sentence comparing a plan with a single device; empty string if it uses one."""
    if baseline is None or scored.plan.workers == 1:
        return ""
    devices, charge = baseline.plan.workers_per_machine, ""
    if devices > 1 and baseline.priced:
        charge = ", its share charged" if baseline.charged_share < 1 else f", all {devices} charged"
    alone = other_plan_sentence("One device", training, baseline, charge).removesuffix(".")
    return f"{alone}; {scored.plan.workers:,} devices are {comparison_words(scored, baseline)}."


def idle_words(scored: ScoredPlan) -> str:
    """Sentence on devices of the plan's machines that no worker uses; empty string if all are used."""
    plan = scored.plan
    devices = plan.machines * plan.workers_per_machine
    idle = devices - plan.workers
    charged = " but charged" if scored.priced else ""
    verb = "is" if idle == 1 else "are"
    return f"{idle:,} of the {devices:,} devices {verb} idle{charged}." if idle > 0 else ""


def tied_plans_sentence(chosen: ScoredPlan, rivals: Sequence[ScoredPlan]) -> str:
    """Sentence naming the plans that tie with the choice, and why it wins; empty string if there are none."""
    if not rivals:
        return ""
    names = listing([rival.plan.rental_text for rival in rivals], TIED_NAMED)
    reasons = dict.fromkeys(_tie_reason(chosen, rival) for rival in rivals)
    return f"Statistically tied with {names}; preferred for {listing(list(reasons), len(reasons))}."


def _tie_reason(chosen: ScoredPlan, rival: ScoredPlan) -> str:
    """Advantage of the choice over a tied plan, in the order of the decision rule."""
    from planner.search.rank import SAME_WIDTH

    if chosen.candidate().total_sigma < rival.candidate().total_sigma - SAME_WIDTH:
        return "its narrower range"
    if chosen.candidate().machines < rival.candidate().machines:
        return "fewer machines"
    return "its expected speed and cost"


def bottleneck_words(scored: ScoredPlan) -> str:
    """Bottleneck of a plan as text: a saturated resource, or latency."""
    top = scored.prediction.bottleneck
    used = percent(scored.prediction.utilisation.get(top, 0.0))
    what = resource_words(top, scored.plan)
    if is_saturated(scored):
        return f"{what} (busy {used} of the step)"
    return (
        f"latency: no resource is saturated (busiest: {what}, busy {used} of the step); compute and "
        "communication wait for each other"
    )


def is_saturated(scored: ScoredPlan) -> bool:
    """Whether the busiest resource is saturated; otherwise latency limits the step."""
    return scored.prediction.utilisation.get(scored.prediction.bottleneck, 0.0) >= FULL


def busiest_label(scored: ScoredPlan) -> str:
    """Label of the busiest resource: `bottleneck` if it is saturated, else `busiest`."""
    return "bottleneck" if is_saturated(scored) else "busiest"


def busiest_resource_words(scored: ScoredPlan) -> str:
    """Name and utilization of the busiest resource: `compute, 76%`."""
    top = scored.prediction.bottleneck
    used = scored.prediction.utilisation.get(top)
    return resource_words(top, scored.plan) + (f", {percent(used)}" if used is not None else "")


def energy_words(scored: ScoredPlan) -> str:
    """Text on energy and emissions per million samples; empty string if power is unknown."""
    row = scored.as_dict()
    kwh, kg = row["kwh_per_million_samples"], row["kg_co2e_per_million_samples"]
    if kwh is None:
        return ""
    carbon = "" if kg is None else f" and {kg:.3g} kg CO2e"
    return f"{kwh:.3g} kWh{carbon} per million samples: {row['energy_method']}."


def plan_figures(scored: ScoredPlan, request: Request) -> list[Figure]:
    """Boxed figures of a page: speed, time, cost and bottleneck."""
    training, top = training_of(request), scored.prediction.bottleneck
    speed, _, between = speed_words(scored).partition(" (")
    value, _, unit = speed.partition(" ")
    out = [Figure(unit, value, between.removesuffix(")"))]
    if training is not None:
        time, times, cost, costs = _job_figures(training, scored)
        out.append(Figure(f"time of {training.words}", time, times))
        if cost:
            out.append(Figure(f"cost of {training.words}", cost, costs))
    if scored.priced:
        price, _, unit = cost_words(scored).partition(" ")
        out += [Figure(unit, price), Figure("per hour", usd(scored.usd_per_hour))]
    used = scored.prediction.utilisation.get(top, 0.0)
    return [*out, Figure(busiest_label(scored), percent(used), resource_words(top, scored.plan))]
