"""What the simulator says of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Prediction:
    """Throughput of a plan with its interval, and where the time goes.

    `utilisation` maps a resource (`downlink[0]`, `worker`, `uplink[0]`, `ps[0]`) to the share of time (for
    links: of capacity) it is used, averaged over workers for `worker`; `bottleneck` is the most used one.
    """

    samples_per_s: float
    samples_per_s_low: float
    samples_per_s_high: float
    confidence: float
    precision: float  # half-width reached, relative to samples_per_s
    runs: int
    steps: int  # measured steps over all runs and workers
    step_s: float  # mean
    step_s_quantiles: dict[str, float]  # p5, p50, p95
    utilisation: dict[str, float]
    bottleneck: str
    worker_samples_per_s: tuple[float, ...]
    staleness_mean: float = 0.0
    staleness_max: int = 0
    events: int = 0
    engine: str = ""  # which path ran, as RunResult.path says
    timeline: Any = None
    notes: tuple[str, ...] = field(default=())
