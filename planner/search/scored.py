"""A simulated plan: its price, bound, prediction and range; and what the job of a request takes on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, inf, log, log1p
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.hardware.prices.cost import usd_per_million_samples
from planner.parallel.plan import Plan
from planner.search.flag_values import CONFIDENCE
from planner.simulator.cluster import figures_by_name
from planner.simulator.statistics import Prediction
from planner.units import format_count

if TYPE_CHECKING:
    from planner.device.rates import Error
    from planner.hardware.prices.cost import Energy
    from planner.hardware.prices.spot import SpotEstimate
    from planner.search.measured import Factor
    from planner.search.rank import Ranking
    from planner.search.request import Request


RANGE_SIGMAS = NormalDist().inv_cdf(0.95)  # half a 90% range, in standard deviations
FLAT = ("mode", "policy", "server_hardware", "servers", "colocated", "placement")  # of version 1


def _version_1_settings(plan: Plan) -> dict[str, Any]:
    """Strategy settings under the keys of JSON version 1; None where they do not apply."""
    record = plan.exchange.record()
    if "host" not in record:
        return dict.fromkeys(FLAT)
    record |= {"server_hardware": record["host"] or plan.machine, "colocated": record["host"] is None}
    return {name: record[name] for name in FLAT}


@dataclass(frozen=True, slots=True)
class Candidate:
    """Feasible plan as the decision rule compares it. `sigma` is the log-speed error shared on a `device`,
    `own_sigma` that of the simulation."""

    device: str
    samples_per_s: float
    usd_per_hour: float
    sigma: float = 0.0
    own_sigma: float = 0.0
    machines: int = 1

    @property
    def total_sigma(self) -> float:
        """Standard deviation of the log-speed error, shared and own."""
        return float(np.hypot(self.sigma, self.own_sigma))

    @property
    def effective_samples_per_s(self) -> float:
        """Samples per second by the expected time per sample."""
        return self.samples_per_s * exp(-(self.total_sigma**2) / 2)

    @property
    def expected_usd_per_sample(self) -> float:
        """Expected cost per sample in USD."""
        return self.usd_per_hour / 3600 / self.effective_samples_per_s


@dataclass(frozen=True, slots=True)
class Cost:
    """Hourly price of all machines of one role."""

    role: str
    machine: str
    count: int
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class ScoredPlan:
    """A simulated plan. `fits_memory` is None if unknown, as with a profile."""

    plan: Plan
    costs: tuple[Cost, ...]
    bound_samples_per_s: float
    prediction: Prediction
    device: str  # of a worker
    fits_memory: bool | None = True
    marks: tuple[str, ...] = ()
    error: Error | None = None  # of the computation, each source left out; None: unknown
    measured: Factor | None = None  # what real runs on this device corrected it by
    spot: SpotEstimate | None = None  # how interruptions were counted; None: rented on demand
    draw: Energy | None = None  # of its machines per hour; None: their power is unknown
    sample_tokens: int | None = None  # without padding, where it has any
    charged_share: float = 1.0  # of the price of its machines
    most_samples_per_s: float = inf  # that its hosts decode

    @property
    def samples_per_s(self) -> float:
        """Predicted samples per second."""
        return self.prediction.samples_per_s

    @property
    def range(self) -> tuple[float, float] | None:
        """The 90% range of throughput in samples per second; None if the model's error is unknown."""
        if self.error is None:
            return None
        from planner.device.rates import rate_range

        half = (self.prediction.samples_per_s_high - self.prediction.samples_per_s_low) / 2
        low, high = rate_range(self.samples_per_s, half, self.error)
        return low, max(min(high, self.most_samples_per_s), self.samples_per_s)

    @property
    def sigma(self) -> float:
        """Standard deviation of the log-speed error that all plans on this device share."""
        return 0.0 if self.error is None else self.error.q90 / RANGE_SIGMAS

    def candidate(self, discount: float = 1.0) -> Candidate:
        """Input of the decision rule for this plan, with its speed multiplied by `discount`."""
        half = (self.prediction.samples_per_s_high - self.prediction.samples_per_s_low) / 2
        own = log1p(half / self.samples_per_s) / NormalDist().inv_cdf((1 + self.prediction.confidence) / 2)
        return Candidate(
            device=self.device,
            samples_per_s=self.samples_per_s * discount,
            usd_per_hour=self.usd_per_hour * self.time_factor,
            sigma=self.sigma,
            own_sigma=own,
            machines=sum(cost.count for cost in self.costs),
        )

    @property
    def slow_share(self) -> float:
        """Low end of the 90% range divided by the predicted speed; 1 without a range."""
        return 1.0 if self.range is None else self.range[0] / self.samples_per_s

    @property
    def usd_per_hour(self) -> float:
        """Price of all machines in USD per hour."""
        return sum(cost.usd_per_hour for cost in self.costs)

    def usd_of(self, role: str) -> float | None:
        """Price of a role's machines in USD per hour; None if the plan has none."""
        paid = [cost.usd_per_hour for cost in self.costs if cost.role == role]
        return sum(paid) if paid else None

    @property
    def priced(self) -> bool:
        """Whether any of the plan's machines has a price."""
        return self.usd_per_hour > 0

    @property
    def time_factor(self) -> float:
        """Wall-clock hours per hour of training progress: above 1 for interrupted spot machines."""
        return 1.0 if self.spot is None else self.spot.run.time_factor

    @property
    def usd_per_million_samples(self) -> float:
        """USD per million samples, with spot interruptions."""
        return usd_per_million_samples(self.usd_per_hour * self.time_factor, self.samples_per_s)

    @property
    def tokens_per_s(self) -> float | None:
        """Predicted tokens per second; None for models without sequences."""
        return None if self.sample_tokens is None else self.samples_per_s * self.sample_tokens

    @property
    def usd_per_billion_tokens(self) -> float | None:
        """USD per billion tokens; None for models without sequences."""
        if self.sample_tokens is None:
            return None
        return self.usd_per_million_samples * 1e3 / self.sample_tokens

    def _energy_figures(self) -> dict[str, Any]:
        """Energy and emissions per million samples, by JSON key; None where power is unknown."""
        if self.draw is None:
            return dict.fromkeys(("kwh_per_million_samples", "kg_co2e_per_million_samples", "energy_method"))
        hours = 1e6 / self.samples_per_s / 3600 * self.time_factor
        kg = self.draw.kg_co2e
        return {
            "kwh_per_million_samples": self.draw.kwh * hours,
            "kg_co2e_per_million_samples": None if kg is None else kg * hours,
            "energy_method": self.draw.method,
        }

    @property
    def bound_share(self) -> float:
        """Predicted throughput divided by its upper bound."""
        return self.samples_per_s / self.bound_samples_per_s

    def as_dict(self) -> dict[str, Any]:
        """The PLAN object of the JSON answers (docs/answers.schema.json)."""
        plan, prediction = self.plan, self.prediction
        prices = {
            "usd_per_hour": self.usd_per_hour,
            "worker_usd_per_hour": self.usd_of("workers"),
            "server_usd_per_hour": self.usd_of("servers"),
            "usd_per_million_samples": self.usd_per_million_samples,
            "usd_per_billion_tokens": self.usd_per_billion_tokens,
        }
        return {
            "model": plan.model,
            "batch": plan.batch,
            "number_format": plan.precision.name,
            "accumulate": plan.accumulate,
            "recompute": plan.recompute,
            **plan.mesh.settings,
            "worker_hardware": plan.machine,
            "device": self.device,
            "measured_factor": 1.0 if self.measured is None else self.measured.value,
            "workers": plan.workers,
            "workers_per_replica": plan.mesh.size,
            "exchange": plan.exchange.record(),
            **_version_1_settings(plan),
            "cluster": plan.cluster_text,
            "samples_per_s": prediction.samples_per_s,
            "samples_per_s_low": prediction.samples_per_s_low,
            "samples_per_s_high": prediction.samples_per_s_high,
            "confidence": prediction.confidence,
            "samples_per_s_range_low": self.range and self.range[0],
            "samples_per_s_range_high": self.range and self.range[1],
            "range_basis": self.error and f"{self.error.basis}: {self.error.source}",
            "tokens_per_s": self.tokens_per_s,
            "bound_samples_per_s": self.bound_samples_per_s,
            "bound_share": self.bound_share,
            **(prices if self.priced else dict.fromkeys(prices)),
            **self._energy_figures(),
            "spot": None if self.spot is None else self.spot.as_dict(),
            "rented": {cost.role: {"machine": cost.machine, "machines": cost.count} for cost in self.costs},
            "bottleneck": str(prediction.bottleneck),
            "utilisation": figures_by_name(prediction.utilisation),
            "step_s": prediction.step_s,
            "staleness_mean": prediction.staleness_mean,
            "fits_memory": self.fits_memory,
            "marks": list(self.marks),
        }


