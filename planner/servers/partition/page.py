"""The answer of a partition search: tables for people, plain values for programs, and its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from planner.report.page import Chart, Page, Remark, Table, columns_of, drawn_picture
from planner.report.plots import bars, rows_chart
from planner.servers.partition.search import PartitionPlan, PartitionResult, epoch_samples
from planner.simulator.statistics import Prediction
from planner.units import format_bytes, format_seconds, rate

_PARTS = {  # of an epoch: computation and communication
    "forward": ("forward_compute_s", "forward_network_s"),
    "backward": ("backward_compute_s", "backward_network_s"),
    "weight updates": ("update_compute_s", None),
    "reading weights": (None, "reading_s"),
    "epoch": ("compute_s", "network_s"),
}


def _duration_or_dash(value: float) -> str:
    """Seconds as text; `-` for zero."""
    return format_seconds(value) if value else "-"


def partition_tables(
    result: PartitionResult, *, runner_ups: int = 7, prediction: Prediction | None = None
) -> list[Table]:
    """Tables of a partition result: the best plan, its epoch time by part, its layers, and the runners-up."""
    best, worst, request = result.plans[0], result.plans[-1], result.request
    title = (
        f"{result.model.name} on {best.machines} x {result.hardware.name}: "
        f"{_count_phrase(best.replicas, 'replica')} of {_count_phrase(best.workers, 'worker')}, "
        f"{_count_phrase(best.servers, 'server')}: "
        f"{format_seconds(best.epoch_s)} per epoch, {rate(best.samples_per_s)} samples/s"
    )
    next_best: dict[tuple[int, int], PartitionPlan] = {}  # with the fewest servers that reach it
    for plan in result.plans:
        next_best.setdefault((plan.workers, plan.replicas), plan)
    rows = [_plan_row(plan, best) for plan in list(next_best.values())[: runner_ups + 1]]
    notes = [
        f"{result.considered:,} configurations looked at, {result.refused:,} refused for memory; for each "
        f"every way to spread the layers (up to 10^{result.combinations:.0f}), by {result.programmes} "
        "dynamic programmes.",
        f"The slowest, {worst.name}, takes {worst.epoch_s / best.epoch_s:.3g} times as long as the best.",
    ]
    if request.max_workers is not None and best.workers == request.max_workers:
        notes.append(f"Replicas may have at most {request.max_workers} workers (--max-workers).")
    times = columns_of("partition_times", show=dict.fromkeys(("compute_s", "network_s"), _duration_or_dash))
    slower = {"slower": lambda value: f"+{value:.1%}" if value > 0 else "best"}
    layers = "Layers of one replica, each with what follows it, per sample:"
    return [
        Table(_part_rows(best), times, title, list(_split_notes(result, prediction))),
        Table(_layer_rows(best), columns_of("partition_layers"), layers),
        Table(
            rows,
            columns_of("partition_plans", show=slower),
            "The best of each number of workers and replicas:",
            notes,
        ),
    ]


def _split_notes(result: PartitionResult, prediction: Prediction | None) -> Iterator[str]:
    """Yields sentences on the simulation, the epoch's samples and the assumptions of the best plan."""
    best, model, request = result.plans[0], result.model, result.request
    if prediction is not None:
        yield (
            f"Simulated, with replicas that overlap compute with others' reads and writes: "
            f"{rate(prediction.samples_per_s)} samples/s (95%: "
            f"{rate(prediction.samples_per_s_low)} - {rate(prediction.samples_per_s_high)}); "
            f"busiest: {prediction.bottleneck}."
        )
    file = f"the file of {model.name} says; --samples changes it"
    source = "--samples says" if request.samples else file
    yield f"An epoch is {epoch_samples(model, request):,} samples, as {source}."
    if best.servers:
        yield (
            f"Reading: {format_seconds(best.epoch_s)} per epoch if replicas read one after another, "
            f"{format_seconds(best.worst_epoch_s)} if all read from one server at once."
        )
    else:
        yield (
            "One machine holds one replica, which reads from no server; `planner recommend` also looks "
            "at its devices as replicas."
        )
    yield f"A worker holds at most {format_bytes(best.worker_bytes)}. Constants {result.constants.basis}."
    if best.devices > 1:
        yield f"A worker is one of the {best.devices} devices of a machine; they share its NIC."
    if best.gap > 5e-5:
        yield f"Where branches meet, the mapping may be {best.gap:.2%} above the best at most."


