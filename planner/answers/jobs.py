"""The job of a request: how much is trained, and what that takes and costs on a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan


class Limit(StrEnum):
    """What of a request a plan misses, as tables and JSON say it."""

    LATE = "misses the deadline"
    SLOW = "below --min-throughput"
    SPEND = "over --spend"
    BUDGET = "over the budget"


@dataclass(frozen=True, slots=True)
class Training:
    """So many samples; `words` name them as people asked for them: one thing, or several."""

    samples: float
    words: str
    several: bool

    def seconds(self, scored: ScoredPlan) -> float:
        """With what interruptions of spot machines take."""
        return self.samples / scored.samples_per_s * scored.time_factor

    def usd(self, scored: ScoredPlan) -> float | None:
        """None where the plan's machines have no price."""
        return self.seconds(scored) / 3600 * scored.usd_per_hour if scored.priced else None

    def slowest_s(self, scored: ScoredPlan) -> float:
        """At the slow end of the range in which nine of ten runs are."""
        return self.seconds(scored) / scored.slow_share

    def figures(self, scored: ScoredPlan) -> dict[str, Any]:
        """What JSON says of the job on a plan."""
        return {"job_samples": self.samples, "job_s": self.seconds(scored), "job_usd": self.usd(scored)}


def missed(scored: ScoredPlan, request: Request, training: Training | None) -> Limit | None:
    """Which limit of the request a plan misses; None if none."""
    if request.budget_usd_per_hour is not None and scored.usd_per_hour > request.budget_usd_per_hour:
        return Limit.BUDGET
    if request.min_samples_per_s is not None and scored.samples_per_s < request.min_samples_per_s:
        return Limit.SLOW
    if training is None:
        return None
    if request.deadline_s is not None and training.seconds(scored) > request.deadline_s:
        return Limit.LATE
    usd = training.usd(scored)
    over = request.spend_usd is not None and usd is not None and usd > request.spend_usd
    return Limit.SPEND if over else None


def best_of(rows: Sequence[ScoredPlan], request: Request) -> ScoredPlan:
    """What the objective picks of plans, of those within the limits of the request if there are any."""
    training = training_of(request)
    fine = [row for row in rows if not missed(row, request, training)] or list(rows)
    if request.goal == "fastest":
        return max(fine, key=lambda row: row.samples_per_s)
    return min(fine, key=lambda row: row.usd_per_million_samples)


def with_job(scored: ScoredPlan, request: Request) -> dict[str, Any]:
    """The PLAN object of JSON with what the job takes and costs, and which limit of the request it misses."""
    training = training_of(request)
    figures = (
        dict.fromkeys(("job_samples", "job_s", "job_usd")) if training is None else training.figures(scored)
    )
    return scored.as_dict() | figures | {"misses": missed(scored, request, training)}


def training_of(request: Request) -> Training | None:
    """What a request asks to train: so many samples, else one epoch; None where nobody has said how many
    samples an epoch of the model has."""
    per_epoch = None if request.profile is not None else model_of(request).samples_per_epoch
    if request.samples is not None:
        epochs = None if per_epoch is None else request.samples / per_epoch
        if epochs is not None and abs(epochs - round(epochs)) < 1e-9 and epochs >= 1:
            count = round(epochs)
            words = "One epoch" if count == 1 else f"{count:,} epochs"
            return Training(request.samples, words, several=count > 1)
        return Training(request.samples, f"{request.samples:,.0f} samples", several=True)
    return None if per_epoch is None else Training(float(per_epoch), "One epoch", several=False)
