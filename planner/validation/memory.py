"""Peak memory of published runs, predicted by `planner.device.memory`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from planner.device.memory import (
    COMMUNICATOR_BYTES,
    FRAMEWORK_BYTES,
    USABLE,
    PeakMemory,
    Shares,
    footprint,
)
from planner.errors import BadInput
from planner.memoize import memoize
from planner.parallel.data.fsdp import gathered_bytes
from planner.validation.evidence import Compared
from planner.validation.row import load_figures
from planner.validation.run import LANGUAGE, CompleteRun, Run

GIB = 2**30
MEGATRON = ("megatron", "transformer-engine", "fused", "mlperf")
# Gradients of bf16 in bytes, by software: Megatron sums them up in single precision, Megatron-DeepSpeed and
# nanotron do so beside those of a micro-batch.
SUMMED, SUMMED_BESIDE = 4, 6
# Elements of the buffer that DeepSpeed's ZeRO reduces gradients in: the default of its reduce_bucket_size.
REDUCE_BUCKET = 500_000_000
# Constants to choose from, and the error beyond which a run says nothing more.
FRAGMENTATIONS, COMMUNICATORS_GIB = np.arange(1.0, 1.31, 0.01), np.arange(0.5, 3.1, 0.25)
CAPPED = 0.5
NOT_STATED = "no memory is stated"


def exclusion_reason(run: Run) -> str:
    """Explains why the memory of a run cannot be predicted; empty string if it can."""
    known = load_figures("reading")
    if reason := known["doubtful_memory"].get(run.id):
        return str(reason)
    for part, reason in known["doubtful_memory_series"].items():
        if part in run.series:
            return str(reason)
    if run.doubtful and run.arch == "llm" and "not tuned" not in run.doubtful:
        return run.doubtful
    if run.model is None or run.layout is None or run.batch is None or run.precision is None:
        return next(iter(run.unknown), "its settings are not stated")
    if any("tokens per sequence" in setting for setting in run.inferred):
        return "its peak is that of the longest sequence, which is not stated"
    unmodelled = [reason for reason in run.unknown if "not modelled" in reason]
    return unmodelled[0] if unmodelled else ""


@memoize
def peak_gib(run: Run) -> float | str:
    """Predicted peak memory of the fullest device in GiB, or the reason why there is none."""
    if run.memory_gib is None:
        return NOT_STATED
    if reason := exclusion_reason(run):
        return reason
    try:
        return peak_memory(cast(CompleteRun, run)).total_bytes / GIB
    except BadInput:
        return "its heads, as far as they are known, do not divide evenly"


def is_predicted_out_of_memory(run: Run) -> bool | None:
    """Whether a published run needs too much memory under every reading of its settings; None if unknown."""
    if run.device_gib is None or exclusion_reason(run):
        return None
    try:
        readings = cast(tuple[CompleteRun, ...], (run, *run.readings))
        required = [peak_memory(reading).required_bytes for reading in readings]
    except BadInput:
        return None
    return min(required) > run.device_gib * GIB * USABLE["gpu"]


def left_out_peaks_gib(runs: Sequence[Run]) -> list[float]:
    """Predicted peaks in GiB, with constants that are chosen without the run's source. The constants are
    fragmentation and buffer bytes per process group; all other sources weigh the same."""
    peaks = [peak_memory(cast(CompleteRun, run)) for run in runs]
    allocated = np.array([peak.allocated_bytes for peak in peaks]) / GIB
    framework = FRAMEWORK_BYTES["gpu"]
    groups = np.array([(peak.framework_bytes - framework) / COMMUNICATOR_BYTES for peak in peaks])
    choices = list(itertools.product(FRAGMENTATIONS, COMMUNICATORS_GIB))
    predicted = np.array([waste * allocated + framework / GIB + gib * groups for waste, gib in choices])
    measured = np.array([run.memory_gib for run in runs])
    error = np.minimum(np.abs(np.log(predicted / measured)), CAPPED)
    source = np.array([run.source for run in runs])
    names = np.unique(source)
    by_source = np.array([error[:, source == name].mean(1) for name in names])
    best = {name: int(np.argmin(by_source[names != name].sum(0))) for name in names}
    if len(names) < 2:
        return [peak.total_bytes / GIB for peak in peaks]
    return [float(predicted[best[name], at]) for at, name in enumerate(source)]


def peak_memory(run: CompleteRun) -> PeakMemory:
    """Peak memory of the fullest device, by kind."""
    if run.arch in LANGUAGE or run.layout.stage:
        return _peak_of_stages(run)
    optimizer = "adam" if run.software.optimizer == "adam" else "momentum"
    # NVIDIA's BERT and DeepSpeed train in 16 bits throughout, without casts per layer
    cast = not (run.arch == "bert" and run.software.tier == "ngc") and "DeepSpeed" not in run.software.text
    memory = footprint(run.model, run.precision, optimizer=optimizer, autocast=cast, loss=_loss_name(run))
    return memory.peak(run.batch, Shares(communicators=int(run.devices > 1)))


def _loss_name(run: Run) -> str:
    """Name of the run's cross-entropy implementation, of `planner.model.layers.LOSSES`. milabench keeps the
    model's output until the step ends; llm-foundry, InternEvo and TinyLlama use flash-attn's; nanotron took
    over Megatron's."""
    text = run.software.text
    if text.startswith("milabench"):
        return "held"
    if any(name in text for name in ("llm-foundry", "InternEvo", "lit-gpt")):
        return "fused"
    in_place = run.arch == "llm" and (run.software.tier.startswith(MEGATRON) or "nanotron" in text)
    return "in-place" if in_place else "eager"