def _count_phrase(number: int, noun: str) -> str:
    """Number and plural noun, such as `no servers`."""
    return f"{number or 'no'} {noun}" + ("s" if number > 1 else "")


def _part_rows(plan: PartitionPlan) -> list[dict[str, Any]]:
    """Table rows of compute and network seconds by part of training."""
    rows = []
    for part, keys in _PARTS.items():
        compute_s, network_s = (float(getattr(plan.split, key)) if key else 0.0 for key in keys)
        share = float((compute_s + network_s) / plan.epoch_s)
        rows.append({"part": part, "compute_s": compute_s, "network_s": network_s, "share": share})
    return rows


def _layer_rows(plan: PartitionPlan) -> list[dict[str, Any]]:
    """Table rows of each stage's choice, seconds and workers."""
    spread = plan.spread
    return [
        {
            "layer": stage.name,
            "partitions": choice.partitions,
            "replications": choice.replications,
            "threads": choice.threads,
            "compute_ms_per_sample": float(split.compute_s * 1e3),
            "network_ms_per_sample": float(split.network_s * 1e3),
            "weight_bytes": stage.weight_bytes,
            "workers": [place.tolist() for place in placement],
        }
        for stage, choice, split, placement in zip(
            plan.stages, spread.choices, spread.splits, spread.placements, strict=True
        )
    ]


def _plan_row(plan: PartitionPlan, best: PartitionPlan) -> dict[str, Any]:
    """Table row of one plan, compared with the best."""
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


def partition_data(result: PartitionResult, prediction: Prediction | None = None) -> dict[str, Any]:
    """Partition result as plain values, for JSON."""
    best = result.plans[0]
    names = ("samples_per_s", "samples_per_s_low", "samples_per_s_high")
    simulated = prediction and {
        **{name: getattr(prediction, name) for name in names},
        "bottleneck": str(prediction.bottleneck),
    }
    split = [key for part, keys in _PARTS.items() if part != "epoch" for key in keys if key]
    return {
        "model": result.model.name,
        "hardware": result.hardware.name,
        "machines": result.request.machines,
        "samples": epoch_samples(result.model, result.request),
        "best": {
            **_plan_row(best, best),
            "worst_case_epoch_s": float(best.worst_epoch_s),
            "worker_bytes": best.worker_bytes,
            "split_s": {key: float(getattr(best.split, key)) for key in split},
            "layers": _layer_rows(best),
        },
        "simulated": simulated,
        "plans": [_plan_row(plan, best) for plan in result.plans],
        "considered": result.considered,
        "refused_for_memory": result.refused,
        "dynamic_programmes": result.programmes,
        "constants": result.constants,
    }


def partition_page(tables: Sequence[Table], model: str) -> Page:
    """Report page of a partition result, with charts of time per epoch and per layer."""
    split, layers, plans = tables
    parts = [row for row in split.rows if row["part"] != "epoch"]
    per_layer = ("layer", "compute_ms_per_sample", "network_ms_per_sample")
    return Page(
        f"planner partition: {model}",
        headline=f"{split.title}.",
        tables=[replace(plans, notes=()), replace(split, title="Time of an epoch", notes=()), layers],
        then=[Remark("Notes", [*split.notes, *plans.notes])],
        pictures=lambda: [
            drawn_picture(
                _stacked_bars("split", "Time of an epoch", "s", parts, ("part", "compute_s", "network_s"))
            ),
            drawn_picture(
                _stacked_bars("layers", "Time per sample, layer by layer", "ms", layers.rows, per_layer)
            ),
        ],
    )


def _stacked_bars(key: str, title: str, unit: str, rows: Sequence[Any], keys: tuple[str, str, str]) -> Chart:
    """Stacked bar chart of compute and communication time."""
    name, *values = keys
    data = [
        bars(
            words,
            [row[value] for row in rows],
            colour,
            f"{words}: %{{text}}",
            text=[_format_duration(row[value], unit) for row in rows],
            textposition="none",
        )
        for value, words, colour in zip(values, ("compute", "communication"), ("@c3", "@c2"), strict=True)
    ]
    caption = f"{_format_duration(sum(row[value] for row in rows for value in values), unit)} in all."
    names = [str(row[name]) for row in rows]
    return rows_chart(key, title, caption, names=names, data=data, x={"title": {"text": unit}})


def _format_duration(value: float, unit: str) -> str:
    """Formats a duration given in s or ms."""
    return format_seconds(value if unit == "s" else value / 1e3)
