"""The job of a request: how much is trained, and what that takes and costs on a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from planner.search.rank import Ranking, confident_share, probability_of_reaching, rank
from planner.units import format_count

if TYPE_CHECKING:
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan


class Limit(StrEnum):
    """A limit of the request that a plan misses."""

    LATE = "misses the deadline"
    SLOW = "below --min-throughput"
    SPEND = "over --spend"
    BUDGET = "over the budget"


@dataclass(frozen=True, slots=True)
class Training:
    """A job in samples; `words` describe it as requested (`90 epochs`)."""

    samples: float
    words: str
    tokens: float | None = None  # of networks over sequences

    def seconds(self, scored: ScoredPlan) -> float:
        """Duration of the job in seconds, spot interruptions included."""
        return self.samples / scored.samples_per_s * scored.time_factor

    def usd(self, scored: ScoredPlan) -> float | None:
        """Cost of the job in USD; None without prices."""
        return self.seconds(scored) / 3600 * scored.usd_per_hour if scored.priced else None

    def confident_s(self, scored: ScoredPlan, confidence: float) -> float:
        """Seconds within which the job ends with probability `confidence`."""
        return self.seconds(scored) / confident_share(scored.candidate().total_sigma, confidence)

    def probability_within(self, scored: ScoredPlan, limit_s: float) -> float:
        """Probability that the job ends within `limit_s` seconds."""
        needed = self.samples * scored.time_factor / limit_s
        return probability_of_reaching(needed, scored.samples_per_s, scored.candidate().total_sigma)

    def figures(self, scored: ScoredPlan) -> dict[str, Any]:
        """The job's length, duration and cost by JSON key."""
        return {
            "job_samples": self.samples,
            "job_tokens": self.tokens,
            "job_s": self.seconds(scored),
            "job_usd": self.usd(scored),
        }


def missed_limit(scored: ScoredPlan, request: Request, training: Training | None) -> Limit | None:
    """The first limit that a plan misses, deadline and spend at the request's confidence; None if none."""
    if request.budget_usd_per_hour is not None and scored.usd_per_hour > request.budget_usd_per_hour:
        return Limit.BUDGET
    if request.min_samples_per_s is not None and scored.samples_per_s < request.min_samples_per_s:
        return Limit.SLOW
    if training is None:
        return None
    time_s = training.confident_s(scored, request.confidence)
    if request.deadline_s is not None and time_s > request.deadline_s:
        return Limit.LATE
    over = request.spend_usd is not None and time_s / 3600 * scored.usd_per_hour > request.spend_usd
    return Limit.SPEND if over else None


def within_limits(rows: Sequence[ScoredPlan], request: Request) -> list[ScoredPlan]:
    """Plans that meet the limits of the request."""
    training = training_of(request)
    return [row for row in rows if missed_limit(row, request, training) is None]


def ranking_of(rows: Sequence[ScoredPlan], request: Request) -> Ranking:
    """Applies the decision rule to plans, without discounts for staleness or large batches."""
    candidates = [row.candidate() for row in rows]
    return rank(candidates, request.goal, min_marginal_efficiency=request.min_marginal_efficiency)


def best_of(rows: Sequence[ScoredPlan], request: Request) -> ScoredPlan:
    """The plan that the decision rule picks among feasible plans, or among all if none is feasible."""
    possible = within_limits(rows, request) or rows
    return possible[ranking_of(possible, request).recommended]


def with_job(scored: ScoredPlan, request: Request) -> dict[str, Any]:
    """The JSON object of a plan, with the job's time and cost and the limit that it misses."""
    training = training_of(request)
    names = ("job_samples", "job_tokens", "job_s", "job_usd")
    figures = dict.fromkeys(names) if training is None else training.figures(scored)
    return scored.as_dict() | figures | {"misses": missed_limit(scored, request, training)}


def training_of(request: Request) -> Training | None:
    """The requested or default job; None if the samples per epoch are unknown."""
    from planner.search.request import model_of

    if request.samples is None and request.profile is not None:
        return None
    model = model_of(request)
    samples = model.usual_samples if request.samples is None else request.samples
    if samples is None:
        return None
    tokens = None if model.sample_tokens is None else samples * model.sample_tokens
    per_epoch = None if request.profile is not None else model.samples_per_epoch
    epochs = 0.0 if per_epoch is None else samples / per_epoch
    if _is_whole(epochs):
        count = round(epochs)
        words = "1 epoch" if count == 1 else f"{count:,} epochs"
        return Training(samples, words, tokens=tokens)
    words = f"{samples:,.0f} samples"
    if tokens is not None and _is_whole(tokens / 1e6):
        words = f"{format_count(tokens)} tokens"
    return Training(samples, words, tokens=tokens)


def _is_whole(value: float) -> bool:
    return value > 0.5 and abs(value - round(value)) < 1e-9 * max(value, 1.0)


def usual_job(request: Request) -> tuple[str, str, float | None] | None:
    """The default job in words, the model's name and tokens per epoch; None if the request names a job."""
    from planner.search.request import model_of

    training = training_of(request)
    if training is None or request.profile is not None:
        return None
    model = model_of(request)
    if training.tokens is None or training.samples != model.usual_samples:
        return None
    if training.samples == model.samples_per_epoch:
        return None
    epoch = model.tokens_per_epoch or (model.samples_per_epoch or 0) * (model.sample_tokens or 0)
    if epoch and training.words.endswith("epochs"):  # of a fine-tuning job
        return f"{training.words} over {format_count(epoch)} tokens", model.name, None
    return training.words, model.name, epoch or None
