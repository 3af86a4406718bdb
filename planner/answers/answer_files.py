"""Answers that were written as JSON, read back: the plan that was chosen and what was predicted for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import hypot, log
from pathlib import Path
from typing import Annotated, Any

import msgspec

from planner.errors import BadInput
from planner.files.tomlfile import check_name, from_json
from planner.simulator.cluster import Resource
from planner.units import format_bytes, three_digits

VERSION = 2


class RentedRole(msgspec.Struct, frozen=True):
    """The machines of one role of a plan."""

    machine: str = ""
    machines: int = 1


Rate = Annotated[float, msgspec.Meta(ge=1e-9, le=1e15)]
Share = Annotated[float, msgspec.Meta(ge=0)]


class ChosenPlan(msgspec.Struct, frozen=True):
    """A plan read from a JSON answer, with the keys that `diff` and `check` need."""

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

    def utilisation_of(self, resource: Resource, default: float) -> float:
        """Utilisation of a resource as a fraction, or `default` if the answer does not state it."""
        return self.utilisation.get(str(resource), default)

    @property
    def range_low_samples_per_s(self) -> float:
        """Low end of the predicted range, in samples per second."""
        return _first_known(self.range_low, self.interval_low, self.samples_per_s)

    @property
    def range_high_samples_per_s(self) -> float:
        """High end of the predicted range, in samples per second."""
        return _first_known(self.range_high, self.interval_high, self.samples_per_s)

    def slow_share(self, *, shared_error: bool) -> float:
        """Low end of the predicted range divided by the prediction.

        With `shared_error`, which cancels between two plans, the range is that of the simulation alone.
        """
        low = (
            _first_known(self.interval_low, self.samples_per_s)
            if shared_error
            else self.range_low_samples_per_s
        )
        return low / self.samples_per_s

    @property
    def machines(self) -> int:
        """Number of worker machines."""
        return self.rented["workers"].machines if "workers" in self.rented else 1

    @property
    def samples_per_step(self) -> int:
        """Samples of all workers per optimizer step."""
        return self.batch * self.accumulate * self.workers


def _first_known(*values: float | None) -> float:
    """First of the values that is not None."""
    return next(value for value in values if value is not None)


class _Answer(msgspec.Struct):
    """Keys of a JSON answer that hold the chosen plan."""

    version: int | None = None
    recommendation: ChosenPlan | None = None
    plans: Any = None
    plan: ChosenPlan | None = None


def read_chosen_plan(path: Path | str) -> ChosenPlan:
    """Reads the plan that a JSON answer recommends or simulates."""
    from planner.files.regular_file import read_text

    try:
        answer = from_json(read_text(path).encode(), _Answer)
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


@dataclass(frozen=True, slots=True)
class ChangedFigure:
    """A setting or figure that differs; `ratio` is new over old."""

    name: str
    old: str
    new: str
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """Settings and figures that differ between two plans.

    `apart`: the ranges of both speeds do not overlap.
    """

    settings: tuple[ChangedFigure, ...]
    figures: tuple[ChangedFigure, ...]
    apart: bool


# What it is called, the key, and how it is shown.
FIGURES = (
    ("samples/s", "samples_per_s", three_digits),
    ("$/h", "usd_per_hour", "{:,.2f}".format),
    ("$/M samples", "usd_per_million_samples", three_digits),
    ("memory per worker", "memory_bytes", format_bytes),
)
# Choices of exchanges that are called otherwise than their keys, and those that are shown as bytes.
CALLED = {"bucket_bytes": "buckets", "first_bucket_bytes": "first bucket", "host": "servers on"}
BYTES = ("bucket_bytes", "first_bucket_bytes")
TELLING = ("mode", "servers", "host", "stage", "within")  # of an exchange, beside one of another kind


def compare_plans(old: ChosenPlan, new: ChosenPlan) -> Difference:
    """Compares two plans; returns the settings and the figures that differ."""
    alike = old.exchange.get("kind") == new.exchange.get("kind")
    before, after = (
        _plan_settings(plan, _exchange_fields(plan) if alike else {"exchange": _exchange_words(plan)})
        for plan in (old, new)
    )
    settings = tuple(
        ChangedFigure(name, _shown_text(before.get(name)), _shown_text(after.get(name)))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )
    figures = tuple(
        change
        for name, key, show in FIGURES
        if (change := _changed_figure(name, getattr(old, key), getattr(new, key), show)) is not None
    )
    # plans of one device share its model error
    shared = old.device is not None and (old.device, old.model) == (new.device, new.model)
    shares = (plan.slow_share(shared_error=shared) for plan in (old, new))
    apart = abs(log(new.samples_per_s / old.samples_per_s)) > hypot(*map(log, shares))
    return Difference(settings, figures, apart)


def _plan_settings(plan: ChosenPlan, exchange: dict[str, Any]) -> dict[str, Any]:
    """Settings of a plan by name, as shown to the user."""
    rented = {f"{role} on": f"{each.machines} x {each.machine}" for role, each in plan.rented.items()}
    return {
        "model": plan.model,
        **rented,
        "workers": plan.workers,
        "batch": plan.batch,
        "micro-batches": plan.accumulate,
        "precision": plan.number_format,
        **exchange,
    }


def _exchange_fields(plan: ChosenPlan) -> dict[str, Any]:
    """The exchange and each of its settings by name, as shown to the user."""
    choices = {
        f"exchange {CALLED.get(name, name)}": format_bytes(value)
        if name in BYTES and isinstance(value, int)
        else value
        for name, value in plan.exchange.items()
        if name != "kind"
    }
    return {"exchange": plan.exchange.get("kind"), **choices}


def _exchange_words(plan: ChosenPlan) -> str:
    """The exchange and its main settings, separated by commas."""
    telling = {name: plan.exchange.get(name) for name in TELLING}
    parts = [f"{CALLED.get(name, name)} {value}" for name, value in telling.items() if value is not None]
    return ", ".join([str(plan.exchange.get("kind")), *parts])


def _changed_figure(
    name: str, before: float | None, after: float | None, format_value: Callable[[float], str]
) -> ChangedFigure | None:
    """A figure before and after, as text with its ratio; None if both plans lack it."""
    if before is None and after is None:
        return None
    shown = [("-" if value is None else format_value(value)) for value in (before, after)]
    ratio = after / before if before and after is not None else None
    return ChangedFigure(name, shown[0], shown[1], ratio)


def _shown_text(value: Any) -> str:
    """Value of a setting as text: `yes` or `no`, and `-` for None."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
