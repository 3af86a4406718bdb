"""What training a model holds in memory, as a table: what by what, alone and spread over several devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from planner.device.memory import (
    AGAIN,
    FRAGMENTATION,
    STATE_BYTES,
    Holding,
    Optimizer,
    Shares,
    holding,
)
from planner.device.precision import Precision, precision_named
from planner.device.recompute import RECOMPUTE_MODES, Recompute
from planner.errors import unknown_name
from planner.model import Model
from planner.report.output import Column, Table

BAR = 24  # characters
GIB = 2**30
_STATES = ("parameters", "gradients", "optimizer")
_REST = {"working": "gradients of activations", "buffers": "gathered ahead", "framework": "framework"}


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a model is trained, for the question what it holds."""

    batch: int
    precision: Precision
    devices: int = 1
    optimizer: Optimizer = "adam"
    recompute: Recompute = "none"
    autocast: bool = False

    @classmethod
    def asked(  # noqa: PLR0917
        cls,
        model: Model,
        batch: int | None,
        precision: str | None,
        devices: int | None,
        optimizer: str | None,
        recompute: str | None,
        autocast: bool,
    ) -> TrainingSettings:
        """From what a user says; what is left out is the model's, or what most do."""
        named = precision_named(precision or model.default_precision)
        for value, known, what in (
            (optimizer, STATE_BYTES, "optimizer"),
            (recompute, RECOMPUTE_MODES, "recompute"),
        ):
            if value is not None and value not in known:
                raise unknown_name(what, value, known, "one of " + ", ".join(known))
        return cls(
            batch or model.default_batch,
            named,
            devices or 1,
            cast(Optimizer, optimizer or "adam"),
            cast(Recompute, recompute or "none"),
            autocast,
        )


def layouts(model: Model, training: TrainingSettings) -> dict[str, Holding]:
    """What one device holds: alone, or by how much of the state several devices share."""
    largest = max((block.parameters for block in model.blocks), default=model.parameters)
    share, buffers = 1 / training.devices, 2.0 * largest * training.precision.parameter_bytes
    ways = {"alone": Shares()} if training.devices == 1 else {
        "replicated": Shares(),
        "ZeRO 1": Shares(optimizer=share),
        "ZeRO 2": Shares(optimizer=share, gradients=share),
        "ZeRO 3, FSDP": Shares(share, share, share, buffers_bytes=buffers),
    }  # fmt: skip
    return {
        name: holding(
            model,
            training.batch,
            training.precision,
            optimizer=training.optimizer,
            recompute=training.recompute,
            shares=shares,
            devices=training.devices,
            autocast=training.autocast,
        )
        for name, shares in ways.items()
    }


def memory_data(model: Model, training: TrainingSettings) -> dict[str, Any]:
    """The same as plain values, for JSON."""
    return {
        "model": model.name,
        "batch": training.batch,
        "sequence_length": model.sequence_length,
        "precision": training.precision.name,
        "devices": training.devices,
        "optimizer": training.optimizer,
        "recompute": training.recompute,
        "layouts": {
            name: {
                **{
                    f"{part}_bytes": getattr(held, f"{part}_bytes")
                    for part in (*_STATES, "activations", *_REST)
                },
                "fragmentation_bytes": held.fragmentation_bytes,
                "total_bytes": held.total_bytes,
                "activations_by_kind_bytes": dict(held.by_kind),
            }
            for name, held in layouts(model, training).items()
        },
    }


def memory_table(model: Model, training: TrainingSettings) -> Table:
    """One row for each thing that is held, one column for each layout, and a bar for the last."""
    held = layouts(model, training)
    last = list(held.values())[-1]
    rows = [_row(part, held, lambda one, part=part: getattr(one, f"{part}_bytes")) for part in _STATES]
    for kind in sorted(last.by_kind, key=lambda kind: -last.by_kind[kind]):
        label = kind if kind == AGAIN else f"activations of {kind}"
        rows.append(_row(label, held, lambda one, kind=kind: one.by_kind.get(kind, 0.0)))
    rows += [
        _row(label, held, lambda one, part=part: getattr(one, f"{part}_bytes"))
        for part, label in _REST.items()
        if any(getattr(one, f"{part}_bytes") for one in held.values())
    ]
    rows.append(_row("fragmentation", held, lambda one: one.fragmentation_bytes))
    rows.append(_row("total", held, lambda one: one.total_bytes))
    name = list(held)[-1]
    for row in rows[:-1]:
        row["bar"] = "█" * round(BAR * row[name] / last.total_bytes)
    what = f"{training.batch} samples"
    if model.sequence_length:
        what = f"{training.batch} x {model.sequence_length:,} tokens"
    autocast = " under autocast" if training.autocast else ""
    words = (
        f"{model.name}: what one of {training.devices} devices holds, GiB, for {what} at a time in "
        f"{training.precision.name}{autocast}, {training.optimizer}, recompute {training.recompute}\n"
    )
    if training.devices == 1:
        words = words.replace("one of 1 devices", "one device")
    notes = [
        f"Fragmentation is {FRAGMENTATION - 1:.0%} of what is held; the framework's share an average of "
        "published peaks (docs/models.md).",
    ]
    columns = [Column("held", "What")]
    columns += [Column(name, name, _gib, align="right") for name in held]
    return Table(rows, [*columns, Column("bar", name if len(held) > 1 else "")], title=words, notes=notes)


def _row(label: str, held: dict[str, Holding], value: Any) -> dict[str, Any]:
    return {"held": label, **{name: value(one) for name, one in held.items()}}


def _gib(value: float) -> str:
    return "-" if not value else f"{value / GIB:,.2f}" if value >= GIB / 100 else "<0.01"
