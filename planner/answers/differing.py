"""Two answers side by side: what is run differently, and what that changes in speed, cost and memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, log
from typing import Any

from planner.answers.answer_files import ChosenPlan
from planner.units import format_bytes


@dataclass(frozen=True, slots=True)
class ChangedFigure:
    """Something that differs. `ratio` is new over old, for figures."""

    name: str
    old: str
    new: str
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """`settings` are what is run otherwise, `figures` what comes of it; `apart`: the ranges tell the speeds
    apart, so that the faster one is faster."""

    settings: tuple[ChangedFigure, ...]
    figures: tuple[ChangedFigure, ...]
    apart: bool


# What it is called, the key, how it is shown, and in how many of its unit.
FIGURES = (
    ("samples/s", "samples_per_s", "{:,.4g}", 1),
    ("USD per hour", "usd_per_hour", "{:,.2f}", 1),
    ("USD per million samples", "usd_per_million_samples", "{:,.4g}", 1),
    ("memory per worker, GiB", "memory_bytes", "{:,.3g}", 2**30),
)
# Choices of exchanges that are called otherwise than their keys, and those that are shown as bytes.
CALLED = {"bucket_bytes": "buckets", "first_bucket_bytes": "first bucket", "host": "servers on"}
BYTES = ("bucket_bytes", "first_bucket_bytes")
TELLING = ("mode", "servers", "host", "stage", "within")  # of an exchange, beside one of another kind


def difference(old: ChosenPlan, new: ChosenPlan) -> Difference:
    """What changes from one plan to another."""
    alike = old.exchange.get("kind") == new.exchange.get("kind")
    before, after = (
        _settings(plan, _choices(plan) if alike else {"exchange": _summary(plan)}) for plan in (old, new)
    )
    settings = tuple(
        ChangedFigure(name, _text(before.get(name)), _text(after.get(name)))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )
    figures = tuple(
        change
        for name, key, form, unit in FIGURES
        if (change := _figure(name, getattr(old, key), getattr(new, key), form, unit)) is not None
    )
    return Difference(settings, figures, _are_apart(old, new))


def _are_apart(old: ChosenPlan, new: ChosenPlan) -> bool:
    """By what the simulations leave open where one device trains one model, whose error both share; else by
    the whole ranges."""
    shared = old.device is not None and (old.device, old.model) == (new.device, new.model)
    shares = (plan.slow_share(shared_error=shared) for plan in (old, new))
    return abs(log(new.samples_per_s / old.samples_per_s)) > hypot(*map(log, shares))


def _settings(plan: ChosenPlan, exchange: dict[str, Any]) -> dict[str, Any]:
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


def _choices(plan: ChosenPlan) -> dict[str, Any]:
    """The exchange, a line for each of its choices."""
    choices = {
        f"exchange {CALLED.get(name, name)}": _shown(name, value)
        for name, value in plan.exchange.items()
        if name != "kind"
    }
    return {"exchange": plan.exchange.get("kind"), **choices}


def _summary(plan: ChosenPlan) -> str:
    """The exchange in one line: most of what one kind has says nothing beside another."""
    telling = {name: plan.exchange.get(name) for name in TELLING}
    parts = [f"{CALLED.get(name, name)} {value}" for name, value in telling.items() if value is not None]
    return ", ".join([str(plan.exchange.get("kind")), *parts])


def _shown(name: str, value: Any) -> Any:
    return format_bytes(value) if name in BYTES and isinstance(value, int) else value


def _figure(
    name: str, before: float | None, after: float | None, form: str, unit: int
) -> ChangedFigure | None:
    if before is None and after is None:
        return None
    shown = [("-" if value is None else form.format(value / unit)) for value in (before, after)]
    ratio = after / before if before and after is not None else None
    return ChangedFigure(name, shown[0], shown[1], ratio)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