def confident_share(sigma: float, confidence: float = CONFIDENCE) -> float:
    """Fraction of its predicted speed that a plan reaches with this probability."""
    return exp(-sigma * NormalDist().inv_cdf(confidence))


def probability_of_reaching(samples_per_s: float, predicted: float, sigma: float) -> float:
    """Probability that a plan with speed `predicted` runs at `samples_per_s` or faster."""
    if sigma <= 0:
        return 1.0 if predicted >= samples_per_s else 0.0
    return NormalDist().cdf(log(predicted / samples_per_s) / sigma) if samples_per_s > 0 else 1.0


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
        """Length, duration and cost of the job, by JSON key."""
        return {
            "job_samples": self.samples,
            "job_tokens": self.tokens,
            "job_s": self.seconds(scored),
            "job_usd": self.usd(scored),
        }


def missed_limit(scored: ScoredPlan, request: Request, training: Training | None) -> Limit | None:
    """First limit that a plan misses, or None; deadline and spend hold at the request's confidence."""
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


def plans_within_limits(rows: Sequence[ScoredPlan], request: Request) -> list[ScoredPlan]:
    """Plans that meet all limits of the request."""
    training = training_of(request)
    return [row for row in rows if missed_limit(row, request, training) is None]


def ranking_of(rows: Sequence[ScoredPlan], request: Request) -> Ranking:
    """Ranking of plans by the decision rule, without discounts for staleness or large batches."""
    from planner.search.rank import rank

    candidates = [row.candidate() for row in rows]
    return rank(candidates, request.goal, min_marginal_efficiency=request.min_marginal_efficiency)


