"""What the answers are made of: a plan with its price, bound and prediction, and the four results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planner.cost.price import usd_per_million_samples
from planner.plan import Plan
from planner.search.request import Request
from planner.simulator.prediction import Prediction

if TYPE_CHECKING:
    from planner.measured import Factor
    from planner.rates.error import Error

VERSION = 2
FLAT = ("mode", "policy", "server_hardware", "servers", "colocated", "placement")  # of version 1


class Shown:
    """A result that shows itself: a rich table in a terminal, HTML in a notebook."""

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from planner.report.answers import tables_of
        from planner.report.output import rich_of

        yield rich_of(tables_of(self), options.max_width)

    def _repr_html_(self) -> str:
        from planner.report.answers import notebook_html

        return notebook_html(self)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the machines of one role cost in all."""

    role: str
    machine: str
    count: int
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class ScoredPlan:
    """A plan that was simulated. `fits_memory` is None where nobody knows, as with a profile."""

    plan: Plan
    costs: tuple[Cost, ...]
    bound_samples_per_s: float
    prediction: Prediction
    fits_memory: bool | None = True
    marks: tuple[str, ...] = ()
    error: Error | None = None  # of the computation, from runs that no fit had seen; None: nobody knows
    device: str = ""
    measured: Factor | None = None  # what real runs on this device corrected it by

    @property
    def samples_per_s(self) -> float:
        return self.prediction.samples_per_s

    @property
    def range(self) -> tuple[float, float] | None:
        """Between which bounds nine of ten runs would show: the model's error and the simulation's own."""
        if self.error is None:
            return None
        from planner.rates.error import combined

        half = (self.prediction.samples_per_s_high - self.prediction.samples_per_s_low) / 2
        return combined(self.samples_per_s, half, self.error)

    @property
    def usd_per_hour(self) -> float:
        return sum(cost.usd_per_hour for cost in self.costs)

    def usd_of(self, role: str) -> float | None:
        """What a role costs an hour; None where the plan has no machines for it."""
        paid = [cost.usd_per_hour for cost in self.costs if cost.role == role]
        return sum(paid) if paid else None

    @property
    def priced(self) -> bool:
        """Whether any of its machines has a price; where none has, it costs nothing that we know of."""
        return self.usd_per_hour > 0

    @property
    def usd_per_million_samples(self) -> float:
        return usd_per_million_samples(self.usd_per_hour, self.samples_per_s)

    @property
    def bound_share(self) -> float:
        """How much of the bound the plan reaches."""
        return self.samples_per_s / self.bound_samples_per_s

    def as_dict(self) -> dict[str, Any]:
        """The PLAN object of the JSON answers (docs/answers.schema.json)."""
        plan, prediction = self.plan, self.prediction
        prices = {
            "usd_per_hour": self.usd_per_hour,
            "worker_usd_per_hour": self.usd_of("workers"),
            "server_usd_per_hour": self.usd_of("servers"),
            "usd_per_million_samples": self.usd_per_million_samples,
        }
        return {
            "model": plan.model,
            "batch": plan.batch,
            "number_format": plan.precision.name,
            "accumulate": plan.accumulate,
            "checkpointing": plan.checkpointing,
            "tensor": plan.cut.tensor,
            "pipeline": plan.cut.pipeline,
            "worker_hardware": plan.machine,
            "device": self.device,
            "measured_factor": 1.0 if self.measured is None else self.measured.value,
            "workers": plan.workers,
            "workers_per_replica": plan.cut.workers,
            "exchange": plan.exchange.record(),
            **(dict.fromkeys(FLAT) | plan.exchange.flat(plan.machine)),
            "cluster": plan.cluster_text,
            "samples_per_s": prediction.samples_per_s,
            "samples_per_s_low": prediction.samples_per_s_low,
            "samples_per_s_high": prediction.samples_per_s_high,
            "confidence": prediction.confidence,
            "samples_per_s_range_low": self.range and self.range[0],
            "samples_per_s_range_high": self.range and self.range[1],
            "range_basis": self.error and f"{self.error.basis}: {self.error.source}",
            "bound_samples_per_s": self.bound_samples_per_s,
            "bound_share": self.bound_share,
            **(prices if self.priced else dict.fromkeys(prices)),
            "rented": {cost.role: {"machine": cost.machine, "machines": cost.count} for cost in self.costs},
            "bottleneck": prediction.bottleneck,
            "utilisation": dict(prediction.utilisation),
            "step_s": prediction.step_s,
            "staleness_mean": prediction.staleness_mean,
            "fits_memory": self.fits_memory,
            "marks": list(self.marks),
        }


def as_dict(scored: ScoredPlan | None) -> dict[str, Any] | None:
    return None if scored is None else scored.as_dict()


@dataclass(frozen=True, slots=True)
class Change:
    """A change to the chosen plan and what it would bring."""

    words: str
    kind: str
    scored: ScoredPlan
    gain: float  # relative, in throughput
    usd_per_hour: float  # more, or less, than now
    within_budget: bool = True

    def __str__(self) -> str:
        money = f"${abs(self.usd_per_hour):.2f}/h {'more' if self.usd_per_hour >= 0 else 'less'}"
        price = "at no extra cost" if abs(self.usd_per_hour) < 0.005 else f"for {money}"
        over = "" if self.within_budget else ", over the budget"
        return f"{self.words}: {self.gain:+.0%} {price}{over}"


