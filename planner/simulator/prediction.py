"""What the simulator says of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from planner.files.decoding import convert
from planner.simulator.resource import Resource, as_text


@dataclass(frozen=True, slots=True)
class Prediction:
    """Throughput of a plan with its interval, and where the time goes.

    `utilisation` maps a resource to the share of time (for
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
    utilisation: dict[Resource, float]
    bottleneck: Resource
    worker_samples_per_s: tuple[float, ...]
    staleness_mean: float = 0.0
    staleness_max: int = 0
    events: int = 0
    engine: str = ""  # which path ran, as RunResult.path says
    timeline: Any = None
    notes: tuple[str, ...] = field(default=())

    def record(self) -> dict[str, Any]:
        """As stores, studies and JSON keep it, without its timeline."""
        return asdict(replace(self, timeline=None)) | {
            "utilisation": as_text(self.utilisation),
            "bottleneck": str(self.bottleneck),
        }

    @staticmethod
    def read(record: Mapping[str, Any]) -> Prediction:
        """From its record."""
        used = convert(record.get("utilisation"), dict[str, float])
        typed = {
            "utilisation": {Resource.read(text): share for text, share in used.items()},
            "bottleneck": Resource.read(convert(record.get("bottleneck"), str)),
        }
        return convert({**record, **typed}, Prediction)
