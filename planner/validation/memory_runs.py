"""Peak memory of published runs beside what `planner.device.memory` says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from planner.device.memory import USABLE, Optimizer, PeakMemory, Shares, footprint
from planner.device.precision import precision_named
from planner.errors import BadInput
from planner.model import Model
from planner.model.catalog import load_model
from planner.validation.figures import figures
from planner.validation.large_runs import LargeRun, read_run

GIB = 2**30
# Megatron-DeepSpeed and nanotron sum gradients of bf16 up in single precision, beside those of a micro-batch.
SUMMED_IN_SINGLE = 6
CATALOGUE = {
    "BERT-base (BertConfig default)": "bert-base",
    "ResNet-50": "resnet50-v1.5",
    "ResNet-152": "resnet152",
}
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """A published peak and ours."""

    group: str
    id: str
    source: str
    measured_gib: float
    predicted_gib: float
    device_gib: float | None

    @property
    def error(self) -> float:
        return self.predicted_gib / self.measured_gib - 1

    @property
    def refused(self) -> bool:
        return self.device_gib is not None and self.predicted_gib > self.device_gib


def points(rows: Iterable[Row], left: Counter[str]) -> Iterator[MemoryPoint]:
    for row in rows:
        if not row["memory_gib"]:
            continue
        found = predicted_peak(row)
        if isinstance(found, str):
            left[f"{row['source_id']}: {row['model']}: {found}"] += 1
            continue
        memory = row["device_mem_gb"]
        device = float(memory) * USABLE["gpu"] if re.fullmatch(r"[\d.]+", memory) else None
        group = f"{row['source_id']} {row['model']} {row['precision_norm']} {row['strategy_norm']}"
        if row["source_id"] == "bigscience-a100":
            group = f"{row['source_id']} GPT 176B to 205B {row['precision_norm']} {row['strategy_norm']}"
        yield MemoryPoint(
            group, row["id"], row["source_id"], float(row["memory_gib"]), found.total_bytes / GIB, device
        )


def predicted_peak(row: Row) -> PeakMemory | str:
    """The peak that the footprint predicts for a row, or why it cannot be compared."""
    known = figures("memory")
    if reason := known["unexplained"].get(row["id"]):
        return str(reason)
    for part, reason in known["unexplained_series"].items():
        if part in row["series"]:
            return str(reason)
    if row["model"] in CATALOGUE:
        if not (row["micro_batch"] and row["devices"]):
            return "its micro-batch or its devices are not stated"
        optimizer: Optimizer = "adam" if "Adam" in row["optimizer"] else "momentum"
        memory = footprint(
            load_model(CATALOGUE[row["model"]]),
            precision_named(row["precision_norm"]),
            optimizer=optimizer,
            autocast=True,  # of PyTorch: Lightning's bf16-mixed, torch.amp
        )
        return memory.peak(int(row["micro_batch"]), Shares(communicators=int(int(row["devices"]) > 1)))
    if row["arch"] != "llm":
        return "not in the catalogue"
    if "LoRA" in row["model"]:
        return "most of its parameters are not trained"
    if "offload" in row["optimizer"]:
        return "the optimizer is not on the device"
    try:
        run = read_run(row)
        return run if isinstance(run, str) else peak_of_run(run)
    except BadInput:
        return "its heads, as far as they are known, cannot be dealt out"


def peak_of_run(run: LargeRun) -> PeakMemory:
    """Peak memory of a run's fullest device: the first stage has most micro-batches in flight, the last the
    logits."""
    shard = run.mesh.shard(run.model).model
    found = []
    for stage, share in enumerate(run.mesh.memory_shares(run.model, run.accumulate)):
        spread = 1 / run.replicas if run.stage else 1.0
        shares = Shares(
            parameters=spread if run.stage == 3 else 1.0,
            gradients=spread if run.stage >= 2 else 1.0,
            optimizer=spread,
            in_flight=share.in_flight,
            communicators=(run.replicas > 1) + run.mesh.groups,
            model_parallel=run.mesh.is_sharded,
        )
        last = stage * (run.pipeline - 1)
        memory = footprint(
            shard,
            run.precision,
            optimizer="adam",
            recompute=run.recompute,
            gradient_bytes=SUMMED_IN_SINGLE if run.precision.name == "bf16" else None,
            only=None if share.layers is None else _stage(shard, last, run.pipeline),
        )
        found.append(memory.peak(run.micro_batch, shares))
    return max(found, key=lambda one: one.total_bytes)


def _stage(model: Model, stage: int, stages: int) -> frozenset[str]:
    """The layers of a stage where blocks are dealt out evenly, with what stands before and behind them."""
    names = [block.name for block in model.blocks]
    first, last = (len(names) * at // stages for at in (stage, stage + 1))
    mine = set(names[first:last])
    seen: set[str] = set()
    out = set()
    for layer in model.layers:
        seen |= {layer.block} if layer.block else set()
        before, behind = not seen, len(seen) == len(names)
        if layer.block in mine or (
            layer.block is None and ((stage == 0 and before) or (stage == stages - 1 and behind))
        ):
            out.add(layer.name)
    return frozenset(out)