def best_of(rows: Sequence[ScoredPlan], request: Request) -> ScoredPlan:
    """Plan that the decision rule picks from those within the limits, or from all if there are none."""
    possible = plans_within_limits(rows, request) or rows
    return possible[ranking_of(possible, request).recommended]


def with_job(scored: ScoredPlan, request: Request) -> dict[str, Any]:
    """JSON object of a plan, with the job's time and cost and the limit that it misses."""
    training = training_of(request)
    names = ("job_samples", "job_tokens", "job_s", "job_usd")
    figures = dict.fromkeys(names) if training is None else training.figures(scored)
    return scored.as_dict() | figures | {"misses": missed_limit(scored, request, training)}


def training_of(request: Request) -> Training | None:
    """Requested or default job; None if the samples per epoch are unknown."""
    from planner.search.request import model_of

    if request.samples is None and request.profile is not None:
        return None
    model = model_of(request)
    samples = model.default_job_samples if request.samples is None else request.samples
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
    """Whether a number is whole up to rounding."""
    return value > 0.5 and abs(value - round(value)) < 1e-9 * max(value, 1.0)


def usual_job(request: Request) -> tuple[str, str, float | None] | None:
    """Default job as (words, model name, tokens per epoch); None if the request names a job."""
    from planner.search.request import model_of

    training = training_of(request)
    if training is None or request.profile is not None:
        return None
    model = model_of(request)
    if training.tokens is None or training.samples != model.default_job_samples:
        return None
    if training.samples == model.samples_per_epoch:
        return None
    epoch = model.tokens_per_epoch or (model.samples_per_epoch or 0) * (model.sample_tokens or 0)
    if epoch and training.words.endswith("epochs"):  # of a fine-tuning job
        return f"{training.words} over {format_count(epoch)} tokens", model.name, None
    return training.words, model.name, epoch or None
