"""A partition search for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.hardware import Hardware
from planner.model import Model
from planner.report.charts import narrow_rows, row_axis
from planner.report.format import rate
from planner.report.page import Chart, Column, Page, Remark, Spec, Table, chart, label
from planner.servers.partition.search import PartitionPlan, PartitionRequest, PartitionResult, epoch_samples
from planner.simulator.statistics import Prediction
from planner.units import format_bytes, format_seconds

_PARTS = (
    ("forward", "forward_compute_s", "forward_network_s"),
    ("backward", "backward_compute_s", "backward_network_s"),
    ("weight updates", "update_compute_s", None),
    ("reading weights", None, "reading_s"),
)


def partition_tables(
    result: PartitionResult,
    model: Model,
    hardware: Hardware,
    request: PartitionRequest,
    *,
    runner_ups: int = 7,
    prediction: Prediction | None = None,
) -> list[Table]:
    """The answer, where its time goes, its layers, and the next best."""
    best = result.plans[0]
    return [
        _split_table(result, model, hardware, request, prediction),
        _layer_table(best),
        _plans_table(result, request, runner_ups),
    ]


def _split_table(
    result: PartitionResult,
    model: Model,
    hardware: Hardware,
    request: PartitionRequest,
    prediction: Prediction | None,
) -> Table:
    best = result.plans[0]
    rows = []
    for name, compute, network in _PARTS:
        compute_s = getattr(best.split, compute) if compute else 0.0
        network_s = getattr(best.split, network) if network else 0.0
        rows.append(_part(name, compute_s, network_s, best.epoch_s))
    rows.append(_part("epoch", best.split.compute_s, best.split.network_s, best.epoch_s))
    title = (
        f"{model.name} on {best.machines} x {hardware.name}: {_count(best.replicas, 'replica')} of "
        f"{_count(best.workers, 'worker')}, {_count(best.servers, 'server')}: "
        f"{format_seconds(best.epoch_s)} per epoch, {rate(best.samples_per_s)} samples/s"
    )
    notes = [
        f"An epoch is {epoch_samples(model, request):,} samples, "
        + (
            "as --samples says."
            if request.samples
            else f"as the file of {model.name} says; --samples changes it."
        ),
        (
            f"Reading: {format_seconds(best.epoch_s)} per epoch if replicas read one after another, "
            f"{format_seconds(best.worst_epoch_s)} if all read from one server at once."
            if best.servers
            else "One machine holds one replica, which reads from no server; `planner recommend` also looks "
            "at its devices as replicas."
        ),
        f"A worker holds at most {format_bytes(best.worker_bytes)}. Constants {result.constants.basis}.",
    ]
    if best.devices > 1:
        notes.append(f"A worker is one of the {best.devices} devices of a machine; they share its NIC.")
    if prediction is not None:
        notes.insert(
            0,
            f"Simulated, with replicas that overlap compute with others' reads and writes: "
            f"{rate(prediction.samples_per_s)} samples/s (95%: "
            f"{rate(prediction.samples_per_s_low)} - {rate(prediction.samples_per_s_high)}); "
            f"busiest: {prediction.bottleneck}.",
        )
    if best.gap > 5e-5:
        notes.append(f"Where branches meet, the mapping may be {best.gap:.2%} above the best at most.")
    return Table(rows, [*_SPLIT_COLUMNS], title, notes)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}" + ("s" if number > 1 else "")


def _part(name: str, compute_s: float, network_s: float, epoch_s: float) -> dict[str, Any]:
    share = (compute_s + network_s) / epoch_s
    return {"part": name, "compute_s": float(compute_s), "network_s": float(network_s), "share": float(share)}


_SPLIT_COLUMNS = (
    Column("part", "time"),
    Column("compute_s", "computation", lambda value: format_seconds(value) if value else "-", "right"),
    Column("network_s", "communication", lambda value: format_seconds(value) if value else "-", "right"),
    Column("share", "share", lambda value: f"{value:.1%}"),
)


def _layer_rows(plan: PartitionPlan) -> list[dict[str, Any]]:
    scale = 1e3
    return [
        {
            "layer": stage.name,
            "partitions": choice.partitions,
            "replications": choice.replications,
            "threads": choice.threads,
            "compute_ms_per_sample": float(split.compute_s * scale),
            "network_ms_per_sample": float(split.network_s * scale),
            "weight_bytes": stage.weight_bytes,
            "workers": [place.tolist() for place in placement],
        }
        for stage, choice, split, placement in zip(
            plan.stages, plan.spread.choices, plan.spread.splits, plan.spread.placements, strict=True
        )
    ]


def _layer_table(plan: PartitionPlan) -> Table:
    columns = [
        Column("layer"),
        Column("partitions"),
        Column("replications"),
        Column("threads"),
        Column("compute_ms_per_sample", "compute ms", lambda value: f"{value:.3g}"),
        Column("network_ms_per_sample", "network ms", lambda value: f"{value:.3g}"),
        Column("weight_bytes", "weights", format_bytes, "right"),
    ]
    return Table(_layer_rows(plan), columns, "Layers of one replica, each with what follows it, per sample:")


def _plan_row(plan: PartitionPlan, best: PartitionPlan) -> dict[str, Any]:
    return {
        "workers": plan.workers,
        "replicas": plan.replicas,
        "servers": plan.servers,
        "machines": plan.machines,
        "epoch_s": float(plan.epoch_s),
        "slower": float(plan.epoch_s / best.epoch_s - 1),
        "samples_per_s": float(plan.samples_per_s),
        "compute_share": float(plan.split.compute_s / plan.epoch_s),
        "gap": float(max(0.0, plan.gap)),
    }


def _runner_ups(plans: Sequence[PartitionPlan], count: int) -> list[PartitionPlan]:
    """The best of each (workers, replicas), with the fewest servers that reach it."""
    seen: dict[tuple[int, int], PartitionPlan] = {}
    for plan in plans:
        seen.setdefault((plan.workers, plan.replicas), plan)
    return list(seen.values())[: count + 1]


def _plans_table(result: PartitionResult, request: PartitionRequest, runner_ups: int) -> Table:
    best, worst = result.plans[0], result.plans[-1]
    rows = [_plan_row(plan, best) for plan in _runner_ups(result.plans, runner_ups)]
    columns = [
        Column("workers", "workers per replica"),
        Column("replicas"),
        Column("servers"),
        Column("machines"),
        Column("epoch_s", "epoch", format_seconds, "right"),
        Column("slower", "", lambda value: f"+{value:.1%}" if value > 0 else "best", "right"),
        Column("compute_share", "computing", lambda value: f"{value:.0%}"),
    ]
    notes = [
        f"{result.considered:,} configurations looked at, {result.refused:,} refused for memory; for each "
        f"every way to spread the layers (up to 10^{result.combinations:.0f}), by {result.programmes} "
        "dynamic programmes.",
        f"The slowest, {worst.name}, takes {worst.epoch_s / best.epoch_s:.3g} times as long as the best.",
    ]
    if request.max_workers is not None and best.workers == request.max_workers:
        notes.append(f"Replicas may have at most {request.max_workers} workers (--max-workers).")
    return Table(rows, columns, "The best of each number of workers and replicas:", notes)


def partition_data(
    result: PartitionResult,
    model: Model,
    hardware: Hardware,
    request: PartitionRequest,
    prediction: Prediction | None = None,
) -> dict[str, Any]:
    """The result as plain values."""
    best = result.plans[0]
    simulated = prediction and {
        "samples_per_s": prediction.samples_per_s,
        "samples_per_s_low": prediction.samples_per_s_low,
        "samples_per_s_high": prediction.samples_per_s_high,
        "bottleneck": str(prediction.bottleneck),
    }
    return {
        "model": model.name,
        "hardware": hardware.name,
        "machines": request.machines,
        "samples": epoch_samples(model, request),
        "best": {
            **_plan_row(best, best),
            "worst_case_epoch_s": float(best.worst_epoch_s),
            "worker_bytes": best.worker_bytes,
            "split_s": {
                key: float(getattr(best.split, key))
                for _, compute, network in _PARTS
                for key in (compute, network)
                if key
            },
            "layers": _layer_rows(best),
        },
        "simulated": simulated,
        "plans": [_plan_row(plan, best) for plan in result.plans],
        "considered": result.considered,
        "refused_for_memory": result.refused,
        "dynamic_programmes": result.programmes,
        "constants": result.constants,
    }


def partition_page(tables: Sequence[Table], model: str, command: str = "") -> Page:
    """A partition: where the time of an epoch goes, and of each layer."""
    split, layers, plans = tables
    parts = [row for row in split.rows if row["part"] != "epoch"]
    per_layer = ("layer", "compute_ms_per_sample", "network_ms_per_sample")
    return Page(
        f"planner partition: {model}",
        headline=f"{split.title}.",
        tables=[replace(plans, notes=()), replace(split, title="Time of an epoch", notes=()), layers],
        then=[Remark("Notes", [*split.notes, *plans.notes])],
        pictures=[
            chart(_stacked("split", "Time of an epoch", "s", parts, ("part", "compute_s", "network_s"))),
            chart(_stacked("layers", "Time per sample, layer by layer", "ms", layers.rows, per_layer)),
        ],
        command=command,
    )


def _stacked(key: str, title: str, unit: str, rows: Sequence[Any], keys: tuple[str, str, str]) -> Chart:
    """A bar for each row: computation, and communication after it."""
    name, *values = keys
    data: list[Spec] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": words,
            "y": list(range(len(rows))),
            "x": [row[value] for row in rows],
            "text": [_took(row[value], unit) for row in rows],
            "textposition": "none",
            "hovertemplate": f"{words}: %{{text}}<extra></extra>",
            "marker": {"color": colour},
        }
        for value, words, colour in zip(values, ("compute", "communication"), ("@c3", "@c2"), strict=True)
    ]
    names = [str(row[name]) for row in rows]
    layout = {
        "barmode": "stack",
        "bargap": 0.3,
        "height": max(180, 110 + 26 * len(rows)),
        "xaxis": {"title": {"text": unit}},
        "yaxis": row_axis(list(map(label, names))),
    }
    total = sum(row[value] for row in rows for value in values)
    caption = f"{_took(total, unit)} in all."
    return Chart(key, title, caption, {"data": data, "layout": layout, "narrow": narrow_rows(names)})


def _took(value: float, unit: str) -> str:
    return format_seconds(value if unit == "s" else value / 1e3)
