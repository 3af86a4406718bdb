"""Two answers side by side: what is run differently, and what that changes in speed, cost and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.answers.answer_files import ChosenPlan


@dataclass(frozen=True, slots=True)
class ChangedFigure:
    """Something that differs. `ratio` is new over old, for figures."""

    name: str
    old: str
    new: str
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """`settings` are what is run otherwise, `figures` what comes of it; `apart`: the ranges of speed do not
    overlap, so that the faster one is faster."""

    settings: tuple[ChangedFigure, ...]
    figures: tuple[ChangedFigure, ...]
    apart: bool


FIGURES = (
    ("samples/s", "samples_per_s", "{:,.4g}"),
    ("USD an hour", "usd_per_hour", "{:,.2f}"),
    ("USD a million samples", "usd_per_million_samples", "{:,.4g}"),
    ("memory of a worker, GiB", "memory_bytes", "{:,.3g}"),
)


def difference(old: ChosenPlan, new: ChosenPlan) -> Difference:
    """What changes from one plan to another."""
    before, after = _settings(old), _settings(new)
    settings = tuple(
        ChangedFigure(name, _text(before.get(name)), _text(after.get(name)))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )
    figures = tuple(
        change for name, key, form in FIGURES if (change := _figure(name, key, form, old, new)) is not None
    )
    return Difference(settings, figures, apart=old.high < new.low or new.high < old.low)


def _settings(plan: ChosenPlan) -> dict[str, Any]:
    rented = {f"{role} on": f"{each.machines} x {each.machine}" for role, each in plan.rented.items()}
    exchange = {
        f"exchange {name}" if name != "kind" else "exchange": value for name, value in plan.exchange.items()
    }
    return {
        "model": plan.model,
        **rented,
        "workers": plan.workers,
        "batch": plan.batch,
        "micro-batches": plan.accumulate,
        "precision": plan.number_format,
        **exchange,
    }


def _figure(name: str, key: str, form: str, old: ChosenPlan, new: ChosenPlan) -> ChangedFigure | None:
    unit = 2**30 if key.endswith("_bytes") else 1
    before, after = getattr(old, key), getattr(new, key)
    if before is None and after is None:
        return None
    shown = [("-" if value is None else form.format(value / unit)) for value in (before, after)]
    ratio = after / before if before and after is not None else None
    return ChangedFigure(name, shown[0], shown[1], ratio)


def _text(value: Any) -> str:
    return "-" if value is None else str(value)