def _gradient_bytes(run: Run) -> int | None:
    """Bytes per gradient element if the software departs from the precision's default, else None."""
    if run.precision is None or run.precision.name not in ("bf16", "fp8"):
        return None
    if run.software.tier == "megatron-deepspeed" or "nanotron" in run.software.text:
        return SUMMED_BESIDE
    return SUMMED if run.software.tier in MEGATRON else None


def _peak_of_stages(run: CompleteRun) -> PeakMemory:
    """Peak memory of the fullest pipeline stage: the first holds most micro-batches, the last the logits."""
    layout, mesh, model = run.layout, run.layout.mesh, run.model
    shard = mesh.shard(model).model
    spread = 1 / layout.replicas if layout.stage else 1.0
    deepspeed = layout.stage and run.precision.name == "fp16" and "DeepSpeed" in run.software.text
    buffers = REDUCE_BUCKET * run.precision.gradient_bytes if deepspeed else 0.0
    if layout.stage == 3:
        buffers = gathered_bytes(shard, run.precision)
    parts = []
    for share in mesh.memory_shares(model, run.accumulate):
        shares = Shares(
            parameters=spread if layout.stage == 3 else 1.0,
            gradients=spread if layout.stage >= 2 else 1.0,
            optimizer=spread,
            in_flight=share.in_flight,
            communicators=(layout.replicas > 1) + len(mesh.axes),
            accumulates=run.accumulate > 1,
            buffers_bytes=buffers,
        )
        memory = footprint(
            shard,
            run.precision,
            optimizer="adam",
            recompute=run.recompute,
            gradient_bytes=_gradient_bytes(run),
            loss=_loss_name(run),
            only=share.layers,
        )
        parts.append(memory.peak(run.batch, shares))
    return max(parts, key=lambda match: match.total_bytes)


def group_label(run: Run) -> str:
    """Group of a run in error tables: source, network, precision and ZeRO stage."""
    network = "GPT 176B to 205B" if run.source == "bigscience-a100" else run.network
    precision = "" if run.precision is None else run.precision.name
    sharding = "" if run.layout is None else (f"ZeRO-{run.layout.stage}" if run.layout.stage else "")
    return " ".join(filter(None, (run.source, network, precision, sharding)))


def widen_range(row: Compared, run: Run) -> Compared:
    """Row with a range that covers all readings of the run's unpublished settings."""
    peaks = [gib for other in run.readings if not isinstance(gib := peak_gib(other), str)]
    if row.low is None or row.high is None or not peaks:
        return row
    low, high = (edge(peaks) / row.predicted for edge in (min, max))
    return replace(row, low=row.low * min(low, 1.0), high=row.high * max(high, 1.0))
