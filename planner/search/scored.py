"""A plan that was simulated: its price, its bound, its prediction and the range that both give."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log1p
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from planner.hardware.prices.cost import usd_per_million_samples
from planner.parallel.plan import Plan
from planner.search.rank import RANGE_SIGMAS, Candidate
from planner.simulator.cluster import as_text
from planner.simulator.statistics import Prediction

if TYPE_CHECKING:
    from planner.device.rates import Error
    from planner.hardware.prices.cost import Energy
    from planner.hardware.prices.spot import SpotCourse
    from planner.search.measured import Factor

FLAT = ("mode", "policy", "server_hardware", "servers", "colocated", "placement")  # of version 1


def _version_1_settings(plan: Plan) -> dict[str, Any]:
    """Strategy settings under the keys of JSON version 1; None where they do not apply."""
    record = plan.exchange.record()
    if "host" not in record:
        return dict.fromkeys(FLAT)
    record |= {"server_hardware": record["host"] or plan.machine, "colocated": record["host"] is None}
    return {name: record[name] for name in FLAT}


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
    spot: SpotCourse | None = None  # how interruptions were counted; None: rented on demand
    draw: Energy | None = None  # of its machines per hour; None: their power is unknown
    sample_tokens: int | None = None  # without padding, where it has any
    charged_share: float = 1.0  # of the price of its machines
    most_samples_per_s: float = inf  # that its hosts decode

    @property
    def samples_per_s(self) -> float:
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
        """Low end of the 90% range divided by the predicted speed."""
        return 1.0 if self.range is None else self.range[0] / self.samples_per_s

    @property
    def usd_per_hour(self) -> float:
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
        return None if self.sample_tokens is None else self.samples_per_s * self.sample_tokens

    @property
    def usd_per_billion_tokens(self) -> float | None:
        if self.sample_tokens is None:
            return None
        return self.usd_per_million_samples * 1e3 / self.sample_tokens

    def _energy_figures(self) -> dict[str, Any]:
        """JSON keys with energy and emissions per million samples; None if power is unknown."""
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
            "utilisation": as_text(prediction.utilisation),
            "step_s": prediction.step_s,
            "staleness_mean": prediction.staleness_mean,
            "fits_memory": self.fits_memory,
            "marks": list(self.marks),
        }
