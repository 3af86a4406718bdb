"""The answers: what each question gives, with everything that a screen, a page or a JSON file shows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from planner.answers.parts import VERSION, RenderableAnswer, StepParts, assumption_sentences
from planner.note import Fact, Note
from planner.parallel.plan import Plan
from planner.search.request import Request
from planner.search.scored import (
    ScoredPlan,
    best_of,
    missed_limit,
    plans_within_limits,
    ranking_of,
    training_of,
    with_job,
)
from planner.simulator.cluster import Resource


@dataclass(frozen=True, slots=True)
class Change:
    """A change to the chosen plan, and its gain."""

    words: str
    kind: str
    scored: ScoredPlan
    gain: float  # relative, in throughput
    usd_per_hour: float  # more, or less, than now
    within_budget: bool = True


@dataclass(frozen=True)
class Recommendation(RenderableAnswer):
    """Answer to `recommend`: the chosen plan, the Pareto front and what was searched."""

    page_maker = "planner.report.recommend.recommendation_page"
    request: Request
    chosen: ScoredPlan
    plans: Sequence[ScoredPlan]  # the front and the best of each hardware, by cost a sample
    considered: int
    pruned: Mapping[str, int]
    simulated: int
    assumptions: Sequence[Note | Fact]
    changes: Sequence[Change] = ()
    saturation: Saturation | None = None
    baseline: ScoredPlan | None = None  # one device alone
    everything: Sequence[ScoredPlan] = ()  # every plan simulated, for the pictures
    screened: Sequence[ScoredPlan] = ()  # simulated too, but only roughly or short of a constraint
    bounded: Sequence[tuple[Plan, float, float]] = ()  # plans pruned by their bound: USD/h, bound
    partial: bool = False
    cheapest: ScoredPlan | None = None  # of the feasible plans, by expected cost per sample
    fastest: ScoredPlan | None = None
    tied: Sequence[ScoredPlan] = ()  # with the choice: neither is better with 75% probability
    single_precision: ScoredPlan | None = None  # the choice in fp32, where mixed precision is a default

    @property
    def gain_over_fp32(self) -> float | None:
        """Relative speedup of mixed precision; None if it was requested or fp32 does not fit."""
        if self.single_precision is None:
            return None
        return self.chosen.samples_per_s / self.single_precision.samples_per_s - 1

    def as_dict(self) -> dict[str, Any]:
        """Figures under their JSON keys."""
        return {
            "version": VERSION,
            "request": self.request.as_dict(),
            "recommendation": with_job(self.chosen, self.request),
            "baseline": None if self.baseline is None else with_job(self.baseline, self.request),
            "plans": [with_job(plan, self.request) for plan in self.plans],
            "tied": [plan.plan.cluster_text for plan in self.tied],
            "gain_over_fp32": self.gain_over_fp32,
            "considered": self.considered,
            "pruned": sum(self.pruned.values()),
            "pruned_by": dict(self.pruned),
            "simulated": self.simulated,
            "next_changes": [
                {
                    "change": change.words,
                    "kind": str(change.kind),
                    "gain": change.gain,
                    "usd_per_hour": change.usd_per_hour,
                    "within_budget": change.within_budget,
                    "plan": with_job(change.scored, self.request),
                }
                for change in self.changes
            ],
            "saturation": None if self.saturation is None else self.saturation.as_dict(),
            "assumptions": assumption_sentences(self.assumptions),
            "partial": self.partial,
        }


@dataclass(frozen=True, slots=True)
class SaturationPoint:
    """Throughput at one number of workers, and the gain over the previous point."""

    workers: int
    scored: ScoredPlan
    efficiency: float  # of W times one worker
    exposed_communication: float  # share of the step
    marginal_samples_per_s: float
    marginal_usd_per_million_samples: float  # what the samples of the last worker cost

    def as_dict(self, request: Request) -> dict[str, Any]:
        """Figures under their JSON keys."""
        return {
            **with_job(self.scored, request),
            "workers": self.workers,
            "efficiency": self.efficiency,
            "exposed_communication": self.exposed_communication,
            "marginal_samples_per_s": self.marginal_samples_per_s,
            "marginal_usd_per_million_samples": (
                self.marginal_usd_per_million_samples if self.scored.priced else None
            ),
        }


@dataclass(frozen=True)
class Saturation(RenderableAnswer):
    """Answer to `saturation`: throughput by number of workers."""

    page_maker = "planner.report.saturation.saturation_page"
    request: Request
    points: Sequence[SaturationPoint]
    saturation_workers: int | None  # the last worth their cost; None: all that were tried are
    cost_doubles_workers: int | None  # the first at twice the least cost per sample
    peak_workers: int | None  # of the highest throughput; None: still growing with the most that were tried
    ceiling_samples_per_s: float
    bottleneck: Resource
    breakdown: StepParts  # of the step just beyond saturation
    sizes: Sequence[tuple[int, ScoredPlan]] = ()  # throughput of the last point against servers
    size_advised: int | None = None
    assumptions: Sequence[Note | Fact] = field(default=())
    partial: bool = False
    baseline: ScoredPlan | None = None  # one device alone
    beyond_owned: ScoredPlan | None = None  # twice the machines that the user has
    most_step_samples: int | None = None  # of a step, which end what is worth its cost; None: cost does

    @property
    def chosen(self) -> SaturationPoint:
        """The recommended point: within the limits and nearest to the last point worth its cost."""
        last = self.saturation_workers or self.points[-1].workers
        training = training_of(self.request)
        feasible = [point for point in self.points if not missed_limit(point.scored, self.request, training)]
        return min(feasible or self.points, key=lambda point: abs(point.workers - last))

    @property
    def limit(self) -> str:
        """Name of the longest part of the step, besides compute, just beyond saturation."""
        return max(self._wait_s_by_activity, key=self._wait_s_by_activity.__getitem__)

    @property
    def limit_s(self) -> float:
        """Seconds per step spent on `limit`, just beyond saturation."""
        return self._wait_s_by_activity[self.limit]

    @property
    def _wait_s_by_activity(self) -> dict[str, float]:
        """Seconds per step besides compute, by activity."""
        return {
            "exposed communication": self.breakdown.communication_s,
            "pipeline bubbles": self.breakdown.bubble_s,
            "the input pipeline": self.breakdown.input_s,
            "the optimizer": self.breakdown.optimizer_s,
        }

    def as_dict(self) -> dict[str, Any]:
        """Figures under their JSON keys."""
        return {
            "version": VERSION,
            "request": self.request.as_dict(),
            "points": [point.as_dict(self.request) for point in self.points],
            "baseline": None if self.baseline is None else with_job(self.baseline, self.request),
            "saturation_workers": self.saturation_workers,
            "chosen_workers": self.chosen.workers,
            "ceiling_samples_per_s": self.ceiling_samples_per_s,
            "cost_doubles_workers": self.cost_doubles_workers,
            "peak_workers": self.peak_workers,
            "most_step_samples": self.most_step_samples,
            "bottleneck": str(self.bottleneck),
            "limit": self.limit,
            "min_marginal_efficiency": self.request.min_marginal_efficiency,
            "servers": [{"count": n, **with_job(scored, self.request)} for n, scored in self.sizes],
            "servers_advised": self.size_advised,
            "assumptions": assumption_sentences(self.assumptions),
            "partial": self.partial,
        }


@dataclass(frozen=True)
class Comparison(RenderableAnswer):
    """Answer to `compare`: the best plan of each subject."""

    page_maker = "planner.report.recommend.comparison_page"
    request: Request
    rows: Sequence[ScoredPlan]  # by cost a sample, those that miss a limit last
    spot: Mapping[str, float]  # plan key: USD per million samples on spot machines, where they pay
    samples_per_epoch: int | None
    considered: int
    simulated: int
    assumptions: Sequence[Note | Fact]
    left_out: Mapping[str, int] = field(default_factory=dict)
    partial: bool = False
    baseline: ScoredPlan | None = None  # one device alone, on the best machine
    everything: Sequence[ScoredPlan] = ()  # every plan simulated, for the pictures
    screened: Sequence[ScoredPlan] = ()  # simulated too, but only roughly
    bounded: Sequence[tuple[Plan, float, float]] = ()  # plans pruned by their bound: USD/h, bound
    subjects: Mapping[str, str] = field(
        default_factory=dict
    )  # plan key: the GPU, machine or provider asked for
    missing: Mapping[str, str] = field(default_factory=dict)  # what was asked for and has no row: why

    @property
    def best_offers(self) -> list[ScoredPlan]:
        """The best row of each compared GPU, machine or provider."""
        by_subject: dict[str, list[ScoredPlan]] = {}
        for row in self.rows:
            by_subject.setdefault(self.subjects.get(row.plan.key, row.plan.machine), []).append(row)
        best = {best_of(rows, self.request).plan.key for rows in by_subject.values()}
        return [row for row in self.rows if row.plan.key in best]

    def as_dict(self) -> dict[str, Any]:
        """Figures under their JSON keys."""
        return {
            "version": VERSION,
            "request": self.request.as_dict(),
            "plans": [
                {
                    **with_job(row, self.request),
                    "subject": self.subjects[row.plan.key],
                    "best_offer": row in self.best_offers,
                    "usd_per_million_samples_spot": self.spot.get(row.plan.key),
                    "epoch_s": self.epoch_s(row),
                    "epoch_usd": self.epoch_usd(row),
                }
                for row in self.rows
            ],
            "tied": [plan.plan.cluster_text for plan in self.tied],
            "baseline": None if self.baseline is None else with_job(self.baseline, self.request),
            "missing": dict(self.missing),
            "considered": self.considered,
            "simulated": self.simulated,
            "left_out": dict(self.left_out),
            "assumptions": assumption_sentences(self.assumptions),
            "partial": self.partial,
        }

    @property
    def chosen(self) -> ScoredPlan:
        """The recommended row: the objective's choice within the limits."""
        return best_of(self.rows, self.request)

    @property
    def tied(self) -> list[ScoredPlan]:
        """Rows statistically tied with the recommended one."""
        feasible = plans_within_limits(self.rows, self.request) or list(self.rows)
        return [feasible[i] for i in ranking_of(feasible, self.request).tied]

    def epoch_s(self, row: ScoredPlan) -> float | None:
        """Seconds of an epoch with a row's plan; None if its samples are unknown."""
        return None if self.samples_per_epoch is None else self.samples_per_epoch / row.samples_per_s

    def epoch_usd(self, row: ScoredPlan) -> float | None:
        """Cost of an epoch with a row's plan; None if its samples are unknown."""
        if self.samples_per_epoch is None:
            return None
        return row.usd_per_million_samples * self.samples_per_epoch / 1e6


A = TypeVar("A", Recommendation, Saturation)


def extend_answer(answer: A, *parts: Callable[[], dict[str, Any]]) -> A:
    """Returns an answer with further fields, computed one part after another until interrupted."""
    try:
        for part in () if answer.partial else parts:
            answer = replace(answer, **part())
    except KeyboardInterrupt:  # the answer is there, what follows from it is not
        answer = replace(answer, partial=True)
    return answer
