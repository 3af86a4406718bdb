"""The memory footprint of training a model as a table, alone and sharded over several devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.device.memory import (
    FRAGMENTATION,
    RECOMPUTED,
    PeakMemory,
    Shares,
    footprint,
    usual_optimizer,
)
from planner.device.optimizers import optimizer_named
from planner.device.precision import Precision, precision_named
from planner.device.recompute import Recompute, recompute_named
from planner.model import Model
from planner.report.page import Column, Table

BAR = 24  # characters
GIB = 2**30
_STATES = ("parameters", "gradients", "optimizer")
_REST = {"workspace": "gradients of activations", "buffers": "gathered ahead", "framework": "framework"}


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a model is trained, as far as memory depends on it."""

    batch: int
    precision: Precision
    devices: int = 1
    optimizer: str = "adam"
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
        return cls(
            batch or model.default_batch,
            named,
            devices or 1,
            optimizer_named(optimizer or (usual_optimizer(model) if model.training else "adam")).name,
            recompute_named(recompute or "none"),
            autocast,
        )


def layouts(model: Model, training: TrainingSettings) -> dict[str, PeakMemory]:
    """Peak memory of one device: alone, or by the ZeRO stage that shards states over several."""
    largest = max((block.parameters for block in model.blocks), default=model.parameters)
    share, buffers = 1 / training.devices, 2.0 * largest * training.precision.parameter_bytes
    ways = {"alone": Shares()} if training.devices == 1 else {
        "replicated": Shares(communicators=1),
        "ZeRO 1": Shares(optimizer=share, communicators=1),
        "ZeRO 2": Shares(optimizer=share, gradients=share, communicators=1),
        "ZeRO 3, FSDP": Shares(share, share, share, buffers_bytes=buffers, communicators=1),
    }  # fmt: skip
    memory = footprint(
        model,
        training.precision,
        optimizer=training.optimizer,
        recompute=training.recompute,
        autocast=training.autocast,
    )
    return {name: memory.peak(training.batch, shares) for name, shares in ways.items()}


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
                    f"{part}_bytes": getattr(memory, f"{part}_bytes")
                    for part in (*_STATES, "activations", *_REST)
                },
                "fragmentation_bytes": memory.fragmentation_bytes,
                "total_bytes": memory.total_bytes,
                "activations_by_kind_bytes": dict(memory.activations_by_kind),
            }
            for name, memory in layouts(model, training).items()
        },
    }


def memory_table(model: Model, training: TrainingSettings) -> Table:
    """One row per part of the footprint, one column per layout, and a bar for the last."""
    by_layout = layouts(model, training)
    last = list(by_layout.values())[-1]
    rows = [
        _row(part, by_layout, lambda memory, part=part: getattr(memory, f"{part}_bytes")) for part in _STATES
    ]
    for kind in sorted(last.activations_by_kind, key=lambda kind: -last.activations_by_kind[kind]):
        label = kind if kind == RECOMPUTED else f"activations of {kind}"
        rows.append(
            _row(label, by_layout, lambda memory, kind=kind: memory.activations_by_kind.get(kind, 0.0))
        )
    rows += [
        _row(label, by_layout, lambda memory, part=part: getattr(memory, f"{part}_bytes"))
        for part, label in _REST.items()
        if any(getattr(memory, f"{part}_bytes") for memory in by_layout.values())
    ]
    rows.append(_row("fragmentation", by_layout, lambda memory: memory.fragmentation_bytes))
    rows.append(_row("total", by_layout, lambda memory: memory.total_bytes))
    name = list(by_layout)[-1]
    for row in rows[:-1]:
        row["bar"] = "█" * round(BAR * row[name] / last.total_bytes)
    what = f"{training.batch} samples"
    if model.sequence_length:
        what = f"{training.batch} x {model.sequence_length:,} tokens"
    autocast = " under autocast" if training.autocast else ""
    words = (
        f"{model.name}: memory of one of {training.devices} devices, GiB, for {what} at a time in "
        f"{training.precision.name}{autocast}, {training.optimizer}, recompute {training.recompute}\n"
    )
    if training.devices == 1:
        words = words.replace("one of 1 devices", "one device")
    notes = [
        f"Fragmentation is {FRAGMENTATION - 1:.0%} of the rest; the framework's share is an average of "
        "published peaks (docs/models.md).",
    ]
    columns = [Column("part", "Part")]
    columns += [Column(name, name, _gib, align="right") for name in by_layout]
    return Table(
        rows, [*columns, Column("bar", name if len(by_layout) > 1 else "")], title=words, notes=notes
    )


def _row(label: str, by_layout: dict[str, PeakMemory], value: Any) -> dict[str, Any]:
    return {"part": label, **{name: value(memory) for name, memory in by_layout.items()}}


def _gib(value: float) -> str:
    return "-" if not value else f"{value / GIB:,.2f}" if value >= GIB / 100 else "<0.01"
