"""The axis of replicas that span CPU workers, each layer split by features (Yan et al., KDD'15).

Parameter servers lower it themselves (`planner.servers.lowering`): the partition search finds how the stages
of a model are spread over the workers of a replica, each of which brings its own samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from planner.errors import Infeasible, PlannerError
from planner.parallel._base import Asked, Axis, AxisFlag, Divisible, Labels

if TYPE_CHECKING:
    from planner.model import Model
    from planner.parallel.plan import Site


@dataclass(frozen=True, slots=True)
class FeatureSplit(Axis):
    """`degree` CPU workers that train one replica together."""

    kind: ClassVar[str] = "features"
    flags: ClassVar[tuple[AxisFlag, ...]] = (
        AxisFlag(
            "workers_per_replica", "degree", "CPU workers that share one copy of the model: 2 or 1,2,4.", "x"
        ),
    )
    splits: ClassVar[frozenset[Divisible]] = frozenset(
        {Divisible.SAMPLES, Divisible.DENSE, Divisible.EXPERTS}
    )

    @classmethod
    def candidates(cls, asked: Asked, site: Site, model: Model) -> Iterator[Self]:
        spans = site.hardware.device.kind == "cpu" and site.devices == 1
        yield from (cls(degree) for degree in asked.settings["workers_per_replica"] if degree == 1 or spans)

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        from planner.servers.partition.replica import may_span

        if site is None or model is None or self.degree == 1:
            return None
        hardware = site.hardware
        if hardware.device.kind != "cpu" or hardware.device_count != 1:
            return Infeasible(
                f"--workers-per-replica {self.degree} is for CPU machines; {hardware.name} has "
                f"{hardware.device.name}; take 1"
            )
        if not may_span(model, batch, hardware, self.degree):
            return Infeasible(
                f"{model.name} at batch {batch} is not worth splitting over {self.degree} {hardware.name}: "
                "its fully connected layers hold too few of the weights, or a shard of it does not fit in "
                "memory"
            )
        return None

    def labels(self, site: Site | None = None) -> Labels:
        return Labels(f"{self.degree} workers per replica", plan=f"{self.degree} share its features")
