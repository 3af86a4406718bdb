"""Answers that were written as JSON, read back: the plan that was chosen and what was predicted for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from planner.errors import BadInput
from planner.files.identifiers import check_name
from planner.files.tomlfile import from_json
from planner.simulator.cluster import Resource

VERSION = 2


class RentedRole(msgspec.Struct, frozen=True):
    """The machines of one role of a plan."""

    machine: str = ""
    machines: int = 1


Rate = Annotated[float, msgspec.Meta(ge=1e-9, le=1e15)]
Share = Annotated[float, msgspec.Meta(ge=0)]


class ChosenPlan(msgspec.Struct, frozen=True):
    """What comparing and checking need of a plan; other keys of the file are passed over."""

    model: str
    batch: int
    worker_hardware: str
    workers: int
    cluster: str
    samples_per_s: Rate
    usd_per_hour: float | None = None
    usd_per_million_samples: float | None = None
    range_low: Rate | None = msgspec.field(default=None, name="samples_per_s_range_low")
    range_high: Rate | None = msgspec.field(default=None, name="samples_per_s_range_high")
    interval_low: Rate | None = msgspec.field(default=None, name="samples_per_s_low")
    interval_high: Rate | None = msgspec.field(default=None, name="samples_per_s_high")
    number_format: str = "fp32"
    device: str | None = None
    exchange: dict[str, Any] = {}
    rented: dict[str, RentedRole] = {}
    utilisation: dict[str, Share] = {}
    step_s: float | None = None
    bottleneck: str = ""
    workers_per_replica: int = 1
    accumulate: int = 1
    memory_bytes: float | None = None
    measured_factor: float = 1.0

    def used(self, resource: Resource, unknown: float) -> float:
        """The share of a resource that was used."""
        return self.utilisation.get(str(resource), unknown)

    @property
    def low(self) -> float:
        """The lower end of what a run may show; that of the simulation where no other is given."""
        return _first(self.range_low, self.interval_low, self.samples_per_s)

    @property
    def high(self) -> float:
        return _first(self.range_high, self.interval_high, self.samples_per_s)

    def slow_share(self, *, shared_error: bool) -> float:
        """Of its predicted speed, at the slow end of its range; that of the simulation alone beside a plan
        with the same error."""
        low = _first(self.interval_low, self.samples_per_s) if shared_error else self.low
        return low / self.samples_per_s

    @property
    def machines(self) -> int:
        """That hold workers."""
        return self.rented["workers"].machines if "workers" in self.rented else 1

    @property
    def samples_per_step(self) -> int:
        """Of all workers together, between two updates of the parameters."""
        return self.batch * self.accumulate * self.workers


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


class _Answer(msgspec.Struct):
    version: int | None = None
    recommendation: ChosenPlan | None = None
    plans: Any = None
    plan: ChosenPlan | None = None


def chosen_plan(path: Path | str) -> ChosenPlan:
    """The plan that an answer chose (`recommend`) or was about (`simulate`)."""
    from planner.files.regular_file import text_of

    try:
        answer = from_json(text_of(path).encode(), _Answer)
    except msgspec.DecodeError as error:
        raise BadInput(
            f"{path}: not an answer of planner ({error}); write one with `planner recommend -f json -o FILE`"
        ) from error
    plan = answer.recommendation or answer.plan
    if answer.version is None and plan is None and answer.plans is None:
        raise BadInput(
            f"{path}: not an answer of planner (it has neither version nor plan); write one with "
            "`planner recommend -f json -o FILE`"
        )
    if answer.version != VERSION:
        raise BadInput(
            f"{path}: an answer of version {1 if answer.version is None else answer.version}, this planner "
            f"reads {VERSION}; ask again"
        )
    if plan is None:
        raise BadInput(f"{path}: it names no single plan; give an answer of `recommend` or `simulate`")
    for key in ("model", "worker_hardware", "cluster", "number_format", "device", "bottleneck"):
        check_name(getattr(plan, key) or "", f"{path}: {key}")
    return plan
