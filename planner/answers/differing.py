"""Two answers side by side: what is run differently, and what that changes in speed, cost and memory."""

from __future__ import annotations

from dataclasses import dataclass
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
    if old.exchange.get("kind") != new.exchange.get("kind"):
        before, after = _kinds(before), _kinds(after)
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
        f"exchange {_WORDS.get(name, name)}" if name != "kind" else "exchange": _sized(name, value)
        for name, value in plan.exchange.items()
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


TELLING = ("mode", "servers", "servers on", "stage", "within")  # of an exchange, beside one of another kind


def _kinds(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the exchange in one line: most of what one kind has says nothing beside another."""
    told = {name: settings.get(f"exchange {name}") for name in TELLING}
    said = [f"{name} {value}" for name, value in told.items() if value is not None]
    kept = {name: value for name, value in settings.items() if not name.startswith("exchange ")}
    return kept | {"exchange": ", ".join([str(settings.get("exchange")), *said])}


_WORDS = {"bucket_bytes": "buckets", "first_bucket_bytes": "first bucket", "host": "servers on"}


def _sized(name: str, value: Any) -> Any:
    """Bytes as people read them."""
    return format_bytes(value) if name.endswith("_bytes") and isinstance(value, int) else value


def _figure(name: str, key: str, form: str, old: ChosenPlan, new: ChosenPlan) -> ChangedFigure | None:
    unit = 2**30 if key.endswith("_bytes") else 1
    before, after = getattr(old, key), getattr(new, key)
    if before is None and after is None:
        return None
    shown = [("-" if value is None else form.format(value / unit)) for value in (before, after)]
    ratio = after / before if before and after is not None else None
    return ChangedFigure(name, shown[0], shown[1], ratio)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