@dataclass(frozen=True)
class Recommendation(Shown):
    """The answer to `recommend`: the chosen plan, the front it was chosen from, and what was looked at."""

    request: Request
    chosen: ScoredPlan
    plans: Sequence[ScoredPlan]  # the front and the best of each hardware, by cost a sample
    considered: int
    pruned: Mapping[str, int]
    simulated: int
    assumptions: Sequence[str]
    changes: Sequence[Change] = ()
    saturation: Saturation | None = None
    baseline: ScoredPlan | None = None  # one device alone
    everything: Sequence[ScoredPlan] = ()  # every plan simulated, for the pictures
    screened: Sequence[ScoredPlan] = ()  # simulated too, but only roughly or short of a constraint
    bounded: Sequence[tuple[Plan, float, float]] = ()  # plans pruned by their bound: USD/h, bound
    partial: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "request": self.request.as_dict(),
            "recommendation": self._with_job(self.chosen),
            "baseline": None if self.baseline is None else self._with_job(self.baseline),
            "plans": [self._with_job(plan) for plan in self.plans],
            "considered": self.considered,
            "pruned": sum(self.pruned.values()),
            "pruned_by": dict(self.pruned),
            "simulated": self.simulated,
            "next_changes": [
                {
                    "change": change.words,
                    "kind": change.kind,
                    "gain": change.gain,
                    "usd_per_hour": change.usd_per_hour,
                    "within_budget": change.within_budget,
                    "plan": change.scored.as_dict(),
                }
                for change in self.changes
            ],
            "saturation": None if self.saturation is None else self.saturation.as_dict(),
            "assumptions": list(self.assumptions),
            "partial": self.partial,
        }

    def _with_job(self, scored: ScoredPlan) -> dict[str, Any]:
        """A plan with what the job takes and costs on it."""
        from planner.search.jobs import training_of

        training = training_of(self.request)
        return scored.as_dict() | ({} if training is None else training.figures(scored))


@dataclass(frozen=True, slots=True)
class SaturationPoint:
    """Throughput at one number of workers, and what the last worker added."""

    workers: int
    scored: ScoredPlan
    efficiency: float  # of W times one worker
    marginal_samples_per_s: float
    marginal_usd_per_million_samples: float  # what the samples of the last worker cost

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.scored.as_dict(),
            "workers": self.workers,
            "efficiency": self.efficiency,
            "marginal_samples_per_s": self.marginal_samples_per_s,
            "marginal_usd_per_million_samples": (
                self.marginal_usd_per_million_samples if self.scored.priced else None
            ),
        }


@dataclass(frozen=True)
class Saturation(Shown):
    """The answer to `saturation`."""

    request: Request
    points: Sequence[SaturationPoint]
    saturation_workers: int | None  # None: not reached within the workers that were tried
    ceiling_samples_per_s: float
    bottleneck: str
    threshold: float
    sizes: Sequence[tuple[int, ScoredPlan]] = ()  # throughput of the last point against servers
    size_advised: int | None = None
    assumptions: Sequence[str] = field(default=())
    partial: bool = False
    baseline: ScoredPlan | None = None  # one device alone

    @property
    def limits_next(self) -> str:
        """The link that fills first as workers are added: the busiest at the last point."""
        last = self.points[-1].scored
        used, prefixes = last.prediction.utilisation, last.plan.exchange.words().links
        links = [name for name in used if name.startswith(prefixes)]
        return max(links or used, key=used.__getitem__)

    def as_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "request": self.request.as_dict(),
            "points": [point.as_dict() for point in self.points],
            "baseline": as_dict(self.baseline),
            "saturation_workers": self.saturation_workers,
            "ceiling_samples_per_s": self.ceiling_samples_per_s,
            "bottleneck": self.bottleneck,
            "threshold": self.threshold,
            "servers": [{"count": n, **scored.as_dict()} for n, scored in self.sizes],
            "servers_advised": self.size_advised,
            "assumptions": list(self.assumptions),
            "partial": self.partial,
        }


@dataclass(frozen=True)
class Comparison(Shown):
    """The answer to `compare`: the best plan of each hardware, side by side."""

    request: Request
    rows: Sequence[ScoredPlan]  # on demand, by cost a sample
    spot: Mapping[str, float]  # plan key: USD per million samples at the spot price
    samples_per_epoch: int | None
    considered: int
    simulated: int
    assumptions: Sequence[str]
    left_out: Mapping[str, int] = field(default_factory=dict)
    partial: bool = False
    baseline: ScoredPlan | None = None  # one device alone, on the best machine
    everything: Sequence[ScoredPlan] = ()  # every plan simulated, for the pictures
    screened: Sequence[ScoredPlan] = ()  # simulated too, but only roughly
    bounded: Sequence[tuple[Plan, float, float]] = ()  # plans pruned by their bound: USD/h, bound

    def as_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "request": self.request.as_dict(),
            "plans": [
                {
                    **row.as_dict(),
                    "usd_per_million_samples_spot": self.spot.get(row.plan.key),
                    "epoch_s": self.epoch_s(row),
                    "epoch_usd": self.epoch_usd(row),
                }
                for row in self.rows
            ],
            "baseline": as_dict(self.baseline),
            "considered": self.considered,
            "simulated": self.simulated,
            "left_out": dict(self.left_out),
            "assumptions": list(self.assumptions),
            "partial": self.partial,
        }

    def epoch_s(self, row: ScoredPlan) -> float | None:
        return None if self.samples_per_epoch is None else self.samples_per_epoch / row.samples_per_s

    def epoch_usd(self, row: ScoredPlan) -> float | None:
        if self.samples_per_epoch is None:
            return None
        return row.usd_per_million_samples * self.samples_per_epoch / 1e6
