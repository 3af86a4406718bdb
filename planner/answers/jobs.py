"""The job of a request: how much is trained, and what that takes and costs on a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan


@dataclass(frozen=True, slots=True)
class Training:
    """So many samples; `words` name them as people asked for them."""

    samples: float
    words: str

    def seconds(self, scored: ScoredPlan) -> float:
        return self.samples / scored.samples_per_s

    def usd(self, scored: ScoredPlan) -> float | None:
        """None where the plan's machines have no price."""
        return self.seconds(scored) / 3600 * scored.usd_per_hour if scored.priced else None

    def figures(self, scored: ScoredPlan) -> dict[str, Any]:
        """What JSON says of the job on a plan."""
        return {"job_samples": self.samples, "job_s": self.seconds(scored), "job_usd": self.usd(scored)}

    def missed(self, scored: ScoredPlan, request: Request) -> str:
        """Which limit of the request the plan misses, in a few words; empty if none."""
        if request.deadline_s is not None and self.seconds(scored) > request.deadline_s:
            return "misses the deadline"
        usd = self.usd(scored)
        if request.spend_usd is not None and usd is not None and usd > request.spend_usd:
            return "over --spend"
        return ""


def training_of(request: Request) -> Training | None:
    """What a request asks to train: so many samples, else one epoch; None where nobody has said how many
    samples an epoch of the model has."""
    per_epoch = None if request.profile is not None else model_of(request).samples_per_epoch
    if request.samples is not None:
        epochs = None if per_epoch is None else request.samples / per_epoch
        if epochs is not None and abs(epochs - round(epochs)) < 1e-9 and epochs >= 1:
            count = round(epochs)
            return Training(request.samples, "One epoch" if count == 1 else f"{count:,} epochs")
        return Training(request.samples, f"{request.samples:,.0f} samples")
    return None if per_epoch is None else Training(float(per_epoch), "One epoch")
