"""Tables of training memory per device: by ZeRO stage for a model, and by method and GPU for `fit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.device.activations import Recompute
from planner.device.memory import FRAGMENTATION, RECOMPUTED, PeakMemory, Shares, footprint
from planner.device.precision import Precision
from planner.hardware.prices.cost import price_age_note
from planner.model import Model
from planner.parallel.data.fsdp import gathered_bytes
from planner.report.page import Column, Page, Remark, Table, columns_of
from planner.units import count, format_count, format_seconds, rate, text_bar, usd

if TYPE_CHECKING:
    from planner.answers.fit import Fit, FitRow

GIB = 2**30
STATES = {"parameters": "parameters", "gradients": "gradients", "optimizer": "optimizer"}
OTHERS = {
    "workspace": "activation gradients",
    "buffers": "prefetched parameters",
    "framework": "framework",
    "fragmentation": "fragmentation",
}
ALWAYS = ("parameters", "gradients", "optimizer", "fragmentation")  # have a row even where they are nothing


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Training settings that determine memory use."""

    batch: int
    precision: Precision
    devices: int = 1
    optimizer: str = "adam"
    recompute: Recompute = "none"
    autocast: bool = False


def memory_by_layout(model: Model, training: TrainingSettings) -> dict[str, PeakMemory]:
    """Peak memory per device for each layout: replicated, and every ZeRO stage."""
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


def _named_bytes(memory: PeakMemory, names: Mapping[str, str]) -> dict[str, float]:
    """Bytes of some kinds of memory, by the given names."""
    return {name: float(getattr(memory, f"{part}_bytes")) for part, name in names.items()}


def memory_data(model: Model, training: TrainingSettings) -> dict[str, Any]:
    """Memory per device and layout as plain values, for JSON."""
    parts = (*STATES, *OTHERS, "activations", "total")
    return {
        "model": model.name,
        "batch": training.batch,
        "sequence_length": model.sequence_length,
        "precision": training.precision.name,
        "devices": training.devices,
        "optimizer": training.optimizer,
        "recompute": training.recompute,
        "layouts": {
            name: _named_bytes(memory, {part: f"{part}_bytes" for part in parts})
            | {"activations_by_kind_bytes": dict(memory.activations_by_kind)}
            for name, memory in memory_by_layout(model, training).items()
        },
    }


def memory_table(model: Model, training: TrainingSettings) -> Table:
    """Table of memory with a row per kind, a column per layout, and bars for the last layout."""
    by_layout = memory_by_layout(model, training)
    last = list(by_layout.values())[-1]
    kinds = sorted(last.activations_by_kind, key=lambda kind: -last.activations_by_kind[kind])
    activations = {kind: kind if kind == RECOMPUTED else f"activations of {kind}" for kind in kinds}
    sizes = {
        layout: _named_bytes(memory, STATES)
        | {name: memory.activations_by_kind.get(kind, 0.0) for kind, name in activations.items()}
        | _named_bytes(memory, OTHERS)
        for layout, memory in by_layout.items()
    }
    rows = [
        {"part": name, **{layout: named[name] for layout, named in sizes.items()}}
        | {"bar": text_bar(size / last.total_bytes)}
        for name, size in list(sizes.values())[-1].items()
        if name in (*ALWAYS, *activations.values()) or any(named[name] for named in sizes.values())
    ]
    totals = {layout: memory.total_bytes for layout, memory in by_layout.items()}
    rows.append({"part": "total", "bar": "", **totals})
    length = model.sequence_length
    samples = f"{training.batch} x {length:,} tokens" if length else count(training.batch, "sample")
    devices = count(training.devices, "device")
    autocast = " under autocast" if training.autocast else ""
    title = (
        f"{model.name}: memory per device in GiB ({devices}, micro-batch {samples}, "
        f"{training.precision.name}{autocast}, {training.optimizer}, recompute {training.recompute})\n"
    )
    note = (
        f"Fragmentation is {FRAGMENTATION - 1:.0%} of the other parts, less near the limit. The framework "
        "part is an average over published peaks (docs/memory.md)."
    )
    columns = [
        Column("part", "part"),
        *(Column(name, name, _format_gib, align="right") for name in by_layout),
    ]
    bars = Column("bar", "", spare=1)
    return Table(rows, [*columns, bars], title=title, notes=[note])


def _format_gib(value: float) -> str:
    """Formats bytes as a number of GiB; `-` for none."""
    return "-" if not value else f"{value / GIB:,.2f}" if value >= GIB / 100 else "<0.01"


def fit_page(fit: Fit) -> Page:
    """Page of `planner fit`: memory, speed and cost by method and GPU, and the cheapest GPU that fits."""
    computed = {
        "_peak": lambda row: f"{row.peak_bytes / GIB:.1f}",
        "_usable": lambda row: f"{row.usable_bytes / GIB:.1f}",
        "_offer": _machine_offer_words,
    }
    columns = columns_of("fit", computed, {"recompute": lambda mode: "-" if mode == "none" else mode})
    job = f"{fit.epochs:g} epoch{'' if fit.epochs == 1 else 's'}"
    filled = "packed" if fit.mean_length is None else f"padded, {fit.mean_length:,} on average"
    notes = [
        f"Memory and speed of one GPU: micro-batch {fit.batch}, samples of {fit.sequence_length:,} tokens "
        f"({filled}), and the least recompute that fits. GPUs: the fewest that fit with FSDP, up to 8.",
        f"Job: {job} over {format_count(fit.dataset_tokens)} tokens (--epochs, --dataset-tokens).",
        "Full training keeps an fp32 master copy of the weights. LoRA has rank 16 (--rank) and adapts all "
        "linear layers of blocks (--targets).",
    ]
    if old := price_age_note({row.machine: row.price_as_of for row in fit.rows if row.price_as_of}.values()):
        notes.append(old)
    if any(row.is_remedy for row in fit.rows):
        notes.append(
            "Offload keeps frozen weights and optimizer state in host memory. It is slow, and shown only if "
            "nothing else fits."
        )
    model = f"{fit.model} ({fit.parameters / 1e9:.3g} billion parameters)"
    fitting = [row for row in fit.rows if row.fits and not row.is_remedy]
    fitting = fitting or [row for row in fit.rows if row.fits]
    priced = [row for row in fitting if row.job_usd is not None]
    best = min(priced, key=lambda row: row.job_usd or 0.0, default=None)
    why, verdict, facts = [], "Fits", [f"{len(fitting)} of {len(fit.rows)} rows"]
    if best is not None:
        verdict = "Cheapest"
        facts = [f"{best.method} on {best.gpu}", format_seconds(best.job_s or 0.0), usd(best.job_usd or 0.0)]
        fastest = max(fitting, key=lambda row: row.tokens_per_s or 0.0)
        if fastest is not best:
            speed = rate(fastest.tokens_per_s or 0.0)
            why = [f"Fastest: {fastest.method} on {fastest.gpu}, {speed} tokens/s."]
    return Page(
        "planner fit",
        verdict,
        f"{model}: {', '.join(facts)}",
        why=[Remark("Why", why)],
        tables=[Table.of(fit.rows, columns, notes=notes)],
        data=fit.as_dict,
    )


def _machine_offer_words(row: FitRow) -> str:
    """Machine, price per hour and unused GPUs of a row of `fit`, as text."""
    unused = "" if row.devices == 1 else f", one of {row.devices} GPUs"
    price = "no price" if row.usd_per_hour is None else f"{usd(row.usd_per_hour)}/h"
    return f"{row.machine}, {price}{unused}"
