"""The pages of one model and of one profile: where time and bytes are, layer by layer and op by op.

The memory footprint of training a model as a table, alone and sharded over several devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.device.activations import Recompute, recompute_named
from planner.device.memory import FRAGMENTATION, RECOMPUTED, PeakMemory, Shares, footprint, usual_optimizer
from planner.device.precision import Precision, optimizer_named, precision_named
from planner.model import Model
from planner.note import Note, Topic
from planner.parallel.data.fsdp import gathered_bytes
from planner.report.models import layer_rows, model_tables
from planner.report.page import Chart, Column, Figure, Page, Remark, Spec, Table, chart, label
from planner.report.profile import profile_tables
from planner.simulator.cluster import ResourceKind
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, resource_of
from planner.units import MIB, format_bytes, format_seconds

if TYPE_CHECKING:
    from planner.simulator.step import Profile
    from planner.simulator.step.summary import Summary


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
    share, buffers = 1 / training.devices, gathered_bytes(model, training.precision)
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


FEW, VERY_FEW = 24, 16  # bars that are named below the axis; where there is little room
MOST = 3000  # bars


def model_page(model: Model, command: str = "") -> Page:
    """A model layer by layer: bytes, multiply-adds, activations."""
    rows = layer_rows(model)
    tables = model_tables(model)
    pictures = [
        _bars(key, title, unit, [(row["layer"], _layer_words(row), size(row)) for row in rows], colour)
        for key, title, unit, size, colour in (
            ("bytes", "Parameters, layer by layer", "MiB", lambda r: r["bytes"] / MIB, "@c1"),
            ("macs", "Multiply-adds forward, layer by layer", "MMACs", lambda r: r["macs"] / 1e6, "@c2"),
            ("outputs", "Outputs of one sample, layer by layer", "MiB", _output_mib, "@c3"),
        )
    ]
    heaviest = max(rows, key=lambda row: row["bytes"])
    slowest = max(rows, key=lambda row: row["macs"])
    answer = f"{model.name} has {model.parameters:,} parameters, {format_bytes(model.bytes)}"
    if model.bytes and model.macs:
        answer += (
            f"; {heaviest['bytes'] / model.bytes:.0%} of them in {heaviest['layer']}, and "
            f"{slowest['macs'] / model.macs:.0%} of the {model.macs / 1e9:,.3g} GMACs in {slowest['layer']}"
        )
    return Page(
        f"planner models: {model.name}",
        headline=answer + ".",
        figures=[
            Figure("layers", f"{len(rows):,}"),
            Figure("tensors", f"{len(model.tensors):,}"),
            Figure("parameters", f"{model.parameters:,}"),
            Figure("size", format_bytes(model.bytes)),
            Figure("forward, one sample", f"{model.macs / 1e9:,.3g} GMACs"),
        ],
        facts=[[model.description]] if model.description else [],
        pictures=list(map(chart, pictures)),
        tables=[*map(_without_bars, tables[1:]), replace(tables[0], title="Layers")],
        assumptions=[Note(Topic.SOURCE, model.source)] if model.source else [],
        command=command,
    )


def _without_bars(table: Table) -> Table:
    """The table without the bars of characters that a terminal needs."""
    return replace(table, columns=[column for column in table.columns if column.key != "bar"])


def _layer_words(row: dict[str, Any]) -> str:
    return f"<b>{label(row['layer'])}</b><br>{label(row['what'])}"


def _output_mib(row: dict[str, Any]) -> float:
    return float(4 * math.prod(row["output_shape"])) / MIB


def profile_page(profile: Profile, summary: Summary, command: str = "") -> Page:
    """A profile: time by resource, then every op and every tensor in order."""
    tables = profile_tables(summary)
    mean, spread = profile.durations_s.mean(axis=0), profile.durations_s.std(axis=0)
    order = profile.topological_order()
    pictures = [_resources(summary)]
    for kind, key, title, colour in (
        (WORKER, "ops", "Ops of the worker, in order", "@c3"),
        (PS, "updates", "Updates of the servers, in order", "@c4"),
    ):
        mine = order[(profile.resource[order] == kind) & (mean[order] > 0)]
        bars = [
            (
                profile.names[i],
                f"<b>{label(profile.names[i])}</b><br>± {format_seconds(float(spread[i]))} between steps",
                1e3 * float(mean[i]),
            )
            for i in mine.tolist()
        ]
        if bars:
            pictures.append(_bars(key, title, "ms", bars, colour))
    for kind, key, title, colour in (
        (DOWNLINK, "downloads", "Parameters downloaded, in order", "@c1"),
        (UPLINK, "uploads", "Gradients uploaded, in order", "@c2"),
    ):
        mine = np.flatnonzero(profile.resource == kind)
        bars = [
            (
                profile.names[i],
                f"<b>{label(profile.names[i])}</b><br>{resource_of(kind, int(profile.server[i]))}",
                float(profile.bytes[i]) / MIB,
            )
            for i in mine.tolist()
        ]
        if bars:
            pictures.append(_bars(key, title, "MiB", bars, colour))
    ratio = summary.communication_to_computation
    answer = (
        f"A step of {summary.model or 'this profile'} (batch {summary.batch}) computes "
        f"{format_seconds(summary.compute_s)} and moves "
        f"{format_bytes(float(profile.bytes[profile.is_transfer].sum()))}"
    )
    if ratio is not None:
        answer += f": communication takes {ratio:.2f} times as long as computation"
    return Page(
        f"planner profile: {summary.model or 'profile'}",
        headline=answer + ".",
        figures=[
            Figure("steps", f"{summary.steps:,}"),
            Figure("ops", f"{summary.ops:,}"),
            Figure("tensors", f"{summary.tensors:,}"),
            Figure("servers", f"{summary.servers:,}"),
            Figure("critical path", format_seconds(summary.critical_path_s)),
        ],
        then=[Remark("Suspicious", summary.suspicious)],
        pictures=list(map(chart, pictures)),
        tables=[replace(table, title=table.title.capitalize()) for table in tables[1:] if table.rows],
        assumptions=[
            Note(Topic.SOURCE, f"{summary.source or 'unknown'} ({summary.basis})"),
            *(Note(Topic.WARNING, note) for note in summary.notes),
        ],
        command=command,
    )


def _resources(summary: Summary) -> Chart:
    colours = {
        ResourceKind.DOWNLINK: "@c1",
        ResourceKind.WORKER: "@c3",
        ResourceKind.UPLINK: "@c2",
        ResourceKind.PS: "@c4",
        ResourceKind.HOST: "@c5",
    }
    uses = summary.resources
    data: list[Spec] = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [str(use.resource) for use in uses],
            "x": [1e3 * use.time_s if use.time_s is not None else None for use in uses],
            "text": [
                f"{use.ops:,} ops" + (f", {format_bytes(use.bytes)}" if use.bytes else "") for use in uses
            ],
            "textposition": "auto",
            "hovertemplate": "%{y}: %{x:,.4~g} ms, %{text}<extra></extra>",
            "marker": {"color": [colours[use.resource.kind] for use in uses]},
        }
    ]
    layout = {
        "height": 110 + 36 * len(uses),
        "bargap": 0.35,
        "xaxis": {"title": {"text": "ms per step"}},
        "yaxis": {"autorange": "reversed", "showgrid": False},
    }
    caption = "Means over steps; a link's time is its bytes over the bandwidth, for one worker alone."
    return Chart("resources", "Time by resource", caption, {"data": data, "layout": layout})


def _bars(
    key: str,
    title: str,
    unit: str,
    bars: Sequence[tuple[str, str, float]],
    colour: str = "@c1",
) -> Chart:
    """Bars (name, words, value) in order, and the running share of the total."""
    names, words, values = (list(column) for column in zip(*bars[:MOST], strict=True))
    total = sum(values) or 1.0
    places = list(range(len(names)))
    data: list[Spec] = [
        {
            "type": "bar",
            "name": unit,
            "x": places,
            "y": values,
            "text": [
                f"{word}<br>{value:,.4g} {unit}, {value / total:.1%}"
                for word, value in zip(words, values, strict=True)
            ],
            "textposition": "none",
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"color": colour},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "running share",
            "x": places,
            "y": (np.cumsum(values) / total).tolist(),
            "yaxis": "y2",
            "line": {"color": "@faint", "width": 1.5},
            "hovertemplate": "%{y:.1%} so far<extra></extra>",
        },
    ]
    bare: dict[str, Any] = {"showgrid": False, "showticklabels": False}
    named = {
        "tickmode": "array",
        "tickvals": places,
        "ticktext": [label(n) for n in names],
        "tickangle": -90,
        "showticklabels": True,
    }
    layout = {
        "height": 300 if len(names) > FEW else 380,
        "bargap": 0.15,
        "xaxis": named if len(names) <= FEW else bare,
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        "yaxis2": {
            "overlaying": "y",
            "side": "right",
            "range": [0, 1.02],
            "tickformat": ".0%",
            "tickmode": "linear",
            "dtick": 0.25,
            "showgrid": False,
        },
        "showlegend": False,
        "margin": {"l": 64, "r": 56, "t": 30, "b": 24},
    }
    caption = f"{len(names):,} in order, {sum(values):,.4g} {unit} in total; grey: running share."
    narrow = {"xaxis": named if len(names) <= VERY_FEW else bare}
    return Chart(key, title, caption, {"data": data, "layout": layout, "narrow": narrow})
